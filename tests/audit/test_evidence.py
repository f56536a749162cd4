"""Evidence against a statement: an expectation of at most 1 for an honest run, however often it is looked at."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.integrate import quad

from dpbench.audit.evidence import ALARM, MOST_EVIDENCE, compute_evidence, convert_p_value_to_e_value, update_stakes
from dpbench.audit.figures import compute_figures, find_earlier_audits, get_evidence_of_audit
from dpbench.errors import SpecError
from dpbench.records.audit import Audit, EarlierAudits, NoiseStatistics, StatisticalCheck

UNCHANGED = 0.1 ** (1 / 0.9)  # the p-value whose e-value is 1


def check_of(name: str, p: float) -> StatisticalCheck:
    return StatisticalCheck(name=name, p=p)


def noise_of(*ps: float) -> NoiseStatistics:
    checks = tuple(check_of(f"test {place}", p) for place, p in enumerate(ps))
    return NoiseStatistics(numbers=10_000, squares=10_000.0, padding=0, padding_squares=0.0, checks=checks)


def audit_of(seed: int, noise: NoiseStatistics, earlier: EarlierAudits | None = None) -> Audit:
    figures = compute_figures(1.0, 1e-5, None, noise, None, earlier=earlier)
    return Audit(
        digest="0", content=None, spec=None, seed=seed, repeats=None, epsilon=1.0, delta=1e-5, sigma=1.0, plan=(),
        mechanism="", sensitivity=None, noise=noise, attack=None, earlier=earlier, figures=figures,
    )  # fmt: skip


def test_an_e_value_of_a_uniform_p_value_has_expectation_1_and_falls() -> None:
    mass, _ = quad(lambda t: convert_p_value_to_e_value(np.exp(-t)) * np.exp(-t), 0, 600)  # p = exp(-t); capped at 1e12
    assert 0.9 < mass <= 1
    found = [convert_p_value_to_e_value(p) for p in (0.0, 1e-300, 1e-20, 1e-7, 0.01, 1.0)]
    assert found == sorted(found, reverse=True)
    assert found[0] == MOST_EVIDENCE and found[-1] == pytest.approx(0.1)


def test_honest_evidence_that_is_looked_at_after_every_seed_hardly_ever_rises() -> None:
    """By Ville's inequality at most one run in 100 ever reaches 100; here tests depend on each other, seeds do not."""
    generator, reached = np.random.default_rng(0), 0
    for _ in range(2_000):
        stakes: dict[str, float] = {}
        evidence = []
        for _ in range(10):
            shared = generator.random()
            ps = [shared, shared, generator.random(), generator.random()]
            stakes = update_stakes(stakes, [check_of(str(place), p) for place, p in enumerate(ps)])
            evidence.append(compute_evidence(stakes))
        reached += max(evidence) >= 100
    assert reached <= 34  # 20 at most are expected: more than 34 happens once in 900 times


def test_stakes_multiply_over_seeds_test_by_test_and_a_new_test_joins_at_the_evidence_so_far() -> None:
    first = update_stakes({}, [check_of("a", 1e-4), check_of("b", 0.9)])
    again = update_stakes(first, [check_of("a", 1e-4), check_of("b", 0.9)])
    assert again["a"] == pytest.approx(convert_p_value_to_e_value(1e-4) ** 2)
    evidence = compute_evidence(again)
    joined = update_stakes(again, [check_of("c", UNCHANGED)])
    assert joined["c"] == pytest.approx(evidence) and compute_evidence(joined) == pytest.approx(evidence)
    assert update_stakes({"a": 1e11}, [check_of("a", 0.0)])["a"] == MOST_EVIDENCE
    assert compute_evidence({}) == 1


def test_weak_evidence_of_several_seeds_becomes_an_alarm_that_names_its_test() -> None:
    ps = (1e-4, 0.5, 0.5, 0.5)
    audit, seeds = audit_of(0, noise_of(*ps)), 1
    while audit.passed:
        audit, seeds = audit_of(seeds, noise_of(*ps), find_earlier_audits([audit], seeds)), seeds + 1
    assert seeds == 2 and audit.figures.evidence is not None and audit.figures.evidence >= ALARM
    assert [line.partition(" (e ")[0] for line in audit.figures.failed] == ["noise: test 0"]
    assert audit.seeds == (0, 1)


def test_evidence_of_earlier_audits_alone_is_an_alarm_too() -> None:
    earlier = EarlierAudits(seeds=(0,), stakes={"gone": 1e6, "test 0": 1.0})
    found = compute_figures(1.0, 1e-5, None, noise_of(0.5), None, earlier=earlier)
    assert next(line.partition(" (e ")[0] for line in found.failed) == "earlier audits: gone"


def test_an_audit_of_the_same_seed_replaces_one_and_keeps_those_before_it() -> None:
    first = audit_of(0, noise_of(0.01))
    second = audit_of(1, noise_of(0.01), find_earlier_audits([first], 1))
    assert find_earlier_audits([], 0) is None
    assert find_earlier_audits([first], 0) is None
    assert find_earlier_audits([first, second], 1) == second.earlier
    third = find_earlier_audits([second, first], 2)
    assert third is not None and third.seeds == (0, 1)
    with pytest.raises(SpecError, match="already includes the evidence of seed 0"):
        find_earlier_audits([first, second], 0)


def test_a_record_without_evidence_is_calibrated_from_its_p_values() -> None:
    audit = audit_of(0, noise_of(1e-3, 0.2))
    old = audit.figures.model_copy(update={"evidence": None, "level": 1e-3 / 3})
    assert get_evidence_of_audit(audit.model_copy(update={"figures": old})) == audit.figures.evidence
