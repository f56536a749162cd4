"""The exponential mechanism (McSherry and Talwar 2007): of public candidates, one that loses little, chosen by chance.

Row i loses l_ij in [0, 1] by candidate j. Totals L_j = sum_i l_ij are added up in integers, and j is chosen with chance
P(j) = exp(-eps0 L_j) / Z, with Z the sum over all candidates, which are public.

Sensitivity: losses are clamped to [0, 1] and rounded to steps of 2^-20, so that adding or removing a row moves each
total by exactly that row's steps: whole numbers from 0 to 2^20, all in one direction.

Privacy (add or remove one). Let P' be the law with one more row, of losses l_j.

- eps0-DP, without the factor 2 of replacing a row, by which some l_j may rise as others fall: the log-ratio
  f(j) = log P'(j) / P(j) is log(Z / Z') - eps0 l_j, where 1 <= Z / Z' <= exp(eps0) as 0 <= l_j <= 1, so |f| <= eps0.
- eps0^2 / 8 zero-concentrated DP: all values of f lie in one interval of length eps0. Let K(s) be log E_P[exp(s f)].
  K(0) = K(1) = 0, and K'' is the variance, under a tilted law, of a number in that interval: at most eps0^2 / 4. So
  eps0^2 / 8 * s (s - 1) - K(s) is convex with zeros at 0 and 1, and not negative for s > 1, where K(s) / (s - 1) is the
  Renyi divergence of order s of P' from P. With -f for f it is that of P from P' (Cesar and Rogers 2021, lemma 3.4).

`plan.eps0_of` makes that of a Gaussian of noise multiplier sigma: eps0 = 2 / sigma, eps0^2 / 8 = 1 / (2 sigma^2).

Parts: a row touches one part, whose candidates lose 1 each but the one that it votes for. Choosing part by part, each
on its own, is choosing among all combinations with the loss of a row at the part it touches, in [0, 1]: one mechanism,
with the eps0 of one choice (parallel composition).

Candidates are as many as the losses of no rows are by: a count that no private row has a part in.

Not covered: how long a choice takes. With research randomness Gumbel noise is drawn in float64: chances below some
2^-53 come out as zero, and low bits are those of a library's logarithm (mitigation, not proof). `--secure-rng` draws by
OpenDP in exact arithmetic (`discrete.least`).
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from dpbench.api import Chunk, RowFn
from dpbench.errors import SpecError
from dpbench.privacy.core.exact.quantised import plain
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.contributions import Contribution, Rows
from dpbench.privacy.core.randomness import Draws
from dpbench.privacy.mechanisms.cells import Cells

BITS = 20  # losses are whole steps of 2^-20
HELD = 2**24  # losses of a chunk that are held at once


def numbered(rows: RowFn, count: int) -> Callable[[Chunk], Cells]:
    """Return the row function whose whole numbers are taken for cells.

    Raises:
        SpecError: when called, if it returns anything but whole numbers, one a row.
    """

    def in_cells(chunk: Chunk) -> Cells:
        index: object = rows(chunk)
        if not isinstance(index, Tensor) or index.dtype != torch.int64 or index.ndim != 1:
            kind = f"{index.dtype} {tuple(index.shape)}" if isinstance(index, Tensor) else type(index).__name__
            raise SpecError(f"Expected one whole number a row, int64 (c,), from a row function over cells, got {kind}.")
        return Cells(plain(index), count)

    return in_cells


def rows_held(candidates: int, chunk_size: int | None) -> int:
    """Return how many rows of losses by so many candidates a chunk may have; two, at least, can be compared."""
    return max(2, min(chunk_size or HELD, HELD // candidates))


def counted(block: Contribution, candidates: int) -> int:
    """Return how many candidates losses over no rows (0, N) are by.

    Raises:
        SpecError: they are no losses, or by more candidates than were planned.
    """
    shape = tuple(block.rows.shape) if isinstance(block, Rows) else None
    if not isinstance(block, Rows) or block.rows.ndim != 2 or not 1 <= block.rows.shape[1] <= candidates:
        raise SpecError(
            f"Expected losses (c, N) with N in [1, {candidates:,}], as planned, got {shape or type(block).__name__}."
        )
    return int(block.rows.shape[1])


def losses(block: Contribution, count: int) -> IntegerSum:
    """Return the total losses of a chunk by each of `count` candidates, in steps of 2^-20.

    Sensitivity: adding or removing one row moves each total by 0 to 2^20 steps.

    Raises:
        SpecError: losses by another number of candidates than over no rows, where no private row can have a part in it.
    """
    if not isinstance(block, Rows) or counted(block, count) != count:
        raise SpecError(f"Expected losses by {count:,} candidates in every chunk, as over no rows, got another number.")
    return IntegerSum(_steps(block.rows).sum(0, dtype=torch.float64).to(torch.int64), _grid(block.rows))


def counts(block: Contribution) -> IntegerSum:
    """Return how many rows of a chunk are in each cell.

    Sensitivity: adding or removing one row moves one count by 1.
    """
    return block.integers(1.0)


def projected(cells: IntegerSum, matrix: Tensor) -> IntegerSum:
    """Return the total losses (N,) of rows counted by cell, given a `checked` matrix of those of a row in each cell.

    Sensitivity: that of `losses`: a row adds the steps of its cell. Products and sums are whole numbers below 2^53.
    """
    total = torch.zeros(matrix.shape[1], dtype=torch.float64, device=cells.total.device)
    held = max(1, HELD // matrix.shape[1])  # cells at once
    for some, part in zip(torch.split(cells.total, held), torch.split(matrix, held), strict=True):
        total += some.double() @ _steps(part.to(total.device).double())
    return IntegerSum(total.to(torch.int64), _grid(total))


def checked(project: Tensor, candidates: int) -> Tensor:
    """Return a copy of a public matrix of losses (cells, N), or refuse it.

    Raises:
        SpecError: it is none, or an entry is not in [0, 1].
    """
    if not isinstance(project, Tensor) or project.ndim != 2 or not project.numel() or project.shape[1] > candidates:
        what = tuple(project.shape) if isinstance(project, Tensor) else type(project).__name__
        raise SpecError(f"Expected project (cells, N) with N in [1, {candidates:,}], as planned, got {what}.")
    matrix = plain(project).detach()
    low, high = (float(matrix.min()), float(matrix.max())) if matrix.dtype != torch.bool else (0.0, 1.0)
    if not (low >= 0 and high <= 1):
        raise SpecError(f"Expected losses in [0, 1] in project, got {low:g} to {high:g}: divide by the largest.")
    return matrix.clone()  # nothing that runs over rows can reach it


def choose(totals: Tensor, sigma: float, grid: float, draws: Draws) -> Tensor:
    """Return one candidate a row of whole `totals` (parts, N), int64 (parts,); the first of the least if sigma is 0.

    Candidate j has chance proportional to exp(-eps0 * grid * totals[j]), with eps0 = 2 / sigma.
    """
    if not sigma:
        return totals.argmin(1)
    chosen = draws.least(totals.cpu().numpy(), sigma / 2 / grid)  # exact, where grid is a power of two
    return torch.from_numpy(chosen).to(totals.device)


def _steps(numbers: Tensor) -> Tensor:
    return numbers.nan_to_num(0.0).clamp_(0, 1).mul_(2.0**BITS).round_()


def _grid(like: Tensor) -> Tensor:
    return torch.tensor(2.0**-BITS, dtype=torch.float64, device=like.device)
