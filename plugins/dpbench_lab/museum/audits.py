"""Invalid audits: each reports a lower bound on epsilon that exceeds the epsilon of an honest mechanism."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import stats

from dpbench.audit import bounds
from dpbench.audit.attack import CanaryScores, draw_canary_membership
from dpbench.audit.figures import compute_figures
from dpbench_lab.museum.exhibit import ClaimedAndTrueEpsilon, Exhibit, Findings

DELTA = 1e-5
SEED = 11  # of twelve that were tried, the best number of guesses lies with three, where 5% may
Mechanism = Callable[[np.ndarray, np.random.Generator], tuple[np.ndarray, float]]
"""(whether each canary is in the data (m,), generator) -> (scores of the canaries (m,), true epsilon at `DELTA`)."""


@dataclass(frozen=True)
class InvalidAudit(Exhibit):
    """An audit whose bound is invalid; `shown` computes it from the scores of canaries inside and outside the data."""

    mechanism: Mechanism
    canaries: int

    def claimed_and_true_epsilon(self) -> ClaimedAndTrueEpsilon:
        """Return the bound that the audit reports, and the epsilon of the mechanism."""
        _, scores, member, epsilon = self._score_canaries()
        return ClaimedAndTrueEpsilon(self.shown(scores[member], scores[~member]), epsilon)

    def visit(self) -> Findings:
        """Compare the bound with those that dpbench's audit computes from the same scores."""
        stated, epsilon = self.claimed_and_true_epsilon()
        kept, *_ = self._score_canaries()
        figures = compute_figures(epsilon, DELTA, None, None, kept.summarise())
        honest = max(bound.epsilon for bound in (figures.steinke, figures.mahloujifar) if bound)
        said = (
            f"It reports epsilon at least {stated:.3g}, and {epsilon:.3g} holds; dpbench's bounds are at most "
            f"{honest:.3g}."
        )
        return {"valid bound": said if honest <= epsilon < stated else None}

    def _score_canaries(self) -> tuple[CanaryScores, np.ndarray, np.ndarray, float]:
        generator = np.random.default_rng(SEED)
        member = draw_canary_membership(self.canaries, generator)
        scores, epsilon = self.mechanism(member, generator)
        kept = CanaryScores(member)
        kept.add([scores], 1.0, 1.0)
        return kept, scores, member, epsilon


def draw_uninformative_scores(member: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return scores that do not depend on the data: epsilon is 0."""
    return generator.normal(size=len(member)), 0.0


def draw_gaussian_scores(member: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return the scores of a Gaussian mechanism of epsilon 0.1."""
    mu = bounds.gaussian_dp_mu(0.1, DELTA)
    return mu * member + generator.normal(size=len(member)), 0.1


def draw_randomised_responses(member: np.ndarray, generator: np.random.Generator) -> tuple[np.ndarray, float]:
    """Return the randomised responses, at epsilon 2, of a run that releases them.

    The mechanism releases responses with probability 0.3, and otherwise nothing. As a whole, it is 1-Gaussian DP.
    """
    honest = generator.random(len(member)) < 1 / (1 + math.exp(-2))
    return np.where(honest == member, 1.0, -1.0), bounds.gaussian_dp_epsilon(1.0, DELTA)


def absolute_value_of_a_bound(inside: np.ndarray, outside: np.ndarray) -> float:
    """Takes the absolute value of a lower bound on mu, so an attack that tells nothing seems to prove a large epsilon.

    Source: an audit in jax_privacy (before commit aab3e1c) reported 3-Gaussian DP for noise: bounds on both error rates
    near 1 make the difference of their quantiles very negative.
    """

    def bound_error_rate(wrong: np.ndarray) -> float:
        errors, of = int(wrong.sum()), len(wrong)
        return float(stats.beta.ppf(0.975, errors + 1, of - errors)) if errors < of else 1 - 1e-9

    lower = [
        stats.norm.isf(bound_error_rate(outside >= threshold)) - stats.norm.ppf(bound_error_rate(inside < threshold))
        for threshold in np.linspace(-1, 1, 9)
    ]
    return bounds.gaussian_dp_epsilon(float(np.abs(lower).max()), DELTA)


def best_number_of_guesses(inside: np.ndarray, outside: np.ndarray) -> float:
    """Tries many numbers of guesses and reports the best bound, which holds with 95% confidence for one number alone.

    Source: audits that report the best of several thresholds without a correction. Bonferroni's would divide the 5% by
    how many were tried.
    """
    order = np.argsort(np.concatenate([inside, outside]))
    right = np.arange(len(order)) < len(inside)
    found = []
    for guesses in range(10, 1_000, 10):
        low, high = order[: guesses // 2], order[-(guesses // 2) :]
        correct = int(right[high].sum() + (~right[low]).sum())
        found.append(bounds.steinke_bound(DELTA, len(order), guesses, correct))
    return max(found)


def canaries_assumed_independent(inside: np.ndarray, outside: np.ndarray) -> float:
    """Counts wrong guesses as if canaries were independent, although all of them share the luck of one run.

    Source: the exact tail of order statistics (Xiang et al. 2025, 2509.08704), which is no certificate for any other
    mechanism than one whose canaries are independent.
    """
    wrong, guesses = int((inside < 0).sum() + (outside > 0).sum()), len(inside) + len(outside)

    def rejects(mu: float) -> bool:
        return bool(stats.binom.cdf(wrong, guesses, stats.norm.cdf(-mu / 2)) <= bounds.SIGNIFICANCE)

    return bounds.gaussian_dp_epsilon(bounds.find_largest_rejected(rejects), DELTA)
