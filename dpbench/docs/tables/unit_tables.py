"""Tables for the page on the cost of protecting units instead of images, from the results of its sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean

from dpbench.docs.tables.grid_tables import render_markdown_table
from dpbench.records.result import Result

METRICS = ("accuracy", "balanced_accuracy")
TITLES = {"ham10000": "HAM10000", "gtsrb": "GTSRB"}
ResultsByEpsilon = Mapping[float, Mapping[str, Result]]
"""Results by epsilon, then by learner."""


@dataclass(frozen=True)
class UnitComparison:
    """Runs on one dataset: runs in `images` state epsilon per image, runs in `units` per unit, such as a lesion."""

    title: str
    word: str
    images: ResultsByEpsilon
    units: ResultsByEpsilon

    def largest(self, epsilon: float) -> float:
        """Return the epsilon of the largest unit in runs with this epsilon per image, maximised over learners."""
        return max(_get_unit_fact(image, "largest_epsilon") for image in self.images[epsilon].values())


def collect_unit_comparisons(results: Sequence[Result]) -> list[UnitComparison]:
    """Return a comparison of image runs and unit runs for each dataset and unit."""
    found = []
    for dataset, title in TITLES.items():
        of = [result for result in results if result.spec.dataset.name == dataset]
        words = {result.spec.unit for result in of if result.spec.unit}
        for word in words:
            found.append(UnitComparison(title, word, _group_by_epsilon(of, None), _group_by_epsilon(of, word)))
    return found


def render_unit_epsilon_table(results: Sequence[Result]) -> str:
    """Return a table of epsilon for the median-sized and the largest unit, by epsilon per image.

    Each cell is the range over learners.
    """
    found, rows = collect_unit_comparisons(results), []
    steps = _list_image_epsilons(found)
    for data in found:
        for size in ("median", "largest"):
            runs = [list(data.images.get(step, {}).values()) for step in steps]
            (count,) = {_get_unit_fact(run, size) for of_step in runs for run in of_step}
            cells = [_format_range([_get_unit_fact(run, f"{size}_epsilon") for run in of_step]) for of_step in runs]
            named = f"{size} {data.word}, {count:.0f} image{'s' * (count > 1)}"
            rows.append([named, *cells])
    return render_markdown_table(["ε for an image", *(f"{step:g}" for step in steps)], rows)


def render_unit_price_table(results: Sequence[Result]) -> str:
    """Return a table of points lost by protecting units instead of images: mean and range over learners."""
    found = collect_unit_comparisons(results)
    steps = _list_image_epsilons(found)
    rows = [
        [
            f"{metric.replace('_', ' ')}, {data.title}",
            *(_format_loss(data, step, metric) if step in data.images.keys() & data.units else "" for step in steps),
        ]
        for data in found
        for metric in METRICS
    ]
    return render_markdown_table(["loss in points", *(f"ε {step:g}" for step in steps)], rows)


def render_equal_protection_table(results: Sequence[Result]) -> str:
    """Return a table that compares runs per image with runs per unit that protect units at least as well."""
    rows = []
    for data in collect_unit_comparisons(results):
        for step in sorted(data.images):
            most = max((unit for unit in data.units if unit <= data.largest(step)), default=step)
            if most <= step:  # no run by unit that spends more
                continue
            first, other = data.images[step], data.units[most]
            both = first.keys() & other.keys()
            better = [_mean_score(other[name], METRICS[1]) > _mean_score(first[name], METRICS[1]) for name in both]
            rows.append([
                data.title, f"{step:g}", f"{data.largest(step):.3g}", _format_means(first, both), f"{most:g}",
                _format_means(other, both), f"{sum(better)} of {len(better)}",
            ])  # fmt: skip
    heads = [
        "data", "ε for an image", "ε for the largest unit", "scores", "ε for a unit", "scores", "better by unit",
    ]  # fmt: skip
    return render_markdown_table(heads, rows)


def _list_image_epsilons(comparisons: Sequence[UnitComparison]) -> list[float]:
    return sorted({step for measured in comparisons for step in measured.images})


def _format_loss(measured: UnitComparison, step: float, metric: str) -> str:
    first, other = measured.images[step], measured.units[step]
    lost = [
        100 * (_mean_score(first[name], metric) - _mean_score(other[name], metric))
        for name in first.keys() & other.keys()
    ]
    return f"{fmean(lost):.1f} ({min(lost):.1f} to {max(lost):.1f})"


def _group_by_epsilon(results: Sequence[Result], unit: str | None) -> ResultsByEpsilon:
    found: dict[float, dict[str, Result]] = {}
    for result in results:
        if result.spec.unit == unit:
            found.setdefault(result.spec.epsilon, {})[result.spec.learner.name] = result
    return found


def _get_unit_fact(result: Result, field: str) -> float:
    units = result.task.units
    value = None if units is None else getattr(units, field)
    return math.inf if value is None else float(value)


def _mean_score(result: Result, metric: str) -> float:
    return result.metrics[metric].mean


def _format_means(by: Mapping[str, Result], learners: Set[str]) -> str:
    return " / ".join(
        f"{100 * fmean(_mean_score(by[name], metric) for name in sorted(learners)):.1f}" for metric in METRICS
    )


def _format_range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = (f"{end:.3g}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
