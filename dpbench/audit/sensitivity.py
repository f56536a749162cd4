"""Test whether any row moves a sum by more than the clip; exact, because sums are integers.

A question of the run is asked again, through the real curator, over small sets of private rows mixed with unusual rows.
Each unusual row's own contribution must be within the clip. Adding the row must move a sum by its own contribution
alone, up to a thousandth of the clip, because a learner's floats may round a row differently at another position.
`make_test_sums` yields the audit's own row functions: their rows are exact and at the clip, so no integer of a sum may
differ. If private rows have units, whole units are tested instead of rows, with one example and with several.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Chunk, Release, RowFn, Task
from dpbench.errors import DpbenchError
from dpbench.privacy.binding import bind
from dpbench.privacy.core.exact.quantised import quantise
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Joined, RankOne, Scaled
from dpbench.privacy.core.forms.residual.total import ResidualSum
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.privacy.core.sum import Sum
from dpbench.privacy.core.witness import AuditWitness, SumObservation
from dpbench.privacy.mechanisms.replay import (
    MOST_FEATURE_ROWS,
    MOST_IMAGE_ROWS,
    REPLAY,
    ReplaySetup,
    RowInfluence,
    draw_rows,
    equalise_seeds,
    group_rows_into_units,
    join_rows,
    make_adversarial_rows,
    take_row,
)
from dpbench.records.audit import MeasuredSensitivity

FEATURE_REPLAYS, IMAGE_REPLAYS = (
    6,
    2,
)  # of each release that are asked again: over features, and over images, which cost more
PLANTED_UNITS, MOST_DEVIATIONS = (
    200,
    6.5,
)  # units that are planted; standard deviations of their number that chance never has (1 in 10^10)
CHUNK_SIZE = 97  # rows of a chunk, where the same sum is taken in other chunks


@dataclass
class QuestionReplayer:
    """Replays questions of a fit on other rows, and records how far one row moves the answer."""

    task: Task
    generator: np.random.Generator
    units: bool = False  # whether private rows have units: then those of the audit's own have, too
    questions: int = 0
    tried: int = 0
    largest: float = 0.0
    shift: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def summarise(self) -> MeasuredSensitivity:
        """Return the statistics of all replays."""
        return MeasuredSensitivity(
            questions=self.questions, rows=self.tried, largest=self.largest, shift=self.shift,
            complaints=tuple(dict.fromkeys(self.complaints))[:8],
        )  # fmt: skip

    def replay(self, question: Sum, rate: float, private_rows: PrivateRows) -> None:
        """Replay a sum over some of the `private_rows` and over adversarial rows, and record the result."""
        self.questions += 1
        features = len(private_rows.example_shape) == 1
        base = draw_rows(private_rows, MOST_FEATURE_ROWS if features else MOST_IMAGE_ROWS, self.generator)
        odd = make_adversarial_rows(base, self.task.classes, self.generator, features)
        try:
            self._judge(question, rate, base, odd, exact=False)
        except DpbenchError as error:
            self._record_refusal(error)

    def run(self, replay: Callable[[ReplaySetup], RowInfluence], setup: ReplaySetup) -> None:
        """Run a mechanism's own replay of a question, and record the result."""
        self.questions += 1
        try:
            moved = replay(setup)
        except DpbenchError as error:
            self._record_refusal(error)
            return
        self.tried += moved.tried
        self.largest, self.shift = max(self.largest, moved.largest), max(self.shift, moved.shift)
        self.complaints += moved.complaints

    def _record_refusal(self, error: DpbenchError) -> None:
        self.complaints.append(f"rows that are odd, but possible, were refused: {error}"[:400])

    def make_random_rows(self) -> PrivateRows:
        """Return random rows of 24 numbers, drawn by the audit."""
        x = torch.from_numpy(self.generator.normal(size=(MOST_FEATURE_ROWS, 24))).float()
        y = torch.from_numpy(self.generator.integers(self.task.classes, size=MOST_FEATURE_ROWS))
        return self._group_into_units(PrivateRows(x, y, torch.arange(MOST_FEATURE_ROWS)))

    def _group_into_units(self, rows: PrivateRows) -> PrivateRows:
        return group_rows_into_units(rows, self.generator) if self.units else rows

    def probe(self) -> None:
        """Replay the audit's own sums (`make_test_sums`) over random rows; with units, test their sampling too."""
        x = torch.from_numpy(self.generator.normal(size=(MOST_FEATURE_ROWS, 24))).float()
        x[: MOST_FEATURE_ROWS // 2] = 0
        x[: MOST_FEATURE_ROWS // 2, 0] = 1e3  # rows that all point one way: their sum outgrows what floats hold exactly
        y = torch.from_numpy(self.generator.integers(self.task.classes, size=MOST_FEATURE_ROWS))
        base = self._group_into_units(PrivateRows(quantise(x), y, torch.arange(MOST_FEATURE_ROWS)))
        odd = make_adversarial_rows(base, self.task.classes, self.generator, True)
        for clips, rows in make_test_sums(self.task.classes):
            self.questions += 1
            self._judge(Sum(rows, REPLAY, clips if clips[1:] else clips[0]), 1.0, base, odd, exact=True)

        if self.units:
            self._replay_planted_units()

    def _replay_planted_units(self) -> None:
        """Replay a sum over units of several examples: samples must contain whole units, at the planned rate."""
        self.questions += 1
        self.tried += PLANTED_UNITS
        of = np.repeat(np.arange(PLANTED_UNITS), self.generator.integers(2, 7, PLANTED_UNITS))
        x = torch.zeros(len(of), PLANTED_UNITS)
        x[torch.arange(len(of)), torch.from_numpy(of)] = torch.from_numpy(
            10 ** self.generator.uniform(1, 6, len(of))
        ).float()
        rows = PrivateRows(x, torch.zeros(len(of), dtype=torch.int64), torch.arange(len(of)), PrivacyUnits(of))
        question = Sum(lambda chunk: chunk.x, REPLAY, 1.0)
        full = self._ask(question, rows).sums[0]
        key = int(self.generator.integers(2**31))
        drawn = self._replay_sum(question, rows, CHUNK_SIZE, 0.5, key)[0].sums[0].total
        self.largest = max(self.largest, float(full.value().abs().max()))
        if not bool(((drawn == 0) | (drawn == full.total)).all()):
            self.complaints.append("of a unit some examples were sampled, and others not")
        if not abs(int((drawn != 0).sum()) - PLANTED_UNITS / 2) <= MOST_DEVIATIONS * math.sqrt(PLANTED_UNITS) / 2:
            self.complaints.append("units are sampled at another rate than planned")

    def _judge(self, question: Sum, rate: float, base: PrivateRows, odd: PrivateRows, exact: bool) -> None:
        both = join_rows(base, odd)
        without, among = self._ask(question, base), self._ask(question, both, CHUNK_SIZE)
        alone = [self._ask(question, take_row(odd, place)) for place in range(odd.count)]
        for seen in alone:
            self.largest = max(self.largest, *map(_measure_norm_in_clips, seen.sums, question.clips))
        self.tried += odd.count
        self._compare_with_parts(among, [without, *alone], question, exact)
        for place in self.generator.permutation(odd.count)[:3]:
            more = self._ask(question, join_rows(base, take_row(odd, int(place))))
            self._compare_with_parts(more, [without, alone[place]], question, exact)
        self._check_answer_differences(question, rate, base, both)

    def _compare_with_parts(
        self, total: SumObservation, parts: Sequence[SumObservation], question: Sum, exact: bool
    ) -> None:
        """Compare a sum with the total of its parts; in a residual sum, each part may round an entry by one step."""
        for found, expected, clip in zip(total.sums, _add_sums(parts), question.clips, strict=True):
            steps = (found.total - expected.total).abs()
            if isinstance(found, ResidualSum):
                steps = (steps - len(parts)).clamp(min=0)
            moved = _measure_norm_in_clips(IntegerSum(steps, found.grid), clip)
            self.shift = max(self.shift, moved)
            if exact and moved:
                self.complaints.append("a sum is not that of its rows' integers")

    def _check_answer_differences(
        self, question: Sum, planned: float, base: PrivateRows, extended: PrivateRows
    ) -> None:
        """Check that answers over `base` and `extended`, with the same noise, differ exactly as their sums do."""
        for rate in {1.0, 0.5 if planned < 1 else 1.0}:
            key = int(self.generator.integers(2**31))
            first, second = (self._replay_sum(question, rows, None, rate, key) for rows in (base, extended))
            for before_answer, after_answer, before, after, clip in zip(
                first[1], second[1], first[0].sums, second[0].sums, question.clips, strict=True
            ):
                moved = (after_answer.double() - before_answer.double()) - (after.value() - before.value())
                slack = 2.0**-22 * (float(before_answer.double().norm()) + float(after_answer.double().norm()))
                if not float(moved.norm()) <= slack:
                    self.complaints.append(
                        f"answers to neighbours differ by {float(moved.norm()) / clip:.3g} clips more than their sums"
                    )

    def _ask(self, question: Sum, rows: PrivateRows, chunk_size: int | None = None) -> SumObservation:
        return self._replay_sum(question, rows, chunk_size, 1.0, int(self.generator.integers(2**31)))[0]

    def _replay_sum(
        self, question: Sum, rows: PrivateRows, chunk_size: int | None, rate: float, key: int
    ) -> tuple[SumObservation, tuple[Tensor, ...]]:
        seen: list[SumObservation] = []
        task = dataclasses.replace(self.task, example_shape=rows.example_shape)
        randomness = Randomness.research(key, "a replayed question")
        plan = (Release(REPLAY, sample_rate=rate),)
        curator = bind(rows, task, plan, 1.0, randomness, AuditWitness(seen.append))
        board_rows = lambda chunk: question.rows(equalise_seeds(chunk))
        answer = curator.answer(Sum(board_rows, REPLAY, question.clip, chunk_size or question.chunk_size))
        return seen[0], answer if isinstance(answer, tuple) else (answer,)


def make_test_sums(classes: int) -> Iterator[tuple[tuple[float, ...], RowFn]]:
    """Yield clips and a row function for every form of rows except residuals; each row is exact in floats."""

    def make_left_factor(chunk: Chunk) -> Tensor:
        return torch.nn.functional.one_hot(chunk.y, classes).float()

    def make_outer_products(chunk: Chunk) -> RankOne:
        return RankOne(make_left_factor(chunk), chunk.rows, bias=True)

    def make_scaled_products(chunk: Chunk) -> Scaled:
        columns = 2.0 ** -(torch.arange(chunk.rows.shape[1] + 1) % 3).float()
        return Scaled(make_outer_products(chunk), columns.expand(classes, -1).contiguous())

    yield (0.7,), lambda chunk: chunk.x
    yield (1.0,), lambda chunk: Joined((chunk.x, 2 * chunk.x))
    yield (1.3,), make_outer_products
    yield (1.0,), make_scaled_products
    yield (1.0, 0.2, 3.0), lambda chunk: Blocks((chunk.x, make_outer_products(chunk), make_left_factor(chunk)))


def _measure_norm_in_clips(summed: IntegerSum, clip: float) -> float:
    """Return the norm of a sum in clips. The integers are below 2^53, so only squares and their sum are rounded."""
    return float((summed.value() / clip).norm())


def _add_sums(parts: Sequence[SumObservation]) -> tuple[IntegerSum, ...]:
    """Add up sums, block by block, in integers."""
    found = []
    for blocks in zip(*(part.sums for part in parts), strict=True):
        total = sum((block.total for block in blocks[1:]), blocks[0].total)
        found.append(IntegerSum(total, blocks[0].grid))
    return tuple(found)
