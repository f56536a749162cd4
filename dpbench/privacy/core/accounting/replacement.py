"""The cost of a plan if one example is replaced by another, not added or removed (replace-one).

- A sum over all examples moves by up to two clips, so it costs as much as a Gaussian of half the noise multiplier. The
  range of a choice is twice eps0, because one example's losses are removed and another's are added.
- For sums over Poisson samples of rate q, the dominating pair is (1 - q) N(0) + q N(1) and (1 - q) N(0) + q N(-1), with
  means in clips, as in dp-accounting for REPLACE_ONE. Dominating pairs compose.

Proof for sampled sums. Fix which other examples are in the sample. In units of the std, the sum is normal around 0
without the example, around a with it, and around b with its replacement, where |a|, |b| <= s = 1 / sigma. With
P = (1 - q) N_0 + q N_a, Q = (1 - q) N_0 + q N_b and x = exp(e) >= 1, the divergence is the largest P(S) - x Q(S), or

    q E_(N_a) (1 - c exp(-X) - x exp(-Y))+,  c = (x - 1) (1 - q) / q >= 0,  X = log N_a / N_0,  Y = log N_a / N_b.

Under N_a, (X, Y) is normal, and exp(-X) and exp(-Y) have mean 1. The variances of X and Y are |a|^2 and |a - b|^2, and
their covariance is a.(a - b); for a = -b of length s, all three are largest: s^2, 4 s^2 and 2 s^2. On the straight line
from one covariance matrix C to the other, C*, the derivative of E f(u), u = exp(-(X, Y)), is half the sum over i and j
of (C* - C)_ij E u_i u_j f_ij(u). For f = (1 - c u_1 - x u_2)+, each f_ij is c^2, c x or x^2 times a density at the
kink, so it is not negative, and a = -b is the worst. For e < 0, swap P and Q. The other examples in the sample have the
same law under P and Q, and the divergence is convex in the pair, so the bound holds without fixing them.

Covered: plans of sums, votes and choices, for a person who owns one row. Not covered: the best of a random number of
runs, several rows of one person, and Renyi accountants, which have no such pair.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from dpbench.privacy.core.accounting import accountant, group
from dpbench.privacy.core.plan import Budget, Planned

MOVED = 2  # clips by which replacing one example moves a sum


def epsilon(plan: Sequence[Planned], sigma: float, delta: float) -> float:
    """Return an upper bound on epsilon, in nats, of `plan` at `delta` under replacing one example.

    Raises:
        PlanError: the accountant cannot answer for this plan.
    """
    if not sigma or all(use.sample_rate == 1 for use in plan):
        return accountant.epsilon(group.enlarge_plan(plan, MOVED), sigma, delta)
    return _sampled_epsilon(tuple(plan), sigma, delta)


def calibrate(plan: Sequence[Planned], budget: Budget) -> float:
    """Return a base noise multiplier that keeps `plan` within the budget under replacing one example.

    Raises:
        PlanError: no sigma up to 1e7 meets the budget, or every sigma does.
    """
    guess = MOVED * accountant.approximate_sigma(plan, budget)
    return accountant.find_smallest_sigma(
        lambda sigma: epsilon(plan, sigma, budget.delta), budget.epsilon, guess, "this plan under replace-one",
        "fewer steps or a larger epsilon",
    )  # fmt: skip


@functools.lru_cache(1024)  # many results share a plan
def _sampled_epsilon(plan: tuple[Planned, ...], sigma: float, delta: float) -> float:
    def compute_epsilon_on_grid(interval: float) -> float:
        return float(_compose_privacy_loss(plan, sigma, interval).get_epsilon_for_delta(delta))

    with accountant.silence_accounting_libraries():
        return accountant.epsilon_on_fine_grid(
            compute_epsilon_on_grid,
            accountant.smallest_step_loss_std(plan, sigma),
            accountant.largest_step_loss(plan, sigma / MOVED),
        )


def _compose_privacy_loss(plan: Sequence[Planned], sigma: float, interval: float) -> Any:
    whole = group.enlarge_plan([use for use in plan if use.sample_rate == 1], MOVED)
    losses = [accountant.compose_loss_distribution(whole, sigma, interval)] if whole else []
    for use in plan:
        if use.sample_rate < 1:
            step = loss_distribution(sigma * use.relative_noise, use.sample_rate, interval)
            losses.append(step.self_compose(use.steps))
    return functools.reduce(lambda loss, other: loss.compose(other), losses)


def loss_distribution(noise: float, rate: float, interval: float) -> Any:
    """Return the privacy loss distribution, under replacing one example, of one sum over a Poisson sample."""
    from dp_accounting import NeighboringRelation
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    return from_gaussian_mechanism(
        noise, value_discretization_interval=interval, sampling_prob=rate,
        neighboring_relation=NeighboringRelation.REPLACE_ONE,
    )  # fmt: skip
