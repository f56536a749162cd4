"""Evidence against a privacy statement, as e-values: numbers with an expectation of at most 1 if the statement holds.

An e-value of 1,000 or more has a chance of at most 1 in 1,000 in an honest run (Markov). Unlike p-values, e-values may
be looked at as often as one likes (Shafer 2021, 1903.06991; for audits of privacy: Gonzalez et al. 2025, 2509.07055).

Calibration. If P[p <= u] <= u for all u, and f decreases with an integral of at most 1 over [0, 1], then E[f(p)] <= 1:
p is stochastically at least a uniform number U, so E[f(p)] <= E[f(U)], which is the integral (Vovk and Wang 2021). Here
f(p) = 0.1 p^-0.9, whose integral is exactly 1. It is large only where p is small: f(0.01) = 6, f(1e-7) = 200,000.

Stakes. Each test of an audit stakes the same amount, and its stake is multiplied by its e-value. Audits of other seeds
and learners have noise of their own, so given all earlier audits, e-values of a new one still have an expectation of at
most 1, and each test's stake is a nonnegative supermartingale. The evidence is the mean of all stakes. It is a
supermartingale too, even if tests of one audit depend on each other: by Ville's inequality, an honest run's evidence
reaches 1,000 with a chance of at most 1 in 1,000, however many seeds are audited and whenever one stops. A test that
earlier audits did not have starts at the evidence so far, which leaves the mean unchanged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import fmean

from dpbench.records.audit import StatisticalCheck

ALARM = 1_000.0  # evidence from which on an audit fails
EXPONENT = 0.1  # near 1 / log(1 / p) for the p-values that an alarm takes
MOST_EVIDENCE = 1e12  # of a test: what is capped keeps an expectation of at most 1, and products stay finite
LEAST_CHANCE = 1e-300


def convert_p_value_to_e_value(p: float) -> float:
    """Return the e-value of a p-value."""
    return min(MOST_EVIDENCE, EXPONENT * math.pow(max(p, LEAST_CHANCE), EXPONENT - 1))


def update_stakes(stakes: Mapping[str, float], checks: Iterable[StatisticalCheck]) -> dict[str, float]:
    """Return all stakes after one more audit: the stake of each of its tests is multiplied by the test's e-value."""
    start, after = compute_evidence(stakes), dict(stakes)
    for check in checks:
        after[check.name] = min(MOST_EVIDENCE, stakes.get(check.name, start) * convert_p_value_to_e_value(check.p))
    return after


def compute_evidence(stakes: Mapping[str, float]) -> float:
    """Return the evidence against the privacy statement: the mean of all stakes, or 1 before the first audit."""
    return fmean(stakes.values()) if stakes else 1.0


def describe_evidence(evidence: float) -> str:
    """Describe evidence against a privacy statement in a word, followed by the number.

    >>> describe_evidence(0.3), describe_evidence(25_000)
    ('none (e = 0.3)', 'alarm (e = 25,000)')
    """
    words = ((ALARM, "alarm"), (100, "strong"), (10, "weak"), (0, "none"))
    word = next(word for least, word in words if evidence >= least)
    shown = f"{evidence:,.0f}" if 100 <= evidence < 1e6 else f"{evidence:.2g}"
    return f"{word} (e = {shown})"
