"""The exponential mechanism (McSherry and Talwar 2007): of public candidates, one that loses little, chosen by chance.

Row i loses l_ij in [0, 1] by candidate j. Totals L_j = sum_i l_ij are added up in integers, and j is chosen with chance
P(j) = exp(-eps0 L_j) / Z, with Z the sum over all candidates, which are public. What that costs: `choice.choice_plan`.

Sensitivity: losses are clamped to [0, 1] and rounded to steps of 2^-20, so that adding or removing a row moves each
total by exactly that row's steps: whole numbers from 0 to 2^20, all in one direction.

Parts: a row touches one part, whose candidates lose 1 each but the one that it votes for. Choosing part by part, each
on its own, is choosing among all combinations with the loss of a row at the part it touches, in [0, 1]: one mechanism,
with the eps0 of one choice. `choice.parts` has losses in place of votes, and the whole argument.

Candidates are as many as the losses of no rows are by: a count that no private row has a part in.

Not covered: how long a choice takes. With research randomness Gumbel noise is drawn in float64: chances below some
2^-53 come out as zero, and low bits are those of a library's logarithm (mitigation, not proof). `--secure-rng` draws by
OpenDP in exact arithmetic (`exact_least`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.chunk import Chunk, RowFn
from dpbench.privacy.core.exact.quantised import strip_subclass
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.contributions import Contribution, Rows
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question, check_chunk_size, sum_chunks
from dpbench.privacy.core.plan import Planned
from dpbench.privacy.core.randomness import Draws
from dpbench.privacy.core.rows import CHUNK_BYTES
from dpbench.privacy.core.sum import in_turn
from dpbench.privacy.core.witness import ChoiceObservation
from dpbench.privacy.mechanisms.choice.choice_plan import Choice

BITS = 20  # losses are whole steps of 2^-20
FEWER_BITS = 10  # of a loss that is multiplied by counts in steps of 2^-20: eight million units fit into 53 bits
HELD = 2**24  # losses of a chunk that are held at once


@dataclass(frozen=True)
class LeastLoss(Question):
    """A candidate that loses little; see `Curator.noisy_choice`.

    Raises:
        SpecError: a chunk size that is none.
    """

    kind: ClassVar[type[Planned]] = Choice

    rows: RowFn  # what each row loses by each candidate, (c, N); with `project` the cell of each row, (c,) int64
    release: str
    project: Tensor | None = None
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse a chunk size that is none."""
        check_chunk_size(self.chunk_size)

    @property
    def releases(self) -> tuple[str, ...]:
        """The one that pays."""
        return (self.release,)

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> int:
        """Add up losses, choose."""
        choice: Choice = spent[0]
        if choice.parts > 1:
            raise SpecError(f"Release {self.release!r} is planned with {choice.parts} parts. Ask noisy_choices.")
        draws = curator.draws(self.release)
        if self.project is None:
            count = self._counted(curator, choice.candidates)
            limit = rows_held(count, self.chunk_size)
            lost = sum_over_rows(
                curator, self.rows, self.release, draws, lambda block, shares: losses(block, count, shares), limit
            )
        else:
            matrix = check_matrix(self.project, choice.candidates)
            cells = number_cells(self.rows, len(matrix))
            lost = project_totals(sum_over_rows(curator, cells, self.release, draws, counts, self.chunk_size), matrix)
        return int(choose_parts(curator, lost, 1, choice, draws))

    def _counted(self, curator: LedgerCurator, candidates: int) -> int:
        """Return among how many a choice is, by losses over no rows: no private row has a part in that number."""
        with closing(curator.none()) as none:
            return count_candidates(
                single_block(curator.guard.over_none(self.rows, next(none), self.release), self.release), candidates
            )

    @property
    def rows_asked(self) -> RowFn:
        """The losses, or the cells, told apart by their bytes."""
        return self.rows if self.project is None else in_bytes(self.rows)

    @property
    def public(self) -> tuple[Any, ...]:
        """The matrix."""
        return () if self.project is None else (self.project,)

    def candidates(self, curator: LedgerCurator) -> int | None:
        """Return how many columns the matrix has, or the losses of no rows."""
        if self.project is not None:
            return self.project.shape[1]
        with closing(curator.none()) as none:
            return int(self.rows(next(none)).shape[1])  # type: ignore[union-attr]


