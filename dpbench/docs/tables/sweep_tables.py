"""Tables of the sweeps `extractors` and `theory-pillar-tail`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from itertools import pairwise

from dpbench.docs.tables.grid_tables import format_score, render_markdown_table
from dpbench.records.result import Result


def render_extractors_table(results: Iterable[Result]) -> str:
    """Return the table of the sweep `extractors`: accuracies of `public-only` and `thrift`, a row per extractor."""
    found: dict[str, dict[tuple[str, float], str]] = {}
    for result in results:
        name = re.sub(r",?(precision=float32|size=None|views=one)", "", str(result.spec.extractor))
        at = found.setdefault(re.sub(r":(?=\+|$)", "", name.replace(":,", ":")), {})
        at[result.spec.learner.name, result.spec.epsilon] = format_score(result.metrics["accuracy"])
    asked = {
        "`public-only`": ("public-only", 1.0), "`thrift`, ε 0.1": ("thrift", 0.1),
        "`thrift`, ε 1": ("thrift", 1.0),
    }  # fmt: skip
    rows = [
        [f"`{extractor}`", *(scores.get(column, "") for column in asked.values())]
        for extractor, scores in sorted(found.items(), key=lambda pair: pair[1].get(("thrift", 1.0), ""))
    ]
    return render_markdown_table(["extractor", *asked], rows)


def render_tail_energy_table(results: Iterable[Result]) -> str:
    """Return the table of the sweep `theory-pillar-tail`: examples needed for an error of 10%, by tail energy τ."""
    errors: dict[tuple[float, int], list[tuple[int, float]]] = {}
    for result in results:
        data, k = result.spec.dataset.options, int(result.spec.learner.options["k"])
        least = 1 / (2 * len(result.seeds) * result.task.test)
        error = max(least, 1 - result.metrics["accuracy"].mean)
        errors.setdefault((float(data["tau"]), k), []).append((int(data["n"]), error))
    lines = ["| τ | n with projection | n without projection | gain | 1 / √(1 − τ) |", "|---|---:|---:|---:|---:|"]
    for tau in sorted({tau for tau, _ in errors}):
        projected, whole = (_interpolate_example_count(sorted(errors[tau, k]), 0.1) for k in (5, 0))
        gains = f"{whole / projected:.1f} | {1 / math.sqrt(1 - tau):.1f}"
        lines.append(f"| {tau:g} | {projected:.0f} | {whole:.0f} | {gains} |")
    return "\n".join(lines)


def _interpolate_example_count(measured: list[tuple[int, float]], target_error: float) -> float:
    """Return the n at which the error falls to `target_error`, interpolated between two cells on logarithmic axes."""
    for (n, above), (more, below) in pairwise(measured):
        if above > target_error >= below:
            return float(n * (more / n) ** (math.log(above / target_error) / math.log(above / below)))
    raise AssertionError(f"no two cells have {target_error} between them: {measured}")
