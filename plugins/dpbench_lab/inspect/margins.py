"""Margins in few dimensions ("Semi-private learning via low dimensional structures", figure 3 and appendix D)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpbench.support import progress
from dpbench_lab.inspect import machines
from dpbench_lab.inspect.report import SHARES, ClassMargins, SvmMargins
from dpbench_lab.inspect.spectrum import EigenDecomposition


def measure_margins(
    x: np.ndarray, y: np.ndarray, pca: EigenDecomposition, k: Sequence[int], c: float
) -> list[np.ndarray]:
    """Return an array (shares, len(k)) of margins for each class that has examples, in the order of the labels.

    Appendix D: after PCA to k dimensions a linear SVM is trained for each class against the rest; the margin of a row
    is its distance to the hyperplane, negative on the wrong side. As the classes are not separable, the margin of a
    class is the largest that a share of all rows reaches: 99% or 96% (`SHARES`). Below -1 the hyperplane misses the
    unit ball: the SVM assigns every row to the rest.

    Args:
        x: (n, d) float64 at unit length.
        y: (n,) labels.
        pca: the components of x, centred.
        k: the dimensions to project to.
        c: the C of the SVMs, which the paper does not give.
    """
    scores = (x - pca.mean) @ pca.vectors  # (n, r)
    classes = np.unique(y).tolist()
    found = [np.empty((len(SHARES), len(k))) for _ in classes]
    with progress.show_progress_bar("Fitting one class against the rest", len(k) * len(classes)) as advance:
        for column, dimension in enumerate(k):
            rows = np.ascontiguousarray(scores[:, :dimension])
            for index, label in enumerate(classes):
                distances = machines.fit_svm_distances(rows, np.where(y == label, 1, -1), c)
                found[index][:, column] = [largest_margin(distances, share) for share in SHARES]
                advance(1)
    return found


def largest_margin(distances: np.ndarray, share: float) -> float:
    """Return the largest margin that at least `share` of the distances (n,) reach.

    >>> largest_margin(np.array([3.0, -1.0, 2.0, 4.0]), 0.75)
    2.0
    """
    reaching = math.ceil(round(share * len(distances), 9))  # 0.96 * 25 must be 24 despite rounding
    return float(np.sort(distances)[len(distances) - reaching])


def group_margins_by_class(margins: Sequence[np.ndarray], class_names: Sequence[str]) -> SvmMargins:
    """Return the margins of each class, and the smallest margin over classes as in figure 3."""
    return SvmMargins(
        classes=tuple(
            ClassMargins(name=name, margins=_to_nested_tuples(array))
            for name, array in zip(class_names, margins, strict=True)
        ),
        smallest=_to_nested_tuples(np.min(margins, axis=0)),
    )


def _to_nested_tuples(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in values.tolist())
