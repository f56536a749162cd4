"""The residual form: a row minus its part along a public basis. GEP releases it together with the embedding."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.core.exact.elementwise import TINY
from dpbench.privacy.core.exact.limits import ROW_LIMIT
from dpbench.privacy.core.exact.quantised import QuantisedRows, quantise
from dpbench.privacy.core.forms.contributions import Contribution, RankOne
from dpbench.privacy.core.forms.residual.bases import AnchorBasis, Basis, DenseBasis, check_float32
from dpbench.privacy.core.forms.rounding import check_precision

if TYPE_CHECKING:
    from torch import Tensor

    from dpbench.privacy.core.exact.sums import IntegerSum

EMBEDDING_BITS = 20  # embeddings are rounded to a grid of clip * 2^-20 before they are taken off


@dataclass(frozen=True, eq=False)
class Residual(Contribution):
    """Row i contributes G_i - V ê_i: an outer product minus its part along a public basis V, with `embedding` ê.

    The embedding is computed here, not taken from the caller, because the bound on the norm holds only for
    G's own embedding. Return ``Blocks((residual.embedding, residual))`` to release both parts of one sample.

    Raises:
        SpecError: basis and rows differ in shape.
        PrivacyError: a basis or rows of a class whose rounding this module does not bound.
    """

    outer: RankOne
    basis: Basis
    _embedding: Tensor = field(init=False)  # (c, k)

    @property
    def embedding(self) -> Tensor:
        """A copy of the embedding ê, (c, k): a caller who changed ê itself would change the norm of the residual."""
        return self._embedding.clone()

    def __post_init__(self) -> None:
        """Refuse other types of rows or basis, shapes that do not fit, and a changed basis; compute the embedding."""
        if type(self.basis) not in {DenseBasis, AnchorBasis} or type(self.outer) is not RankOne:
            raise PrivacyError(
                f"Expected a RankOne and a DenseBasis or AnchorBasis in a Residual, got {type(self.outer).__name__} "
                f"and {type(self.basis).__name__}. Subclasses are not accepted, because dpbench computes the norms "
                "itself."
            )
        _check_basis_fits_rows(self.outer, self.basis)
        self.basis.check()
        object.__setattr__(self, "_embedding", self.basis.embed(self.outer))

    def __len__(self) -> int:
        return len(self.outer)

    def norms(self) -> Tensor:
        """Return (c,) float64: the residuals' norms, rounding of the embedding included (see `bases`)."""
        return self._norm_bounds()[0]

    def _norm_bounds(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return (c,) float64 each: bounds on the norms of residuals and of whole rows, and the embeddings' norms."""
        from dpbench.privacy.core.exact.elementwise import folded

        basis = self.basis
        whole = self.outer.norms()
        embedded = folded(self._embedding.double().square(), 1).sqrt_()
        # V may be rounded after the embedding was fixed: both ways of writing a residual are covered
        error, defect = basis.rounding + basis.vector_rounding_bound, basis.defect + 3 * basis.vector_rounding_bound
        squared = whole.square() - (1 - defect) * embedded.square() + 2 * error * whole * embedded
        rounding = 2 * (basis.k + 8) * 2**-53  # of these float64 squares themselves
        norms = squared.add_(rounding * whole.square()).clamp_(min=0).sqrt_().add_(TINY)
        return norms.add_(basis.vector_rounding_bound * embedded), whole, embedded

    def clipped_sum(self, clip: float, shares: Tensor | None = None) -> IntegerSum:
        """Return the sum of the outer products minus V times the sum of the embeddings, both in integers.

        Row i moves the sum by w_i (G_i - V ê_i), plus the errors of rounding w_i G_i and w_i ê_i to their grids, plus
        less than one step in each entry because V times the embeddings is rounded down. The weight w_i is so small that
        all of these together have norm at most `clip`, or row i's share of it.
        """
        import torch

        from dpbench.privacy.core.exact import sums
        from dpbench.privacy.core.forms.residual.total import ResidualSum

        right, bias = self.outer.right, self.outer.bias
        if not isinstance(right, QuantisedRows):  # what is embedded must be what is summed
            return Residual(RankOne(self.outer.left, quantise(right), bias), self.basis).clipped_sum(clip, shares)
        self.basis.check()
        left = self.outer.columns()
        features = right.shape[1]
        grid = clip * 2.0 ** (2 - sums.outer_product_grid_bits(features))
        grids = sums.make_outer_product_grids((grid,), left.shape[1], features, bias, left.device)
        step = clip * 2.0**-EMBEDDING_BITS
        norms, whole, embedded = self._norm_bounds()
        entries = grids.entries[0, 0]  # (d,) or (d + 1,)
        taken = float(entries.square().sum()) * left.shape[1]  # of the rounding of V times the embeddings, squared
        rest = 0.5 * step * self.basis.k**0.5 * (1 + 1e-3) + taken**0.5
        room = (clip if shares is None else clip * shares) * (1 - 2.0**-30) - rest - grids.bound_rounding(right.lengths)
        bounds = norms + 2.0**-22 * whole + 2.0**-50 * embedded  # float32 factors move whole rows
        weights = sums.weights_within(bounds.unsqueeze(0), room, ROW_LIMIT**2, shares)
        weights = torch.minimum(weights, sums.compute_two_slice_weights(left, right, grids))
        found = sums.rounded_outer_sum(left, right, weights, grids)
        factors = weights[0].unsqueeze(1) / weights.new_tensor(step)
        along = torch.where(factors > 0, self._embedding.double() * factors, 0).round_().sum(0).to(torch.int64)
        outer = sums.IntegerSum(found.total[0], found.grid[0])
        return ResidualSum(outer, along, step / entries, self.basis)

    def take(self, rows: Tensor) -> Residual:
        """Return the residuals of the rows with these indices."""
        taken = Residual(self.outer.take(rows), self.basis)
        object.__setattr__(taken, "_embedding", self._embedding.index_select(0, rows))  # the one whose norm is known
        return taken

    def dense(self) -> Tensor:
        """Return (c, m, d) or, with bias, (c, m, d + 1)."""
        import torch

        rows = self.outer.dense()
        along = [self.basis.expand(row).to(rows.dtype) for row in self._embedding]
        return rows - torch.stack(along) if along else rows


def _check_basis_fits_rows(outer: RankOne, basis: Basis) -> None:
    check_precision(outer.left, basis.tensors[0])
    check_float32(outer.left)
    expected = (outer.left.shape[1], outer.right.shape[1] + outer.bias)
    if basis.row_shape != expected:
        raise SpecError(f"Expected a basis of rows shaped {expected}, like the contributions, got {basis.row_shape}.")
    if isinstance(basis, AnchorBasis) and basis.anchors.bias != outer.bias:
        raise SpecError(f"Expected a basis of rows with bias={outer.bias}, like the contributions.")
