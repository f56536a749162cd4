"""dpbench's own row function: the gradient of a linear head, which most learners use at every step.

A plugin's row function may remember the rows that it saw, so the guard compares everything that the function can reach
before and after every call. The form of its contributions may change from step to step, so it is first called on an
empty chunk. The functions defined here need neither precaution: they hold only public tensors, and the shape and grid
of their sums depend only on these tensors, the clip and the width of a row.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.closed import is_defined_by_dpbench
from dpbench.privacy.core.exact import products
from dpbench.privacy.core.exact.elementwise import residuals_
from dpbench.privacy.core.exact.quantised import QuantisedRows, exact_scores, quantise
from dpbench.privacy.core.exact.sums import (
    BLOCK,
    IntegerSum,
    clipped_outer_product_sum,
    empty_outer_product_sum,
    outer_product_sum_constants,
)
from dpbench.privacy.core.forms.contributions import RankOne, Scaled
from dpbench.privacy.core.plan import Task
from dpbench.privacy.core.rows import PrivateRows

NO_SHARES = np.empty(0)


class BuiltinRowFunction(ABC):
    """A row function that dpbench defines: row i of its return value is a function of row i and public tensors."""

    @abstractmethod
    def __call__(self, chunk: Chunk) -> RankOne | Scaled:
        """Return one contribution per row."""

    def clipped_sum(self, chunk: Chunk, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the clipped sum of a chunk's contributions.

        `shares` (c,) is each row's share of its unit; None if each row is a unit of its own.
        """
        return self(chunk).clipped_sum(clip, shares)

    def prepare_sum_in_place(
        self, rows: PrivateRows, sample: np.ndarray, clip: float, shares: Tensor | None
    ) -> Callable[[], IntegerSum] | None:
        """Return a function that sums a sample, reading its rows in place; None if rows must be read in chunks."""
        return None

    @abstractmethod
    def check(self, task: Task) -> None:
        """Refuse public tensors that do not fit the task.

        Raises:
            SpecError: a tensor does not fit; the message names the expected shape.
        """

    @abstractmethod
    def sum_of_empty_chunk(self, features: int, clip: float) -> IntegerSum:
        """Return the sum of an empty chunk with this many features; the sum of any sample has its shape and grid."""


