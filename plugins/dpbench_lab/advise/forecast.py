"""Forecast accuracies on new data: the accuracy of a rehearsal plus each learner's mean distance from it on the boards.

A rehearsal fits `class-means` with settings chosen by five-fold cross-validation on labelled public images, under the
noise of the private run, as `dpbench tune` does. The boards' records hold rehearsals. In logits, a learner's accuracy
is predicted as the rehearsal's plus that learner's mean distance from the rehearsals on the boards. Without public
labels, the prediction is the mean accuracy on the boards with a similar number of private images times epsilon per
class. In both cases every dataset counts the same, however many boards it has.

Half the width of an interval is the 90% quantile of the prediction errors on the boards, each predicted without the
boards of its own dataset; `tests/lab/advice.py` repeats all of this for each dataset, intervals included.

Not covered: a test set that differs from the public images, which no public number shows.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np
from pydantic import Field, TypeAdapter

from dpbench.errors import DataError
from dpbench.support.validation import Record

Basis = Literal["rehearsal", "numbers"]
LEARNERS = ("thrift", "whitened", "pillar", "class-means", "dp-sgd", "dp-raft", "jl")
INTERVAL_LEVEL = 0.9  # of the intervals
SIMILARITY_SCALE = 0.4  # decades of private images times epsilon per class within which boards are similar
EXPERIENCE = Path(__file__).parent / "experience.json"
_SMALLEST = 0.005  # accuracies are kept this far from 0 and 1, where logits end


class BoardRecord(Record):
    """A past board: public facts about its data, accuracy in rehearsal, and learners' scores with default settings."""

    board: str
    dataset: str
    private: int = Field(gt=0)
    classes: int = Field(gt=1)
    epsilon: float = Field(gt=0)
    rehearsal: float | None  # None where the board has none
    accuracy: Mapping[str, float]  # of each learner, mean over seeds


@dataclass(frozen=True)
class ForecastInput:
    """The public facts that a forecast is made from: private images, classes, epsilon and rehearsal."""

    private: int
    classes: int
    epsilon: float
    rehearsal: float | None = None

    @property
    def signal(self) -> float:
        """Private images times epsilon per class, as a decimal logarithm."""
        return math.log10(self.private * self.epsilon / self.classes)


@dataclass(frozen=True)
class Forecast:
    """A predicted accuracy with its 90% interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Forecaster:
    """Predicts accuracies from the records of some boards.

    `basis` says whether predictions start from a rehearsal or only from public numbers (images, classes, epsilon).
    """

    boards: Sequence[BoardRecord]
    basis: Basis

    def predict(self, facts: ForecastInput, learner: str) -> Forecast:
        """Return a learner's expected accuracy with default settings, and its interval; no value is below chance."""
        center, chance = self.expected_logit(facts, learner), 1 / facts.classes
        return Forecast(
            *(max(chance, _logit_to_accuracy(center + shift)) for shift in (0.0, -self.margin, self.margin))
        )

    def pick(self, facts: ForecastInput, among: Collection[str] = LEARNERS) -> str:
        """Return the learner with the best expected accuracy."""
        return max(sorted(among), key=lambda learner: self.expected_logit(facts, learner))

    def expected_logit(self, facts: ForecastInput, learner: str) -> float:
        """Return the expected accuracy of a learner, as a logit."""
        known = [record for record in self._usable_boards if learner in record.accuracy]
        counts = Counter(record.dataset for record in known)
        weights = np.array([self._board_similarity(record, facts) / counts[record.dataset] for record in known])
        scores = np.array([_accuracy_to_logit(record.accuracy[learner]) - self._base_logit(record) for record in known])
        start = 0.0 if self.basis == "numbers" else _accuracy_to_logit(_require_rehearsal_accuracy(facts))
        return start + float(np.average(scores, weights=weights))

    @cached_property
    def margin(self) -> float:
        """Half the width of an interval, in logits: the 90% quantile of the errors on datasets that were left out."""
        errors, weights = [], []
        for learner, record, center, share in self._predict_left_out_boards():
            errors.append(abs(_accuracy_to_logit(record.accuracy[learner]) - center))
            weights.append(share)
        order = np.argsort(errors)
        reached = np.cumsum(np.array(weights)[order])
        level = (INTERVAL_LEVEL - 1e-9) * reached[-1]  # a weight that reaches the level but for rounding reaches it
        return float(np.array(errors)[order][np.searchsorted(reached, level)])

    def without_dataset(self, dataset: str) -> Forecaster:
        """Return a forecaster without the boards of a dataset."""
        return Forecaster([board for board in self.boards if board.dataset != dataset], self.basis)

    def list_boards(self, dataset: str) -> list[BoardRecord]:
        """Return the dataset's boards that this basis can use."""
        return [record for record in self._usable_boards if record.dataset == dataset]

    @property
    def datasets(self) -> list[str]:
        """The names of the datasets that have usable boards, sorted."""
        return sorted({record.dataset for record in self._usable_boards})

    def _predict_left_out_boards(self) -> Iterator[tuple[str, BoardRecord, float, float]]:
        for dataset in self.datasets:
            others, boards = self.without_dataset(dataset), self.list_boards(dataset)
            for board in boards:
                for learner in sorted(board.accuracy):
                    yield learner, board, others.expected_logit(make_forecast_input(board), learner), 1 / len(boards)

    @cached_property
    def _usable_boards(self) -> list[BoardRecord]:
        return [board for board in self.boards if self.basis == "numbers" or board.rehearsal is not None]

    def _base_logit(self, record: BoardRecord) -> float:
        return (
            0.0
            if self.basis == "numbers"
            else _accuracy_to_logit(_require_rehearsal_accuracy(make_forecast_input(record)))
        )

    def _board_similarity(self, record: BoardRecord, facts: ForecastInput) -> float:
        if self.basis == "rehearsal":
            return 1.0
        return math.exp(-abs(make_forecast_input(record).signal - facts.signal) / SIMILARITY_SCALE)


def read_board_records() -> list[BoardRecord]:
    """Return the records of boards that come with dpbench.

    Raises:
        DataError: the file is damaged.
    """
    try:
        return TypeAdapter(list[BoardRecord]).validate_python(json.loads(EXPERIENCE.read_bytes()))
    except (OSError, ValueError) as error:
        raise DataError(f"Expected the boards' results in {EXPERIENCE}: {error}. Install dpbench again.") from error


def make_forecast_input(record: BoardRecord) -> ForecastInput:
    """Return the facts about a board's data that were public before any run on it, as the input of a forecast."""
    return ForecastInput(record.private, record.classes, record.epsilon, record.rehearsal)


def _require_rehearsal_accuracy(facts: ForecastInput) -> float:
    assert facts.rehearsal is not None  # `Forecaster` asks where there is one
    return facts.rehearsal


def _accuracy_to_logit(accuracy: float) -> float:
    kept = min(max(accuracy, _SMALLEST), 1 - _SMALLEST)
    return math.log(kept / (1 - kept))


def _logit_to_accuracy(logit: float) -> float:
    return 1 / (1 + math.exp(-logit))
