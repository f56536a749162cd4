"""What `dpbench advise` knows of the boards, from committed results: `python -m tests.lab.advice` writes it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import numpy as np

from dpbench.records.packed import list_records
from dpbench.records.result import Result
from dpbench_lab.advise.forecast import (
    EXPERIENCE,
    LEARNERS,
    Basis,
    BoardRecord,
    Forecaster,
    make_forecast_input,
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
    return [_assess(whole.without_dataset(dataset), dataset, whole.list_boards(dataset)) for dataset in whole.datasets]


def _assess(others: Forecaster, dataset: str, boards: Sequence[BoardRecord]) -> Assessment:
    pairs = [
        (score, others.predict(make_forecast_input(board), learner))
        for board in boards
        for learner, score in board.accuracy.items()
    ]
    picks = [(board, others.pick(make_forecast_input(board), board.accuracy)) for board in boards]
    return Assessment(
        dataset, len(boards), float(np.mean([found.low <= score <= found.high for score, found in pairs])), len(pairs),
        100 * float(np.mean([abs(score - found.mean) for score, found in pairs])),
        100 * float(np.mean([found.high - found.low for _, found in pairs])),
        tuple(100 * (max(record.accuracy.values()) - record.accuracy[pick]) for record, pick in picks),
    )  # fmt: skip


def collect() -> list[BoardRecord]:
    """Return one entry a board, from its committed results.

    Boards of balanced accuracy are left out: learners there give up accuracy for it (`label_temperature`). So are those
    of fine-tuning, on which no learner that is advised was run.
    """
    boards = {folder.name: [*map(Result.read, list_records(folder))] for folder in sorted(RESULTS.iterdir())}
    found = (
        _of_board(board, results)
        for board, results in boards.items()
        if results[0].spec.metric == "accuracy" and any(result.spec.learner.name in LEARNERS for result in results)
    )
    return [record for record in found if record.accuracy]


def written(boards: Sequence[BoardRecord]) -> str:
    """Return the text of the file that comes with dpbench."""
    return json.dumps([board.model_dump() for board in boards], indent=1, sort_keys=True) + "\n"


def table() -> str:
    """Return how well the boards' datasets are predicted from one another."""
    lines = [
        "| dataset left out | results in their 90% interval | mean error | mean width of an interval "
        "| the pick is behind the best by: mean (largest) |",
        "|---|---:|---:|---:|---:|",
    ]
    boards = read_board_records()
    titles: Mapping[Basis, str] = {"rehearsal": "rehearsal", "numbers": "no labels"}
    for basis, title in titles.items():
        found = assess(boards, basis)
        lines += [_row(f"{assessment.dataset}, {title}", assessment) for assessment in found]
        lines.append(_mean(f"**mean, {title}**", found))
    return "\n".join(lines)


def coverage(found: Sequence[Assessment]) -> float:
    """Return the share of all results that lie in their interval."""
    return sum(assessment.covered * assessment.results for assessment in found) / sum(
        assessment.results for assessment in found
    )


def _row(title: str, assessment: Assessment) -> str:
    cells = [
        title, f"{100 * assessment.covered:.0f}% of {assessment.results}",
        f"{assessment.error:.1f}", f"{assessment.width:.0f}",
        f"{sum(assessment.regrets) / len(assessment.regrets):.1f} ({max(assessment.regrets):.1f})",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _mean(title: str, found: Sequence[Assessment]) -> str:
    """Return the row of a mean that counts every dataset the same, as predictions do."""
    regrets = fmean(fmean(assessment.regrets) for assessment in found)
    cells = [
        title,
        f"{100 * fmean(assessment.covered for assessment in found):.0f}%",
        f"{fmean(assessment.error for assessment in found):.1f}",
        f"{fmean(assessment.width for assessment in found):.0f}",
        f"{regrets:.1f} ({max(max(assessment.regrets) for assessment in found):.1f})",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _of_board(board: str, results: Sequence[Result]) -> BoardRecord:
    private = [result for result in results if result.spec.learner.name in LEARNERS]
    first = private[0]
    defaults = [result for result in private if result.selection == "default"]
    assert all(math.isclose(result.spec.epsilon, first.spec.epsilon) for result in private)
    return BoardRecord(
        board=board, dataset=first.spec.dataset.name, private=first.task.private, classes=len(first.task.classes),
        epsilon=first.spec.epsilon, rehearsal=_rehearsal(results),
        accuracy={default.spec.learner.name: _score(default) for default in defaults},
    )  # fmt: skip


def _score(result: Result) -> float:
    return round(result.metrics["accuracy"].mean, 5)


def _rehearsal(results: Sequence[Result]) -> float | None:
    """Return what the settings that were chosen by public labels scored on those labels."""
    for result in results:
        if result.spec.learner.name == GUIDE and result.selection == "public-validation" and result.search:
            return round(max(trial.accuracy for trial in result.search.trials if trial.accuracy is not None), 5)
    return None


if __name__ == "__main__":
    EXPERIENCE.write_text(written(collect()), encoding="utf-8")
