"""The README, cut into the parts that tests run."""

from __future__ import annotations

import math
import re
from pathlib import Path

from dpbench.result import Result

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()


FIGURES = ROOT / "leaderboard" / "results" / "cifar10-efficientnet-lite0"


def figures() -> str:
    """Return the README's table of measured figures, made from the committed result files."""
    results = map(Result.read, FIGURES.glob("*.json"))
    lines = ["| learner | target ε | accuracy | balanced | worst class | σ | ε (pld) | ε (prv-accountant) |"]
    lines.append("|---|---|---|---|---|---|---|---|")
    for result in sorted(results, key=lambda r: (r.spec.epsilon, r.metrics["accuracy"].mean)):
        lines.append("| " + " | ".join(_cells(result)) + " |")
    return "\n".join(lines)


def _cells(result: Result) -> list[str]:
    spec, privacy, accuracy = result.spec, result.privacy, result.metrics["accuracy"]
    assert accuracy.high is not None
    k = spec.learner.options.get("k")
    private, labels = privacy.sigma > 0, result.task.public_labels_seen
    return [
        f"`{spec.learner.name}`" + (f", k {k}" if k else "") + (" (reads public labels)" if labels else ""),
        f"{spec.epsilon:g}" if private else "none" if not privacy.plan else "∞",
        f"{100 * accuracy.mean:.2f} ± {100 * (accuracy.high - accuracy.mean):.2f}",
        f"{100 * result.metrics['balanced_accuracy'].mean:.2f}",
        f"{100 * result.metrics['worst_class_accuracy'].mean:.2f}",
        f"{privacy.sigma:.4g}",
        f"{privacy.epsilon:.5g}" if privacy.epsilon < math.inf else "∞",
        f"{privacy.independent.lower:.4f} to {privacy.independent.upper:.4f}" if private else "",
    ]


def commands() -> list[str]:
    """Return every command of every console block, in order."""
    blocks = re.findall(r"^```console\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def file_named(name: str) -> str:
    """Return the code block that follows a line naming the file."""
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    assert found, f"README shows no file {name}"
    return found.group(1)


if __name__ == "__main__":
    print(figures())
