"""Rows in 8 bits and matrices as whole numbers: the operands of exact products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.core.exact.elementwise import get_cached_scalar_tensor
from dpbench.privacy.core.exact.limits import ROW_LIMIT, SLICE, SLICES, SMALLEST

if TYPE_CHECKING:
    import torch
    from torch import Tensor

HALF = 14  # bits of the lower half of a number in four slices


class QuantisedRows:
    """Int8 rows with one scale per row: how `Curator.map` stores rows, and what a mapped chunk contains.

    Make them with `quantise`; `float()` returns the numbers. A row's integers, scale and length depend on this row
    alone, so adding a row to the data adds exactly this row. Lengths are measured here and never taken from a caller.

    Raises:
        SpecError: the integers are not int8 or hold -128, or there is not one float32 scale per row.
    """

    __slots__ = ("_versions", "lengths", "q", "scale")

    q: Tensor  # (c, *shape) int8 in -127..127
    scale: Tensor  # (c,) float32; NaN marks a row that was not finite, whose integers are zero
    lengths: Tensor  # (c,) float64: |q_i|, never under-estimated

    def __init__(self, q: Tensor, scale: Tensor) -> None:
        import torch

        if (q.dtype, scale.dtype) != (torch.int8, torch.float32) or q.ndim < 2 or scale.shape != q.shape[:1]:
            raise SpecError(
                f"Expected integers (c, ...) in int8 and scales (c,) in float32 of Quantised rows, got "
                f"{tuple(q.shape)} in {q.dtype} and {tuple(scale.shape)} in {scale.dtype}."
            )
        if bool((q == -128).any()):
            raise SpecError("Expected integers in -127..127 of Quantised rows, got -128.")
        self._store_parts(strip_subclass(q), strip_subclass(scale), _measure_row_lengths(strip_subclass(q)))

    def _store_parts(self, q: Tensor, scale: Tensor, lengths: Tensor) -> None:
        self.q, self.scale, self.lengths = q, scale, lengths
        self._versions = tensor_versions(*self.parts)

    def __len__(self) -> int:
        return self.q.shape[0]

    def __getitem__(self, rows: Tensor | slice) -> QuantisedRows:
        """Return the rows with these indices."""
        return assemble_rows(*(part[rows] for part in self.parts))

    def index_select(self, axis: Literal[0], rows: Tensor) -> QuantisedRows:
        """Return the rows with these indices, many times faster than `[rows]`."""
        return assemble_rows(*(part.index_select(axis, rows) for part in self.parts))

    @property
    def parts(self) -> tuple[Tensor, Tensor, Tensor]:
        """The tensors that store the rows: integers, scales and lengths."""
        return self.q, self.scale, self.lengths

    @property
    def shape(self) -> torch.Size:
        """The shape (c, *example_shape) of the tensor of all rows."""
        return self.q.shape

    @property
    def device(self) -> torch.device:
        """The device of the rows."""
        return self.q.device

    def float(self) -> Tensor:
        """Return the rows as float32, (c, *shape)."""
        return self.q * self.scale.reshape(-1, *(1,) * (self.q.ndim - 1))

    def double(self) -> Tensor:
        """Return the rows as float64, without rounding."""
        return self.q.double() * self.scale.double().reshape(-1, *(1,) * (self.q.ndim - 1))

    def clone(self) -> QuantisedRows:
        """Return a copy that shares no memory with these rows."""
        return assemble_rows(*(part.clone() for part in self.parts))

    def check_unchanged(self) -> None:
        """Refuse rows that were changed after their lengths were measured.

        Raises:
            PrivacyError: a tensor of these rows was written to or replaced.
        """
        if tensor_versions(*self.parts) != self._versions:
            raise PrivacyError("Quantised rows were changed in place. Work on .float(), which is a copy.")


def assemble_rows(q: Tensor, scale: Tensor, lengths: Tensor) -> QuantisedRows:
    """Assemble rows from the parts of other `QuantisedRows`, or from rows of these parts.

    The lengths are not checked, and clipping relies on them: pass only lengths that `_lengths` returned.
    """
    rows = QuantisedRows.__new__(QuantisedRows)
    rows._store_parts(q, scale, lengths)
    return rows


def tensor_versions(*tensors: Tensor) -> list[tuple[int, int]]:
    """Return each tensor's identity and version counter, which torch increases at every write that it tracks."""
    return [(id(tensor), 0 if tensor.is_inference() else tensor._version) for tensor in tensors]