@dataclass(frozen=True)
class Majorities(Question):
    """A candidate for each part, one that got many votes; see `Curator.noisy_choices`.

    Raises:
        SpecError: a chunk size that is none.
    """

    kind: ClassVar[type[Planned]] = Choice

    rows: RowFn  # what each row votes for, (c,) int64
    release: str
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        """Refuse a chunk size that is none."""
        check_chunk_size(self.chunk_size)

    @property
    def releases(self) -> tuple[str, ...]:
        """The one that pays."""
        return (self.release,)

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Tensor:
        """Count votes, choose for each part."""
        choice: Choice = spent[0]
        draws = curator.draws(self.release)
        cells = number_cells(self.rows, choice.parts * choice.candidates)
        votes = sum_over_rows(curator, cells, self.release, draws, counts, self.chunk_size)
        return choose_parts(curator, IntegerSum(-votes.total, votes.grid), choice.parts, choice, draws)

    @property
    def rows_asked(self) -> RowFn:
        """The votes, told apart by their bytes."""
        return in_bytes(self.rows)

    def candidates(self, curator: LedgerCurator) -> int | None:
        """Return among how many each part is chosen."""
        planned = curator.ledger.find_release(self.release)
        return planned.candidates if isinstance(planned, Choice) else 0


def single_block(blocks: Sequence[Contribution], release: str) -> Contribution:
    """Return the one block of what rows contribute to a choice.

    Raises:
        SpecError: there are several.
    """
    if len(blocks) != 1:
        raise SpecError(
            f"Release {release!r} contributed {len(blocks)} block(s) with 1 clip(s); expected one clip per block."
        )
    return blocks[0]


def sum_over_rows(
    curator: LedgerCurator, rows: RowFn, release: str, draws: Draws,
    integers: Callable[[Contribution, Tensor | None], IntegerSum], limit: int | None,
    totals: Sequence[IntegerSum] = (),
) -> IntegerSum:  # fmt: skip
    """Return the sum over all rows of what `integers` makes of each chunk of them, from `totals` on."""
    _, shares = curator.rows.of_units(np.arange(curator.rows.count), curator.task.device)

    def of_chunks(chunks: Iterable[Chunk]) -> Iterator[Sequence[IntegerSum]]:
        of_chunk = in_turn(shares)
        for blocks in curator.guard.contributions(rows, chunks, release, (1.0,)):
            block = single_block(blocks, release)
            yield [integers(block, of_chunk(len(block)))]
            del blocks  # or two chunks of rows would be held at once

    limit = min(limit or len(curator.rows), curator.rows.per_chunk(CHUNK_BYTES))
    return sum_chunks(curator.everyone(draws, limit), of_chunks, totals)[0]


def choose_parts(curator: LedgerCurator, lost: IntegerSum, parts: int, choice: Choice, draws: Draws) -> Tensor:
    """Return the choice for each part, given total losses (parts * N,)."""
    sigma = curator.sigma[choice.name]
    if curator.ledger.spent[choice.name] == 1 and sigma:
        draws.afford(lost.total.numel(), choice.steps)
    chosen = choose(lost.total.reshape(parts, -1), sigma, float(lost.grid), draws)
    curator.witness.chose(ChoiceObservation(choice.name, lost, parts, chosen))
    return chosen


def choose(totals: Tensor, sigma: float, grid: float, draws: Draws) -> Tensor:
    """Return one candidate a row of whole `totals` (parts, N), int64 (parts,); the first of the least if sigma is 0.

    Candidate j has chance proportional to exp(-eps0 * grid * totals[j]), with eps0 = 2 / sigma.
    """
    if not sigma:
        return totals.argmin(1)
    chosen = least(totals.cpu().numpy(), sigma / 2 / grid, draws)  # exact, where grid is a power of two
    return torch.from_numpy(chosen).to(totals.device)


