"""The form of a row less its part along a public basis: what GEP releases beside the embedding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.forms.contributions import Contribution, RankOne
from dpbench.privacy.forms.gep.bases import AnchorBasis, Basis, DenseBasis
from dpbench.privacy.forms.rounding import TINY, check_precision, unit_roundoff

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True, eq=False)
class Residual(Contribution):
    """Row i contributes what a public basis leaves of an outer product: G_i - V ê_i, with `embedding` ê.

    The embedding is computed here, not taken from the caller: the bound on the norm needs it to be that of G. Return
    ``Blocks((residual.embedding, residual))`` to release both parts of one sample.

    Raises:
        SpecError: basis and rows differ in shape.
        PrivacyError: a basis or rows of another kind, whose rounding this module does not bound.
    """

    outer: RankOne
    basis: Basis
    _embedding: Tensor = field(init=False)  # (c, k)

    @property
    def embedding(self) -> Tensor:
        """Return ê, (c, k): a copy, for changing the one that is subtracted would change the norm."""
        return self._embedding.clone()

    def __post_init__(self) -> None:
        """Compute the embedding."""
        if type(self.basis) not in {DenseBasis, AnchorBasis} or type(self.outer) is not RankOne:
            raise PrivacyError(
                f"Expected a RankOne and a DenseBasis or AnchorBasis in a Residual, got {type(self.outer).__name__} "
                f"and {type(self.basis).__name__}; no subclass, for the harness answers for their norms."
            )
        _check_fit(self.outer, self.basis)
        object.__setattr__(self, "_embedding", self.basis.embed(self.outer))

    def __len__(self) -> int:
        return len(self.outer)

    def norms(self) -> Tensor:
        """Return (c,) float64: the residuals' norms, rounding of the embedding included (see `bases`)."""
        whole = self.outer.norms()
        embedded = self._embedding.double().norm(dim=1)
        error = self.basis.rounding(unit_roundoff(self._embedding))
        squared: Tensor = whole.square() - (1 - self.basis.defect) * embedded.square() + 2 * error * whole * embedded
        rounding = 2 * (self.basis.k + 8) * unit_roundoff(whole)  # of these float64 squares themselves
        return squared.add_(rounding * whole.square()).clamp_(min=0).sqrt_().add_(TINY)

    def weighted_sum(self, weights: Tensor) -> Tensor:
        """Return the outer products' weighted sum less its part along the basis."""
        along = weights.to(self._embedding.dtype) @ self._embedding  # (k,)
        return self.outer.weighted_sum(weights).sub_(self.basis.expand(along))

    def take(self, rows: Tensor) -> Residual:
        """Return the residuals of the rows with these indices."""
        taken = Residual(self.outer.take(rows), self.basis)
        object.__setattr__(taken, "_embedding", self._embedding[rows])  # the one whose norm is known
        return taken

    def dense(self) -> Tensor:
        """Return (c, m, d) or, with bias, (c, m, d + 1)."""
        import torch

        rows = self.outer.dense()
        along = [self.basis.expand(row).to(rows.dtype) for row in self._embedding]
        return rows - torch.stack(along) if along else rows


def _check_fit(outer: RankOne, basis: Basis) -> None:
    expected = (outer.left.shape[1], outer.right.shape[1] + outer.bias)
    if isinstance(basis, DenseBasis):
        shape = tuple(basis.vectors.shape[:2])
        check_precision(outer.left, basis.vectors)
    elif isinstance(basis, AnchorBasis):
        anchors = basis.anchors
        shape = (anchors.left.shape[1], anchors.right.shape[1] + anchors.bias)
        check_precision(outer.left, anchors.left)
        if anchors.bias != outer.bias and shape == expected:
            raise SpecError(f"Expected a basis of rows with bias={outer.bias}, like the contributions.")
    if shape != expected:
        raise SpecError(f"Expected a basis of rows shaped {expected}, like the contributions, got {shape}.")
