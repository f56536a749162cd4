"""The tables on public labels, unequal classes and honest probabilities, from the results of two sweeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from dpbench.docs.tables.grid_tables import Said, against_epsilon, write_markdown
from dpbench.records.metrics import Metric
from dpbench.records.result import Result

TITLES = {
    "digits": "digits", "cifar10": "CIFAR-10", "ham10000": "HAM10000", "pneumonia": "chest X-rays", "gtsrb": "GTSRB",
}  # fmt: skip
ALONE, BOTH = "public-only", "public-prior"
Row = tuple[str, str, str]  # data, learner, what it aims at


def scores(results: Sequence[Result], metric: Metric, said: Said) -> str:
    """Return a metric by data, learner, and what it aims at where that differs: a column an epsilon."""
    aims = len({result.spec.metric for result in results}) > 1
    steps = {result.spec.epsilon for result in results}
    shown: list[Result] = []
    for (_, learner, _), by in _rows(results):
        shown += by.values()
        if learner == ALONE:  # the same at every epsilon
            single = next(iter(by.values()))
            shown += [
                single.model_copy(update={"spec": single.spec.model_copy(update={"epsilon": step})}) for step in steps
            ]
    heads = ["data", "learner", *["aims at"] * aims]
    return against_epsilon(shown, metric, said, heads, lambda result: (_data(result), f"`{result.spec.learner.name}`",
                                                                  *[_aim(result)] * aims))  # fmt: skip


def gains(results: Sequence[Result]) -> str:
    """Return by how many points of accuracy `public-prior` is ahead of the better of the two that it joins."""
    steps = sorted({result.spec.epsilon for result in results})
    lines = []
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
        lines.append([data, *cells])
    return write_markdown(["data", *(f"ε {step:g}" for step in steps)], lines)


def _mean(result: Result) -> float:
    return 100 * result.metrics["accuracy"].mean


def _rows(results: Sequence[Result]) -> Iterator[tuple[Row, Mapping[float, Result]]]:
    """Yield the results of each row by epsilon, in the order of the titles."""
    found: dict[Row, dict[float, Result]] = {}
    for result in results:
        found.setdefault((_data(result), result.spec.learner.name, _aim(result)), {})[result.spec.epsilon] = result
    order = list(TITLES.values())
    yield from sorted(found.items(), key=lambda row: (order.index(row[0][0].partition(",")[0]), *row[0]))


def _data(result: Result) -> str:
    return TITLES[result.spec.dataset.name] + (", 20 to 1" if result.spec.imbalance else "")


def _aim(result: Result) -> str:
    return result.spec.metric.replace("_", " ")
