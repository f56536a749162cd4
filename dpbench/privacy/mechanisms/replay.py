"""Asking a question again over other rows: what an audit has each mechanism do, and what it finds."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.exact.quantised import QuantisedRows, quantise, rows_of_parts
from dpbench.privacy.core.plan import Planned, Task
from dpbench.privacy.core.rows import PrivateRows, Units

REPLAY = "replay"
"""The name of a release that a replay is planned as."""
SEED = 0x5DEECE66D
BASE, SMALL = 1_000, 16  # private rows that a question is put to again: of features, and of images, which cost more
LABELS = 24  # labels that a copy of a real row is given
SIZES = (1e-30, 1e-8, 1e-2, 1.0, 1e4, 1e10, 1e20, 1e30)


@dataclass(frozen=True)
class Neighbours:
    """What neighbouring sets of rows are made of, and how the question was planned that is put to them."""

    held: PrivateRows
    task: Task
    planned: Planned
    sigma: float  # the noise multiplier that was stated for it
    generator: np.random.Generator

    @property
    def features(self) -> bool:
        """Whether rows are vectors, which cost little."""
        return len(self.held.example_shape) == 1

    def base(self, most: int) -> PrivateRows:
        """Return some of the rows that are held."""
        return some(self.held, most, self.generator)

    def odd(self, base: PrivateRows) -> PrivateRows:
        """Return rows that nobody expects and data may hold."""
        return adversaries(base, self.task.classes, self.generator, self.features)

    def key(self) -> int:
        """Return what the randomness of one replay is derived from."""
        return int(self.generator.integers(2**31))


@dataclass
class RowInfluence:
    """By how much rows moved answers: in what the mechanism says one row can move them."""

    tried: int = 0
    largest: float = 0.0
    shift: float = 0.0  # between what a row moves others by and what it gives alone
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReleasedSum:
    """The noisy blocks of one sum that an answer reveals, and by how much a row may move each."""

    answers: tuple[Tensor, ...]  # none where the sum only decides what is answered
    bounds: tuple[float, ...]


def strip_seeds(chunk: Chunk) -> Chunk:
    """Return the chunk with one seed for all rows: a row that stands elsewhere would have another."""
    return Chunk(chunk.rows, chunk.y, torch.full_like(chunk.seeds, SEED))


def one(rows: PrivateRows, place: int) -> PrivateRows:
    """Return one row alone; where rows have units, all rows of one unit."""
    if rows.units is None:
        return PrivateRows(rows.held[place : place + 1], rows.y[place : place + 1], torch.arange(1))
    return _pick(rows, rows.units.rows(np.array([place])))


def join_rows(rows: PrivateRows, more: PrivateRows) -> PrivateRows:
    """Return all rows of both, whose units are others'."""
    held: Tensor | QuantisedRows
    if isinstance(rows.held, QuantisedRows) and isinstance(more.held, QuantisedRows):
        parts = [torch.cat(pair) for pair in zip(rows.held.parts, more.held.parts, strict=True)]
        held = rows_of_parts(*parts)
    else:
        held = torch.cat([rows.x, more.x])
    units = None
    if rows.units is not None or more.units is not None:
        units = Units(np.concatenate([_units(rows), rows.count + _units(more)]))
    return PrivateRows(held, torch.cat([rows.y, more.y]), torch.arange(len(rows) + len(more)), units)


def put_between(rows: PrivateRows, more: PrivateRows) -> PrivateRows:
    """Return all rows of both, the second's in the middle of the first's."""
    half, behind = len(rows) // 2, np.arange(len(rows), len(rows) + len(more))
    order = np.concatenate([np.arange(half), behind, np.arange(half, len(rows))])
    return _pick(join_rows(rows, more), order)


def some(rows: PrivateRows, most: int, generator: np.random.Generator) -> PrivateRows:
    """Return a copy of some rows that were drawn: of whole units, as many as fit, and one at least."""
    drawn = generator.permutation(rows.count)
    if rows.units is not None:
        sizes = np.bincount(rows.units.of)[drawn].cumsum()
        return _pick(rows, rows.units.rows(np.sort(drawn[: max(1, np.searchsorted(sizes, most, side="right"))])))
    return _pick(rows, np.sort(drawn[:most]))


def group_rows(rows: PrivateRows, generator: np.random.Generator) -> PrivateRows:
    """Return the same rows as units of several, three on average: which are together is drawn."""
    of = np.unique(generator.integers(-(-len(rows) // 3), size=len(rows)), return_inverse=True)[1]
    return PrivateRows(rows.held, rows.y, rows.index, Units(of.astype(np.int64)))


def _pick(rows: PrivateRows, places: np.ndarray) -> PrivateRows:
    """Return a copy of these rows, with their units numbered anew."""
    picked = torch.from_numpy(places)
    held = rows.held[rows.index[picked]]
    units = None
    if rows.units is not None:
        units = Units(np.unique(rows.units.of[places], return_inverse=True)[1].astype(np.int64))
    return PrivateRows(held, rows.y[picked], torch.arange(len(picked)), units)


def _units(rows: PrivateRows) -> np.ndarray:
    return np.arange(len(rows)) if rows.units is None else rows.units.of


def adversaries(base: PrivateRows, classes: int, generator: np.random.Generator, many: bool) -> PrivateRows:
    """Return rows that nobody expects and data may hold: sizes, numbers that are none, copies under all labels.

    Beside rows that have units they are units of several.
    """
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
    held = quantise(stacked) if isinstance(base.held, QuantisedRows) else stacked
    made = PrivateRows(held, y, torch.arange(len(rows)))
    return made if base.units is None else group_rows(made, generator)


def _leading(rows: Tensor) -> Tensor:
    """Return the direction in which rows vary most, by power iteration."""
    rows = rows.double()
    rows = rows / rows.abs().max().clamp(min=1e-300)
    found = rows.abs().sum(0) + 1e-12
    for _ in range(8):
        found = rows.T @ (rows @ (found / found.norm().clamp(min=1e-300)))
    leading: Tensor = (found / found.norm().clamp(min=1e-300)).float()
    return leading
