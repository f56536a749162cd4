"""Epsilon as odds: bounds on how often a membership test can be right about one example, or one unit.

The attacker knows all other data and guesses from all answers whether the example was in the data. At a false-positive
rate x, no test has a true-positive rate above either of

    exp(epsilon) x + delta(epsilon)    and    1 - exp(-epsilon) (1 - x - delta(epsilon))

for any epsilon, where delta(epsilon) is the plan's whole curve, not only the point that the budget fixes (Wasserman and
Zhou 2010, theorem 2.4; Dong, Roth and Su 2022, proposition 2.13). This module returns the smallest of these bounds over
all epsilons; for Gaussian sums over all examples it is the mechanism's trade-off curve itself. The curve is computed by
accountant `pld`, whichever accountant states epsilon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from dpbench.errors import SpecError
from dpbench.privacy.core.accounting import curve
from dpbench.privacy.core.accounting.accountant import epsilon, find_pure_cost, silence_accounting_libraries
from dpbench.privacy.core.plan import Planned

FALSE_POSITIVE_RATES = (0.001, 0.01)
"""False-positive rates at which results and attacks state true-positive rates."""


def true_positive_rate(plan: Sequence[Planned], sigma: float, false_positive_rate: float) -> float:
    """Return an upper bound on the true-positive rate of every membership test at this false-positive rate.

    The bound holds for adding or removing one example, whatever the test knows about the other examples. It is rounded
    up.

    Raises:
        SpecError: the rate is not between 0 and 1.
        PlanError: the accountant cannot answer for this plan.
    """
    import numpy as np
    from scipy.stats import norm

    if not 0 < false_positive_rate < 1:
        raise SpecError(f"Expected a false-positive rate in (0, 1), got {false_positive_rate:g}.")
    if not plan:
        return false_positive_rate
    if sigma == 0:
        return 1.0
    if (distance := curve.find_gaussian_mu(plan, sigma)) is not None:
        return float(norm.sf(norm.isf(false_positive_rate) - distance))
    if find_pure_cost(plan) is not None:
        return bound_true_positive_rate(epsilon(plan, sigma, curve.DELTA), 0.0, false_positive_rate)
    epsilons = np.linspace(0, -math.log(false_positive_rate), curve.POINTS)
    with silence_accounting_libraries():
        deltas = np.array(curve.compose_loss_of_plan(tuple(plan), sigma).get_delta_for_epsilon(epsilons.tolist()))
    return float(curve.bound_true_positive_rates(epsilons, deltas, false_positive_rate).min())


def bound_true_positive_rate(epsilon: float, delta: float, false_positive_rate: float) -> float:
    """Return an upper bound, at most 1, on the true-positive rate of membership tests, from one (epsilon, delta)."""
    above = math.exp(min(epsilon, 700.0)) * false_positive_rate + delta
    return min(1.0, above, 1 - math.exp(-epsilon) * (1 - false_positive_rate - delta))
