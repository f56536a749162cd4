"""The exchange rate: how many public labels are worth as much as the private data, at a board's epsilon.

`public-only` is trained on m public labels, for m from ten to all labels, in several random draws. Its accuracy as a
function of m is the board's learning curve, kept in `curves/<board>.json`. An entry's worth is the m at which the curve
reaches the entry's score. An entry that reads public labels has no worth, because it uses both private data and labels.
Worths are computed from the curve and the results whenever the index is built.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field

from dpbench.board.folder import read_json_object, validate_record
from dpbench.board.index import Worth
from dpbench.errors import LeaderboardComplaint, MalformedFile
from dpbench.records import storage
from dpbench.records.board import Board
from dpbench.records.metrics import RankMetric, Share
from dpbench.records.protocol import Component
from dpbench.records.result import ComponentOrigin, Result
from dpbench.support.validation import Record

CURVES_FOLDER = "curves"
RESAMPLES = 2000
TAIL_PERCENT = 2.5  # percent on either side of the interval


class LearningCurve(Record):
    """A board's learning curve: scores after training on public labels alone, by random draw and number of labels."""

    kind: Literal["learning curve"] = "learning curve"
    schema_version: Literal[1] = 1
    board: str
    digest: str  # of the board
    metric: RankMetric
    learner: Component  # with its settings
    labels: tuple[Annotated[int, Field(ge=2)], ...]  # ascending; the last is all public labels there are
    scores: tuple[tuple[Share, ...], ...]  # one row a draw: the first labels of one random order
    split_digests: dict[str, str]  # of the data
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]

    def write(self, root: Path) -> Path:
        """Write the curve to its path in the leaderboard `root`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        return storage.write_record(self, root / CURVES_FOLDER / f"{self.board}.json")


def read_curve(root: Path, board: Board) -> LearningCurve | None:
    """Return a board's learning curve, or None if the board has none.

    Raises:
        MalformedFile: the file is not a learning curve of this board.
    """
    file = root / CURVES_FOLDER / f"{board.name}.json"
    if not file.exists():
        return None
    curve = validate_record(LearningCurve, read_json_object(file))
    if (curve.board, curve.digest, curve.metric) != (board.name, board.digest, board.metric):
        raise MalformedFile("digest", f"expected a curve of board {board.name} as it is: make it again")
    if list(curve.labels) != sorted(set(curve.labels)) or len(curve.labels) < 2 or len(curve.scores) < 2:
        raise MalformedFile("labels", "expected two numbers of labels or more, ascending, and two draws or more")
    if any(len(row) != len(curve.labels) for row in curve.scores):
        raise MalformedFile(
            "scores", f"expected {len(curve.labels)} scores in each draw, one for each number of labels"
        )
    return curve


def find_curve_complaints(
    root: Path, boards: dict[str, Board], results: Sequence[tuple[str, Result]]
) -> list[LeaderboardComplaint]:
    """Return complaints about a leaderboard's learning curves; `results` pairs each result with its board's name."""
    wrong = []
    for file in sorted((root / CURVES_FOLDER).glob("*.json")):
        name = f"{CURVES_FOLDER}/{file.name}"
        if file.stem not in boards:
            wrong.append(LeaderboardComplaint(name, "file", f"no board is called {file.stem!r}: see boards/"))
            continue
        try:
            curve = read_curve(root, boards[file.stem])
        except MalformedFile as error:
            wrong.append(LeaderboardComplaint(name, error.field, error.said))
            continue
        assert curve is not None
        if any(result.task.digests != curve.split_digests for board, result in results if board == file.stem):
            wrong.append(
                LeaderboardComplaint(name, "split_digests", "expected the data of the board's results: make it again")
            )
    return wrong


def compute_label_equivalent(curve: LearningCurve, scores: Sequence[float]) -> Worth:
    """Return the number of public labels at which the learning curve reaches an entry's mean score, with its interval.

    The mean curve, made non-decreasing, is interpolated on a logarithmic scale. The interval is the 2.5th to 97.5th
    percentile over 2,000 bootstrap samples of draws and of seeds; test examples are not resampled.
    """
    draws, own = np.array(curve.scores), np.array(scores)  # (draws, sizes), (seeds,)
    random = np.random.default_rng(0)
    rows = random.integers(len(draws), size=(RESAMPLES, len(draws)))
    seeds = random.integers(len(own), size=(RESAMPLES, len(own)))
    found = interpolate_label_counts(curve.labels, draws[rows].mean(1), own[seeds].mean(1))
    (middle,) = interpolate_label_counts(curve.labels, draws.mean(0, keepdims=True), own.mean(keepdims=True))
    low, high = np.sort(found)[[int(RESAMPLES * TAIL_PERCENT / 100), int(RESAMPLES * (1 - TAIL_PERCENT / 100)) - 1]]
    return Worth(
        labels=_round_label_count(middle),
        low=_round_label_count(low),
        high=_round_label_count(high),
        all=curve.labels[-1],
    )


def interpolate_label_counts(labels: Sequence[int], curves: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Return the number of labels (b,) at which each curve (b, sizes) reaches its score (b,); infinity if never.

    A score below the curve's first point gets the smallest number of labels.
    """
    rising = np.maximum.accumulate(curves, axis=1)
    reached = rising >= scores[:, None]
    after = reached.argmax(1)
    before, places = np.maximum(after - 1, 0), np.arange(len(curves))
    step = rising[places, after] - rising[places, before]
    share = np.where(step > 0, (scores - rising[places, before]) / np.where(step > 0, step, 1), 1.0)
    logs = np.log(np.array(labels, dtype=float))
    at = np.exp(logs[before] + share * (logs[after] - logs[before]))
    return np.where(reached.any(1), at, math.inf)


def _round_label_count(count: float) -> int | None:
    """Round a number of labels to two significant digits, on which all machines agree; None if it is infinite."""
    if math.isinf(count):
        return None
    unit = int(10 ** max(0, math.floor(math.log10(count)) - 1))
    return round(float(count) / unit) * unit
