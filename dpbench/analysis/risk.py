"""What a stated guarantee means as odds: how often a membership test can be right, wherever results are shown."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench.analysis.formats import percent_at_most
from dpbench.privacy.core.accounting import membership
from dpbench.records.result import Result
from dpbench.records.stated_plan import Privacy

FALSE_POSITIVE_RATES = (0.001, 0.01)


def membership_risk(privacy: Privacy) -> Mapping[float, float]:
    """Return by false-positive rate the largest true-positive rate of any membership test; empty without noise.

    It follows from plan and sigma alone, so no result stores it. Of a private search the stated epsilon and delta bound
    it: a search has no curve of its own here.

    Raises:
        PlanError: see `membership.true_positive_rate`.
    """
    if not privacy.sigma:
        return {}
    if privacy.repeats is not None:
        return {rate: membership.bounded_rate(privacy.epsilon, privacy.delta, rate) for rate in FALSE_POSITIVE_RATES}
    return {rate: membership.true_positive_rate(privacy.releases, privacy.sigma, rate) for rate in FALSE_POSITIVE_RATES}


def describe_risk(result: Result) -> str:
    """Say which share of true members any test finds at most, for a result with noise."""
    risk = membership_risk(result.privacy)
    found = " and ".join(f"{percent_at_most(most)} at {rate:.1%} false positives" for rate, most in risk.items())
    whose = result.spec.unit or "image"
    return f"of one private {whose}, by someone who knows all the others: true positives at most {found}"
