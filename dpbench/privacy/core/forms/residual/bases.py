"""Gradient embedding: split rank-one rows into a part along a public basis and a residual.

Let V, (entries of a row) x k, be the orthonormal basis. A row G has the embedding e = V^T G and the residual G - V e.
Neither needs G written out: with G = left right^T and V[c] the (d, k) slice of output c, e = sum_c left_c (right @
V[c]). If V is spanned by s rank-one anchors, e follows from s inner products (left . left')(right . right') (Yu et al.
2021, with the closed forms of a linear layer).

Rounding. The computed embedding is ê = V^T G + δ, and the residual that is summed is exactly G - V ê. Its norm obeys

    |G - V ê|^2  =  |G|^2 - 2 ê.(V^T G) + ê.(V^T V ê)  <=  |G|^2 - (1 - η) |ê|^2 + 2 |δ| |ê|,

with η = |V^T V - I| (Frobenius norm) and |δ| <= γ spread |G|. Here γ bounds the relative rounding error of the sum in
an entry of ê (Higham, section 3.1), and spread >= | |V|^T |G| | / |G|: sqrt(k) for a dense basis,
| |mixing|^T anchor norms | for anchors.

V is rounded to integers times a power of two, and ê is computed from integer products. So a row's embedding has the
same bits at every position, and γ covers only the last roundings. The part along the basis is subtracted from a sum in
integers too (`Basis.expand_to_integers`).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.core.exact.quantised import (
    QuantisedRows,
    convert_to_float_rows,
    exact_product,
    round_to_19_bits,
    tensor_versions,
)
from dpbench.privacy.core.forms.contributions import RankOne
from dpbench.privacy.core.forms.rounding import check_precision

if TYPE_CHECKING:
    from torch import Tensor

DEFECT_LIMIT = 1e-4
MOST_DIRECTIONS = 2**12  # directions: what a float64 sum of 20 by 18 bits has room for
WIDE_SLICES = (
    5  # slices that hold numbers to 2^-34 of the largest, where badly conditioned anchors magnify what is left out
)


class Basis(ABC):
    """A public orthonormal basis of k directions in the space of (m, d) rows, or (m, d + 1) with bias."""

    _versions: list[tuple[int, int]]  # of `tensors`, when they were checked

    @property
    @abstractmethod
    def k(self) -> int:
        """Number of directions."""

    @property
    @abstractmethod
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the basis; `check` refuses the basis if one was changed since it was made."""

    @property
    @abstractmethod
    def product_count(self) -> int:
        """Number of products that each entry of an embedding sums."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Upper bound on | |V|^T |G| | / |G|: how much an embedding magnifies rounding."""

    @property
    @abstractmethod
    def defect(self) -> float:
        """Frobenius norm of V^T V - I, in float64."""

    @property
    @abstractmethod
    def integer_vectors(self) -> tuple[Tensor, float]:
        """V rounded to multiples of a unit, (m, d, k) or, with bias, (m, d + 1, k) float32, and this unit."""

    @property
    @abstractmethod
    def vector_rounding_bound(self) -> float:
        """Upper bound on how far V moves (Frobenius norm) if it is rounded after rows were embedded."""

    @property
    def rounding(self) -> float:
        """Upper bound on |δ| / |G|: ê is rounded to float32, and slices omit 2^-33 sqrt(product_count) of factors."""
        return 2.0**-22 + 2.0**-32 * math.sqrt(self.product_count) * self.spread

    def expand_to_integers(self, embedding: Tensor, step: Tensor) -> Tensor:
        """Return V @ embedding, times `step` in each column, rounded down to whole numbers: int64, shaped like one row.

        `embedding` is (k,) int64, and `step` holds powers of two. Float64 sums the products of V's integers and 18-bit
        digits of the embedding exactly, and digits are carried in int64. So if two embeddings differ by that of one
        row, the results differ by V times this row's embedding, up to less than 1 in each entry.
        """
        import torch

        vectors, unit = self.integer_vectors
        digits: list[Tensor] = []
        left = embedding.clone()
        while not digits or bool(left.any()):
            digits.append(((left + 2**17) & (2**18 - 1)) - 2**17)
            left = (left - digits[-1]) >> 18
        stack = torch.stack(digits, 1).double()  # (k, digits): 20 + 17 bits and the 12 of k are below 53
        parts = torch.stack([((block.double() / unit) @ stack).to(torch.int64) for block in vectors])  # (m, d, digits)
        drop = -(step.double() * unit).log2().round().to(torch.int64)  # (d,)
        total, dropped = torch.zeros_like(parts[..., 0]), torch.zeros_like(drop)
        for place in range(parts.shape[2]):
            total += parts[..., place] << (18 * place - dropped)
            now = drop.clamp(max=18 * (place + 1)) - dropped
            total, dropped = total >> now, dropped + now
        return total >> (drop - dropped)

    @property
    @abstractmethod
    def row_shape(self) -> tuple[int, int]:
        """The shape of the rows that the basis can embed."""

    @abstractmethod
    def embed(self, outer: RankOne) -> Tensor:
        """Return the embedding V^T G of each row, (c, k) float32."""

    @abstractmethod
    def expand(self, coefficients: Tensor) -> Tensor:
        """Return V @ coefficients for (k,) coefficients: float64, shaped like one row."""

    def check(self) -> None:
        """Refuse a basis that was changed after its check, because the norms of residuals would no longer be bounded.

        Raises:
            PrivacyError: a tensor of the basis was written to.
        """
        if tensor_versions(*self.tensors) != self._versions:
            raise PrivacyError(
                "A basis was changed in place after it was made, so its norms are no longer known. Make a new "
                f"{type(self).__name__} from the changed vectors."
            )

    def _check_orthonormal(self) -> None:
        if not self.defect <= DEFECT_LIMIT:
            raise SpecError(
                f"Expected an orthonormal basis, |V^T V - I| <= {DEFECT_LIMIT:g}, got {self.defect:.2g}. Ask for fewer "
                "directions than the public gradients span, and make the basis by QR."
            )


