"""Sensitivity: does any row move a sum by more than the clip. Exact, for sums are integers.

A question of the run is put, through the one constructor, to small sets of rows: some private ones, with rows among
them that nobody would expect. What a row contributes alone must be within the clip, and what it moves a sum by must be
what it contributes alone: to a thousandth of the clip, for a learner's own floats may round a row by where it stands.
`probes` does the same with row functions of the audit's own, whose rows are exact and at the clip, so that a sum that
rounds shows: there not one integer may differ.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Chunk, Release, RowFn, Task
from dpbench.errors import DpbenchError
from dpbench.privacy.core.binding import bind
from dpbench.privacy.core.exact.quantised import Quantised, measured, quantise
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Joined, RankOne, Scaled
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import Seen, Witness
from dpbench.privacy.mechanisms.gep.residual_sum import ResidualSum
from dpbench.records.audit import Sensitivity

QUESTIONS, FEW = 6, 2  # of each release that are asked again: over features, and over images, which cost more
BASE, SMALL = 1_000, 16  # private rows in them
CHUNK = 97  # rows of a chunk, where the same sum is taken in other chunks
LABELS = 24  # labels that a copy of a real row is given
SIZES = (1e-30, 1e-8, 1e-2, 1.0, 1e4, 1e10, 1e20, 1e30)
REPLAY = "replay"
SEED = 0x5DEECE66D


@dataclass(frozen=True)
class Question:
    """What was asked of a curator."""

    rows: RowFn
    clips: tuple[float, ...]
    single: bool  # whether one clip was given, and not one a block
    chunk_size: int | None
    rate: float

    def seedless(self, chunk: Chunk) -> Any:
        """Return what rows contribute if all have one seed: a row that stands elsewhere would have another."""
        return self.rows(Chunk(chunk.rows, chunk.y, torch.full_like(chunk.seeds, SEED)))

    @property
    def clip(self) -> float | tuple[float, ...]:
        """The clip as it was given."""
        return self.clips[0] if self.single else self.clips


@dataclass
class Replays:
    """Asks questions of a fit again, and keeps what came out."""

    task: Task
    generator: np.random.Generator
    questions: int = 0
    tried: int = 0
    largest: float = 0.0
    shift: float = 0.0
    complaints: list[str] = field(default_factory=list)

    def stated(self) -> Sensitivity:
        """Return the statistics."""
        return Sensitivity(
            questions=self.questions, rows=self.tried, largest=self.largest, shift=self.shift,
            complaints=tuple(dict.fromkeys(self.complaints))[:8],
        )  # fmt: skip

    def replay(self, question: Question, held: PrivateRows) -> None:
        """Ask a question over some of these rows and adversarial ones; what is found is added to the record."""
        self.questions += 1
        features = len(held.example_shape) == 1
        base = some(held, BASE if features else SMALL, self.generator)
        odd = adversaries(base, self.task.classes, self.generator, features)
        try:
            self._judge(question, base, odd, exact=False)
        except DpbenchError as error:
            self.complaints.append(f"rows that are odd, but possible, were refused: {error}"[:400])

    def probe(self) -> None:
        """Ask questions of the audit's own."""
        x = torch.from_numpy(self.generator.normal(size=(BASE, 24))).float()
        x[: BASE // 2] = 0
        x[: BASE // 2, 0] = 1e3  # rows that all point one way: their sum outgrows what floats hold exactly
        y = torch.from_numpy(self.generator.integers(self.task.classes, size=BASE))
        base = PrivateRows(quantise(x), y, torch.arange(BASE))
        odd = adversaries(base, self.task.classes, self.generator, True)
        for clips, rows in probes(self.task.classes):
            self.questions += 1
            self._judge(Question(rows, clips, len(clips) == 1, None, 1.0), base, odd, exact=True)

    def _judge(self, question: Question, base: PrivateRows, odd: PrivateRows, exact: bool) -> None:
        both = joined(base, odd)
        without, among = self._ask(question, base), self._ask(question, both, CHUNK)
        alone = [self._ask(question, one(odd, place)) for place in range(len(odd))]
        for seen in alone:
            self.largest = max(self.largest, *map(_norm, seen.sums, question.clips))
        self.tried += len(odd)
        self._compare(among, [without, *alone], question, exact)
        for place in self.generator.permutation(len(odd))[:3]:
            more = self._ask(question, joined(base, one(odd, int(place))))
            self._compare(more, [without, alone[place]], question, exact)
        self._answered(question, base, both)

    def _compare(self, whole: Seen, parts: Sequence[Seen], question: Question, exact: bool) -> None:
        """Hold a sum against those of its parts; residuals are rounded down once a sum, by a step in each entry."""
        for found, expected, clip in zip(whole.sums, _total(parts), question.clips, strict=True):
            steps = (found.total - expected.total).abs()
            if isinstance(found, ResidualSum):
                steps = (steps - len(parts)).clamp(min=0)
            moved = _norm(IntegerSum(steps, found.grid), clip)
            self.shift = max(self.shift, moved)
            if exact and moved:
                self.complaints.append("a sum is not that of its rows' integers")

    def _answered(self, question: Question, base: PrivateRows, both: PrivateRows) -> None:
        """Compare what neighbours are answered, with the same noise, with the sums behind the answers."""
        for rate in {1.0, 0.5 if question.rate < 1 else 1.0}:
            key = int(self.generator.integers(2**31))
            first, second = (self._whole(question, rows, None, rate, key) for rows in (base, both))
            for one, other, before, after, clip in zip(
                first[1], second[1], first[0].sums, second[0].sums, question.clips, strict=True
            ):
                moved = (other.double() - one.double()) - (after.value() - before.value())
                slack = 2.0**-22 * (float(one.double().norm()) + float(other.double().norm()))
                if not float(moved.norm()) <= slack:
                    self.complaints.append(
                        f"answers to neighbours differ by {float(moved.norm()) / clip:.3g} clips more than their sums"
                    )

    def _ask(self, question: Question, rows: PrivateRows, chunk_size: int | None = None) -> Seen:
        return self._whole(question, rows, chunk_size, 1.0, int(self.generator.integers(2**31)))[0]

    def _whole(
        self, question: Question, rows: PrivateRows, chunk_size: int | None, rate: float, key: int
    ) -> tuple[Seen, tuple[Tensor, ...]]:
        seen: list[Seen] = []
        task = dataclasses.replace(self.task, example_shape=rows.example_shape)
        randomness = Randomness.research(key, "a replayed question")
        plan = (Release(REPLAY, sample_rate=rate),)
        curator = bind(rows, task, plan, 1.0, randomness, Witness(seen.append))
        answer = curator.noisy_sum(
            question.seedless, release=REPLAY, clip=question.clip, chunk_size=chunk_size or question.chunk_size
        )
        return seen[0], answer if isinstance(answer, tuple) else (answer,)


def some(rows: PrivateRows, most: int, generator: np.random.Generator) -> PrivateRows:
    """Return a copy of some rows that were drawn."""
    picked = torch.from_numpy(np.sort(generator.permutation(len(rows))[:most]))
    place = rows.index[picked]
    held = rows.held[place] if isinstance(rows.held, Quantised) else rows.held[place].clone()
    return PrivateRows(held, rows.y[picked], torch.arange(len(picked)))


def one(rows: PrivateRows, place: int) -> PrivateRows:
    """Return one row alone."""
    return PrivateRows(rows.held[place : place + 1], rows.y[place : place + 1], torch.arange(1))


def joined(rows: PrivateRows, more: PrivateRows) -> PrivateRows:
    """Return all rows of both."""
    held: Tensor | Quantised
    if isinstance(rows.held, Quantised) and isinstance(more.held, Quantised):
        parts = [torch.cat(pair) for pair in zip(rows.held.parts, more.held.parts, strict=True)]
        held = measured(*parts)
    else:
        held = torch.cat([rows.x, more.x])
    return PrivateRows(held, torch.cat([rows.y, more.y]), torch.arange(len(rows) + len(more)))


def adversaries(base: PrivateRows, classes: int, generator: np.random.Generator, many: bool) -> PrivateRows:
    """Return rows that nobody expects and data may hold: sizes, numbers that are none, copies under all labels."""
    x = base.x
    flat = x.flatten(1).nan_to_num(0, 0, 0)
    direction = torch.from_numpy(generator.normal(size=flat.shape[1])).float()
    direction /= direction.norm()
    unit = torch.zeros_like(direction)
    unit[int(generator.integers(len(unit)))] = 1
    rows = [direction * size for size in (SIZES if many else SIZES[::2])]
    rows += [unit * 1e4, _leading(flat), _leading(flat) * -1e4, direction * 0]
    rows += [torch.full_like(direction, number) for number in (math.nan, math.inf, -math.inf, 3e38)]
    spoiled = flat[0].clone()
    spoiled[0] = math.nan
    labels = generator.permutation(classes)[: LABELS if many else 4]
    rows += [spoiled, *[flat[int(generator.integers(len(flat)))]] * len(labels)]
    stacked = torch.stack(rows).reshape(-1, *base.example_shape)
    y = torch.from_numpy(generator.integers(classes, size=len(rows)))
    y[len(y) - len(labels) :] = torch.from_numpy(labels)
    held = quantise(stacked) if isinstance(base.held, Quantised) else stacked
    return PrivateRows(held, y, torch.arange(len(rows)))


def probes(classes: int) -> Iterator[tuple[tuple[float, ...], RowFn]]:
    """Yield clips and row functions of every form but residuals, exact in each row."""

    def left(chunk: Chunk) -> Tensor:
        return torch.nn.functional.one_hot(chunk.y, classes).float()

    def outer(chunk: Chunk) -> RankOne:
        return RankOne(left(chunk), chunk.rows, bias=True)

    def scaled(chunk: Chunk) -> Scaled:
        columns = 2.0 ** -(torch.arange(chunk.rows.shape[1] + 1) % 3).float()
        return Scaled(outer(chunk), columns.expand(classes, -1).contiguous())

    yield (0.7,), lambda chunk: chunk.x
    yield (1.0,), lambda chunk: Joined((chunk.x, 2 * chunk.x))
    yield (1.3,), outer
    yield (1.0,), scaled
    yield (1.0, 0.2, 3.0), lambda chunk: Blocks((chunk.x, outer(chunk), left(chunk)))


def _leading(rows: Tensor) -> Tensor:
    """Return the direction in which rows vary most, by power iteration."""
    rows = rows.double()
    rows = rows / rows.abs().max().clamp(min=1e-300)
    found = rows.abs().sum(0) + 1e-12
    for _ in range(8):
        found = rows.T @ (rows @ (found / found.norm().clamp(min=1e-300)))
    leading: Tensor = (found / found.norm().clamp(min=1e-300)).float()
    return leading


def _norm(summed: IntegerSum, clip: float) -> float:
    """Return the length of a sum in clips; its integers are below 2^53, so that only squares and their sum round."""
    return float((summed.value() / clip).norm())


def _total(parts: Sequence[Seen]) -> tuple[IntegerSum, ...]:
    """Return the sum of sums, by block, in integers."""
    found = []
    for blocks in zip(*(part.sums for part in parts), strict=True):
        total = sum((block.total for block in blocks[1:]), blocks[0].total)
        found.append(IntegerSum(total, blocks[0].grid))
    return tuple(found)
