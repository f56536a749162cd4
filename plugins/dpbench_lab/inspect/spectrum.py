"""Principal components of rows, and how many dimensions their variance fills."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dpbench.errors import DataError
from dpbench_lab.inspect.report import EigenvalueSpectrum

NEGLIGIBLE = 1e-10  # relative to the largest eigenvalue: directions below it are rounding error


@dataclass(frozen=True)
class EigenDecomposition:
    """Eigenvectors of (1/n) Σ x xᵀ, largest eigenvalue first; r = min(n, d), and negligible vectors are dropped."""

    mean: np.ndarray  # (d,): what was subtracted from the rows; 0 for the second moment
    values: np.ndarray  # (r,) descending, none negative, including negligible ones
    vectors: np.ndarray  # (d, at most r), orthonormal columns


def scale_rows_to_unit_length(x: np.ndarray) -> np.ndarray:
    """Return the rows of (n, d) scaled to length 1; a row of zeros stays zero.

    The instance space of both papers is the unit sphere (PILLAR section 3.1; low-dimensional structures section 3.2,
    footnote 2), and only there can margins of different extractors be compared.
    """
    lengths = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(lengths > 0, lengths, 1)


def compute_eigen_decomposition(x: np.ndarray, centre: bool) -> EigenDecomposition:
    """Return the components of the rows (n, d) float64, from their covariance or Gram matrix, whichever is smaller.

    `centre` subtracts the mean first, as in PCA. Without it, they are the components of the second moment E[x xᵀ], as
    in PILLAR's definition 3.

    Raises:
        DataError: all rows are equal, so there is nothing to decompose.
    """
    n, d = x.shape
    mean = x.mean(0) if centre else np.zeros(d)
    rows = x - mean if centre else x
    values, vectors = np.linalg.eigh((rows.T @ rows if d <= n else rows @ rows.T) / n)
    values, vectors = values[::-1].clip(min=0), vectors[:, ::-1]
    if values[0] <= np.finfo(float).eps * np.square(x).sum() / n:  # equal rows, up to rounding
        raise DataError(
            f"Expected features that differ, got {n} equal rows: they have no spectrum. Check extractor and images."
        )
    kept = int((values > NEGLIGIBLE * values[0]).sum())
    if d > n:
        vectors = rows.T @ (vectors[:, :kept] / np.sqrt(n * values[:kept]))
    return EigenDecomposition(mean, values, vectors[:, :kept])


def summarise_spectrum(values: np.ndarray, k: Sequence[int]) -> EigenvalueSpectrum:
    """Return the share of variance in the first k components, and effective ranks, from descending eigenvalues (r,).

    Participation ratio: (Σλ)² / Σλ². Entropy rank: exp of the entropy of λ/Σλ (Roy and Vetterli 2007). Both are r for
    equal eigenvalues and 1 for a single nonzero one.
    """
    shares = values / values.sum()
    positive = shares[shares > 0]
    explained = np.cumsum(shares)
    return EigenvalueSpectrum(
        eigenvalues=tuple(values.tolist()),
        explained=tuple(min(float(explained[dimension - 1]), 1.0) for dimension in k),
        participation_ratio=float(1 / np.square(shares).sum()),
        entropy_rank=float(np.exp(-(positive * np.log(positive)).sum())),
    )
