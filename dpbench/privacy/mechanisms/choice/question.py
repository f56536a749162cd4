"""The exponential mechanism (McSherry and Talwar 2007): choose at random a public candidate with a small total loss.

Row i has loss l_ij in [0, 1] for candidate j. Totals L_j = sum_i l_ij are computed in integers, and j is chosen with
chance P(j) = exp(-eps0 L_j) / Z, with Z the sum over all candidates, which are public. `choice.choice_plan` has the
cost.

Sensitivity: losses are clamped to [0, 1] and rounded to steps of 2^-20, so that adding or removing a row moves each
total by exactly that row's steps: whole numbers from 0 to 2^20, all in one direction.

Parts: a row counts in one part, where its loss is 1 for each candidate except the one that it votes for. Choosing in
each part independently equals one choice among all combinations, where a row's loss in [0, 1] is that in its part: one
mechanism, with the eps0 of one choice. `choice.parts` has the full argument, and losses instead of votes.

The losses of an empty chunk determine the number of candidates, so no private row influences it.

Not covered: the duration of a choice. With research randomness, Gumbel noise is drawn in float64: chances below about
2^-53 become zero, and the low bits depend on a library's logarithm (mitigation, not proof). `--secure-rng` draws by
OpenDP in exact arithmetic (`draw_candidates_exactly`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
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
from dpbench.privacy.core.randomness import QuestionDraws
from dpbench.privacy.core.rows import CHUNK_BYTES
from dpbench.privacy.core.sum import make_share_reader
from dpbench.privacy.core.witness import ChoiceObservation
from dpbench.privacy.mechanisms.choice.cells import count_rows_in_cells, wrap_as_cells, wrap_to_return_bytes
from dpbench.privacy.mechanisms.choice.choice_plan import Choice
from dpbench.privacy.mechanisms.choice.steps import (
    MOST_LOSSES_HELD,
    loss_step_size,
    loss_steps,
    project_cells_to_losses,
)


@dataclass(frozen=True)
class ChoiceQuestion(Question):
    """A question that one planned choice pays for.

    Raises:
        SpecError: a chunk size below 1.
    """

    kind: ClassVar[type[Planned]] = Choice

    rows: RowFn
    """The row function: it returns losses, cells or votes; see the subclasses."""
    release: str
    chunk_size: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Refuse a chunk size below 1."""
        check_chunk_size(self.chunk_size)

    @property
    def releases(self) -> tuple[str, ...]:
        """The release that pays for the choice."""
        return (self.release,)


@dataclass(frozen=True)
class LeastLossChoice(ChoiceQuestion):
    """Asks for a candidate with a small total loss; see `Curator.noisy_choice`.

    `rows` returns each row's loss for each candidate, (c, N); with `project`, each row's cell, (c,) int64.
    """

    project: Tensor | None = None

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> int:
        """Add up losses, and choose a candidate."""
        choice: Choice = spent[0]
        if choice.parts > 1:
            raise SpecError(f"Release {self.release!r} is planned with {choice.parts} parts. Ask noisy_choices.")
        draws = curator.draws(self.release)
        if self.project is None:
            count = self._count_candidates(curator, choice.candidates)
            limit = count_rows_per_chunk(count, self.chunk_size)
            lost = sum_over_all_rows(
                curator, self.rows, self.release, draws, lambda block, shares: sum_losses(block, count, shares), limit
            )
        else:
            matrix = check_loss_matrix(self.project, choice.candidates)
            cells = wrap_as_cells(self.rows, len(matrix))
            lost = project_cells_to_losses(
                sum_over_all_rows(curator, cells, self.release, draws, count_rows_in_cells, self.chunk_size), matrix
            )
        return int(choose_for_each_part(curator, lost, 1, choice, draws))

    def _count_candidates(self, curator: LedgerCurator, candidates: int) -> int:
        """Return the number of candidates in the losses of an empty chunk, so that private rows do not influence it."""
        with closing(curator.empty_chunk()) as empty:
            blocks = curator.guard.blocks_of_empty_chunk(self.rows, next(empty), self.release)
            return int(check_losses(require_single_block(blocks, self.release), candidates).rows.shape[1])

    @property
    def row_function(self) -> RowFn:
        """The row function of the losses, or of the cells as bytes."""
        return self.rows if self.project is None else wrap_to_return_bytes(self.rows)

    @property
    def public(self) -> tuple[Any, ...]:
        """The public matrix of losses, if there is one."""
        return () if self.project is None else (self.project,)

    def candidates(self, curator: LedgerCurator) -> int | None:
        """Return the number of candidates in the matrix, or in the losses of an empty chunk."""
        if self.project is not None:
            return self.project.shape[1]
        with closing(curator.empty_chunk()) as empty:
            return int(self.rows(next(empty)).shape[1])  # type: ignore[union-attr]


