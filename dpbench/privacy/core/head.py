"""The gradient of a linear head: the row function that most learners ask at every step, and dpbench's own.

A stranger's row function may remember what it saw. So all that it reaches is read around every call, and it is asked
over no rows first, as its form may change from step to step. What is defined here keeps nothing but public tensors, and
the shape and grid of its sum follow from them, the clip and the width of a row: it needs neither.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.closed import is_closed
from dpbench.privacy.core.exact import products
from dpbench.privacy.core.exact.elementwise import residuals_
from dpbench.privacy.core.exact.quantised import QuantisedRows, exact_scores, quantise
from dpbench.privacy.core.exact.sums import BLOCK, IntegerSum, outer_limits, outer_sum, outer_sum_of_no_rows
from dpbench.privacy.core.forms.contributions import RankOne, Scaled
from dpbench.privacy.core.plan import Task
from dpbench.privacy.core.rows import PrivateRows

NO_SHARES = np.empty(0)


class OwnRowFunction(ABC):
    """A row function that dpbench defines: row i of what it returns is a function of row i and public tensors."""

    @abstractmethod
    def __call__(self, chunk: Chunk) -> RankOne | Scaled:
        """Return one contribution per row."""

    def integers(self, chunk: Chunk, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the clipped sum of a chunk's contributions, each a share (c,) of its unit's."""
        return self(chunk).integers(clip, shares)

    def sample_integers(
        self, rows: PrivateRows, sample: np.ndarray, clip: float, shares: Tensor | None
    ) -> IntegerSum | None:
        """Return the clipped sum of a sample whose rows are read where they are; None if chunks are to be made."""
        return None

    @abstractmethod
    def check(self, task: Task) -> None:
        """Refuse public tensors that do not fit the task.

        Raises:
            SpecError: says which.
        """

    @abstractmethod
    def zero(self, features: int, clip: float) -> IntegerSum:
        """Return the sum over no rows of so many features: its shape and its grid are those of every sum."""


@dataclass(frozen=True, eq=False)
class HeadGradient(OwnRowFunction):
    """Row i contributes the gradient of the cross-entropy by the head, divided entry by entry by `divisor` if given.

    The gradient is the outer product of softmax(logits_i) - onehot(y_i) and the features, with a constant 1 appended
    where the head has a bias.

    Raises:
        SpecError: a head or divisor that is no plain tensor, whose operations could be redefined.
    """

    head: Tensor  # (k, d + 1) with the bias as its last column, or (k, d); it may be updated between questions
    bias: bool
    divisor: Tensor | None = None  # like the head, public

    def __post_init__(self) -> None:
        """Refuse tensors that could see what is computed with them."""
        for given in (self.head, self.divisor):
            if given is not None and type(given) is not Tensor:
                raise SpecError(f"Expected the head and its divisor to be tensors, got a {type(given).__name__}.")

    def __call__(self, chunk: Chunk) -> RankOne | Scaled:
        """Return the gradients of a chunk, in 8 bits as mapped chunks are."""
        rows = _quantise_chunk(chunk)
        gradient = RankOne(self._residuals(rows, chunk.y)[0].T, rows, self.bias)
        return gradient if self.divisor is None else Scaled(gradient, self.divisor)

    def integers(self, chunk: Chunk, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the clipped sum of a chunk's gradients, as the form that `__call__` returns gives it."""
        if self.divisor is not None:
            return super().integers(chunk, clip, shares)
        rows = _quantise_chunk(chunk)
        if self._is_compiled(rows):
            everyone = np.arange(len(rows))
            return self._sum_rows(rows, chunk.y, everyone, everyone, clip, shares)
        found = outer_sum(self._residuals(rows, chunk.y), rows, self.bias, (clip,), shares)
        return IntegerSum(found.total[0], found.grid[0])

    def sample_integers(
        self, rows: PrivateRows, sample: np.ndarray, clip: float, shares: Tensor | None
    ) -> IntegerSum | None:
        """Return the clipped sum of a sample of mapped rows on a processor, without a copy of any."""
        if not (isinstance(rows.held, QuantisedRows) and self._is_compiled(rows.held)):
            return None
        return self._sum_rows(rows.held, rows.y, sample, rows.places(sample), clip, shares)

    def _is_compiled(self, rows: QuantisedRows) -> bool:
        return self.divisor is None and len(self.head) <= BLOCK and products.is_compiled(rows.device)

    def _sum_rows(
        self, rows: QuantisedRows, y: Tensor, sample: np.ndarray, places: np.ndarray, clip: float, shares: Tensor | None
    ) -> IntegerSum:
        """Return what `outer_sum` gives of the residuals of rows[places], labelled y[sample], in one compiled loop."""
        from dpbench.privacy.core.exact import kernels

        rows.check_unchanged()
        kernels.compile_all()
        classes, features = len(self.head), rows.shape[1]
        packed = kernels.pack_head(self.head.detach().contiguous().numpy(), features)
        q, scale, length, labels = (part.contiguous().numpy() for part in (*rows.parts, y))
        given = NO_SHARES if shares is None else shares.contiguous().numpy()
        limits = outer_limits(classes, features, self.bias, clip)

        def add(counter: np.ndarray, to: np.ndarray) -> None:
            kernels.sum_gradients(counter, q, scale, length, labels, sample, places, given, *packed, limits, to)

        total = products.total(add, (classes, features + self.bias), 2 * classes * len(sample))
        return IntegerSum(torch.from_numpy(total), self.zero(features, clip).grid)

    def check(self, task: Task) -> None:
        """Refuse a head of other classes or features, or of other numbers than float32."""
        expected = (task.classes, task.example_shape[0] + self.bias)
        for given in (self.head, self.divisor):
            if given is not None and (tuple(given.shape) != expected or given.dtype != torch.float32):
                raise SpecError(
                    f"Expected a head and its divisor to be {expected} in float32, got {tuple(given.shape)} in "
                    f"{given.dtype}."
                )

    def zero(self, features: int, clip: float) -> IntegerSum:
        """Return the sum over no rows; the divisor has a part in its grid."""
        outputs, device = len(self.head), self.head.device
        if self.divisor is None:
            return outer_sum_of_no_rows(outputs, features, self.bias, clip, device)
        nobody = quantise(torch.zeros(0, features, device=device))
        return Scaled(RankOne(torch.zeros(0, outputs, device=device), nobody, self.bias), self.divisor).integers(clip)

    def _residuals(self, rows: QuantisedRows, y: Tensor) -> Tensor:
        return residuals_(scores(self.head.unsqueeze(0), rows, self.bias), y)  # (1, k, c)


def find_own_function(rows: object) -> OwnRowFunction | None:
    """Return the function if it is dpbench's own: a stranger's subclass is a stranger's."""
    return rows if isinstance(rows, OwnRowFunction) and is_closed(type(rows)) else None


def _quantise_chunk(chunk: Chunk) -> QuantisedRows:
    return chunk.rows if isinstance(chunk.rows, QuantisedRows) else quantise(chunk.rows)


def scores(heads: Tensor, rows: QuantisedRows, bias: bool) -> Tensor:
    """Return the exact logits (s, k, c) of rows (c, d) under each of s heads (s, k, d + 1), or (s, k, d) without bias.

    A row's logits are a function of that row and the heads alone, to the last bit.
    """
    return exact_scores(rows, heads[..., :-1]).add_(heads[..., -1:]) if bias else exact_scores(rows, heads)
