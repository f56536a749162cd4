"""Leading directions of public rows, by a decomposition of the smaller of two matrices, or by iteration."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

NEGLIGIBLE = 1e-12  # of the largest eigenvalue: rounding of the Gram matrix decides what lies below


@dataclass(frozen=True)
class PrincipalComponents:
    """The eigenvalues and eigenvectors of rows.T @ rows / count; eigenvectors are computed only as far as you ask.

    If there are more features than rows, no (d, d) matrix is made. The eigenvectors are then computed from those of
    rows @ rows.T, which has the same eigenvalues except for zeros.
    """

    values: Tensor  # (min(m, d),) ascending
    _vectors: Tensor  # (d, d) of the features, or (m, m) of the rows
    _rows: Tensor  # (m, d)
    _count: int

    @classmethod
    def of(cls, rows: Tensor, count: int = 1) -> PrincipalComponents:
        """Return those of public rows (m, d) in float64. Centre the rows first if you want them centred.

        The time is proportional to m d min(m, d); the memory is that of the rows and of a square matrix of side min(m,
        d).
        """
        import torch

        moment = rows.T @ rows if rows.shape[1] <= len(rows) else rows @ rows.T  # (d, d) or (m, m)
        values, vectors = torch.linalg.eigh(moment / count)
        return cls(values, vectors, rows, count)

    def leading(self, k: int) -> Tensor:
        """Return the eigenvectors (d, k) of the k largest eigenvalues, ascending, k <= min(m, d).

        If d > m, an eigenvector whose eigenvalue is below 1e-12 of the largest is zero, because the rows do not
        determine its direction.
        """
        vectors, values = self._vectors[:, -k:], self.values[-k:]
        if self._rows.shape[1] <= len(self._rows):
            return vectors
        kept = values > NEGLIGIBLE * self.values[-1]
        lengths = (values * self._count).where(kept, 1.0).sqrt()  # of rows.T @ vectors
        return self._rows.T @ (vectors * kept / lengths)


def subspace_iteration(multiply: Callable[[Tensor], Tensor], start: Tensor, rounds: int) -> Tensor:
    """Return an orthonormal basis (m, k) after `rounds` products of a symmetric matrix with `start` (m, k).

    It approaches the eigenvectors with the largest absolute eigenvalues. `multiply` maps (m, k) to the matrix times it.
    """
    import torch

    basis = start
    for _ in range(rounds):
        basis = torch.linalg.qr(multiply(basis)).Q
    return basis
