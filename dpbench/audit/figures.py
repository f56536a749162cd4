"""Compute an audit's figures and verdict from its stored statistics, with pure functions that anybody can call.

An audit fails if the evidence of all its tests, and of earlier audits, reaches `ALARM`: at most one honest run in 1,000
ever does (`dpbench.audit.evidence`). Sensitivity is checked exactly: any violation fails the audit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

from dpbench.audit import bounds
from dpbench.audit.evidence import ALARM, compute_evidence, update_stakes
from dpbench.audit.sizes import sample_size_tails
from dpbench.errors import SpecError
from dpbench.records.audit import (
    Audit,
    CanaryAttackResult,
    DerivedFigures,
    EarlierAudits,
    EpsilonBound,
    MeasuredSensitivity,
    NoiseStatistics,
    Part,
    SampleStatistics,
    StatisticalCheck,
)

DOUBT_RATE = 0.01  # chance that an honest run's tests of noise withhold the estimate that rests on them (Bonferroni)
MANY_STEPS = 10  # steps from which on sample sizes that vary too little tell: a few may well be what is expected
LARGEST_SHIFT = 1e-3  # clips that a row may move others by, where its learner computes rows in floats of its own


def compute_figures(
    epsilon: float, delta: float, sensitivity: MeasuredSensitivity | None, noise: NoiseStatistics | None,
    attack: CanaryAttackResult | None, own: CanaryAttackResult | None = None, stated: DerivedFigures | None = None,
    earlier: EarlierAudits | None = None,
) -> DerivedFigures:  # fmt: skip
    """Compute the figures of an audit from its three parts, for a run that states (epsilon, delta).

    `own` is the attack on coordinates that the learner sees: it is tested too, but bounds come from the larger attack.
    `stated` are figures to confirm: a bound is searched for only if the stated one is wrong. `earlier` has the stakes
    of the run's earlier audits.
    """
    checks = list_checks(epsilon, delta, noise, attack, own)
    found = checks.get("noise", [])
    doubts = [check for check in found if check.p < DOUBT_RATE / len(found)]
    stakes = update_stakes(earlier.stakes if earlier else {}, chain.from_iterable(checks.values()))
    evidence = compute_evidence(stakes)
    parts = {check.name: part for part, several in checks.items() for check in several}
    failed = (
        [f"sensitivity: {failure}" for failure in _describe_sensitivity_failures(sensitivity)] if sensitivity else []
    )
    failed += [
        f"{parts.get(name, 'earlier audits')}: {name} (e {stake:.1g})"
        for name, stake in stakes.items()
        if evidence >= ALARM and stake >= ALARM
    ]
    low, high = (
        sigma_ratio_interval(noise.numbers + noise.padding, noise.squares + noise.padding_squares)
        if noise
        else (0.0, 0.0)
    )
    trusted = noise is not None and not doubts
    return DerivedFigures(
        low=low, high=high, answers_p=_sum_of_squares_p_value(noise.numbers, noise.squares) if noise else 1.0,
        steinke=_steinke_figure(attack, delta, stated.steinke if stated else None) if attack else None,
        mahloujifar=_mahloujifar_figure(attack, delta, stated.mahloujifar if stated else None) if attack else None,
        gauss=_gauss_figure(attack, delta) if attack and trusted else None, failed=tuple(failed), evidence=evidence,
    )  # fmt: skip


def list_checks(
    epsilon: float,
    delta: float,
    noise: NoiseStatistics | None,
    attack: CanaryAttackResult | None,
    own: CanaryAttackResult | None,
) -> Mapping[Part, list[StatisticalCheck]]:
    """Return the tests of an audit's noise and of its attacks, by part."""
    checks: dict[Part, list[StatisticalCheck]] = {"noise": [*_noise_checks(noise)]} if noise else {}
    if attack:
        checks["attack"] = [*_attack_checks(attack, epsilon, delta)]
    if attack and own:
        named = _attack_checks(own, epsilon, delta)
        checks["attack"] += [check.model_copy(update={"name": f"{check.name}, in answers"}) for check in named]
    return checks


