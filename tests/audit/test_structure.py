"""The audit's tests of structure doubt honest noise and samples as seldom as they say."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from dpbench.audit import auditing_curator
from dpbench.audit.audit_fit import audit_prepared_run
from dpbench.audit.extremes import SmallestPValue
from dpbench.audit.noise_log import LAST_BIT, TAIL_POWER, NoiseLog, StandardisedNoise, check_normal_shape
from dpbench.audit.samples import SampleCollector
from dpbench.audit.spread import NoiseScaleTest
from dpbench.records.audit import StatisticalCheck
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session


@pytest.mark.quick(1)
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 10))])
def test_an_honest_core_passes_whatever_the_seed(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auditing_curator, "FEATURE_REPLAYS", 2)  # of a release that are asked again: enough, and quick
    learners = (
        "dp-sgd:steps=12",
        "dp-sgd:steps=12,sample_rate=0.3",
        "gep:steps=6,k=20",
        "adadps:steps=6",
        "class-means",
    )
    values = {"learner": learners[seed % 5], "dataset": "digits", "public_labels": True, "seeds": 1}
    found = audit_prepared_run(session().prepare(make_spec(values, "a test")), seed, 4_000)
    assert found.passed, found.figures.failed
    assert all(found.part_passed(part) for part in ("sensitivity", "noise", "attack"))


def logged(noise: np.ndarray) -> list[StatisticalCheck]:
    """Return the tests of noise (steps, classes, columns), with that of as many canaries."""
    generator = np.random.default_rng(0)
    log, nobody = NoiseLog(len(noise), np.ones(1_000, bool)), np.empty(0, np.int64)
    for part in noise:
        padding = generator.normal(size=1_000)
        answer, canaries = (StandardisedNoise(values, np.abs(values) * LAST_BIT) for values in (part, padding))
        log.add("gradient", [answer], [canaries], nobody)
    return list(log.summarise().checks)


@pytest.mark.slow
def test_honest_noise_is_doubted_as_seldom_as_the_level_says() -> None:
    doubted: Counter[bool] = Counter()
    for seed in range(150):
        checks = logged(np.random.default_rng(1 + seed).normal(size=(6, 10, 21)))
        doubted[any(check.p < 0.05 / len(checks) for check in checks)] += 1
    assert doubted[True] <= 16  # 7.5 at most are expected: more than 16 happens once in 300 times


def test_each_test_says_how_many_statistics_it_is_the_most_surprising_of() -> None:
    checks = {check.name: check for check in logged(np.random.default_rng(0).normal(size=(6, 10, 21)))}
    columns = checks["size of the noise in answers, column by column"]
    assert (columns.statistics, columns.numbers) == (21, 60)
    assert checks["size of the noise in answers, class by class"].statistics == 10
    assert checks["size of the noise in answers, coordinate by coordinate"].statistics == 210
    assert checks["pairs of steps of answers"].statistics == 15
    assert checks["steps of answers, by how far they are apart"].statistics == 5
    assert checks["size of the noise at other coordinates, coordinate by coordinate"].statistics == 1_000


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("rate", "steps", "size"),
    [(0.02, 40, 1_000), (0.3, 12, 1_500), (0.5, 3, 100), pytest.param(0.001, 200, 2_000, marks=pytest.mark.slow)],
)
def test_honest_samples_are_doubted_as_seldom_as_the_level_says(rate: float, steps: int, size: int) -> None:
    doubted = 0
    for seed in range(25):
        generator = np.random.default_rng(seed)
        samples = SampleCollector(rate, size, np.ones(500, bool), steps, generator.integers(10, size=size))
        for _ in range(steps):
            samples.add(*(np.flatnonzero(generator.random(many) < rate) for many in (size, 500)))
        checks = list(samples.checks("gradient"))
        doubted += any(check.p < 0.05 / len(checks) for check in checks)
    assert doubted <= 5  # 1.25 at most are expected: more than 5 happens once in 800 times


def test_an_extreme_is_corrected_for_how_many_there_are() -> None:
    single, many = SmallestPValue(), SmallestPValue()
    single.add_sums_of_squares(np.array([40.0]), 10)
    many.add_sums_of_squares(np.concatenate([np.full(999, 10.0), [40.0]]), 10)
    (alone,), (among,) = single.test("alone"), many.test("among")
    assert among.p == pytest.approx(1_000 * alone.p)
    assert not list(SmallestPValue().test("nothing"))


@pytest.mark.slow
def test_noise_that_floats_round_to_nothing_is_no_surprise_among_a_million_and_less_than_they_round_is() -> None:
    """A canary's sum is 1: beside it, noise of less than half a float's last bit is 0, once in about 30 such fits."""
    sigma = 0.6
    exact = np.random.default_rng(0).normal(size=10**6)
    exact[0] = 1e-9
    answers = (1 + sigma * exact).astype(np.float32)
    noise, coarse = (answers.astype(float) - 1) / sigma, np.abs(answers) * LAST_BIT / sigma

    def least_p(part: np.ndarray, coarse: np.ndarray | float) -> float:
        spread = NoiseScaleTest("", zeros=False)
        spread.add("sum", 0, part[None], coarse)
        return min(check.p for check in spread.checks() if "coordinate by coordinate" in check.name)

    assert noise[0] == 0
    assert least_p(noise, coarse) > 0.01
    assert least_p(noise, 0.0) == 0  # of numbers that are not rounded
    assert least_p(np.where(np.arange(10**6) < 10, 0.0, exact), coarse) < 1e-6  # ten coordinates without noise


@pytest.mark.slow
def test_normal_numbers_fail_the_test_of_their_tails_no_more_often_than_it_says() -> None:
    from scipy.stats import normaltest

    chance = np.random.default_rng(0)
    raw = np.concatenate([normaltest(chance.normal(size=(5_000, 2_000)), axis=1).pvalue for _ in range(3)])
    numbers = np.random.default_rng(0).normal(size=2_000)
    (tails,) = [check for check in check_normal_shape(numbers, "", 0.0) if check.name.startswith("tails")]
    assert tails.p == pytest.approx(raw[0] ** TAIL_POWER)
    assert (raw < 1e-3).sum() > 20  # chance has 15
    assert (raw**TAIL_POWER < 1e-3).sum() < 15