def quantise(rows: Tensor) -> QuantisedRows:
    """Round each row of floats (c, *shape) to int8 multiples of the row's own scale, its largest entry divided by 127.

    A row with an entry that is not finite, or above 1e25, gets scale NaN and contributes zero.
    """
    import torch

    flat = strip_subclass(rows.detach()).flatten(1)
    if flat.dtype != torch.float32:
        flat = flat.float()
    largest = flat.abs().amax(1) if flat.shape[1] else flat.new_zeros(len(flat))  # (c,), exact in any order
    broken = ~(largest <= ROW_LIMIT)
    if bool(broken.any()):
        flat, largest = flat.masked_fill(broken.unsqueeze(1), 0), largest.masked_fill(broken, 0)
    scale = largest / largest.new_tensor(127)  # by a plain number a GPU multiplies with its inverse: other bits
    inverse = torch.where(largest >= SMALLEST, 127 / largest.clamp(min=SMALLEST), 0)
    q = (flat * inverse.unsqueeze(1)).round_().to(torch.int8)
    return assemble_rows(q.reshape(rows.shape), scale.masked_fill(broken, torch.nan), _measure_row_lengths(q))


def strip_subclass(tensor: Tensor) -> Tensor:
    """Return the tensor as a plain `Tensor`, because a subclass could redefine its norm."""
    import torch

    return tensor if type(tensor) is torch.Tensor else tensor.as_subclass(torch.Tensor)


def convert_to_float_rows(rows: Tensor | QuantisedRows) -> Tensor:
    """Return rows as a float tensor, whether they are quantised or not."""
    return rows.float() if isinstance(rows, QuantisedRows) else rows


def _measure_row_lengths(q: Tensor) -> Tensor:
    """Return (c,) float64: the length of each int8 row, never under-estimated; its square is an exact sum."""
    import torch

    squares = q.flatten(1).to(torch.int16).square_().sum(1, dtype=torch.int64)
    return squares.double().sqrt_().mul_(1 + 2.0**-50)


def round_to_integers(numbers: Tensor, slices: int) -> tuple[Tensor, Tensor]:
    """Round each row of numbers (r, ...) to whole numbers in float32; return these and the rows' units (r,).

    They keep 5 + 7 (slices - 1) bits relative to the row's largest entry. Units are powers of two, at most 1/32 of the
    row's largest entry. Row i is unit[i] * whole[i] * 2^(-7 (slices - 1)), up to half such a step in each entry, and
    whole numbers are at most 64 * 2^(7 (slices - 1)). A row that is not finite has an infinite unit.
    """
    flat = strip_subclass(numbers.detach() if numbers.requires_grad else numbers).flatten(1)
    largest = flat.abs().amax(1) if flat.shape[1] else flat.new_zeros(len(flat))
    unit = round_down_to_power_of_two(largest.clamp_(min=SMALLEST)).mul_(get_cached_scalar_tensor(2.0**-5))
    whole = (flat / unit.unsqueeze(1)).mul_(get_cached_scalar_tensor(2.0 ** (SLICE * (slices - 1)))).round_()
    return whole.reshape(numbers.shape), unit


def round_down_to_power_of_two(numbers: Tensor) -> Tensor:
    """Round each positive float32 or float64 number down to a power of two, by keeping only its exponent bits."""
    import torch

    if numbers.dtype == torch.float64:
        return numbers.view(torch.int64).bitwise_and(0x7FF0000000000000).view(torch.float64)
    return numbers.view(torch.int32).bitwise_and(0x7F800000).view(torch.float32)