@dataclass(frozen=True, eq=False)
class HeadGradient(BuiltinRowFunction):
    """Row i contributes the gradient of its cross-entropy with respect to a linear head.

    The gradient is the outer product of softmax(logits_i) - onehot(y_i) and the features, to which a constant 1 is
    appended if the head has a bias. With `divisor`, the gradient is divided by it, entry by entry.

    Raises:
        SpecError: the head or the divisor is not a plain tensor; a subclass could redefine operations.
    """

    head: Tensor  # (k, d + 1) with the bias as its last column, or (k, d); it may be updated between questions
    bias: bool
    divisor: Tensor | None = None  # like the head, public

    def __post_init__(self) -> None:
        """Refuse anything but plain tensors: a subclass could observe the computation."""
        for given in (self.head, self.divisor):
            if given is not None and type(given) is not Tensor:
                raise SpecError(f"Expected the head and its divisor to be tensors, got a {type(given).__name__}.")

    def __call__(self, chunk: Chunk) -> RankOne | Scaled:
        """Return the gradients of a chunk, computed from its rows in 8 bits."""
        rows = _quantise_chunk(chunk)
        gradient = RankOne(self._residuals(rows, chunk.y)[0].T, rows, self.bias)
        return gradient if self.divisor is None else Scaled(gradient, self.divisor)

    def clipped_sum(self, chunk: Chunk, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the clipped sum of a chunk's gradients, the same as that of `self(chunk)`."""
        if self.divisor is not None:
            return super().clipped_sum(chunk, clip, shares)
        rows = _quantise_chunk(chunk)
        if self._uses_compiled_loops(rows):
            everyone = np.arange(len(rows))
            return self._prepare_sum(rows, chunk.y, everyone, everyone, clip, shares)()
        found = clipped_outer_product_sum(self._residuals(rows, chunk.y), rows, self.bias, (clip,), shares)
        return IntegerSum(found.total[0], found.grid[0])

    def prepare_sum_in_place(
        self, rows: PrivateRows, sample: np.ndarray, clip: float, shares: Tensor | None
    ) -> Callable[[], IntegerSum] | None:
        """Return a function that sums mapped rows without copying them; None if compiled loops cannot do this.

        They cannot if the rows are on a GPU or not in 8 bits, or if the head has a divisor or over `BLOCK` outputs.
        """
        if not (isinstance(rows.held, QuantisedRows) and self._uses_compiled_loops(rows.held)):
            return None
        return self._prepare_sum(rows.held, rows.y, sample, rows.places(sample), clip, shares)

    def _uses_compiled_loops(self, rows: QuantisedRows) -> bool:
        return self.divisor is None and len(self.head) <= BLOCK and products.uses_compiled_loops(rows.device)

    def _prepare_sum(
        self, rows: QuantisedRows, y: Tensor, sample: np.ndarray, places: np.ndarray, clip: float, shares: Tensor | None
    ) -> Callable[[], IntegerSum]:
        """Return a function that sums the gradients of rows[places] with labels y[sample], in one compiled loop."""
        from dpbench.privacy.core.exact import kernels

        rows.check_unchanged()
        kernels.compile_all_kernels()
        classes, features = len(self.head), rows.shape[1]
        packed = kernels.pack_head(self.head.detach().contiguous().numpy(), features)
        q, scale, length, labels = (part.contiguous().numpy() for part in (*rows.parts, y))
        given = NO_SHARES if shares is None else shares.contiguous().numpy()
        limits = outer_product_sum_constants(classes, features, self.bias, clip)
        grid = self.sum_of_empty_chunk(features, clip).grid

        def add_gradients(counter: np.ndarray, to: np.ndarray) -> None:
            kernels.sum_gradients(counter, q, scale, length, labels, sample, places, given, *packed, limits, to)

        def sum_sample() -> IntegerSum:
            total = products.sum_over_threads(add_gradients, (classes, features + self.bias), 2 * classes * len(sample))
            return IntegerSum(torch.from_numpy(total), grid)

        return sum_sample

    def check(self, task: Task) -> None:
        """Refuse a head or divisor that is not float32, or whose shape does not fit the task's classes and features."""
        expected = (task.classes, task.example_shape[0] + self.bias)
        for given in (self.head, self.divisor):
            if given is not None and (tuple(given.shape) != expected or given.dtype != torch.float32):
                raise SpecError(
                    f"Expected a head and its divisor to be {expected} in float32, got {tuple(given.shape)} in "
                    f"{given.dtype}."
                )

    def sum_of_empty_chunk(self, features: int, clip: float) -> IntegerSum:
        """Return the sum of an empty chunk; its grid depends on the divisor."""
        outputs, device = len(self.head), self.head.device
        if self.divisor is None:
            return empty_outer_product_sum(outputs, features, self.bias, clip, device)
        nobody = quantise(torch.zeros(0, features, device=device))
        return Scaled(RankOne(torch.zeros(0, outputs, device=device), nobody, self.bias), self.divisor).clipped_sum(
            clip
        )

    def _residuals(self, rows: QuantisedRows, y: Tensor) -> Tensor:
        return residuals_(compute_logits(self.head.unsqueeze(0), rows, self.bias), y)  # (1, k, c)


def as_builtin_row_function(rows: object) -> BuiltinRowFunction | None:
    """Return `rows` if dpbench defines its class as a row function; else None, for example for a plugin's subclass."""
    return rows if isinstance(rows, BuiltinRowFunction) and is_defined_by_dpbench(type(rows)) else None


def _quantise_chunk(chunk: Chunk) -> QuantisedRows:
    return chunk.rows if isinstance(chunk.rows, QuantisedRows) else quantise(chunk.rows)


def compute_logits(heads: Tensor, rows: QuantisedRows, bias: bool) -> Tensor:
    """Return the exact logits (s, k, c) of rows (c, d) under each of s heads (s, k, d + 1), or (s, k, d) without bias.

    The bits of a row's logits depend on this row and the heads alone.
    """
    return exact_scores(rows, heads[..., :-1]).add_(heads[..., -1:]) if bias else exact_scores(rows, heads)
