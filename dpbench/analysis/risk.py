"""A stated guarantee in terms of membership tests: their largest true-positive rates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpbench.analysis.formats import write_percent_bound
from dpbench.privacy.core.accounting import membership
from dpbench.privacy.core.accounting.membership import FALSE_POSITIVE_RATES
from dpbench.records.result import Result
from dpbench.records.stated_plan import Privacy


def membership_risk(privacy: Privacy) -> Mapping[float, float]:
    """Return the largest true-positive rate of any membership test, by false-positive rate; empty without noise.

    The rates follow from plan and sigma alone, so no result stores them. For a private search, they follow from the
    stated epsilon and delta, because no privacy curve of the search is computed here.

    Raises:
        PlanError: see `membership.true_positive_rate`.
    """
    if not privacy.sigma:
        return {}
    if privacy.repeats is not None:
        return {rate: membership.bound_rate(privacy.epsilon, privacy.delta, rate) for rate in FALSE_POSITIVE_RATES}
    return {rate: membership.true_positive_rate(privacy.releases, privacy.sigma, rate) for rate in FALSE_POSITIVE_RATES}


Risk = Callable[[Privacy], Mapping[float, float]]


def describe_risk(result: Result, risk: Risk = membership_risk) -> str:
    """Describe the largest true-positive rates of any membership test against a result with noise."""
    return _write_risk(risk(result.privacy), result)


def describe_largest_risk(results: Sequence[Result], risk: Risk = membership_risk) -> str:
    """Describe the largest risk of the runs with noise at the largest epsilon.

    Plans with the same epsilon can differ in risk, because noise of another shape allows other tests.
    """
    largest = max(result.spec.epsilon for result in results)
    found = [risk(result.privacy) for result in results if result.spec.epsilon == largest]
    most = {rate: max(rates[rate] for rates in found) for rate in FALSE_POSITIVE_RATES}
    return f"at ε {largest:g}, {_write_risk(most, results[0])}, for every run"


def _write_risk(risk: Mapping[float, float], result: Result) -> str:
    found = " and ".join(f"{write_percent_bound(most)} at {rate:.1%} false positives" for rate, most in risk.items())
    whose = result.spec.unit or "image"
    return f"of one private {whose}, by someone who knows all the others: true positives at most {found}"
