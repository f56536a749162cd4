"""Derive epsilon again: the privacy numbers in a result are only a cache and never count as evidence."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Protocol

from dpbench.api import Planned
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.harness.guarantee import compute_cross_checked_epsilon
from dpbench.privacy.core.accounting import accountant, private_search
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.privacy.core.plan import check_plan
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.records.tolerance import is_close
from dpbench.support.malloc import evict_fft_plans

MAX_STEPS = 1_000_000
MAX_RELEASES = 16  # each that differs from the others takes an accountant seconds
MAX_EPSILON = 100.0


@dataclass(frozen=True)
class EpsilonInputs:
    """The inputs that determine epsilon; results with equal inputs share one derivation. Releases have no names."""

    plan: tuple[Planned, ...]
    sigma: float
    delta: float
    accountant: AccountantName
    repeats: private_search.RunCountDistribution | None
    stated: float  # rounded up: an answer far above it is not worth the memory of computing it

    @property
    def needs_torch(self) -> bool:
        """Whether the accountant's library imports torch."""
        return self.accountant == "prv"


class StatedGuarantee(Protocol):
    """A result or the card of a model; each states a guarantee."""

    @property
    def spec(self) -> Spec:
        """The spec of the run."""

    @property
    def privacy(self) -> PrivacyGuarantee:
        """The guarantee."""


DerivedEpsilon = tuple[float, EpsilonInterval] | str
"""Epsilon by the stated accountant and its interval by a second one; or the reason why it cannot be derived."""


def make_epsilon_inputs(stated: StatedGuarantee) -> EpsilonInputs:
    """Return the inputs from which the epsilon of a result, or of a model's card, is derived.

    Raises:
        DpbenchError: no run can have this plan or this number of repeats.
    """
    privacy = stated.privacy
    plan = check_plan(privacy.releases, f"learner {stated.spec.learner.name!r}")
    nameless = tuple(dataclasses.replace(release, name="") for release in plan)  # type: ignore[type-var]
    again = (
        None
        if privacy.repeats is None
        else private_search.RunCountDistribution(privacy.repeats.mean, privacy.repeats.shape)
    )
    ceiling = float(math.ceil(privacy.epsilon)) if math.isfinite(privacy.epsilon) else privacy.epsilon
    return EpsilonInputs(nameless, privacy.sigma, privacy.delta, privacy.accountant, again, ceiling)


def derive_epsilon(inputs: EpsilonInputs) -> DerivedEpsilon:
    """Derive epsilon from its inputs, as `dpbench.harness.guarantee` did when the run began.

    If the Rényi bound is far above the stated epsilon, the stated value is refused at once: no tighter accountant would
    confirm it, and accounting for such a plan could take gigabytes of memory.
    """
    plan, sigma, delta, name = inputs.plan, inputs.sigma, inputs.delta, inputs.accountant
    try:
        if inputs.repeats is None and plan and sigma > 0:
            rough = accountant.epsilon(plan, sigma, delta, "rdp")
            if not rough <= 10 * inputs.stated + 10:
                return f"plan and sigma give about {rough:.4g} by Renyi divergences"
        return compute_cross_checked_epsilon(plan, sigma, delta, name, inputs.repeats)
    except Exception as error:  # libraries assert what they expect of a plan
        return f"it cannot be derived: {error or type(error).__name__}"
    finally:
        evict_fft_plans()


def check_guarantee_bounds(privacy: PrivacyGuarantee, epsilon_target: float) -> FieldComplaints:
    """Yield a complaint for each value that no run can have (an infinite σ, too many steps); nothing is computed."""
    if not math.isfinite(privacy.sigma):
        yield "privacy.sigma", "expected a finite number"
    if len(privacy.plan) > MAX_RELEASES or sum(release.steps for release in privacy.plan) > MAX_STEPS:
        yield "privacy.plan", f"expected at most {MAX_RELEASES:,} releases and {MAX_STEPS:,} steps"
    if not privacy.epsilon <= epsilon_target:
        yield "privacy.epsilon", f"expected at most {epsilon_target:g}, the target, got {privacy.epsilon!r}"
    if MAX_EPSILON < privacy.epsilon < math.inf:
        yield "privacy.epsilon", f"expected at most {MAX_EPSILON:g}, or no privacy at all, got {privacy.epsilon!r}"


def compare_epsilon(privacy: PrivacyGuarantee, derived: DerivedEpsilon) -> FieldComplaints:
    """Yield a complaint for each privacy field of a result that differs from the derived value by more than rounding.

    If epsilon could not be derived, the reason is the only complaint.
    """
    if isinstance(derived, str):
        yield "privacy.epsilon", derived
        return
    epsilon, second = derived
    other = privacy.independent
    pairs = {
        "epsilon": (privacy.epsilon, epsilon),
        "independent.lower": (other.lower, second.lower),
        "independent.upper": (other.upper, second.upper),
    }
    for field, (stated, found) in pairs.items():
        if not is_close(stated, found):
            yield f"privacy.{field}", f"expected {found!r} from plan and sigma, got {stated!r}"
    if other.accountant != second.accountant:
        yield "privacy.independent.accountant", f"expected {second.accountant!r}, got {other.accountant!r}"
