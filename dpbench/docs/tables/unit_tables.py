"""The tables of the page on the price of the unit, from the results of its sweep."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from statistics import fmean

from dpbench.docs.tables.grid_tables import write_markdown
from dpbench.records.result import Interval, Result

METRICS = ("accuracy", "balanced_accuracy")
TITLES = {"ham10000": "HAM10000", "gtsrb": "GTSRB"}
Scores = Mapping[float, Mapping[str, Result]]
"""By epsilon, then by learner."""


@dataclass(frozen=True)
class Measured:
    """What was measured on one dataset: runs whose epsilon is an image's, and those whose epsilon is a unit's."""

    title: str
    word: str
    images: Scores
    units: Scores

    @property
    def epsilons(self) -> list[float]:
        """Of both, ascending: not all were run of both."""
        return sorted({*self.images, *self.units})

    def largest(self, epsilon: float) -> float:
        """Return epsilon of the largest unit, the greatest of all learners' runs at this epsilon of an image."""
        return max(_units(image, "largest_epsilon") for image in self.images[epsilon].values())


def measured(results: Sequence[Result]) -> list[Measured]:
    """Return the results by dataset."""
    found = []
    for dataset, title in TITLES.items():
        of = [result for result in results if result.spec.dataset.name == dataset]
        words = {result.spec.unit for result in of if result.spec.unit}
        for word in words:
            found.append(Measured(title, word, _scores(of, None), _scores(of, word)))
    return found


def scores(results: Sequence[Result], dataset: str) -> str:
    """Return accuracy and balanced accuracy: two lines a learner, a column an epsilon."""
    (data,) = (data for data in measured(results) if data.title == TITLES[dataset])
    rows = [
        [f"`{learner}`", whose, *(_both(by.get(epsilon, {}).get(learner)) for epsilon in data.epsilons)]
        for learner in _learners(data)
        for whose, by in (("an image", data.images), (f"a {data.word}", data.units))
    ]
    return write_markdown(["learner", "ε for", *(f"ε {epsilon:g}" for epsilon in data.epsilons)], rows)


def epsilons(results: Sequence[Result]) -> str:
    """Return what epsilon for an image is for the median and for the largest unit: the range over learners."""
    found, rows = measured(results), []
    steps = _steps(found)
    for data in found:
        for size in ("median", "largest"):
            runs = [list(data.images.get(step, {}).values()) for step in steps]
            (count,) = {_units(run, size) for of_step in runs for run in of_step}
            cells = [_range([_units(run, f"{size}_epsilon") for run in of_step]) for of_step in runs]
            named = f"the {size} {data.word} of {data.title}, {count:.0f} image{'s' * (count > 1)}"
            rows.append([named, *cells])
    return write_markdown(["ε for", *(f"trained with ε {step:g} for an image" for step in steps)], rows)


def price(results: Sequence[Result]) -> str:
    """Return points lost at the same epsilon, for a unit in place of an image: mean and range over learners."""
    found = measured(results)
    steps = _steps(found)
    rows = [
        [
            f"{metric.replace('_', ' ')}, {data.title}",
            *(_lost(data, step, metric) if step in data.images.keys() & data.units else "" for step in steps),
        ]
        for data in found
        for metric in METRICS
    ]
    return write_markdown(["loss in points", *(f"ε {step:g}" for step in steps)], rows)


def promise(results: Sequence[Result]) -> str:
    """Return runs by image beside runs by unit that promise every unit as much or more: means over learners."""
    rows = []
    for data in measured(results):
        for step in sorted(data.images):
            most = max((unit for unit in data.units if unit <= data.largest(step)), default=step)
            if most <= step:  # no run by unit that spends more
                continue
            first, other = data.images[step], data.units[most]
            both = first.keys() & other.keys()
            better = [_mean(other[name], METRICS[1]) > _mean(first[name], METRICS[1]) for name in both]
            rows.append([
                data.title, f"ε {step:g}", f"ε {data.largest(step):.3g}", _means(first, both), f"ε {most:g}",
                _means(other, both), f"{sum(better)} of {len(better)}",
            ])  # fmt: skip
    heads = [
        "data", "ε for an image", "ε for the largest unit", "accuracy / balanced", "ε for a unit",
        "accuracy / balanced", "learners better by unit (balanced)",
    ]  # fmt: skip
    return write_markdown(heads, rows)


def _steps(found: Sequence[Measured]) -> list[float]:
    return sorted({step for measured in found for step in measured.images})


def _lost(measured: Measured, step: float, metric: str) -> str:
    first, other = measured.images[step], measured.units[step]
    lost = [100 * (_mean(first[name], metric) - _mean(other[name], metric)) for name in first.keys() & other.keys()]
    return f"{fmean(lost):.1f} ({min(lost):.1f} to {max(lost):.1f})"


def _scores(results: Sequence[Result], unit: str | None) -> Scores:
    found: dict[float, dict[str, Result]] = {}
    for result in results:
        if result.spec.unit == unit:
            found.setdefault(result.spec.epsilon, {})[result.spec.learner.name] = result
    return found


def _learners(measured: Measured) -> list[str]:
    """Return the learners, best first by the mean over epsilons of what they have by image."""
    names = next(iter(measured.images.values()))
    return sorted(names, key=lambda name: -fmean(_mean(by[name], METRICS[1]) for by in measured.images.values()))


def _units(result: Result, field: str) -> float:
    units = result.task.units
    value = None if units is None else getattr(units, field)
    return math.inf if value is None else float(value)


def _mean(result: Result, metric: str) -> float:
    return result.metrics[metric].mean


def _means(by: Mapping[str, Result], learners: Set[str]) -> str:
    return " / ".join(f"{100 * fmean(_mean(by[name], metric) for name in sorted(learners)):.1f}" for metric in METRICS)


def _both(result: Result | None) -> str:
    return "" if result is None else " / ".join(_spread(result.metrics[metric]) for metric in METRICS)


def _spread(score: Interval) -> str:
    half = "" if score.high is None else f" ± {100 * (score.high - score.mean):.1f}"
    return f"{100 * score.mean:.1f}{half}"


def _range(values: Sequence[float]) -> str:
    if not values:
        return ""
    low, high = (f"{end:.3g}" for end in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"
