"""Clipped sums in integers: each row is rounded to a public grid before it is added.

Adding or removing a row then moves the sum by exactly that row's integers, whatever the other rows are and in
whatever order they are added (Casacuberta, Shoemate, Vadhan and Wagaman 2022 show what goes wrong otherwise).
Grids are the clip times a power of two that depends on public shapes alone. Rounding to the nearest moves a row of t
entries by sqrt(t) / 2 grid steps at most: this `reserve` is kept free below the clip, by the triangle inequality
|rounded row| <= weight * |row| + reserve <= clip, with a norm that is never under-estimated and weights rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from dpbench.errors import NotPerExample, SpecError
from dpbench.privacy.exact.elementwise import TINY, folded, roundings
from dpbench.privacy.exact.products import product
from dpbench.privacy.exact.quantised import FINE, LARGEST, SLICE, Quantised, sliced

DENSE_BITS = 24  # the grid of dense rows is clip * 2^-24: float32 holds every integer up to 2^24
BIAS_BITS = 20  # that of a bias column
WIDEST = 2.0**26  # of a bias scale, in typical feature scales: 2^19 rows at the clip then add up inside 64 bits
LEFT_LIMIT = 127 * 2**SLICE  # two slices hold integers up to this
BLOCK = 2**12  # entries whose squares are added up at once: what long rows take beside themselves
COLUMNS = 2**18  # entries of all dense rows that are rounded at once, to stay in the processor's cache


@dataclass(frozen=True)
class IntegerSum:
    """A clipped sum before noise: `total` times `grid`, exactly."""

    total: Tensor  # int64, shaped like one row
    grid: Tensor  # float64, broadcasts with `total`: public, from the clip and the row's shape alone

    def __add__(self, other: IntegerSum) -> IntegerSum:
        """Return the sum of both: parts of one sample.

        Raises:
            NotPerExample: they differ in form, shape or grid; broadcast, a row would count several times.
        """
        same = type(other) is IntegerSum and self.total.shape == other.total.shape
        if not same or not torch.equal(self.grid, other.grid):
            raise misfit()
        return IntegerSum(self.total + other.total, self.grid)

    def value(self) -> Tensor:
        """Return the sum in float64."""
        return self.total * self.grid


def lengths(rows: Tensor, axis: int = 1) -> Tensor:
    """Return float64 L2 norms along an axis of float32 or float64 rows: never under-estimated, bits of the row alone.

    Above 1e25, or NaN, for a row that counts as not finite.
    """
    squares = [folded(part.square(), axis) for part in torch.split(rows, BLOCK, axis)] or [rows.sum(axis)]
    total = (folded(torch.stack(squares)) if squares[1:] else squares[0]).double()
    count = roundings(min(BLOCK, rows.shape[axis])) + roundings(len(squares)) + 8
    return total.sqrt_().mul_(1 + count * torch.finfo(rows.dtype).eps / 2).add_(TINY)


def weights_within(norms: Tensor, bounds: Tensor | float, largest: float = LARGEST) -> Tensor:
    """Return float64 weights in [0, 1] with weight * norm <= bound, and 0 for norms above `largest` or not finite.

    A part in 2^20 is left free for the float32 roundings of the weight and of its product with a row.
    """
    weights = (bounds / norms).mul_(1 - 2.0**-20).clamp_(0, 1)
    return weights.masked_fill_((norms <= largest).logical_not_(), 0)


def dense_sum(parts: tuple[Tensor, ...], norms: Tensor, clip: float) -> IntegerSum:
    """Return the sum of dense rows that come in parts (c, ...), each row clipped as one; `norms` (c,) bounds the whole.

    Sensitivity: at most `clip`, under adding or removing one row.
    """
    entries = sum(part[0].numel() if len(part) else 0 for part in parts)
    grid = clip * 2.0**-DENSE_BITS
    bound = max(0.0, clip - 0.5 * grid * entries**0.5)
    factors = weights_within(norms, bound) / grid
    kept = factors > 0
    totals = []
    for part in parts:
        flat = part.flatten(1)
        whole = bool(kept.all())
        flat, factor = (flat, factors) if whole else (flat[kept], factors[kept])
        factor = factor.to(flat.dtype).unsqueeze(1)
        for block in torch.split(flat, max(1, COLUMNS // max(1, len(flat))), 1):
            totals.append((block * factor).round_().sum(0, dtype=torch.float64).to(torch.int64))
    return IntegerSum(torch.cat(totals), torch.tensor(grid, dtype=torch.float64, device=norms.device))


def outer_bits(features: int) -> int:
    """Return b for the grid clip * 2^-b of outer products with int8 rows of so many features.

    The left factor of a row at the clip is then 2^b / |q| long, 11 bits or more of the 14 that two slices hold; rows
    whose largest feature is 16 times the others or more may be weighed down, to fit as a whole.
    """
    return 21 + max(0, (features // 256).bit_length() - 1) // 2


def misfit() -> NotPerExample:
    """Return the refusal of chunks whose sums cannot be added."""
    return NotPerExample(
        "Two chunks of one sample contributed rows of another form, shape or scale. Expected these to be the same for "
        "all chunks: name them by public values, such as task.classes, and not by what a chunk holds."
    )


@dataclass(frozen=True)
class OuterRows:
    """Outer products rounded to integers under each of s settings: row i of setting s is left[s, :, i] x right.q[i].

    A bias column is the left factor times a constant 1, on a grid of its own.
    """

    slices: Tensor  # (2, s, m, c) int8: the left factors, high slices and low ones
    right: Quantised  # (c, d)
    column: Tensor | None  # (s, m, c) float32 integers
    grids: Tensor  # (s,) float64, of the products

    def total(self) -> IntegerSum:
        """Return the sums over the rows, (s, m, d) or, with bias, (s, m, d + 1)."""
        _, settings, outputs, _ = self.slices.shape
        high, low = product(self.slices.flatten(0, 2), self.right.q).chunk(2)  # (s m, d)
        total = high.to(torch.int64).mul_(2**SLICE).add_(low).reshape(settings, outputs, -1)
        grid = column_grids(self.right, self.column is not None, self.grids).unsqueeze(1)
        if self.column is None:
            return IntegerSum(total, grid)
        column = self.column.to(torch.int64).sum(2)
        return IntegerSum(torch.cat([total, column.unsqueeze(2)], 2), grid)


def outer_reserve(left: Tensor, reach: Tensor, grids: Tensor, columns: Tensor | None) -> Tensor:
    """Return (s, c) float64: how far rounding to the grids (s,) can move left (s, m, c) x rows of lengths `reach` (c,).

    `columns` (s,) are the grids of a bias column.
    """
    half = 0.5 * left.shape[1] ** 0.5 * (1 + 2.0**-40)
    reserve: Tensor = reach * (grids * half).unsqueeze(1)
    return reserve if columns is None else reserve.add_((columns * half).unsqueeze(1))


def bias_grids(right: Quantised, grids: Tensor) -> Tensor:
    """Return the grids of the bias column beside these of the products."""
    return grids * 2.0 ** (outer_bits(right.shape[1]) - BIAS_BITS)


def column_grids(right: Quantised, bias: bool, grids: Tensor) -> Tensor:
    """Return the grids by column, (s, d) or, with bias, (s, d + 1)."""
    columns = grids.unsqueeze(1).expand(-1, right.shape[1])
    return torch.cat([columns, bias_grids(right, grids).unsqueeze(1)], 1) if bias else columns


def fitting(left: Tensor, right: Quantised, grids: Tensor) -> Tensor:
    """Return (s, c) float64 weights so small that the left factors (s, m, c) fit into two slices."""
    largest = left.abs().amax(1).double().mul_(right.scale)  # (s, c), exact
    return weights_within(largest, (LEFT_LIMIT - 1) * grids.unsqueeze(1))


def round_outer(left: Tensor, right: Quantised, bias: bool, weights: Tensor, grids: Tensor) -> OuterRows:
    """Return the outer products times their weights (s, c), rounded to integers; left is (s, m, c), classes first."""
    right.check()
    factors = weights * right.scale
    if bool((weights == 0).any()):  # zero times NaN would be NaN
        left = left.masked_fill((weights == 0).unsqueeze(1), 0)
        factors.masked_fill_(weights == 0, 0)
    column = None
    if bias:
        column = (left * (weights / bias_grids(right, grids).unsqueeze(1)).float().unsqueeze(1)).round_()
    whole = (left * factors.div_(grids.unsqueeze(1)).float().unsqueeze(1)).round_()
    slices = torch.empty(2, *left.shape, dtype=torch.int8, device=left.device)
    high = (whole * 2.0**-SLICE).round_()
    slices[0].copy_(high)
    slices[1].copy_(whole.sub_(high, alpha=2**SLICE))
    return OuterRows(slices, right, column, grids)


def outer_sum(left: Tensor, right: Quantised, bias: bool, clips: Tensor) -> IntegerSum:
    """Return the clipped sums of outer products under s settings, clips (s,): (s, m, d) or, with bias, (s, m, d + 1).

    A row of few large features counts as one of at least so many that its left factor fits into two slices.
    Sensitivity: under each setting at most its clip, under adding or removing one row.
    """
    grids = clips * 2.0 ** -outer_bits(right.shape[1])
    columns = bias_grids(right, grids) if bias else None
    reach = right.lengths.clamp(min=2.0 ** outer_bits(right.shape[1]) / (LEFT_LIMIT - 2))  # (c,)
    widths = (reach * right.scale).square_().add_(float(bias)).sqrt_().mul_(1 + 2.0**-40)
    room = clips.unsqueeze(1) - outer_reserve(left, reach, grids, columns)
    weights = weights_within(lengths(left).mul_(widths), room, LARGEST**2)
    return round_outer(left, right, bias, weights, grids).total()


def scaled_sum(left: Tensor, right: Quantised, bias: bool, scale: Tensor, clip: float) -> IntegerSum:
    """Return the clipped sum of outer products that are divided entry by entry by a public `scale`.

    `left` is (1, m, c) and the scale (m, d) or, with bias, (m, d + 1). Rows are clipped after the division: the norm is
    that of the quantised row, each square weighed by an integer that is at least 1 / scale^2.
    Sensitivity: at most `clip`, under adding or removing one row.

    Raises:
        SpecError: a scale of the bias so far above those of the features that sums would not fit into 64 bits.
    """
    right.check()
    features, inverse = right.shape[1], 1 / scale.double()
    spread = _weighted_squares(right, inverse[:, :features].square())  # (m, c)
    last = inverse[:, features:].square().sum(1, keepdim=True)  # (m, 1), of the bias, else zero
    whole = (right.scale.double().square() * spread).add_(last)  # (m, c): the squared norm of a row for left = 1
    squares = folded(left[0].double().square_().mul_(whole)).unsqueeze(0)  # (1, c)
    norms = squares.sqrt_().mul_(1 + 2.0**-30)
    typical = float(inverse[:, :features].square().mean().rsqrt().log2().floor())
    if bias and not float(scale[:, features:].max()) <= WIDEST * 2.0**typical:
        raise SpecError(
            f"Expected the scale of a bias to be at most {WIDEST:.0f} times those of the features, got "
            f"{float(scale[:, features:].max()):.3g} beside about {2.0**typical:.3g}. Raise the small scales."
        )
    grids = torch.full(
        (1,), clip * 2.0 ** (typical + 2 - outer_bits(features)), dtype=torch.float64, device=left.device
    )
    steps = (spread * grids.square()).add_(last * bias_grids(right, grids).square())  # (m, c)
    reserve = folded(steps).sqrt_().mul_(0.5 * (1 + 2.0**-30))
    weights = weights_within(norms, (clip - reserve).unsqueeze(0), LARGEST**2)
    found = round_outer(left, right, bias, torch.minimum(weights, fitting(left, right, grids)), grids).total()
    return IntegerSum(found.total[0], found.grid[0] / scale)


def _weighted_squares(right: Quantised, shares: Tensor) -> Tensor:
    """Return (m, c) float64: sum over l of q[i, l]^2 shares[j, l], never under-estimated, bits of row i alone."""
    slices, scale = sliced(shares, FINE)
    squares = right.q.to(torch.int16)
    squares.mul_(squares)  # at most 127^2, in two slices
    total = torch.zeros(len(shares), len(right), dtype=torch.float64, device=shares.device)
    for part, worth in ((squares >> SLICE, 2.0**SLICE), (squares & 127, 1.0)):
        terms = product(torch.cat(slices), part.to(torch.int8).T).chunk(FINE)
        for j, term in enumerate(terms):
            total.add_(term, alpha=worth * 2.0 ** (-SLICE * j))
    left_out = right.lengths.square() * 2.0 ** (-SLICE * (FINE - 1))
    return total.add_(left_out).mul_((scale * (1 + 2.0**-40)).unsqueeze(1))
