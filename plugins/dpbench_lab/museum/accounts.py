"""Published computations that understate epsilon for a plan and sigma; a second accountant checks each of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dpbench.api import Release
from dpbench.errors import AccountantsDisagree
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.accounting.crosscheck import cross_check
from dpbench_lab.museum.exhibit import ClaimedAndTrueEpsilon, Exhibit, Findings


@dataclass(frozen=True)
class UnderstatedEpsilon(Exhibit):
    """A statement of epsilon that is too small: `shown` computes it from plan, sigma and delta."""

    plan: Sequence[Release] = ()
    given: float = 0.0  # to what is shown: sigma
    delta: float = 1e-5
    noise: float = 1.0  # true sigma / what the account takes for it

    def claim(self) -> tuple[float, float]:
        """Return the stated epsilon, and sigma."""
        return self.shown(self.plan, self.given, self.delta), self.given

    def claimed_and_true_epsilon(self) -> ClaimedAndTrueEpsilon:
        """Return the stated epsilon, and the epsilon that the harness's accountant computes."""
        stated, sigma = self.claim()
        return ClaimedAndTrueEpsilon(stated, accountant.epsilon(self.plan, sigma * self.noise, self.delta))

    def visit(self) -> Findings:
        """Check the stated epsilon with the second accountant, as in every run."""
        stated, sigma = self.claim()
        try:
            cross_check(self.plan, sigma * self.noise, self.delta, "pld", stated)
        except AccountantsDisagree as error:
            return {"second accountant": str(error)}
        return {"second accountant": None}


class UndersizedSigma(UnderstatedEpsilon):
    """A sigma that is too small for the given epsilon."""

    def claim(self) -> tuple[float, float]:
        """Return the requested epsilon, and the sigma that `shown` computes for it."""
        return self.given, self.shown(self.plan, self.given, self.delta)


def central_limit_epsilon(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """States the epsilon of a central limit theorem, which holds for infinitely many steps at vanishing rates.

    Source: Opacus' `gdp` accountant.
    """
    from opacus.accountants.analysis import gdp

    (release,) = plan
    return float(
        gdp.compute_eps_poisson(
            steps=release.steps, noise_multiplier=sigma, sample_rate=release.sample_rate, delta=delta
        )
    )


def doubled_divergence(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """Accounts for two releases on one sample as twice the Rényi divergence of one, as if sampled separately.

    Source: the code of GEP (Yu et al. 2021): "the sensitivity is sqrt(2)". Correct is one release at sigma / sqrt(2).
    """
    from opacus.accountants.analysis.rdp import compute_rdp

    (release,) = plan
    orders = [order / 10 for order in range(20, 320)]
    curve = 2 * compute_rdp(q=release.sample_rate, noise_multiplier=sigma, steps=release.steps, orders=orders)
    return min(float(found) - math.log(delta) / (order - 1) for found, order in zip(curve, orders, strict=True))


def micro_batches_counted_as_examples(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """Accounts for single examples but averages four before clipping, so one example moves two clips.

    Source: the IMDB run of AdaDPS (Li et al. 2022): noise 1, 32 epochs with batches of 64, in micro-batches of 4.
    """
    return accountant.epsilon(plan, sigma, delta)


def textbook_gaussian(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """Inverts sigma = sqrt(2 log(1.25 / delta)) / epsilon, which is proven only for epsilon below 1.

    Source: differential privacy for scikit-learn's SGD (issue 30114).
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / sigma


def bisection_to_the_unsafe_side(plan: Sequence[Release], target: float, delta: float) -> float:
    """Searches for sigma to within 0.01 and returns the last value tried, whichever side it is on.

    Source: `get_noise_multiplier` of Opacus in issue 346, which reports an epsilon 0.5 above the target.
    """
    low, high, sigma = 0.0, 10.0, 10.0
    while high - low > 0.01:
        sigma = (low + high) / 2
        reached = accountant.epsilon(plan, sigma, delta) <= target
        low, high = (low, sigma) if reached else (sigma, high)
    return sigma


def best_run_reported_alone(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """Tries 48 settings on the private data, publishes the best and states the epsilon of a single run.

    Source: the grids of most papers on private learning; this one is PILLAR's.
    """
    (all_of_them,) = plan
    release = Release(all_of_them.name, all_of_them.steps // 48, all_of_them.sample_rate)
    return accountant.epsilon([release], sigma, delta)


def replaced_row_counted_once(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """States epsilon for replacing a row by the Renyi divergence of adding one: the sum moves by two clips, not one.

    Source: `RdpAccountant` of dp-accounting 0.6 under `REPLACE_ONE` (google/differential-privacy, issue 378; its own
    `PLDAccountant` takes both clips).
    """
    return accountant.epsilon(plan, sigma, delta, "rdp")


def adaptive_clip_half_accounted(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """Adds more noise to the gradient, to pay for a noisy count in each step, and accounts for the gradient alone.

    Source: the optimizer of adaptive clipping of Opacus up to 1.5.4 (issue 807), with noise of std 1 on the count.
    """
    gradient = (sigma**-2 - 2**-2) ** -0.5  # Andrew et al. 2021, theorem 1
    return accountant.epsilon(plan, gradient, delta)


def rate_of_a_micro_batch(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """Accounts for the rate of one micro-batch, of which eight are accumulated before noise is added.

    Source: a check of noise in jax_privacy (issues 271 and 287), which divides the micro-batch by the number of rows.
    """
    (release,) = plan
    return accountant.epsilon([replace(release, sample_rate=release.sample_rate / 8)], sigma, delta)


def understated_epsilon(plan: Sequence[Release], sigma: float, delta: float) -> float:
    """Writes a smaller epsilon into a result.

    Source: a catalogue of claims that lists "99.75% at eps 0" (private-machinelearning.github.io, as stored in June
    2024). `dpbench leaderboard verify` recomputes every result with the second accountant.
    """
    return 0.1