def compute_stakes(audits: Iterable[Audit], earlier: EarlierAudits | None = None) -> dict[str, float]:
    """Return the stake of each test after `earlier` and these audits; no two audits may share run and seed."""
    stakes = earlier.stakes if earlier else {}
    for audit in audits:
        checks = list_checks(audit.epsilon, audit.delta, audit.noise, audit.attack, audit.own)
        stakes = update_stakes(stakes, chain.from_iterable(checks.values()))
    return stakes


def get_evidence_of_audit(audit: Audit) -> float:
    """Return the evidence of an audit and all audits before it; if the record lacks it, compute it from the tests."""
    found = audit.figures.evidence
    return compute_evidence(compute_stakes([audit], audit.earlier)) if found is None else found


def find_earlier_audits(audits: Iterable[Audit], seed: int) -> EarlierAudits | None:
    """Return the seeds and stakes of a run's earlier audits with seeds other than `seed`; None if there are none.

    The latest audit, the one with the most seeds, contains the evidence of the audits before it. If it has this seed,
    it drew the same noise and will be replaced, so only the audits before it count.

    Raises:
        SpecError: the latest audit has another seed and already contains the evidence of `seed`.
    """
    last = max(audits, key=lambda audit: len(audit.seeds), default=None)
    if last is None or last.seed == seed:
        return last.earlier if last else None
    if seed in last.seeds:
        raise SpecError(
            f"The audit of seed {last.seed} already includes the evidence of seed {seed}, whose noise would be the "
            f"same. Audit another seed than {', '.join(map(str, last.seeds))}."
        )
    return EarlierAudits(seeds=last.seeds, stakes=compute_stakes([last], last.earlier))


def sigma_ratio_interval(count: int, sum_of_squares: float) -> tuple[float, float]:
    """Return the 95% interval of measured sigma / stated sigma, given the sum of squares of `count` noise values.

    The values are in units of the stated sigma, so the sum is chi-square. Without values, return (0, inf).
    """
    from scipy.special import chdtri, gammaincinv

    if not count:
        return 0.0, math.inf
    most, least = float(chdtri(count, 0.025)), 2 * float(gammaincinv(count / 2, 0.025))
    return math.sqrt(sum_of_squares / most), math.sqrt(sum_of_squares / least)


def two_sided_p_value(z: float) -> float:
    """Return the chance that a standard normal number is at least this far from 0."""
    return math.erfc(abs(z) / math.sqrt(2))


def _describe_sensitivity_failures(sensitivity: MeasuredSensitivity) -> Iterator[str]:
    yield from sensitivity.complaints
    if not sensitivity.largest <= 1 + 1e-12:
        yield f"a row moved a sum by {sensitivity.largest:.4g} clips"
    if not sensitivity.shift <= LARGEST_SHIFT:
        yield f"a row moved a sum by {sensitivity.shift:.4g} clips more or less than its own contribution"


def _sum_of_squares_p_value(count: int, sum_of_squares: float, two_sided: bool = True) -> float:
    """Return the p-value of a sum of squares, tested for being too large; if `two_sided`, also for being too small."""
    from scipy.special import chdtr, chdtrc

    if not count:
        return 1.0
    above, below = float(chdtrc(count, sum_of_squares)), float(chdtr(count, sum_of_squares))
    return min(1.0, 2 * min(above, below)) if two_sided else above


def _noise_checks(noise: NoiseStatistics) -> Iterator[StatisticalCheck]:
    yield StatisticalCheck(name="size of the noise in answers", p=_sum_of_squares_p_value(noise.numbers, noise.squares))
    if noise.padding:
        squares = noise.squares + noise.padding_squares
        yield StatisticalCheck(
            name="size of all noise", p=_sum_of_squares_p_value(noise.numbers + noise.padding, squares)
        )
    for sample in noise.samples:
        yield from _sample_checks(sample)
    yield from noise.checks


