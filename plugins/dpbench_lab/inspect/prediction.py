"""Predictions of theorems from measured features: how many dimensions to keep, and the gain.

PILLAR's theorem 1 has two readings, for features with margin gamma, separability xi_k and a share tau_k of the energy
outside k directions. Both give a factor: how many times as many private examples the whole space would need.

- As printed: n is of the order of sqrt(k) / (alpha epsilon gamma (1 - xi_k - gamma / 10)), against sqrt(d) with xi = 0.
  The gain is sqrt(d / k) (1 - xi_k - gamma / 10) / (1 - gamma / 10): a gap between two upper bounds.
- By noise: noise in a head changes the score of a row of norm 1 by the same amount in any dimension, and that of a
  projected row by sqrt(1 - tau_k) times as much, while the margin shrinks by a factor of about 1 - xi_k. The gain is
  (1 - xi_k) / sqrt(1 - tau_k).

Neither is a guarantee: the margin that every row keeps is gamma - sqrt(xi_k (2 - xi_k)) (the proof of theorem 1 has
gamma (1 - xi_k), which does not follow), and `kept` is the least k for which that is positive.

Both ignore the error of estimating a projection from few public rows, and the growth of the best k with the budget:
neither contains epsilon or n.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from dpbench_lab.inspect.report import EigenvalueSpectrum, GainPrediction, PairSeparability


def predict_gains(
    k: Sequence[int], dimensions: int, spectrum: EigenvalueSpectrum, separability: PairSeparability
) -> GainPrediction:
    """Return the predictions of both readings for each k, from the median xi over class pairs in shared components.

    gamma is the median over pairs of their smallest margin, or 0 if that is negative: real classes overlap.
    """
    gamma = max(0.0, statistics.median(pair.gamma for pair in separability.pairs))
    whole = 1 - 0.1 * gamma
    kept = None
    printed, noise = [], []
    for dimension, xi, explained in zip(k, separability.shared.median, spectrum.explained, strict=True):
        printed.append(math.sqrt(dimensions / dimension) * max(0.0, whole - xi) / whole)
        noise.append((1 - xi) / math.sqrt(max(explained, 1e-12)))
        kept = dimension if kept is None and gamma > math.sqrt(xi * (2 - xi)) else kept
    return GainPrediction(
        gamma=gamma, printed=tuple(printed), noise=tuple(noise), best_printed=k[printed.index(max(printed))],
        best_noise=k[noise.index(max(noise))], kept=kept,
    )  # fmt: skip
