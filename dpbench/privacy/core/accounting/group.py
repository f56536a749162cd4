"""The cost of a plan for a person with several rows: the same mechanism between datasets that differ by m rows.

Epsilon is stated for one row. If one image is in the private split m times, or one person has m images, removing all of
them moves each sum by up to m clips. This module accounts for exactly that: multiplying epsilon by m would need a delta
that grows by exp(epsilon) with every row.

- Every row in every sum (rate 1): a Gaussian of sensitivity m, which is one of noise multiplier sigma / m; an
  exponential mechanism of m times eps0.
- Poisson samples: of m rows a binomial number K is sampled, and they move the sum by up to K clips, so that the pair
  N(0, sigma^2) and the mixture of N(k, sigma^2) over K dominates (Ganesh 2024, Tight Group-Level DP Guarantees for
  DP-SGD with Sampling via Mixture of Gaussians Mechanisms, arXiv 2401.10294). `pld` composes that pair with those of
  the other releases.
- Other accountants have no such mixture. They get a mixture in which K >= 1 rows move the sum by all of m clips: larger
  sensitivities dominate smaller ones (the same paper). It is a subsampled Gaussian of rate 1 - (1 - rate)^m and
  noise sigma / m, so the answer is an upper bound, a loose one where rates are small. `pld` states the smaller of it
  and the mixture.

Covered: any m rows, equal or not, add-or-remove.
Not covered: rows that depend on each other in other ways than by belonging to one person or showing the same image.
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
"""Standard deviations of the noise by which a group moves a sum, up to which the mixture is composed. Beyond, one step
alone has losses in the thousands, so the Renyi bound is as good."""
P = TypeVar("P", bound=Planned)


def epsilon(plan: Sequence[Planned], sigma: float, delta: float, rows: int, name: AccountantName = "pld") -> float:
    """Return an upper bound on epsilon, in nats, of `plan` at `delta` for `rows` rows that one person may remove.

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
    if name != "pld" or not can_compose(plan, sigma, rows):
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
    def compose_at(interval: float) -> float:
        return float(compose(plan, sigma, rows, interval).get_epsilon_for_delta(delta))

    with accountant.silence_libraries():
        return accountant.refine_grid(compose_at, bound)


def can_compose(plan: Sequence[Planned], sigma: float, rows: int) -> bool:
    """Return whether `compose` takes seconds and not minutes."""
    return max(rows / (sigma * use.relative_noise) for use in plan) <= LARGEST_SHIFT


def compose(plan: Sequence[Planned], sigma: float, rows: int, interval: float) -> Any:
    """Compose the privacy loss of `rows` rows together, rounded up to a grid of this interval."""
    from dp_accounting.pld.privacy_loss_distribution import from_mixture_gaussian_mechanism
    from scipy.stats import binom

    if rows == 1:
        return accountant.compose(plan, sigma, interval)
    moved, losses = list(range(rows + 1)), []
    if whole := enlarge_plan([use for use in plan if use.sample_rate == 1], rows):
        losses.append(accountant.compose(whole, sigma, interval))
    for use in plan:
        if use.sample_rate < 1:
            chances = binom.pmf(moved, rows, use.sample_rate)
            loss = from_mixture_gaussian_mechanism(
                sigma * use.relative_noise, moved, chances / chances.sum(), value_discretization_interval=interval
            )
            losses.append(loss.self_compose(use.steps))
    return functools.reduce(lambda loss, other: loss.compose(other), losses)