def _sample_checks(sizes: SampleStatistics) -> Iterator[StatisticalCheck]:
    parts = (
        ("sizes of the samples", sizes.sizes, sizes.members),
        ("private rows in the samples", sizes.rows, sizes.units),
    )
    for name, squares, members in parts:
        yield StatisticalCheck(name=f"{name} of {sizes.release!r}", p=_sample_size_p_value(sizes, squares, members))
    if sizes.counts is not None:
        yield StatisticalCheck(
            name=f"who is in the samples of {sizes.release!r}", p=two_sided_p_value(sizes.counts), z=sizes.counts
        )


def _sample_size_p_value(sample: SampleStatistics, sum_of_squares: float, members: int | None) -> float:
    """Return the p-value of sample sizes that vary too much or, with many steps, too little."""
    if sample.rate is None or members is None:
        return _sum_of_squares_p_value(sample.steps, sum_of_squares, sample.steps >= MANY_STEPS)
    above, below = sample_size_tails(sum_of_squares, sample.steps, members, sample.rate)
    return min(1.0, 2 * min(above, below)) if sample.steps >= MANY_STEPS else above


def _attack_checks(attack: CanaryAttackResult, epsilon: float, delta: float) -> Iterator[StatisticalCheck]:
    guessed = attack.canaries, attack.guesses, attack.correct
    yield StatisticalCheck(name="guesses, as epsilon allows", p=bounds.steinke_p_value(epsilon, delta, *guessed))
    if attack.mu is None:
        return
    yield StatisticalCheck(
        name="guesses, as a Gaussian mechanism allows",
        p=_find_smallest_significance(attack, bounds.gaussian_dp_mu(epsilon, delta)),
    )
    _, error = bounds.gaussian_mu_bound(attack.mu, attack.members, attack.canaries - attack.members)
    z = (attack.mean - attack.mu) / error
    yield StatisticalCheck(name="scores of members and others", p=two_sided_p_value(z), z=z)


def _find_smallest_significance(attack: CanaryAttackResult, mu: float) -> float:
    """Return the smallest significance, within a factor of two, at which the guesses reject mu-Gaussian DP."""
    guessed = attack.canaries, attack.guesses, attack.correct
    found = 1.0
    while found > 1e-12 and bounds.rejects_mu(mu, *guessed, found / 2):
        found /= 2
    return found


def _steinke_figure(attack: CanaryAttackResult, delta: float, stated_bound: EpsilonBound | None) -> EpsilonBound:
    guessed, near = (delta, attack.canaries, attack.guesses), stated_bound.epsilon if stated_bound else 0.0
    return EpsilonBound(
        epsilon=bounds.steinke_bound(*guessed, attack.correct, near),
        most=bounds.steinke_bound(*guessed, attack.guesses),
    )


def _mahloujifar_figure(attack: CanaryAttackResult, delta: float, stated_bound: EpsilonBound | None) -> EpsilonBound:
    plausible = stated_bound is not None and 0 < stated_bound.epsilon < bounds.LARGEST_BOUND
    near = bounds.gaussian_dp_mu(stated_bound.epsilon, delta) if stated_bound and plausible else 0.0
    found = bounds.mahloujifar_bound(attack.canaries, attack.guesses, attack.correct, near)
    most = bounds.mahloujifar_bound(attack.canaries, attack.guesses, attack.guesses)
    epsilon = (
        stated_bound.epsilon if stated_bound and near and found == near else bounds.gaussian_dp_epsilon(found, delta)
    )
    return EpsilonBound(epsilon=epsilon, most=bounds.gaussian_dp_epsilon(most, delta))


def _gauss_figure(attack: CanaryAttackResult, delta: float) -> EpsilonBound:
    low, _ = bounds.gaussian_mu_bound(attack.mean, attack.members, attack.canaries - attack.members)
    return EpsilonBound(
        epsilon=bounds.gaussian_dp_epsilon(max(0.0, low), delta), most=math.inf
    )  # scores may lie as far as they like