@dataclass(frozen=True)
class MajorityChoiceByPart(ChoiceQuestion):
    """Asks for a candidate with many votes in each part; see `Curator.noisy_choices`. `rows` returns votes."""

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Tensor:
        """Count votes, and choose a candidate for each part."""
        choice: Choice = spent[0]
        draws = curator.draws(self.release)
        cells = wrap_as_cells(self.rows, choice.parts * choice.candidates)
        votes = sum_over_all_rows(curator, cells, self.release, draws, count_rows_in_cells, self.chunk_size)
        return choose_for_each_part(curator, IntegerSum(-votes.total, votes.grid), choice.parts, choice, draws)

    @property
    def row_function(self) -> RowFn:
        """The row function of the votes, as bytes."""
        return wrap_to_return_bytes(self.rows)

    def candidates(self, curator: LedgerCurator) -> int | None:
        """Return the planned number of candidates of each part; 0 if the release is not planned as a choice."""
        planned = curator.ledger.find_release(self.release)
        return planned.candidates if isinstance(planned, Choice) else 0


def require_single_block(blocks: Sequence[Contribution], release: str) -> Contribution:
    """Return the only block of contributions to a choice.

    Raises:
        SpecError: there is not exactly one block.
    """
    if len(blocks) != 1:
        raise SpecError(
            f"Release {release!r} contributed {len(blocks)} block(s) with 1 clip(s); expected one clip per block."
        )
    return blocks[0]


def sum_over_all_rows(
    curator: LedgerCurator, rows: RowFn, release: str, draws: QuestionDraws,
    integers: Callable[[Contribution, Tensor | None], IntegerSum], limit: int | None,
    totals: Sequence[IntegerSum] = (),
) -> IntegerSum:  # fmt: skip
    """Add `integers(block, shares)` of every chunk of private rows to `totals`, and return the sum."""
    _, shares = curator.rows.expand_units(np.arange(curator.rows.count), curator.task.device)

    def sum_each_chunk(chunks: Iterable[Chunk]) -> Iterator[Sequence[IntegerSum]]:
        read_shares = make_share_reader(shares)
        for blocks in curator.guard.contributions(rows, chunks, release, (1.0,)):
            block = require_single_block(blocks, release)
            yield [integers(block, read_shares(len(block)))]
            del blocks  # or two chunks of rows would be held at once

    limit = min(limit or len(curator.rows), curator.rows.count_rows_per_chunk(CHUNK_BYTES))
    return sum_chunks(curator.chunks_of_all_rows(draws, limit), sum_each_chunk, totals)[0]


def choose_for_each_part(
    curator: LedgerCurator, total_losses: IntegerSum, parts: int, choice: Choice, draws: QuestionDraws
) -> Tensor:
    """Choose a candidate for each part, given total losses (parts * N,), and report the choice to the witness."""
    sigma = curator.sigma[choice.name]
    if curator.ledger.spent[choice.name] == 1 and sigma:
        draws.check_duration(total_losses.total.numel(), choice.steps)
    chosen = choose_candidates(total_losses.total.reshape(parts, -1), sigma, float(total_losses.grid), draws)
    curator.witness.on_choice(ChoiceObservation(choice.name, total_losses, parts, chosen))
    return chosen


def choose_candidates(totals: Tensor, sigma: float, grid: float, draws: QuestionDraws) -> Tensor:
    """Choose a candidate in each row of whole-number `totals` (parts, N); return int64 (parts,).

    Candidate j has chance proportional to exp(-eps0 * grid * totals[j]), with eps0 = 2 / sigma. If sigma is 0, the
    choice is the first candidate with the least total.
    """
    if not sigma:
        return totals.argmin(1)
    chosen = draw_candidates(totals.cpu().numpy(), sigma / 2 / grid, draws)  # exact, where grid is a power of two
    return torch.from_numpy(chosen).to(totals.device)


