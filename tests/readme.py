"""The README, cut into the parts that tests run."""

from __future__ import annotations

import math
import re
from pathlib import Path

from dpbench.result import Result

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "README.md").read_text()
RESULTS = ROOT / "leaderboard" / "results"
DEFAULT, TUNED, CHEST, FIGURE = (
    RESULTS / name
    for name in (
        "cifar10-efficientnet-lite0",
        "cifar10-efficientnet-lite0-tuned",
        "pneumonia-efficientnet-lite0-tuned",
        "pillar-figure-4",
    )
)
# Table 1 of PILLAR (Pinto et al. 2023): ResNet-50 features, epsilon 0.7 by RDP, CIFAR-10.
PUBLISHED = {"dp-sgd": 84.89, "jl": 84.40, "adadps": 83.22, "gep": 84.54, "pillar": 85.89}
Figures = dict[tuple[str, float], Result]


def figures(folder: Path) -> Figures:
    """Return the committed results of a folder by learner and target epsilon."""
    found = {}
    for result in map(Result.read, sorted(folder.glob("*.json"))):
        key = result.spec.learner.name, result.spec.epsilon
        assert key not in found, f"two results of {key} in {folder}"
        found[key] = result
    return found


def cifar_table() -> str:
    """Return the README's table of CIFAR-10, made from the committed result files."""
    default, tuned = figures(DEFAULT), figures(TUNED)
    lines = [
        "| learner | default, ε 0.1 | default, ε 0.7 | tuned, ε 0.1 | tuned, ε 0.7 | tuned, ε ∞ | published, ε 0.7 |",
        "|---|---|---|---|---|---|---|",
    ]
    for learner in _order(tuned, 0.7):
        cells = [_percent(_at(default, learner, epsilon)) for epsilon in (0.1, 0.7)]
        cells += [_percent(_at(tuned, learner, epsilon)) for epsilon in (0.1, 0.7, math.inf)]
        published = f"{PUBLISHED[learner]:.2f}" if learner in PUBLISHED else ""
        lines.append(f"| {_name(tuned, learner)} | {' | '.join(cells)} | {published} |")
    return "\n".join(lines)


def chest_table() -> str:
    """Return the README's table of chest X-rays, made from the committed result files."""
    tuned = figures(CHEST)
    lines = [
        "| learner | ε 0.1 | balanced | ε 0.7 | balanced | ε ∞ | balanced |",
        "|---|---|---|---|---|---|---|",
    ]
    for learner in _order(tuned, 0.7):
        results = [_at(tuned, learner, epsilon) for epsilon in (0.1, 0.7, math.inf)]
        cells = [_percent(result, metric) for result in results for metric in ("accuracy", "balanced_accuracy")]
        lines.append(f"| {_name(tuned, learner)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure_table() -> str:
    """Return the README's table of accuracy against k, made from the committed result files."""
    found = {}
    for result in map(Result.read, sorted(FIGURE.glob("*.json"))):
        learner = result.spec.learner
        found[learner.options.get("k", math.inf), result.spec.epsilon] = result
    lines = ["| k | ε 0.1 | ε 0.7 | ε ∞ |", "|---|---|---|---|"]
    for k in sorted({k for k, _ in found}):
        cells = [_percent(found[k, epsilon]) for epsilon in (0.1, 0.7, math.inf)]
        lines.append(f"| {'all (`dp-sgd`)' if k == math.inf else k} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _order(tuned: Figures, epsilon: float) -> list[str]:
    learners = dict.fromkeys(learner for learner, _ in tuned)

    def accuracy(learner: str) -> float:
        result = _at(tuned, learner, epsilon)
        return result.metrics["accuracy"].mean if result else 1.0  # the ceiling comes last

    return sorted(learners, key=accuracy)


def _at(found: Figures, learner: str, epsilon: float) -> Result | None:
    for (name, _), result in found.items():
        if name == learner and not result.privacy.plan:
            return result  # without private data it holds at every epsilon
    return found.get((learner, epsilon))


def _name(found: Figures, learner: str) -> str:
    labels = any(result.task.public_labels_seen for (name, _), result in found.items() if name == learner)
    return f"`{learner}`" + (" (reads public labels)" if labels else "")


def _percent(result: Result | None, metric: str = "accuracy") -> str:
    if result is None:
        return ""
    value = result.metrics[metric]
    half = "" if value.high is None or value.high == value.mean else f" ± {100 * (value.high - value.mean):.2f}"
    return f"{100 * value.mean:.2f}{half}"


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
    print(cifar_table(), chest_table(), figure_table(), sep="\n\n")
