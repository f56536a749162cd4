"""A stated guarantee as odds: how often a membership test can be right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dpbench.analysis.formats import percent_at_most
from dpbench.privacy.core.accounting import membership
from dpbench.records.result import Result
from dpbench.records.stated_plan import Privacy

FALSE_POSITIVE_RATES = (0.001, 0.01)


def membership_risk(privacy: Privacy) -> Mapping[float, float]:
    """Return the largest true-positive rate of any membership test, by false-positive rate; empty without noise.

    It follows from plan and sigma alone, so no result stores it. Of a private search the stated epsilon and delta bound
    it: a search has no curve of its own here.

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
    """Describe the largest share of true members that any test can find, for a result with noise."""
    return _write_risk(risk(result.privacy), result)


def describe_largest_risk(results: Sequence[Result], risk: Risk = membership_risk) -> str:
    """Describe the risk of the run that reveals most among those with noise at the largest epsilon.

    Plans with the same epsilon differ: noise of other shapes leaves other tests.
    """
    largest = max(result.spec.epsilon for result in results)
    found = [risk(result.privacy) for result in results if result.spec.epsilon == largest]
    most = {rate: max(rates[rate] for rates in found) for rate in FALSE_POSITIVE_RATES}
    return f"at ε {largest:g}, {_write_risk(most, results[0])}, for every run"


def _write_risk(risk: Mapping[float, float], result: Result) -> str:
    found = " and ".join(f"{percent_at_most(most)} at {rate:.1%} false positives" for rate, most in risk.items())
    whose = result.spec.unit or "image"
    return f"of one private {whose}, by someone who knows all the others: true positives at most {found}"
