"""Tables on public labels and calibrated probabilities, from the results of a sweep."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from dpbench.docs.tables.grid_tables import format_score, render_markdown_table
from dpbench.records.result import Result

TITLES = {
    "digits": "digits", "cifar10": "CIFAR-10", "ham10000": "HAM10000", "pneumonia": "chest X-rays", "gtsrb": "GTSRB",
}  # fmt: skip
PUBLIC_ONLY, PUBLIC_PRIOR = "public-only", "public-prior"
RowKey = tuple[str, str]  # data, learner


def render_calibration_table(results: Sequence[Result]) -> str:
    """Return a table of the calibration error at epsilon 1, with a row per learner and a column per dataset."""
    found: dict[str, dict[str, str]] = {}
    for (data, learner), by in _group_results_by_row(results):
        result = by.get(1.0) or (next(iter(by.values())) if learner == PUBLIC_ONLY else None)  # the same at every ε
        if result is not None:
            found.setdefault(learner, {})[data] = format_score(result.metrics["ece"])
    rows = [[f"`{learner}`", *(cells.get(data, "") for data in TITLES.values())] for learner, cells in found.items()]
    return render_markdown_table(["learner", *TITLES.values()], rows)


def render_public_prior_gain_table(results: Sequence[Result]) -> str:
    """Return a table of the points by which `public-prior` beats the better of `public-only` and `thrift`."""
    steps = sorted({result.spec.epsilon for result in results})
    lines = []
    for data, rows in groupby(_group_results_by_row(results), key=lambda row: row[0][0]):
        by = {learner: found for (_, learner), found in rows}
        if PUBLIC_PRIOR not in by:
            continue
        (alone, *_) = by[PUBLIC_ONLY].values()
        cells = []
        for step in steps:
            if step not in by[PUBLIC_PRIOR] or step not in by.get("thrift", {}):
                cells.append("")
                continue
            best = max(_mean_accuracy(alone), _mean_accuracy(by["thrift"][step]))
            cells.append(f"{_mean_accuracy(by[PUBLIC_PRIOR][step]) - best:+.1f}")
        lines.append([data, *cells])
    return render_markdown_table(["data", *(f"ε {step:g}" for step in steps)], lines)


def _mean_accuracy(result: Result) -> float:
    return 100 * result.metrics["accuracy"].mean


def _group_results_by_row(results: Sequence[Result]) -> Iterator[tuple[RowKey, Mapping[float, Result]]]:
    """Yield the key and the results by epsilon of each row; rows are in the order of `TITLES`, then by learner."""
    found: dict[RowKey, dict[float, Result]] = {}
    for result in results:
        key = TITLES[result.spec.dataset.name], result.spec.learner.name
        found.setdefault(key, {})[result.spec.epsilon] = result
    order = list(TITLES.values())
    yield from sorted(found.items(), key=lambda row: (order.index(row[0][0]), row[0][1]))
