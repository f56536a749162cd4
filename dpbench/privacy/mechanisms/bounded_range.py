"""What composes for choices: one pair of distributions that dominates every choice of one eps0. Pure: no torch.

The log-ratio f of a choice's laws on neighbours lies in an interval [t - eps0, t], 0 <= t <= eps0 (`choices`): it has
bounded range. Both ways round, and whatever was answered before, its hockey-stick divergence at e is then at most

    h(e) = (1 - exp((e - eps0) / 2))^2 / (1 - exp(-eps0)),  -eps0 <= e <= eps0.

For fixed t, among all laws with E_Q[exp f] = 1, E_Q[(exp f - exp e)+], convex in exp f, is largest if f takes the ends
of its interval alone: Q(f = t) = (exp(-t) - exp(-eps0)) / (1 - exp(-eps0)). That gives
(1 + exp(e - eps0) - exp(t - eps0) - exp(e - t)) / (1 - exp(-eps0)), which is largest at t = (e + eps0) / 2, where it is
h(e) (Dong, Durfee and Rogers 2020 have these steps). And h is the divergence of a pair itself: of the loss L with
density exp((e - eps0) / 2) / (2 (1 - exp(-eps0))) on [-eps0, eps0], as P(L > e) = h(e) - h'(e) says. So this pair
dominates all choices; and dominating pairs compose, however choices follow answers (Zhu, Dong and Wang 2022, theorem
10).

Randomised response dominates them too, being the worst of all that is eps0-DP: it takes 1 to 13% more noise in plans of
one or two choices, and 1.7 times as much in one of twenty. Of so many, zCDP alone (`rdp`) takes 3% less than this pair.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np


def divergence(eps0: float, e: np.ndarray) -> np.ndarray:
    """Return h(e), the largest hockey-stick divergence of a choice."""
    inside = np.clip(e, -eps0, eps0)
    found = np.expm1((inside - eps0) / 2) ** 2 / -math.expm1(-eps0)
    below: np.ndarray = np.where(e < -eps0, -np.expm1(np.minimum(e, 0)), found)
    return below


def loss_distribution(eps0: float, interval: float) -> Any:
    """Return the dominating pair for dp-accounting, on a grid of this interval, never under-estimated."""
    from dp_accounting.pld.pld_pmf import create_pmf_pessimistic_connect_dots_fixed_gap
    from dp_accounting.pld.privacy_loss_distribution import PrivacyLossDistribution

    ends = math.ceil(eps0 / interval)
    grid = np.arange(-ends, ends + 1) * interval
    pmf = create_pmf_pessimistic_connect_dots_fixed_gap(interval, -ends, ends, divergence(eps0, grid))
    return PrivacyLossDistribution(pmf)


def loss_variable(eps0: float) -> Any:
    """Return the same pair for Microsoft's prv-accountant, from the density of its loss."""
    from prv_accountant import PrivacyRandomVariable

    class Loss(PrivacyRandomVariable):  # type: ignore[misc]  # a package without types
        def cdf(self, t: Any) -> Any:
            return 1 - np.expm1((np.clip(t, -eps0, eps0) - eps0) / 2) / math.expm1(-eps0)

        def rdp(self, alpha: float) -> float:
            s = (alpha - 0.5) * eps0  # log of exp(-eps0 / 2) sinh(s) / ((alpha - 1/2) (1 - exp(-eps0))), for large s
            top = s - eps0 / 2 + math.log(-math.expm1(-2 * s) / 2)
            return (top - math.log((alpha - 0.5) * -math.expm1(-eps0))) / (alpha - 1)

    return Loss()