@dataclass(frozen=True, eq=False)
class DenseBasis(Basis):
    """A basis whose vectors are stored in full. Embedding c rows costs 2 c m d k operations.

    Raises:
        SpecError: the vectors are not orthonormal, not (m, d, k) float32, or too many.
    """

    vectors: Tensor  # (m, d, k), or (m, d + 1, k) for rows with bias, float32: rounded to 19 bits of the largest
    _unit: float = field(init=False)
    _versions: list[tuple[int, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse vectors that are not orthonormal, because residual norms would be under-estimated; store a copy."""
        if self.vectors.ndim != 3:
            raise SpecError(f"Expected the vectors of a basis to be (m, d, k), got {tuple(self.vectors.shape)}.")
        check_float32(self.vectors)
        if self.vectors.shape[2] > MOST_DIRECTIONS:
            raise SpecError(f"Expected at most {MOST_DIRECTIONS} directions in a basis, got {self.vectors.shape[2]}.")
        vectors, unit = round_to_19_bits(self.vectors)
        object.__setattr__(self, "_unit", unit)
        object.__setattr__(self, "vectors", vectors)  # a copy
        object.__setattr__(self, "_versions", tensor_versions(*self.tensors))
        self._check_orthonormal()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The only tensor of the basis: its vectors."""
        return (self.vectors,)

    @property
    def k(self) -> int:
        """Number of directions."""
        return self.vectors.shape[2]

    @property
    def row_shape(self) -> tuple[int, int]:
        """The shape of a basis vector: (m, d) or, with bias, (m, d + 1)."""
        return self.vectors.shape[0], self.vectors.shape[1]

    @property
    def integer_vectors(self) -> tuple[Tensor, float]:
        """The basis vectors and their unit."""
        return self.vectors, self._unit

    @property
    def vector_rounding_bound(self) -> float:
        """Zero: the vectors were rounded before the embedding was fixed."""
        return 0.0

    @property
    def product_count(self) -> int:
        """Number of products that an entry of an embedding sums: one per entry along d, then one per entry along m."""
        return self.vectors.shape[0] + self.vectors.shape[1]

    @property
    def spread(self) -> float:
        """Upper bound on the Frobenius norm of V, which bounds | |V|^T |G| | / |G|."""
        return float(self.k**0.5 * (1 + DEFECT_LIMIT))

    @cached_property
    def defect(self) -> float:
        """Frobenius norm of V^T V - I."""
        import torch

        flat = self.vectors.flatten(0, 1).double()  # (m d, k)
        return float(torch.linalg.matrix_norm(flat.T @ flat - torch.eye(self.k, device=flat.device)))

    def embed(self, outer: RankOne) -> Tensor:
        """Return sum_c left_c (right @ V[c]), one output c at a time, so that no array exceeds (c, k)."""
        import torch

        left = outer.left.T.double()  # (m, c)
        total = torch.zeros(self.k, len(outer), dtype=torch.float64, device=left.device)
        for weight, vectors in zip(left, self.vectors, strict=True):
            product = exact_product(vectors[: outer.right.shape[1]].T, outer.right, WIDE_SLICES)  # (k, c)
            product = product.add_(vectors[-1].double().unsqueeze(1)) if outer.bias else product
            total.add_(product.mul_(weight))
        return total.T.float()

    def expand(self, coefficients: Tensor) -> Tensor:
        """Return V @ coefficients."""
        return (self.vectors @ coefficients.to(self.vectors.dtype)).double()


@dataclass(frozen=True, eq=False)
class AnchorBasis(Basis):
    """A basis of combinations of s rank-one anchors: vector j is sum_s mixing[s, j] anchor_s.

    Embedding c rows costs 2 c s (m + d + k) operations: with few anchors, far fewer than with a dense basis. A step of
    `gep` at its default settings (200 anchors, 120 directions; 10 classes, 4,000 rows) takes 0.21 s with 600 features
    and 0.32 s with 1,280; with a `DenseBasis` of the same directions, 0.60 and 1.56 s (AMD EPYC, one thread, medians of
    five).

    Raises:
        SpecError: the vectors are not orthonormal or too many, or `mixing` does not fit the anchors.
        PrivacyError: the anchors are not a `RankOne`, but for example a subclass.
    """

    anchors: RankOne  # s public gradients
    mixing: Tensor  # (s, k)
    _versions: list[tuple[int, int]] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse vectors that are not orthonormal, because residual norms would be under-estimated; store copies."""
        import torch

        anchors = self.anchors
        if type(anchors) is not RankOne:
            raise PrivacyError(
                f"Expected the anchors of a basis to be a RankOne and no subclass, got {type(anchors).__name__}."
            )
        if self.mixing.shape[-1] > MOST_DIRECTIONS:
            raise SpecError(f"Expected at most {MOST_DIRECTIONS} directions in a basis, got {self.mixing.shape[-1]}.")
        if self.mixing.ndim != 2 or len(self.mixing) != len(anchors):
            shape = tuple(self.mixing.shape)
            raise SpecError(f"Expected mixing ({len(anchors)}, k), a row for each anchor, got {shape}.")
        check_precision(self.mixing, anchors.left)
        check_float32(self.mixing)
        everything = torch.arange(len(anchors), device=anchors.left.device)
        object.__setattr__(self, "anchors", anchors.take(everything))  # a copy
        object.__setattr__(self, "mixing", self.mixing.clone())
        object.__setattr__(self, "_versions", tensor_versions(*self.tensors))
        self._check_orthonormal()

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """The tensors of the basis: the mixing matrix and the factors of the anchors."""
        right = self.anchors.right
        return self.mixing, self.anchors.left, *(right.parts if isinstance(right, QuantisedRows) else (right,))

    @property
    def k(self) -> int:
        """Number of directions."""
        return self.mixing.shape[1]

    @property
    def row_shape(self) -> tuple[int, int]:
        """The shape of an anchor."""
        return self.anchors.left.shape[1], self.anchors.right.shape[1] + self.anchors.bias

    @property
    def product_count(self) -> int:
        """Number of products that an entry of an embedding sums: one per entry along d and m, then one per anchor."""
        return sum(self.anchors.left.shape) + self.anchors.right.shape[1] + self.anchors.bias

    @cached_property
    def spread(self) -> float:
        """Upper bound on | |V|^T |G| | / |G|: the norm of |mixing|^T times the anchors' norms."""
        return float((self.mixing.double().abs().T @ self.anchors.norms()).norm())

    @cached_property
    def defect(self) -> float:
        """Frobenius norm of V^T V - I."""
        import torch

        mixing = self.mixing.double()
        gram = mixing.T @ _inner_products(self.anchors) @ mixing
        rounding = (self.product_count + 2 * len(self.anchors) + 8) * 2**-53 * self.spread**2
        return float(torch.linalg.matrix_norm(gram - torch.eye(self.k, device=mixing.device))) + rounding

    def embed(self, outer: RankOne) -> Tensor:
        """Return V^T G (c, k): the rows' inner products with the anchors, times the mixing matrix."""
        anchors = self.anchors
        products = exact_product(anchors.right, outer.right, WIDE_SLICES)  # (s, c)
        products = products.add_(1) if outer.bias else products
        products.mul_(exact_product(anchors.left, outer.left, WIDE_SLICES))
        return exact_product(self.mixing.T, products.T, WIDE_SLICES).T.float()

    def expand(self, coefficients: Tensor) -> Tensor:
        """Return V @ coefficients: the sum of the anchors, weighted by mixing @ coefficients."""
        weights = self.mixing.double() @ coefficients.double()  # (s,)
        left = (self.anchors.left.double() * weights.unsqueeze(1)).T  # (m, s)
        return left @ self.anchors.right_with_bias().double()

    @property
    def integer_vectors(self) -> tuple[Tensor, float]:
        """V in full, with 19 bits relative to its largest entry, and the unit of its entries; computed on first use."""
        return self._rounded_vectors[:2]

    @property
    def vector_rounding_bound(self) -> float:
        """Upper bound on how far rounding to integers moves V (Frobenius norm)."""
        return self._rounded_vectors[2]

    @property
    def rounding(self) -> float:
        """Upper bound on |δ| / |G|, including the errors of cutting left factors and mixing to `WIDE_SLICES` slices."""
        largest = float(self.mixing.double().abs().amax(0).norm()) * float(self.anchors.norms().max())
        return super().rounding + 2**-32 * len(self.mixing) * largest

    @cached_property
    def _rounded_vectors(self) -> tuple[Tensor, float, float]:
        import torch

        right, mixing = self.anchors.right_with_bias().double(), self.mixing.double()
        whole = torch.stack([(right * output.unsqueeze(1)).T @ mixing for output in self.anchors.left.T.double()])
        vectors, unit = round_to_19_bits(whole)
        return vectors, unit, float((whole - vectors).norm()) * (1 + 2**-20) + 2**-40


def _inner_products(rows: RankOne) -> Tensor:
    """Return (s, s) float64 inner products of rank-one rows: (left . left') (right . right')."""
    left, right = rows.left.double(), convert_to_float_rows(rows.right).double()
    product = right @ right.T
    return (left @ left.T).mul_(product.add_(1) if rows.bias else product)


def check_float32(*tensors: Tensor) -> None:
    """Check that all tensors are float32: their entries are rounded to integers, which are then multiplied.

    Raises:
        SpecError: a tensor has another number type.
    """
    import torch

    check_precision(*tensors)
    if tensors[0].dtype != torch.float32:
        raise SpecError("Expected bases and residuals in float32, got float64. Call .float() on all of their tensors.")
