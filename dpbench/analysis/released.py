"""The description of an attack on released models, for the command line, entry pages and model pages."""

from __future__ import annotations

from collections.abc import Iterator

from dpbench.analysis.describe import ResultFact
from dpbench.analysis.formats import format_percent_rounded_up
from dpbench.records.released import ATTACK_WORDS, TARGET_WORDS, MembershipTest, ReleasedModelAttack, RocPoint

COUNTS_NOT_COVERED = (
    "the attack knows who was in the data of each shadow model and its counts have no noise, so ε does not cover them"
)


def describe_attack(attack: ReleasedModelAttack) -> Iterator[ResultFact]:
    """Yield the facts of an attack: its shadow models, each membership test, and the comparison with the guarantee."""
    yield ResultFact("shadow models", (describe_shadow_models(attack),))
    for test in attack.tests:
        yield ResultFact(f"{TARGET_WORDS[test.targets]}, {ATTACK_WORDS[test.attack]}", tuple(_describe_test(test)))
    yield ResultFact("comparison with ε", (describe_bound_comparison(attack),))
    yield ResultFact("privacy of these counts", (COUNTS_NOT_COVERED,))


def describe_shadow_models(attack: ReleasedModelAttack) -> str:
    """Describe the shadow models: their number, their data and their mean test accuracy."""
    first, planted = (next(test for test in attack.tests if test.targets == kind) for kind in ("average", "planted"))
    return (
        f"{attack.shadows} fits with the run's settings, plan and σ, each on a random half of {first.records:,} "
        f"{attack.unit}s and of {planted.records} planted outliers; mean test accuracy {attack.accuracy:.1%}"
    )


def describe_true_positive_rate(test: MembershipTest, test_rate: RocPoint) -> str:
    """Return a test's true-positive rate at one false-positive rate as text, with its 95% interval and the bound.

    If there are too few outsiders for this false-positive rate, the text says that it was not measured.
    """
    if test_rate.rate * test.others < 1:
        return "not measured, there are too few outsiders"
    bound = f"at most {format_percent_rounded_up(test_rate.bound)} under ε" if test_rate.bound < 1 else "no bound"
    return f"{test_rate.positives / test.members:.2%} ({test_rate.low:.2%} to {test_rate.high:.2%}), {bound}"


def _describe_test(test: MembershipTest) -> Iterator[str]:
    for found in test.rates:
        yield f"true positives at {100 * found.rate:g}% false positives: {describe_true_positive_rate(test, found)}"
    yield f"AUC {test.auc:.3f}"


def describe_bound_comparison(attack: ReleasedModelAttack) -> str:
    """Describe which tests, if any, found more members than the guarantee allows; or say that there is no bound."""
    if not attack.privacy.sigma:
        return "no noise was added, so there is no bound to compare with"
    if attack.passed:
        return "no test finds more members than ε and δ allow; this does not prove that none could"
    wrong = [
        f"{TARGET_WORDS[test.targets]} by {ATTACK_WORDS[test.attack]} at {100 * found.rate:g}% false positives"
        for test in attack.tests
        for found in test.rates
        if found.exceeded
    ]
    return f"MORE MEMBERS FOUND THAN ε AND δ ALLOW: {'; '.join(wrong)}"
