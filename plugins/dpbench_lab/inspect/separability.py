"""The low-rank separability ξ_k of pairs of classes (Pinto et al. 2023, "PILLAR", definition 3 and figure 3)."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import numpy as np

from dpbench.support import progress
from dpbench_lab.inspect import machines
from dpbench_lab.inspect.report import ClassPair, InspectionRequest, PairSeparability, SeparabilityRange
from dpbench_lab.inspect.spectrum import compute_eigen_decomposition


def measure_separability(
    x: np.ndarray, y: np.ndarray, names: Sequence[str], request: InspectionRequest
) -> PairSeparability:
    """Return ξ_k of class pairs, for rows (n, d) float64 at unit length and labels (n,).

    Section 3.1, "Pre-trained features are almost Large-Margin and Low-Rank": a linear SVM w* is trained on a pair of
    classes, and ξ_k = 1 - ‖A_k A_kᵀ w*‖₂ for w* of length 1, where the columns of A_k are the top k eigenvectors of
    E[x xᵀ] (not centred; half-spaces go through the origin). `own` uses the components of the pair's rows, as in
    definition 3. `shared` uses the components of all public rows, regardless of class, onto which PILLAR (algorithm 1)
    projects. The paper does not say which of the two figure 3 shows, so both are reported.

    The paper does not give the C of its SVMs either, on which ξ depends: a small C gives the difference of class means,
    which is low-rank but makes errors. Definition 3 requires a w* without errors, hence the default of 100 for rows of
    length 1.

    If there are more than `asked.pairs` pairs, that many are sampled with the seed `asked.split_seed`.
    """
    drawn, possible = choose_pairs(np.unique(y).tolist(), request.pairs, request.split_seed)
    shared = compute_eigen_decomposition(x, centre=False).vectors  # (d, r)
    found = []
    with progress.show_progress_bar("Separating class pairs", len(drawn)) as advance:
        for first, second in drawn:
            rows = x[(y == first) | (y == second)]
            signs = np.where(y[(y == first) | (y == second)] == first, 1, -1)
            normal = machines.fit_svm_normal(rows, signs, request.svm_c)  # (d,)
            own = compute_eigen_decomposition(rows, centre=False).vectors
            distances = signs * (rows @ normal)
            found.append(
                ClassPair(
                    classes=(names[first], names[second]), gamma=float(distances.min()),
                    wrong=float((distances <= 0).mean()), own=compute_normal_separability(normal, own, request.k),
                    shared=compute_normal_separability(normal, shared, request.k),
                )
            )  # fmt: skip
            advance(1)
    return PairSeparability(
        pairs=tuple(found), possible=possible, own=_make_separability_range([pair.own for pair in found]),
        shared=_make_separability_range([pair.shared for pair in found]),
    )  # fmt: skip


def compute_normal_separability(normal: np.ndarray, vectors: np.ndarray, k: Sequence[int]) -> tuple[float, ...]:
    """Return 1 - ‖A_k A_kᵀ w‖₂ for each k: w (d,) of length 1, A_k the first k columns of (d, r), all of them if k > r.

    It never rises with k, as the subspaces are nested; 0 means that w lies within the first k components.
    """
    within = np.sqrt(np.cumsum(np.square(normal @ vectors)).clip(max=1))  # (r,)
    return tuple(float(1 - within[min(dimension, len(within)) - 1]) for dimension in k)


def choose_pairs(classes: Sequence[int], max_pairs: int, seed: int) -> tuple[list[tuple[int, int]], int]:
    """Return all pairs, or a random sample of `max_pairs` of them, in order; and the number of all pairs.

    >>> choose_pairs([0, 1, 2], 50, 0)
    ([(0, 1), (0, 2), (1, 2)], 3)
    """
    every = list(itertools.combinations(classes, 2))
    return (every if len(every) <= max_pairs else sorted(random.Random(seed).sample(every, max_pairs))), len(every)


def _make_separability_range(values: Sequence[Sequence[float]]) -> SeparabilityRange:
    smallest, median, largest = np.quantile(values, (0, 0.5, 1), axis=0).tolist()
    return SeparabilityRange(smallest=tuple(smallest), median=tuple(median), largest=tuple(largest))