def least(totals: np.ndarray, scale: float, draws: Draws) -> np.ndarray:
    """Return an index a row of int64 (parts, N), int64 (parts,): j with chance proportional to exp(-totals[j] / scale).

    It is the least of the totals less Gumbel noise of this scale.
    """

    def gumbel_least(stream: np.random.Generator) -> np.ndarray:
        excess = (totals - totals.min(1, keepdims=True)) / scale  # whole numbers until here
        chosen: np.ndarray = (stream.gumbel(size=totals.shape) - excess).argmax(1)
        return chosen

    return draws.draw(gumbel_least, lambda: exact_least(totals, scale))


def exact_least(totals: np.ndarray, scale: float) -> np.ndarray:
    """Return the same by OpenDP, which compares the noise to as many bits as it takes: the law is exact.

    So is `scale` if it is a double, as one half of sigma times a power of two is.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=totals.shape[1])
    distance, measure = dp.linf_distance(T="i64"), dp.zero_concentrated_divergence()  # this measure's noise is Gumbel
    chosen = dp.m.make_noisy_max(domain, distance, measure, scale=scale, negate=True)
    return np.array([chosen(row.tolist()) for row in totals], np.int64)


def rows_held(candidates: int, chunk_size: int | None) -> int:
    """Return how many rows of losses by so many candidates a chunk may have; two, at least, can be compared."""
    return max(2, min(chunk_size or HELD, HELD // candidates))


def count_candidates(block: Contribution, candidates: int) -> int:
    """Return how many candidates losses over no rows (0, N) are by.

    Raises:
        SpecError: they are no losses, or by more candidates than were planned.
    """
    return int(check_losses(block, candidates).rows.shape[1])


def check_losses(block: Contribution, candidates: int) -> Rows:
    """Return losses (c, N) by at most so many candidates, or refuse them.

    Raises:
        SpecError: they are none, or by more candidates than were planned.
    """
    shape = tuple(block.rows.shape) if isinstance(block, Rows) else None
    if not isinstance(block, Rows) or block.rows.ndim != 2 or not 1 <= block.rows.shape[1] <= candidates:
        raise SpecError(
            f"Expected losses (c, N) with N in [1, {candidates:,}], as planned, got {shape or type(block).__name__}."
        )
    return block


def losses(block: Contribution, count: int, shares: Tensor | None = None) -> IntegerSum:
    """Return the total losses of a chunk by each of `count` candidates, in steps of 2^-20.

    Sensitivity: adding or removing one row moves each total by 0 to 2^20 steps; `shares` (c,) of them, where given.

    Raises:
        SpecError: losses by another number of candidates than over no rows, where no private row can have a part in it.
    """
    if not isinstance(block, Rows) or count_candidates(block, count) != count:
        raise SpecError(f"Expected losses by {count:,} candidates in every chunk, as over no rows, got another number.")
    steps = loss_steps(block.rows, shares)
    return IntegerSum(steps.sum(0, dtype=torch.float64).to(torch.int64), loss_grid(block.rows))


def loss_steps(lost: Tensor, shares: Tensor | None = None) -> Tensor:
    """Return losses (c, N) in whole steps of 2^-20: from 0 to 2^20, or to the share of that which a row is."""
    steps = _steps(lost)
    if shares is not None:  # down, so that those of a unit add up to 2^20 at most
        steps = steps.double().mul_(shares.unsqueeze(1)).floor_()
    return steps


def project_totals(cells: IntegerSum, matrix: Tensor) -> IntegerSum:
    """Return the total losses (N,) of rows counted by cell, given a checked matrix of those of a row in each cell.

    Sensitivity: that of `losses`: a row adds the steps of its cell. Products and sums are whole numbers below 2^53.
    Rows that are shares of units count in steps themselves: then a loss keeps fewer, so that these fit too.
    """
    bits = BITS if float(cells.grid) == 1 else FEWER_BITS
    total = torch.zeros(matrix.shape[1], dtype=torch.float64, device=cells.total.device)
    held = max(1, HELD // matrix.shape[1])  # cells at once
    for some, part in zip(torch.split(cells.total, held), torch.split(matrix, held), strict=True):
        total += some.double() @ _steps(part.to(total.device).double(), bits)
    return IntegerSum(total.to(torch.int64), cells.grid * 2.0**-bits)


def check_matrix(project: Tensor, candidates: int) -> Tensor:
    """Return a copy of a public matrix of losses (cells, N), or refuse it.

    Raises:
        SpecError: it is none, or an entry is not in [0, 1].
    """
    if not isinstance(project, Tensor) or project.ndim != 2 or not project.numel() or project.shape[1] > candidates:
        what = tuple(project.shape) if isinstance(project, Tensor) else type(project).__name__
        raise SpecError(f"Expected project (cells, N) with N in [1, {candidates:,}], as planned, got {what}.")
    matrix = strip_subclass(project).detach()
    low, high = (float(matrix.min()), float(matrix.max())) if matrix.dtype != torch.bool else (0.0, 1.0)
    if not (low >= 0 and high <= 1):
        raise SpecError(f"Expected losses in [0, 1] in project, got {low:g} to {high:g}: divide by the largest.")
    return matrix.clone()  # nothing that runs over rows can reach it


def _steps(numbers: Tensor, bits: int = BITS) -> Tensor:
    return numbers.nan_to_num(0.0).clamp_(0, 1).mul_(2.0**bits).round_()


def loss_grid(like: Tensor) -> Tensor:
    """Return what a step of a loss is worth, where this tensor is."""
    return torch.tensor(2.0**-BITS, dtype=torch.float64, device=like.device)


@dataclass(frozen=True)
class Cells(Contribution):
    """Row i contributes the unit vector of its cell, or nothing where its index is not in [0, count)."""

    index: Tensor  # (c,) int64
    count: int

    def __len__(self) -> int:
        return len(self.index)

    def norms(self) -> Tensor:
        """Return (c,) float64: 1 for a row in a cell, else 0."""
        return self._inside().double()

    def integers(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return how many rows are in each cell, (count,): whole numbers, whatever the clip, which must be 1.

        Sensitivity: adding or removing one row moves one cell by 1. With `shares` a row counts for its share of 2^20
        steps, rounded down.
        """
        if clip != 1:
            raise SpecError(f"Expected clip=1 of rows in cells, got {clip:g}: each counts once.")
        inside = self._inside()
        if shares is None:
            total = torch.bincount(self.index[inside], minlength=self.count)
            return IntegerSum(total, torch.ones((), dtype=torch.float64, device=total.device))
        steps = (shares * 2.0**BITS).floor_()[inside]
        total = torch.bincount(self.index[inside], steps, minlength=self.count).to(torch.int64)
        return IntegerSum(total, loss_grid(total))

    def take(self, rows: Tensor) -> Cells:
        """Return the rows with these indices."""
        return Cells(self.index.index_select(0, rows), self.count)

    def dense(self) -> Tensor:
        """Return the unit vectors, (c, count): of a few rows, for checks."""
        inside = self._inside()
        units = torch.zeros(len(self), self.count, device=self.index.device)
        units[inside, self.index[inside]] = 1
        return units

    def _inside(self) -> Tensor:
        return (self.index >= 0) & (self.index < self.count)


