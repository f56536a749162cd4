"""Clipped sums in integers: each row is rounded to a public grid before it is added.

Adding or removing a row then moves the sum by exactly that row's integers, whatever the other rows are and in
whatever order they are added (Casacuberta, Shoemate, Vadhan and Wagaman 2022 show what goes wrong otherwise).
A grid step is the clip times a power of two that depends on public shapes alone. Rounding to the nearest step moves a
row of t entries by at most sqrt(t) / 2 steps. This `reserve` is kept free below the clip: by the triangle inequality
|rounded row| <= weight * |row| + reserve <= clip, with norms that are never under-estimated and weights rounded down.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import NotPerExample, SpecError
from dpbench.privacy.core.exact import products
from dpbench.privacy.core.exact.elementwise import TINY, count_roundings, folded
from dpbench.privacy.core.exact.limits import LEFT_LIMIT, ROOM, ROW_LIMIT, SLICE, SLICES, STEEPEST, WIDER
from dpbench.privacy.core.exact.quantised import QuantisedRows, round_to_integers

DENSE_BITS = 24  # the grid of dense rows is clip * 2^-24: float32 holds every integer up to 2^24
BIAS_BITS = 20  # that of a bias column
WIDEST = 2.0**26  # times the typical scale of the features: that of a bias, whose column then stays below 2^44 steps
CPU = torch.device("cpu")
BLOCK = 2**12  # entries whose squares are added up at once: what long rows take beside themselves
COLUMNS = 2**18  # entries of all dense rows that are rounded at once, to stay in the processor's cache


@dataclass(frozen=True)
class IntegerSum:
    """A clipped sum before noise: `total` times `grid`, exactly."""

    total: Tensor  # int64, shaped like one row
    grid: Tensor  # float64, broadcasts with `total`: public, from the clip and the row's shape alone
    largest: float = 2.0**31  # bounds what one row may add to an entry: 2^24 if dense, 127 * `LEFT_LIMIT` in products

    def __add__(self, other: IntegerSum) -> IntegerSum:
        """Return the sum of two parts of one sample.

        Raises:
            NotPerExample: the parts differ in form, shape or grid; broadcasting would count a row several times.
        """
        same = type(other) is IntegerSum and self.total.shape == other.total.shape
        if not same or not torch.equal(self.grid, other.grid):
            raise chunk_mismatch_error()
        return IntegerSum(self.total + other.total, self.grid, self.largest)

    def check_fits_64_bits(self, rows: int) -> None:
        """Check that 64 bits can hold a sum of this many rows.

        Raises:
            SpecError: the number of rows times the largest entry of a row is above 2^62.
        """
        if rows * self.largest > 2.0**62:
            raise SpecError(
                f"Expected a sum of {rows:,} rows to fit into 64 bits, got rows of up to {self.largest:.3g} steps of "
                "their grid. Raise the small scales of a Scaled contribution."
            )

    def value(self) -> Tensor:
        """Return the sum in float64."""
        return self.total * self.grid


def measure_lengths(rows: Tensor, axis: int = 1) -> Tensor:
    """Return the L2 norms (float64) of float32 or float64 rows along an axis, never under-estimated.

    The bits of a norm depend on its row alone. A norm above 1e25, or NaN, marks a row that counts as not finite.
    """
    if rows.shape[axis] <= BLOCK:
        total = folded(rows.square(), axis).double()
    else:
        total = folded(torch.stack([folded(part.square(), axis) for part in torch.split(rows, BLOCK, axis)])).double()
    return total.sqrt_().mul_(_length_slack(rows.shape[axis], rows.dtype)).add_(TINY)


def _length_slack(entries: int, dtype: torch.dtype) -> float:
    """Bound the factor by which rounding under-estimates the length of a vector with this many entries."""
    blocks = -(-entries // BLOCK)
    count = count_roundings(min(BLOCK, entries)) + 8 + (count_roundings(blocks) if blocks > 1 else 0)
    rounding: float = torch.finfo(dtype).eps / 2
    return 1 + count * rounding


def weights_within(
    norms: Tensor, bounds: Tensor | float, largest: float = ROW_LIMIT, most: Tensor | None = None
) -> Tensor:
    """Return float64 weights in [0, 1] with weight * norm <= bound; 0 for norms above `largest` or not finite.

    `most` (c,), if given, bounds each row's weight by the row's share of its unit.

    A fraction 2^-20 of the bound is left free for the float32 roundings of the weight and of its product with a row,
    and for the few 2^-53 by which a noise std in grid steps may be rounded down.
    """
    weights = (bounds / norms).mul_(ROOM).clamp_(0, 1)
    weights = weights if most is None else torch.minimum(weights, most)
    return weights.masked_fill_((norms <= largest).logical_not_(), 0)


def clipped_dense_sum(
    parts: tuple[Tensor, ...], norms: Tensor, clip: float, shares: Tensor | None = None
) -> IntegerSum:
    """Return the clipped sum of dense rows whose entries come in parts (c, ...); `norms` (c,) bounds whole rows.

    Sensitivity, under adding or removing one row: at most `clip`, or the row's share of `clip` if `shares` (c,) is
    given.
    """
    entries = sum(part[0].numel() if len(part) else 0 for part in parts)
    grid = clip * 2.0**-DENSE_BITS
    reserve = 0.5 * grid * entries**0.5
    bound = max(0.0, clip - reserve) if shares is None else (clip * shares - reserve).clamp_(min=0)
    step = torch.tensor(grid, dtype=torch.float64, device=norms.device)  # by a plain number a GPU multiplies instead
    factors = weights_within(norms, bound, most=shares) / step
    kept = factors > 0
    totals = []
    for part in parts:
        flat = part.flatten(1)
        whole = bool(kept.all())
        flat, factor = (flat, factors) if whole else (flat[kept], factors[kept])
        factor = factor.to(flat.dtype).unsqueeze(1)
        for block in torch.split(flat, max(1, COLUMNS // max(1, len(flat))), 1):
            totals.append((block * factor).round_().sum(0, dtype=torch.float64).to(torch.int64))
    return IntegerSum(torch.cat(totals), step)


def outer_product_grid_bits(features: int) -> int:
    """Return b: the sum of outer products with int8 rows of this many features has a grid of clip * 2^-b.

    The left factor of a row at the clip then has length 2^b / |q|: 11 or more of the 14 bits that two slices hold. Rows
    with one feature at least 16 times larger than the others may get a smaller weight, so that all entries fit. 21 bits
    suit 256 features; |q| grows like the square root of their number, so each factor of 4 adds a bit. Another choice of
    b would affect accuracy only, not privacy.
    """
    return 21 + max(0, (features // 256).bit_length() - 1) // 2


def chunk_mismatch_error() -> NotPerExample:
    """Return the error for two chunks whose sums cannot be added; the first chunk of every sample is an empty one."""
    return NotPerExample(
        "Two chunks of one sample, one of them empty perhaps, contributed rows of another form, shape or scale. "
        "Expected these to be the same for all chunks: name them by public values, such as task.classes, and not by "
        "what a chunk holds."
    )


@dataclass(frozen=True)
class OuterProductGrids:
    """The grids of outer products with int8 rows, for s clips: they are public, so they are made once for all steps."""

    products: Tensor  # (s, 1) float64
    column: Tensor | None  # (s, 1) float64: of a bias column, the left factor times a constant 1
    entries: Tensor  # (s, 1, d) or, with bias, (s, 1, d + 1)
    moves: tuple[Tensor, Tensor | float]  # (s, 1): rounding error of products per unit of reach, and of the bias column

    def bound_rounding(self, reach: Tensor) -> Tensor:
        """Bound the rounding errors (s, c) float64 of outer products with rows of lengths `reach` (c,)."""
        return (reach * self.moves[0]).add_(self.moves[1])


@lru_cache(64)
def make_outer_product_grids(
    products: tuple[float, ...], outputs: int, features: int, bias: bool, device: torch.device
) -> OuterProductGrids:
    """Return the grids of (outputs, features) outer products, given one grid step per clip; cached."""
    grids = torch.tensor(products, dtype=torch.float64, device=device).unsqueeze(1)
    half = 0.5 * outputs**0.5 * WIDER
    entries = grids.expand(-1, features).unsqueeze(1)
    if not bias:
        return OuterProductGrids(grids, None, entries, (grids * half, 0.0))
    column = grids * 2.0 ** (outer_product_grid_bits(features) - BIAS_BITS)
    return OuterProductGrids(grids, column, torch.cat([entries, column.unsqueeze(1)], 2), (grids * half, column * half))


def compute_two_slice_weights(left: Tensor, right: QuantisedRows, grids: OuterProductGrids) -> Tensor:
    """Return weights (s, c) float64 so small that the left factors (s, m, c) fit into two slices."""
    largest = left.abs().amax(1).double().mul_(right.scale)  # (s, c), exact
    return weights_within(largest, (LEFT_LIMIT - 1) * grids.products)


def rounded_outer_sum(left: Tensor, right: QuantisedRows, weights: Tensor, grids: OuterProductGrids) -> IntegerSum:
    """Return sums of outer products times weights (s, c), rounded to integers: (s, m, d) or, with bias, (s, m, d + 1).

    `left` is (s, m, c), classes first. In the sum of index s, row i adds its rounded left factor times right.q[i].
    """
    right.check_unchanged()
    settings, outputs, count = left.shape
    scales = right.scale
    if count and not float(weights.amin()) > 0:  # zero times NaN would be NaN
        left = left.masked_fill((weights == 0).unsqueeze(1), 0)
        scales = scales.nan_to_num()
    whole = (left * _weights_in_grid_steps(weights * scales, grids.products)).round_()
    total = products.exact_matmul(whole.flatten(0, 1), right.q).reshape(settings, outputs, right.shape[1])
    if grids.column is not None:
        column = torch.mul(left, _weights_in_grid_steps(weights, grids.column), out=whole).round_()
        total = torch.cat([total, column.long().sum(2, keepdim=True)], 2)
    return IntegerSum(total, grids.entries)


def _weights_in_grid_steps(weights: Tensor, grids: Tensor) -> Tensor:
    """Return the weights in grid steps, (s, 1, c) float32, at most `STEEPEST` each."""
    return (weights / grids).clamp_(max=STEEPEST).float().unsqueeze(1)


def clipped_outer_product_sum(
    left: Tensor, right: QuantisedRows, bias: bool, clips: tuple[float, ...], shares: Tensor | None = None
) -> IntegerSum:
    """Return the clipped sums of outer products, one for each of s clips: (s, m, d) or, with bias, (s, m, d + 1).

    The norm of a row with few large features is rounded up, so that its left factor can be stored in two slices.
    Sensitivity, under adding or removing one row: at most the clip of each sum, or the row's share of this clip if
    `shares` (c,) is given.
    """
    outputs, features = left.shape[1], right.shape[1]
    bits = outer_product_grid_bits(features)
    grids = make_outer_product_grids(_outer_product_grid_steps(clips, features), outputs, features, bias, left.device)
    reach = right.lengths.clamp(min=_least_reach(bits))  # (c,)
    widths = (reach * right.scale).square_().add_(float(bias)).sqrt_().mul_(WIDER)
    room = _scale_clips(grids.products * 2.0**bits, shares) - grids.bound_rounding(reach)
    weights = weights_within(measure_lengths(left).mul_(widths), room, ROW_LIMIT**2, shares)
    return rounded_outer_sum(left, right, weights, grids)


def _least_reach(bits: int) -> float:
    """Return the length that shorter rows are assumed to have, so that their left factors fit into two slices."""
    return 2.0**bits / (LEFT_LIMIT - 2)


@lru_cache(64)
def outer_product_sum_constants(outputs: int, features: int, bias: bool, clip: float) -> np.ndarray:
    """Return the public constants of `clipped_outer_product_sum` for one clip, for `kernels.sum_gradients`."""
    bits, grids = (
        outer_product_grid_bits(features),
        make_outer_product_grids(_outer_product_grid_steps((clip,), features), outputs, features, bias, CPU),
    )
    grid, column = float(grids.products), 0.0 if grids.column is None else float(grids.column)
    moves = [float(move) for move in grids.moves]
    return np.array([grid * 2.0**bits, grid, column, *moves, _least_reach(bits), _length_slack(outputs, torch.float32)])


def _scale_clips(clips: Tensor | float, shares: Tensor | None) -> Tensor | float:
    return clips if shares is None else clips * shares


@lru_cache(64)
def empty_outer_product_sum(outputs: int, features: int, bias: bool, clip: float, device: torch.device) -> IntegerSum:
    """Return `clipped_outer_product_sum` over zero rows for one clip: a single zero, expanded to its shape. Cached."""
    grids = make_outer_product_grids(_outer_product_grid_steps((clip,), features), outputs, features, bias, device)
    nothing = torch.zeros((), dtype=torch.int64, device=device)
    return IntegerSum(nothing.expand(outputs, features + bias), grids.entries[0])


def _outer_product_grid_steps(clips: tuple[float, ...], features: int) -> tuple[float, ...]:
    return tuple(clip * 2.0 ** -outer_product_grid_bits(features) for clip in clips)


def clipped_scaled_sum(
    left: Tensor, right: QuantisedRows, bias: bool, scale: Tensor, clip: float, shares: Tensor | None = None
) -> IntegerSum:
    """Return the clipped sum of outer products that are divided, entry by entry, by a public `scale`.

    `left` is (1, m, c) and the scale (m, d) or, with bias, (m, d + 1). Rows are clipped after the division: the norm is
    that of the quantised row, with each square weighted by an integer that is at least 1 / scale^2. Sensitivity, under
    adding or removing one row: at most `clip`, or the row's share of `clip` if `shares` (c,) is given.

    Raises:
        SpecError: the scale of the bias is far above those of the features.
    """
    right.check_unchanged()
    features, inverse = right.shape[1], 1 / scale.double()
    spread = _weighted_squares(right, inverse[:, :features].square())  # (m, c)
    last = inverse[:, features:].square().sum(1, keepdim=True)  # (m, 1), of the bias, else zero
    whole = (right.scale.double().square() * spread).add_(last)  # (m, c): the squared norm of a row for left = 1
    squares = folded(left[0].double().square_().mul_(whole)).unsqueeze(0)  # (1, c)
    norms = squares.sqrt_().mul_(1 + 2.0**-30)
    typical = float(inverse[:, :features].square().mean().rsqrt().log2().floor())
    if bias and not float(scale[:, features:].max()) <= WIDEST * 2.0**typical:
        raise SpecError(
            f"Expected the scale of a bias to be at most {WIDEST:.0f} times those of the features. Raise the small "
            "scales."
        )
    step = clip * 2.0 ** (typical + 2 - outer_product_grid_bits(features))
    grids = make_outer_product_grids((step,), len(scale), features, bias, left.device)
    steps = spread * grids.products.square()  # (m, c)
    if grids.column is not None:
        steps.add_(last * grids.column.square())
    reserve = folded(steps).sqrt_().mul_(0.5 * (1 + 2.0**-30))
    weights = weights_within(norms, (_scale_clips(clip, shares) - reserve).unsqueeze(0), ROW_LIMIT**2, shares)
    found = rounded_outer_sum(left, right, torch.minimum(weights, compute_two_slice_weights(left, right, grids)), grids)
    grid = found.grid[0] / scale
    column = 2 * clip / float(grid[:, features:].min()) if bias else 0.0  # the left factors of products are bounded
    return IntegerSum(found.total[0], grid, max(IntegerSum.largest, column))


def _weighted_squares(right: QuantisedRows, shares: Tensor) -> Tensor:
    """Return (m, c) float64: sum_l shares[j, l] q[i, l]^2, never under-estimated; bits depend on row i alone."""
    whole, unit = round_to_integers(shares, SLICES)
    squares = right.q.to(torch.int16)
    total = products.multiply_long_numbers(whole, squares.mul_(squares)).mul_(2.0 ** (-SLICE * (SLICES - 1)))
    left_out = right.lengths.square() * 2.0 ** (-SLICE * (SLICES - 1))
    return total.add_(left_out).mul_((unit * WIDER).unsqueeze(1))
