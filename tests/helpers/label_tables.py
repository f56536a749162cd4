"""The tables on public labels, unequal classes and honest probabilities, from the results of two sweeps."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby

from dpbench.records.result import Interval, Result

TITLES = {
    "digits": "digits", "cifar10": "CIFAR-10", "ham10000": "HAM10000", "pneumonia": "chest X-rays", "gtsrb": "GTSRB",
}  # fmt: skip
ALONE, BOTH = "public-only", "public-prior"
Row = tuple[str, str, str]  # data, learner, what it aims at


def scores(results: Sequence[Result], metric: str, said: Callable[[Interval], str]) -> str:
    """Return a metric by data, learner, and what it aims at where that differs: a column an epsilon."""
    aims = len({one.spec.metric for one in results}) > 1
    steps = sorted({one.spec.epsilon for one in results})
    heads = ["data", "learner", *["aims at"] * aims, *(f"ε {step:g}" for step in steps)]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for (data, learner, aim), by in _rows(results):
        cells = [said(by[step].metrics[metric]) if step in by and metric in by[step].metrics else "" for step in steps]
        if learner == ALONE:  # the same at every epsilon
            cells = [next((cell for cell in cells if cell), "")] * len(steps)
        lines.append(f"| {' | '.join([data, f'`{learner}`', *[aim] * aims, *cells])} |")
    return "\n".join(lines)


def gains(results: Sequence[Result]) -> str:
    """Return by how many points of accuracy `public-prior` is ahead of the better of the two that it joins."""
    steps = sorted({one.spec.epsilon for one in results})
    lines = [f"| data | {' | '.join(f'ε {step:g}' for step in steps)} |", "|---|" + "---|" * len(steps)]
    for data, rows in groupby(_rows(results), key=lambda row: row[0][0]):
        by = {learner: found for (_, learner, _), found in rows}
        if BOTH not in by:
            continue
        (alone, *_) = by[ALONE].values()
        cells = []
        for step in steps:
            if step not in by[BOTH] or step not in by.get("thrift", {}):
                cells.append("")
                continue
            best = max(_mean(alone), _mean(by["thrift"][step]))
            cells.append(f"{_mean(by[BOTH][step]) - best:+.1f}")
        lines.append(f"| {data} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _mean(result: Result) -> float:
    return 100 * result.metrics["accuracy"].mean


def _rows(results: Sequence[Result]) -> Iterator[tuple[Row, Mapping[float, Result]]]:
    """Yield the results of each row by epsilon, in the order of the titles."""
    found: dict[Row, dict[float, Result]] = {}
    for one in results:
        data = TITLES[one.spec.dataset.name] + (", 20 to 1" if one.spec.imbalance else "")
        key = (data, one.spec.learner.name, one.spec.metric.replace("_", " "))
        found.setdefault(key, {})[one.spec.epsilon] = one
    order = list(TITLES.values())
    yield from sorted(found.items(), key=lambda row: (order.index(row[0][0].partition(",")[0]), *row[0]))