def draw_candidates(totals: np.ndarray, scale: float, draws: QuestionDraws) -> np.ndarray:
    """Draw an index in each row of int64 totals (parts, N); index j has chance proportional to exp(-totals[j] / scale).

    Return int64 (parts,): the index of the smallest total after subtracting Gumbel noise of this scale.
    """

    def draw_by_gumbel(stream: np.random.Generator) -> np.ndarray:
        excess = (totals - totals.min(1, keepdims=True)) / scale  # whole numbers until here
        chosen: np.ndarray = (stream.gumbel(size=totals.shape) - excess).argmax(1)
        return chosen

    return draws.draw(draw_by_gumbel, lambda: draw_candidates_exactly(totals, scale))


def draw_candidates_exactly(totals: np.ndarray, scale: float) -> np.ndarray:
    """Draw as `draw_candidates` does, with exact chances: OpenDP compares noise to as many bits as needed.

    `scale` is exact because it is a double: half of sigma times a power of two.
    """
    import opendp.prelude as dp

    dp.enable_features("contrib")
    domain = dp.vector_domain(dp.atom_domain(T="i64"), size=totals.shape[1])
    distance, measure = dp.linf_distance(T="i64"), dp.zero_concentrated_divergence()  # this measure's noise is Gumbel
    chosen = dp.m.make_noisy_max(domain, distance, measure, scale=scale, negate=True)
    return np.array([chosen(row.tolist()) for row in totals], np.int64)


def count_rows_per_chunk(candidates: int, chunk_size: int | None) -> int:
    """Return the number of rows per chunk, given the number of candidates; at least two, to compare rows."""
    return max(2, min(chunk_size or MOST_LOSSES_HELD, MOST_LOSSES_HELD // candidates))


def check_losses(block: Contribution, candidates: int) -> Rows:
    """Check that a block holds losses (c, N) for 1 to `candidates` candidates, and return it.

    Raises:
        SpecError: the block is not such a table of losses.
    """
    shape = tuple(block.rows.shape) if isinstance(block, Rows) else None
    if not isinstance(block, Rows) or block.rows.ndim != 2 or not 1 <= block.rows.shape[1] <= candidates:
        raise SpecError(
            f"Expected losses (c, N) with N in [1, {candidates:,}], as planned, got {shape or type(block).__name__}."
        )
    return block


def sum_losses(block: Contribution, count: int, shares: Tensor | None = None) -> IntegerSum:
    """Add up a chunk's losses for each of `count` candidates, in steps of 2^-20.

    Sensitivity: adding or removing one row moves each total by 0 to 2^20 steps or, with `shares` (c,), by the row's
    share of these, rounded down.

    Raises:
        SpecError: the number of candidates differs from that in an empty chunk.
    """
    losses = check_losses(block, count).rows
    if losses.shape[1] != count:
        raise SpecError(f"Expected losses by {count:,} candidates in every chunk, as in an empty chunk.")
    return IntegerSum(loss_steps(losses, shares).sum(0, dtype=torch.float64).to(torch.int64), loss_step_size(losses))


def check_loss_matrix(project: Tensor, candidates: int) -> Tensor:
    """Check a public matrix of losses (cells, N), and return a copy.

    Raises:
        SpecError: `project` is not such a matrix, has more columns than `candidates`, or has an entry outside [0, 1].
    """
    if not isinstance(project, Tensor) or project.ndim != 2 or not project.numel() or project.shape[1] > candidates:
        what = tuple(project.shape) if isinstance(project, Tensor) else type(project).__name__
        raise SpecError(f"Expected project (cells, N) with N in [1, {candidates:,}], as planned, got {what}.")
    matrix = strip_subclass(project).detach()
    low, high = (float(matrix.min()), float(matrix.max())) if matrix.dtype != torch.bool else (0.0, 1.0)
    if not (low >= 0 and high <= 1):
        raise SpecError(f"Expected losses in [0, 1] in project, got {low:g} to {high:g}: divide by the largest.")
    return matrix.clone()  # nothing that runs over rows can reach it
