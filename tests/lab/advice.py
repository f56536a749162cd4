"""What `dpbench advise` knows of the boards, from committed results: `python -m tests.lab.advice` writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from dpbench.records.packed import find_records
from dpbench.records.result import Result
from dpbench_lab.advise.forecast import (
    EXPERIENCE,
    LEARNERS,
    Basis,
    BoardRecord,
    Forecaster,
    public_facts,
    read_board_records,
)

RESULTS = Path(__file__).parents[2] / "leaderboard" / "results"
GUIDE = "class-means"


@dataclass(frozen=True)
class Assessment:
    """How predictions of one dataset came out that were made from all others."""

    dataset: str
    boards: int
    covered: float  # share of results within their 90% interval
    results: int
    error: float  # mean absolute error, in points
    width: float  # mean width of the intervals, in points
    regrets: tuple[float, ...]  # points by which the pick is behind the best learner, a board each


def assess(boards: Sequence[BoardRecord], basis: Basis) -> list[Assessment]:
    """Return how each dataset is predicted from the others; intervals too know nothing of it."""
    whole = Forecaster(boards, basis)
    return [_assess(whole.without(dataset), dataset, whole.of(dataset)) for dataset in whole.datasets]


def _assess(others: Forecaster, dataset: str, boards: Sequence[BoardRecord]) -> Assessment:
    pairs = [
        (score, others.predict(public_facts(one), learner)) for one in boards for learner, score in one.accuracy.items()
    ]
    picks = [(one, others.pick(public_facts(one), one.accuracy)) for one in boards]
    return Assessment(
        dataset, len(boards), float(np.mean([found.low <= score <= found.high for score, found in pairs])), len(pairs),
        100 * float(np.mean([abs(score - found.mean) for score, found in pairs])),
        100 * float(np.mean([found.high - found.low for _, found in pairs])),
        tuple(100 * (max(one.accuracy.values()) - one.accuracy[pick]) for one, pick in picks),
    )  # fmt: skip


def collect() -> list[BoardRecord]:
    """Return one entry a board, from its committed results.

    Boards of balanced accuracy are left out: learners there give up accuracy for it (`label_temperature`). So are those
    of fine-tuning, on which no learner that is advised was run.
    """
    boards = {folder.name: [*map(Result.read, find_records(folder))] for folder in sorted(RESULTS.iterdir())}
    found = (
        _of_board(board, results)
        for board, results in boards.items()
        if results[0].spec.metric == "accuracy" and any(one.spec.learner.name in LEARNERS for one in results)
    )
    return [one for one in found if one.accuracy]


def written(boards: Sequence[BoardRecord]) -> str:
    """Return the text of the file that comes with dpbench."""
    return json.dumps([one.model_dump() for one in boards], indent=1, sort_keys=True) + "\n"


def table() -> str:
    """Return how well the boards' datasets are predicted from one another."""
    lines = [
        "| dataset left out | boards | results in their 90% interval | mean error, points "
        "| mean width of an interval, points | the pick is behind the best by, points: mean (largest) |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    boards = read_board_records()
    titles: Mapping[Basis, str] = {"rehearsal": "with a rehearsal", "numbers": "without labels"}
    for basis, title in titles.items():
        found = assess(boards, basis)
        lines += [_row(f"{one.dataset}, {title}", one) for one in found]
        lines.append(_mean(f"**mean of the datasets, {title}**", found))
    return "\n".join(lines)


def coverage(found: Sequence[Assessment]) -> float:
    """Return the share of all results that lie in their interval."""
    return sum(one.covered * one.results for one in found) / sum(one.results for one in found)


def _row(title: str, one: Assessment) -> str:
    cells = [
        title, str(one.boards), f"{100 * one.covered:.0f}% of {one.results}", f"{one.error:.1f}", f"{one.width:.0f}",
        f"{sum(one.regrets) / len(one.regrets):.1f} ({max(one.regrets):.1f})",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _mean(title: str, found: Sequence[Assessment]) -> str:
    """Return the row of a mean that counts every dataset the same, as predictions do."""
    regrets = fmean(fmean(one.regrets) for one in found)
    cells = [
        title, str(sum(one.boards for one in found)), f"{100 * fmean(one.covered for one in found):.0f}%",
        f"{fmean(one.error for one in found):.1f}", f"{fmean(one.width for one in found):.0f}",
        f"{regrets:.1f} ({max(max(one.regrets) for one in found):.1f})",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _of_board(board: str, results: Sequence[Result]) -> BoardRecord:
    private = [one for one in results if one.spec.learner.name in LEARNERS]
    first = private[0]
    defaults = [one for one in private if one.selection == "default"]
    assert all(math.isclose(one.spec.epsilon, first.spec.epsilon) for one in private)
    return BoardRecord(
        board=board, dataset=first.spec.dataset.name, private=first.task.private, classes=len(first.task.classes),
        epsilon=first.spec.epsilon, rehearsal=_rehearsal(results),
        accuracy={one.spec.learner.name: _score(one) for one in defaults},
    )  # fmt: skip


def _score(result: Result) -> float:
    return round(result.metrics["accuracy"].mean, 5)


def _rehearsal(results: Sequence[Result]) -> float | None:
    """Return what the settings that were chosen by public labels scored on those labels."""
    for one in results:
        if one.spec.learner.name == GUIDE and one.selection == "public-validation" and one.search:
            return round(max(trial.accuracy for trial in one.search.trials if trial.accuracy is not None), 5)
    return None


if __name__ == "__main__":
    EXPERIENCE.write_text(written(collect()), encoding="utf-8")
