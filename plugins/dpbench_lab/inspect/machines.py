"""Linear support vector machines by scikit-learn's `LinearSVC`, trained as in the papers that define the measures."""

from __future__ import annotations

import numpy as np
from sklearn.svm import LinearSVC

NEGLIGIBLE = 1e-9  # length of a weight vector, for rows of length 1: anything shorter is rounding error


def fit_svm_normal(rows: np.ndarray, signs: np.ndarray, c: float) -> np.ndarray:
    """Return the unit normal (d,) of a half-space through the origin, for rows (n, d) and signs (n,) in {1, -1}.

    Zero if the SVM prefers no direction.
    """
    weights = _fit_svm(rows, signs, c, intercept=False).coef_[0]
    length = np.linalg.norm(weights)
    unit: np.ndarray = weights / length if length > NEGLIGIBLE else np.zeros_like(weights)
    return unit


def fit_svm_distances(rows: np.ndarray, signs: np.ndarray, c: float) -> np.ndarray:
    """Return the signed distances (n,) of rows (n, k) to the hyperplane fitted to them, negative on the wrong side.

    Zero if the SVM prefers no direction, so that there is no hyperplane.
    """
    machine = _fit_svm(rows, signs, c, intercept=True)
    length = np.linalg.norm(machine.coef_)
    found: np.ndarray = signs * machine.decision_function(rows) / length if length > NEGLIGIBLE else np.zeros(len(rows))
    return found


def _fit_svm(rows: np.ndarray, signs: np.ndarray, c: float, *, intercept: bool) -> LinearSVC:
    # The primal solver is deterministic, and converges where coordinate descent would not.
    return LinearSVC(C=c, fit_intercept=intercept, dual=False, tol=1e-6, max_iter=10_000).fit(rows, signs)