def counts(block: Contribution, shares: Tensor | None = None) -> IntegerSum:
    """Return how many rows of a chunk are in each cell.

    Sensitivity: adding or removing one row moves one count by 1, or by its share.
    """
    return block.integers(1.0, shares)


def number_cells(rows: RowFn, count: int) -> Callable[[Chunk], Cells]:
    """Return the row function whose whole numbers are taken for cells.

    Raises:
        SpecError: when called, if it returns anything but whole numbers, one a row.
    """

    def in_cells(chunk: Chunk) -> Cells:
        return Cells(whole_numbers(rows(chunk), "cells"), count)

    return in_cells


def whole_numbers(index: object, over: str) -> Tensor:
    """Return what a row function over cells, or over parts, returned.

    Raises:
        SpecError: it is anything but whole numbers, one a row.
    """
    if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1:
        kind = f"{index.dtype} {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
        raise SpecError(f"Expected one whole number a row, int64 (c,), from a row function over {over}, got {kind}.")
    return strip_subclass(index)


def in_bytes(rows: RowFn) -> RowFn:
    """Return a row function whose whole numbers are told apart by their bytes, (c, 8): none is near another."""

    def apart(chunk: Chunk) -> Tensor:
        index: Any = rows(chunk)
        return index.long().contiguous().view(torch.uint8).reshape(len(index), 8).float()  # type: ignore[no-any-return]

    return apart
