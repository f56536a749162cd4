"""Make the rows over which an audit replays a mechanism's questions, and describe its findings."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.exact.quantised import QuantisedRows, assemble_rows, quantise
from dpbench.privacy.core.plan import Planned, Task
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows

REPLAY = "replay"
"""The name of the release in the plan of a replay."""
SEED = 0x5DEECE66D
MOST_FEATURE_ROWS, MOST_IMAGE_ROWS = (
    1_000,
    16,
)  # private rows that a question is put to again: of features, and of images, which cost more
MOST_LABELS = 24  # labels that a copy of a real row is given
SIZES = (1e-30, 1e-8, 1e-2, 1.0, 1e4, 1e10, 1e20, 1e30)


@dataclass(frozen=True)
class ReplaySetup:
    """The rows from which an audit makes neighbouring datasets, and the plan of the question that it replays."""

    held: PrivateRows
    task: Task
    planned: Planned
    sigma: float  # the noise multiplier that was stated for it
    generator: np.random.Generator

    @property
    def features(self) -> bool:
        """Whether rows are feature vectors, which are cheap to replay, rather than images."""
        return len(self.held.example_shape) == 1

    def draw_base_rows(self, limit: int) -> PrivateRows:
        """Draw at most `limit` of the private rows, from which neighbours are made."""
        return draw_rows(self.held, limit, self.generator)

    def make_unusual_rows(self, base: PrivateRows) -> PrivateRows:
        """Return unusual rows that private data could still contain."""
        return make_adversarial_rows(base, self.task.classes, self.generator, self.features)

    def draw_key(self) -> int:
        """Draw the key from which one replay derives its randomness."""
        return int(self.generator.integers(2**31))


@dataclass
class RowInfluence:
    """How far single rows moved answers, relative to the bound that the mechanism claims."""

    tried: int = 0
    largest: float = 0.0
    shift: float = 0.0  # between what a row moves others by and what it gives alone
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ReleasedSum:
    """The noisy blocks of a sum in an answer, and how far one row can move each block."""

    answers: tuple[Tensor, ...]  # none where the sum only decides what is answered
    bounds: tuple[float, ...]


def equalise_seeds(chunk: Chunk) -> Chunk:
    """Return the chunk with the same seed for all rows, because a row's seed depends on its position."""
    return Chunk(chunk.rows, chunk.y, torch.full_like(chunk.seeds, SEED))


def take_row(rows: PrivateRows, index: int) -> PrivateRows:
    """Return a single row; if rows have units, return all rows of unit `index`."""
    if rows.units is None:
        return PrivateRows(rows.held[index : index + 1], rows.y[index : index + 1], torch.arange(1))
    return _copy_rows(rows, rows.units.rows(np.array([index])))


def join_rows(rows: PrivateRows, further_rows: PrivateRows) -> PrivateRows:
    """Join two sets of rows, which have no unit in common."""
    held: Tensor | QuantisedRows
    if isinstance(rows.held, QuantisedRows) and isinstance(further_rows.held, QuantisedRows):
        parts = [torch.cat(pair) for pair in zip(rows.held.parts, further_rows.held.parts, strict=True)]
        held = assemble_rows(*parts)
    else:
        held = torch.cat([rows.x, further_rows.x])
    units = None
    if rows.units is not None or further_rows.units is not None:
        units = PrivacyUnits(np.concatenate([_list_unit_numbers(rows), rows.count + _list_unit_numbers(further_rows)]))
    return PrivateRows(held, torch.cat([rows.y, further_rows.y]), torch.arange(len(rows) + len(further_rows)), units)


def insert_rows(rows: PrivateRows, further_rows: PrivateRows) -> PrivateRows:
    """Return `rows` with `further_rows` inserted in the middle."""
    half, behind = len(rows) // 2, np.arange(len(rows), len(rows) + len(further_rows))
    order = np.concatenate([np.arange(half), behind, np.arange(half, len(rows))])
    return _copy_rows(join_rows(rows, further_rows), order)


def draw_rows(rows: PrivateRows, limit: int, generator: np.random.Generator) -> PrivateRows:
    """Return a copy of at most `limit` rows, drawn at random; whole units if rows have units, and at least one."""
    drawn = generator.permutation(rows.count)
    if rows.units is not None:
        sizes = np.bincount(rows.units.of)[drawn].cumsum()
        return _copy_rows(rows, rows.units.rows(np.sort(drawn[: max(1, np.searchsorted(sizes, limit, side="right"))])))
    return _copy_rows(rows, np.sort(drawn[:limit]))


def group_rows_into_units(rows: PrivateRows, generator: np.random.Generator) -> PrivateRows:
    """Return the same rows, grouped at random into units of about three rows."""
    of = np.unique(generator.integers(-(-len(rows) // 3), size=len(rows)), return_inverse=True)[1]
    return PrivateRows(rows.held, rows.y, rows.index, PrivacyUnits(of.astype(np.int64)))


def _copy_rows(rows: PrivateRows, positions: np.ndarray) -> PrivateRows:
    """Return a copy of the rows at these places, with units renumbered from 0."""
    picked = torch.from_numpy(positions)
    held = rows.held[rows.index[picked]]
    units = None
    if rows.units is not None:
        units = PrivacyUnits(np.unique(rows.units.of[positions], return_inverse=True)[1].astype(np.int64))
    return PrivateRows(held, rows.y[picked], torch.arange(len(picked)), units)


def _list_unit_numbers(rows: PrivateRows) -> np.ndarray:
    return np.arange(len(rows)) if rows.units is None else rows.units.of


def make_adversarial_rows(base: PrivateRows, classes: int, generator: np.random.Generator, many: bool) -> PrivateRows:
    """Return adversarial rows: extreme norms, entries that are not finite, and one real row under many labels.

    With `many`, there are more norms and more labels. If the base rows have units, the adversarial rows are grouped
    into units of several rows too.
    """
    x = base.x
    flat = x.flatten(1).nan_to_num(0, 0, 0)
    direction = torch.from_numpy(generator.normal(size=flat.shape[1])).float()
    direction /= direction.norm()
    unit = torch.zeros_like(direction)
    unit[int(generator.integers(len(unit)))] = 1
    rows = [direction * size for size in (SIZES if many else SIZES[::2])]
    rows += [unit * 1e4, _leading_direction(flat), _leading_direction(flat) * -1e4, direction * 0]
    rows += [torch.full_like(direction, number) for number in (math.nan, math.inf, -math.inf, 3e38)]
    spoiled = flat[0].clone()
    spoiled[0] = math.nan
    labels = generator.permutation(classes)[: MOST_LABELS if many else 4]
    rows += [spoiled, *[flat[int(generator.integers(len(flat)))]] * len(labels)]
    stacked = torch.stack(rows).reshape(-1, *base.example_shape)
    y = torch.from_numpy(generator.integers(classes, size=len(rows)))
    y[len(y) - len(labels) :] = torch.from_numpy(labels)
    held = quantise(stacked) if isinstance(base.held, QuantisedRows) else stacked
    made = PrivateRows(held, y, torch.arange(len(rows)))
    return made if base.units is None else group_rows_into_units(made, generator)


def _leading_direction(rows: Tensor) -> Tensor:
    """Return the direction of largest variance of the rows, by power iteration."""
    rows = rows.double()
    rows = rows / rows.abs().max().clamp(min=1e-300)
    found = rows.abs().sum(0) + 1e-12
    for _ in range(8):
        found = rows.T @ (rows @ (found / found.norm().clamp(min=1e-300)))
    leading: Tensor = (found / found.norm().clamp(min=1e-300)).float()
    return leading