def round_to_19_bits(numbers: Tensor) -> tuple[Tensor, float]:
    """Round numbers to 19 bits relative to the largest; return them in float32, and their unit, a power of two."""
    _, largest = round_to_integers(numbers.reshape(1, -1), 1)
    unit = float(largest) * 2.0 ** (-SLICE * (SLICES - 1))
    return (numbers.double() / unit).round_().mul_(unit).float(), unit


def exact_linear(x: Tensor | QuantisedRows, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Return (c, k): x @ weight.T + bias for (c, d) rows; each row's bits depend on that row and the weights only.

    `weight` (k, d) and `bias` (k,) are public. A library's matrix product may round a row differently at another
    position in the chunk, so that removing one row would change others; this function adds integers instead. Float32
    rows and weights keep 19 bits relative to the largest number of their row. With `QuantisedRows`, weights keep 12
    bits relative to the largest weight. Float64 rows are multiplied by the library; no curator holds such rows.

    Raises:
        SpecError: the shapes do not fit.
    """
    import torch
    from torch.overrides import handle_torch_function, has_torch_function_unary

    if has_torch_function_unary(x):  # as every function of torch: `models.export` spells it in operators of ONNX
        answer: Tensor = handle_torch_function(exact_linear, (x,), x, weight, bias)
        return answer
    if weight.ndim != 2 or len(x.shape) != 2 or x.shape[1] != weight.shape[1]:
        raise SpecError(f"Expected rows (c, d) and weights (k, d), got {tuple(x.shape)} and {tuple(weight.shape)}.")
    if isinstance(x, torch.Tensor) and x.dtype == torch.float64:
        return x @ weight.T if bias is None else torch.addmm(bias, x, weight.T)
    if isinstance(x, QuantisedRows):
        scores = exact_scores(x, weight.unsqueeze(0))[0]
    else:
        scores = exact_product(weight, x, SLICES).float()
    return (scores if bias is None else scores.add_(bias.unsqueeze(1))).T


def exact_scores(x: QuantisedRows, weights: Tensor) -> Tensor:
    """Return scores (s, k, c) float32 of rows (c, d) under s heads (s, k, d), which are rounded to 12 bits."""
    from dpbench.privacy.core.exact import products

    x.check_unchanged()
    whole, unit = round_to_integers(weights, 2)
    scores = products.exact_matmul_transposed(whole.flatten(0, 1), x.q).mul_(get_cached_scalar_tensor(2.0**-SLICE))
    scales = unit.reshape(-1, 1, 1) * x.scale  # one for each setting and row
    return scores.reshape(*weights.shape[:2], len(x)).mul_(scales)


def exact_product(a: Tensor | QuantisedRows, b: Tensor | QuantisedRows, slices: int) -> Tensor:
    """Return the inner products (k, c) float64 of rows (k, d) and (c, d); float rows are rounded to `slices` slices.

    The bits of entry (i, j) depend on its two rows alone.
    """
    from dpbench.privacy.core.exact.products import multiply_long_numbers

    (left, one, small), (right, other, smaller) = (_to_integers(rows, slices) for rows in (a, b))
    if slices > SLICES and max(small, smaller) < 1:  # both are long: the left ones are taken in halves
        high = (left * 2.0**-HALF).round_()
        low = left.sub(high, alpha=2**HALF)
        found = multiply_long_numbers(low, right).add_(multiply_long_numbers(high, right), alpha=2**HALF)
    else:
        found = multiply_long_numbers(left, right)
    return found.mul_(small * smaller).mul_(one.unsqueeze(1)).mul_(other)


def _to_integers(rows: Tensor | QuantisedRows, slices: int) -> tuple[Tensor, Tensor, float]:
    if not isinstance(rows, QuantisedRows):
        whole, unit = round_to_integers(rows, slices)
        return whole, unit.double(), 2.0 ** (-SLICE * (slices - 1))
    rows.check_unchanged()
    return rows.q, rows.scale.double(), 1.0
