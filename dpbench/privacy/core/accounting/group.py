"""The cost of a plan for a person with several rows: the same mechanism on datasets that differ by m rows.

Epsilon is stated for one row. If one image is in the private split m times, or one person has m images, removing all m
rows moves each sum by up to m clips. This module accounts for exactly this shift. Multiplying epsilon by m instead
would need a delta that grows by a factor of exp(epsilon) with every row.

- Every row is in every sum (rate 1): the Gaussian has sensitivity m, as if its noise multiplier were sigma / m; the
  exponential mechanism costs m times eps0.
- Poisson samples: a binomial number K of the m rows is sampled, and moves the sum by up to K clips, so the pair of
  N(0, sigma^2) and the mixture of N(k, sigma^2) over K = k dominates (Ganesh 2024, Tight Group-Level DP Guarantees for
  DP-SGD with Sampling via Mixture of Gaussians Mechanisms, arXiv 2401.10294). `pld` composes this pair with the pairs
  of the other releases.
- Other accountants have no such mixture. They use one in which any K >= 1 moves the sum by m clips: larger
  sensitivities dominate smaller ones (the same paper). This is a subsampled Gaussian of rate 1 - (1 - rate)^m and noise
  multiplier sigma / m, so the answer is an upper bound, a loose one if rates are small. `pld` states the smaller of
  this bound and the mixture's.

Covered: any m rows, equal or not, add-or-remove.
Not covered: rows that depend on each other without belonging to one person or showing the same image.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

from dpbench.errors import SpecError
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.plan import Planned, Release

LARGEST_SHIFT = 100.0
"""The mixture is composed if a group moves a sum by at most this many standard deviations of the noise. Beyond this, a
single step has losses in the thousands, so the Renyi bound is as good."""
P = TypeVar("P", bound=Planned)


def epsilon(plan: Sequence[Planned], sigma: float, delta: float, rows: int, name: AccountantName = "pld") -> float:
    """Return an upper bound on epsilon, in nats, of `plan` at `delta` for a person who owns `rows` rows.

    Raises:
        SpecError: fewer than one row.
        PlanError: the accountant cannot answer for this plan.
    """
    if rows < 1:
        raise SpecError(f"Expected one row or more to remove, got {rows}.")
    large = enlarge_plan(plan, rows)
    if rows == 1 or not sigma or all(use.sample_rate == 1 for use in plan):
        return accountant.epsilon(large, sigma, delta, name)
    bound = accountant.epsilon(large, sigma, delta, "rdp")
    if name != "pld" or not is_fast_to_compose(plan, sigma, rows):
        return bound
    return _mixture_epsilon(tuple(plan), sigma, delta, rows, bound)


def enlarge_plan(plan: Sequence[P], rows: int) -> list[P]:
    """Return a plan whose cost for one row is at least that of `plan` for `rows` rows together."""
    return [_enlarge_release(use, rows) for use in plan]


def _enlarge_release(release: P, rows: int) -> P:
    larger = replace(release, relative_noise=release.relative_noise / rows)  # type: ignore[type-var]
    if isinstance(larger, Release) and larger.sample_rate < 1:
        rate = -math.expm1(rows * math.log1p(-larger.sample_rate))
        return replace(larger, sample_rate=min(rate, 1.0))
    return larger


@functools.lru_cache(1024)  # many results of a board share a plan and have the same copies
def _mixture_epsilon(plan: tuple[Planned, ...], sigma: float, delta: float, rows: int, bound: float) -> float:
    def compute_epsilon_on_grid(interval: float) -> float:
        return float(compose_group_loss(plan, sigma, rows, interval).get_epsilon_for_delta(delta))

    with accountant.silence_accounting_libraries():
        return accountant.refine_epsilon_bound(compute_epsilon_on_grid, bound)


def is_fast_to_compose(plan: Sequence[Planned], sigma: float, rows: int) -> bool:
    """Return whether the mixture composes in seconds: no group moves a sum by more than `LARGEST_SHIFT`."""
    return max(rows / (sigma * use.relative_noise) for use in plan) <= LARGEST_SHIFT


def compose_group_loss(plan: Sequence[Planned], sigma: float, rows: int, interval: float) -> Any:
    """Compose a plan's privacy loss for a group of `rows` rows, rounded up to a grid of this interval."""
    from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
    from scipy.stats import binom

    if rows == 1:
        return accountant.compose_loss_distribution(plan, sigma, interval)
    moved, losses = list(range(rows + 1)), []
    if whole := enlarge_plan([use for use in plan if use.sample_rate == 1], rows):
        losses.append(accountant.compose_loss_distribution(whole, sigma, interval))
    for use in plan:
        if use.sample_rate < 1:
            chances = binom.pmf(moved, rows, use.sample_rate)
            loss = from_mixture_gaussian_mechanism(
                sigma * use.relative_noise, moved, chances / chances.sum(), value_discretization_interval=interval
            )
            losses.append(loss.self_compose(use.steps))
    return functools.reduce(lambda loss, other: loss.compose(other), losses)
