"""Gradient embedding: rank-one rows split into their part along a public basis and what is left of them.

With V the orthonormal basis, (rows' entries) x k, a row G has the embedding e = V^T G and the residual G - V e. Neither
needs G: for G = left right^T and V[c] the (d, k) slice of output c, e = sum_c left_c (right @ V[c]); where V is spanned
by s rank-one anchors, e follows from s inner products (left . left')(right . right') (Yu et al. 2021, with the closed
forms of a linear layer).

Rounding. With the computed embedding ê = V^T G + δ the residual that is summed is exactly G - V ê, whose norm obeys

    |G - V ê|^2  =  |G|^2 - 2 ê.(V^T G) + ê.(V^T V ê)  <=  |G|^2 - (1 - η) |ê|^2 + 2 |δ| |ê|,

η = |V^T V - I| (Frobenius) and |δ| <= γ spread |G|, γ the bound on a sum of all the terms in an entry of ê (Higham,
section 3.1) and spread >= | |V|^T |G| | / |G|: sqrt(k) for a dense basis, | |mixing|^T anchor norms | for anchors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.forms.contributions import RankOne
from dpbench.privacy.forms.rounding import check_precision

if TYPE_CHECKING:
    from torch import Tensor

DEFECT_LIMIT = 1e-4


class Basis(ABC):
    """A public orthonormal basis of k directions in the space of (m, d) rows, or (m, d + 1) with bias."""

    @property
    @abstractmethod
    def k(self) -> int:
        """How many directions."""

    @property
    @abstractmethod
    def terms(self) -> int:
        """How many products are added up in one entry of an embedding."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """| |V|^T |G| | / |G| at most: how much an embedding magnifies rounding."""

    @property
    @abstractmethod
    def defect(self) -> float:
        """Frobenius norm of V^T V - I, in float64."""

    def rounding(self, unit: float) -> float:
        """Return a bound on |δ| / |G|, `unit` being the rounding of what `embed` returns."""
        return (self.terms + 8) * unit * self.spread

    @abstractmethod
    def embed(self, outer: RankOne) -> Tensor:
        """Return V^T G of every row, (c, k)."""

    @abstractmethod
    def expand(self, coefficients: Tensor) -> Tensor:
        """Return V times (k,) coefficients, float64 and shaped like one row."""

    def _refuse_skew(self) -> None:
        if not self.defect <= DEFECT_LIMIT:
            raise SpecError(
                f"Expected an orthonormal basis, |V^T V - I| <= {DEFECT_LIMIT:g}, got {self.defect:.2g}. Ask for fewer "
                "directions than the public gradients span, and make the basis by QR."
            )


@dataclass(frozen=True, eq=False)
class DenseBasis(Basis):
    """A basis held whole. Embedding c rows costs 2 c m d k operations.

    Raises:
        SpecError: the vectors are not orthonormal.
    """

    vectors: Tensor  # (m, d, k), or (m, d + 1, k) for rows with bias

    def __post_init__(self) -> None:
        """Refuse vectors that are not orthonormal: residual norms would be under-estimated."""
        if self.vectors.ndim != 3:
            raise SpecError(f"Expected the vectors of a basis to be (m, d, k), got {tuple(self.vectors.shape)}.")
        check_precision(self.vectors)
        object.__setattr__(self, "vectors", self.vectors.clone())  # checked once: nobody may change it later
        self._refuse_skew()

    @property
    def k(self) -> int:
        """How many directions."""
        return self.vectors.shape[2]

    @property
    def terms(self) -> int:
        """One product for each entry along d, then one for each along m."""
        return self.vectors.shape[0] + self.vectors.shape[1]

    @property
    def spread(self) -> float:
        """Return |V|_F."""
        return float(self.k**0.5 * (1 + DEFECT_LIMIT))

    @cached_property
    def defect(self) -> float:
        """Frobenius norm of V^T V - I."""
        import torch

        flat = self.vectors.flatten(0, 1).double()  # (m d, k)
        return float(torch.linalg.matrix_norm(flat.T @ flat - torch.eye(self.k, device=flat.device)))

    def embed(self, outer: RankOne) -> Tensor:
        """Return sum_c left_c (right @ V[c]), one output c at a time: nothing larger than (c, k) is made."""
        import torch

        total = torch.zeros(len(outer), self.k, dtype=outer.left.dtype, device=outer.left.device)
        for output, vectors in enumerate(self.vectors):
            product = torch.addmm(vectors[-1], outer.right, vectors[:-1]) if outer.bias else outer.right @ vectors
            total.addcmul_(outer.left[:, output : output + 1], product)
        return total

    def expand(self, coefficients: Tensor) -> Tensor:
        """Return V @ coefficients."""
        return (self.vectors @ coefficients.to(self.vectors.dtype)).double()


@dataclass(frozen=True, eq=False)
class AnchorBasis(Basis):
    """A basis of combinations of s rank-one anchors: vector j is sum_s mixing[s, j] anchor_s.

    Embedding c rows costs 2 c s (m + d + k) operations, for few anchors far less than a dense basis.

    Raises:
        SpecError: the vectors are not orthonormal.
    """

    anchors: RankOne  # s public gradients
    mixing: Tensor  # (s, k)

    def __post_init__(self) -> None:
        """Refuse vectors that are not orthonormal: residual norms would be under-estimated."""
        anchors = self.anchors
        if type(anchors) is not RankOne:
            raise PrivacyError(
                f"Expected the anchors of a basis to be a RankOne and no subclass, got {type(anchors).__name__}."
            )
        if self.mixing.ndim != 2 or len(self.mixing) != len(anchors):
            shape = tuple(self.mixing.shape)
            raise SpecError(f"Expected mixing ({len(anchors)}, k), a row for each anchor, got {shape}.")
        check_precision(self.mixing, anchors.left)
        object.__setattr__(self, "anchors", RankOne(anchors.left.clone(), anchors.right.clone(), anchors.bias))
        object.__setattr__(self, "mixing", self.mixing.clone())  # checked once: nobody may change them later
        self._refuse_skew()

    @property
    def k(self) -> int:
        """How many directions."""
        return self.mixing.shape[1]

    @property
    def terms(self) -> int:
        """One product for each entry along d and along m, then one for each anchor."""
        return sum(self.anchors.left.shape) + self.anchors.right.shape[1] + self.anchors.bias

    def rounding(self, unit: float) -> float:
        """Bound |δ| / |G|; see `Basis.rounding`. Where sums are taken in float64, they are rounded to `unit` once."""
        return super().rounding(2**-53) + 2 * unit if self._exact else super().rounding(unit)

    @property
    def _exact(self) -> bool:
        """Whether float32 sums would blur residuals by more than a twentieth: nearly parallel anchors cancel."""
        return super().rounding(2**-24) > 0.05

    @cached_property
    def spread(self) -> float:
        """Return | |mixing|^T anchor norms |."""
        return float((self.mixing.double().abs().T @ self.anchors.norms()).norm())

    @cached_property
    def defect(self) -> float:
        """Frobenius norm of V^T V - I."""
        import torch

        mixing = self.mixing.double()
        gram = mixing.T @ inner_products(self.anchors, self.anchors, torch.float64) @ mixing
        rounding = (self.terms + 2 * len(self.anchors) + 8) * 2**-53 * self.spread**2
        return float(torch.linalg.matrix_norm(gram - torch.eye(self.k, device=mixing.device))) + rounding

    def embed(self, outer: RankOne) -> Tensor:
        """Return the inner products with the anchors, mixed."""
        import torch

        kind = torch.float64 if self._exact else outer.left.dtype
        embedding: Tensor = inner_products(outer, self.anchors, kind) @ self.mixing.to(kind)
        return embedding.to(outer.left.dtype)

    def expand(self, coefficients: Tensor) -> Tensor:
        """Return the anchors' sum weighted by mixing @ coefficients."""
        anchors = self._doubled if self._exact else self.anchors
        return anchors.weighted_sum(self.mixing.double() @ coefficients.double())

    @cached_property
    def _doubled(self) -> RankOne:
        return RankOne(self.anchors.left.double(), self.anchors.right.double(), self.anchors.bias)


def inner_products(rows: RankOne, others: RankOne, dtype: object) -> Tensor:
    """Return (c, s) inner products of rank-one rows: (left . left') (right . right')."""
    left = rows.left.to(dtype) @ others.left.to(dtype).T  # type: ignore[call-overload]
    right = rows.right.to(dtype) @ others.right.to(dtype).T  # type: ignore[call-overload]
    product: Tensor = left.mul_(right.add_(1) if rows.bias else right)
    return product
