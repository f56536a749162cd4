"""The largest true-positive rates of membership tests under a stated guarantee."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence

from dpbench.analysis.formats import format_percent_rounded_up, format_upper_bound
from dpbench.errors import PlanError
from dpbench.privacy.core.accounting import curve, membership, replacement
from dpbench.privacy.core.accounting.membership import FALSE_POSITIVE_RATES
from dpbench.privacy.core.plan import Planned
from dpbench.records.result import Result
from dpbench.records.stated_plan import PrivacyGuarantee

GOOD_FIT = 0.01
"""The largest difference in true-positive rates at which a Gaussian curve may describe a plan's curve."""


def max_true_positive_rates(privacy: PrivacyGuarantee) -> Mapping[float, float]:
    """Return the largest true-positive rate of any membership test, by false-positive rate; empty without noise.

    The rates are computed from plan and sigma alone, so no result stores them. For a private search, they are computed
    from the stated epsilon and delta, because no privacy curve of the search is computed here.

    Raises:
        PlanError: see `membership.true_positive_rate`.
    """
    if not privacy.sigma:
        return {}
    if privacy.repeats is not None:
        return {
            rate: membership.bound_true_positive_rate(privacy.epsilon, privacy.delta, rate)
            for rate in FALSE_POSITIVE_RATES
        }
    return {rate: membership.true_positive_rate(privacy.releases, privacy.sigma, rate) for rate in FALSE_POSITIVE_RATES}


RiskFunction = Callable[[PrivacyGuarantee], Mapping[float, float]]


def describe_membership_risk(result: Result, risk: RiskFunction = max_true_positive_rates) -> str:
    """Describe the largest true-positive rates of any membership test against a result with noise."""
    return _format_risk(risk(result.privacy), result)


def describe_largest_membership_risk(results: Sequence[Result], risk: RiskFunction = max_true_positive_rates) -> str:
    """Describe the largest membership risk of the results with the largest epsilon; all results must have noise.

    Plans with the same epsilon can differ in risk, because noise of another shape allows other tests.
    """
    largest = max(result.spec.epsilon for result in results)
    found = [risk(result.privacy) for result in results if result.spec.epsilon == largest]
    most = {rate: max(rates[rate] for rates in found) for rate in FALSE_POSITIVE_RATES}
    return f"at ε {largest:g}, {_format_risk(most, results[0])}, for every run"


def describe_privacy_curve(plan: Sequence[Planned], sigma: float, delta: float, size: int | None) -> dict[str, str]:
    """Describe a plan's privacy curve, one text for each fact; empty if the accountants reject the plan.

    Args:
        plan: a plan with noise.
        sigma: its base noise multiplier.
        delta: the delta of the stated epsilon.
        size: the number of private examples, or None if it is not recorded.
    """
    return _describe_cached_curve(tuple(plan), sigma, delta, size)


@functools.lru_cache(1024)  # many results share a plan
def _describe_cached_curve(plan: tuple[Planned, ...], sigma: float, delta: float, size: int | None) -> dict[str, str]:
    deltas = {"1e-06": 1e-6}
    if size is not None and size > 1:
        deltas[f"{size**-1.1:.2g} (1/n^1.1)"] = size**-1.1
    try:
        fit = curve.fit_gaussian_curve(plan, sigma)
        others = {name: curve.epsilon_at_delta(plan, sigma, other) for name, other in deltas.items()}
        replaced = replacement.epsilon(plan, sigma, delta)
    except (PlanError, ArithmeticError, ValueError):  # a forged result can hold any plan
        return {}
    return {
        "Gaussian curve": _format_gaussian_fit(fit),
        "ε at other δ": ", ".join(f"{format_upper_bound(found)} at δ {name}" for name, found in others.items()),
        "ε for replacing one": f"{format_upper_bound(replaced)} at δ {delta:g}",
    }


def _format_gaussian_fit(fit: curve.GaussianCurveFit) -> str:
    mu = format_upper_bound(fit.mu)
    if not fit.difference:
        return f"μ {mu}, exactly"
    gap = f"{100 * fit.difference:.2g} points of true positives"
    if fit.difference <= GOOD_FIT:
        return f"covered by μ {mu}, at most {gap} from it"
    return f"none fits: the smallest that covers it has μ {mu} and is up to {gap} away"


def _format_risk(risk: Mapping[float, float], result: Result) -> str:
    found = " and ".join(
        f"{format_percent_rounded_up(most)} at {rate:.1%} false positives" for rate, most in risk.items()
    )
    whose = result.spec.unit or "image"
    return f"of one private {whose}, by someone who knows all the others: true positives at most {found}"
