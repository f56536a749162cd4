"""Compute leading directions of public rows, with an eigendecomposition or with subspace iteration."""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING

from dpbench.privacy.purity.audit_events import JUDGE

if TYPE_CHECKING:
    from torch import Tensor

NEGLIGIBLE_SHARE = 1e-12  # of the largest eigenvalue: rounding of the Gram matrix decides what lies below
MAX_CACHED, MAX_CACHED_SIDE = 6, 2048  # decompositions that are kept, and their side at most: 32 MiB each


@dataclass(frozen=True)
class PrincipalComponents:
    """The eigenvalues and eigenvectors of rows.T @ rows / count; only the requested eigenvectors are computed.

    If there are more features than rows, no (d, d) matrix is made. The eigenvectors are then computed from those of
    rows @ rows.T, which has the same eigenvalues except for zeros.
    """

    values: Tensor  # (min(m, d),) ascending
    _vectors: Tensor  # (d, d) of the features, or (m, m) of the rows
    _rows: Tensor  # (m, d)
    _count: int

    @classmethod
    def of(cls, rows: Tensor, count: int = 1) -> PrincipalComponents:
        """Return the components of public rows (m, d) in float64. The rows are not centred here.

        The time is proportional to m d min(m, d); the memory is that of the rows and of a square matrix of side min(m,
        d). A few decompositions are cached, because many seeds and settings use the same rows. Each caller gets a copy.
        """
        # Nothing that a row function sees may be kept.
        if JUDGE.get() is None and _is_cacheable(rows):
            values, vectors = (
                part.clone() for part in _decompose_gram_matrix_cached(_make_decomposition_key(rows, count))
            )
        else:
            values, vectors = _decompose_gram_matrix(rows, count)
        return cls(values, vectors, rows, count)

    def leading(self, k: int) -> Tensor:
        """Return the eigenvectors (d, k) of the k largest eigenvalues, in ascending order; k is at most min(m, d).

        If d > m, eigenvectors whose eigenvalue is below 1e-12 of the largest are zero, because the rows do not
        determine their direction.
        """
        vectors, values = self._vectors[:, -k:], self.values[-k:]
        if self._rows.shape[1] <= len(self._rows):
            return vectors
        kept = values > NEGLIGIBLE_SHARE * self.values[-1]
        lengths = (values * self._count).where(kept, 1.0).sqrt()  # of rows.T @ vectors
        return self._rows.T @ (vectors * kept / lengths)


@dataclass(frozen=True)
class _DecompositionKey:
    """The cache key of a decomposition: everything that determines it to the last bit. It keeps no rows alive."""

    content: str
    layout: tuple[tuple[int, ...], tuple[int, ...]]  # shape and strides: a library's product may round by them
    threads: int
    count: int
    rows: weakref.ref[Tensor] = field(compare=False)


def _is_cacheable(rows: Tensor) -> bool:
    """Return whether these rows' decomposition can be cached: they are readable, small, float64 and on the CPU."""
    import torch

    own = type(rows) is torch.Tensor and not torch._C._functorch.is_functorch_wrapped_tensor(rows)
    exact = rows.device.type == "cpu" and rows.dtype == torch.float64 and not rows.requires_grad
    return own and exact and min(rows.shape) <= MAX_CACHED_SIDE


def _make_decomposition_key(rows: Tensor, count: int) -> _DecompositionKey:
    import torch

    content = hashlib.sha256(rows.contiguous().numpy().reshape(-1).data).hexdigest()
    return _DecompositionKey(
        content, (tuple(rows.shape), rows.stride()), torch.get_num_threads(), count, weakref.ref(rows)
    )


@lru_cache(MAX_CACHED)
def _decompose_gram_matrix_cached(key: _DecompositionKey) -> tuple[Tensor, Tensor]:
    import torch

    rows = key.rows()
    assert rows is not None  # the caller holds them
    with torch.inference_mode(False):  # whoever asks first decides nothing for those who ask later
        return _decompose_gram_matrix(rows, key.count)


def _decompose_gram_matrix(rows: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ascending eigenvalues and the eigenvectors of the rows' smaller Gram matrix, divided by `count`."""
    import torch

    moment = rows.T @ rows if rows.shape[1] <= len(rows) else rows @ rows.T  # (d, d) or (m, m)
    values, vectors = torch.linalg.eigh(moment / count)
    return values, vectors


def subspace_iteration(multiply: Callable[[Tensor], Tensor], start: Tensor, rounds: int) -> Tensor:
    """Return an orthonormal basis (m, k) after multiplying `start` (m, k) by a symmetric matrix `rounds` times.

    The basis approaches the eigenvectors with the largest absolute eigenvalues. `multiply` returns the matrix times its
    argument (m, k).
    """
    import torch

    basis = start
    for _ in range(rounds):
        basis = torch.linalg.qr(multiply(basis)).Q
    return basis
