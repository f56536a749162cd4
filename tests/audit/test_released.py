"""Attacks on released models: scores, counts, shadows, and what they find of a head with and without noise."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import numpy as np
import pytest

from dpbench.audit import released
from dpbench.audit.released import add_planted_outliers, attack_released_models, confidence_logits
from dpbench.audit.released_scores import (
    clopper_pearson_interval,
    count_true_positives_at_rates,
    lira_scores,
    make_roc_point,
    rmia_scores,
)
from dpbench.errors import SpecError
from dpbench.harness.fitting import FinishedFit, FitInput, fit_once
from dpbench.harness.prepare import PreparedRun
from dpbench.privacy.core.rows import PrivacyUnits
from dpbench.records.released import ReleasedModelAttack
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session

pytestmark = pytest.mark.usefixtures("telling")
DISTANCE = 2.0  # of members' observations from others', in standard deviations
SEARCH = {"rule": "private-accounted", "space": {"learning_rate": (0.1, 0.3)}, "repeats": 3}
BOUNDS = {0.001: 1.0, 0.01: 1.0}


@functools.cache
def prepared(learner: str = "class-means", **more: Any) -> PreparedRun:
    values = {"learner": learner, "dataset": "digits", "train_fraction": 0.2, "public_labels": True, "seeds": 1}
    return session().prepare(make_spec({**values, **more}, "a test"))


@functools.cache
def attacked() -> tuple[ReleasedModelAttack, list[FitInput]]:
    """Return an attack, and the inputs of its shadows' fits."""
    given: list[FitInput] = []

    def keep(fit: FitInput) -> FinishedFit:
        given.append(fit)
        return fit_once(fit)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(released, "fit_once", keep)
        return attack_released_models(prepared(), 32), given


def observed(distance: float, shadows: int = 128, records: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """Return normal observations (S, r) of records that lie anywhere, and who was a member."""
    draw = np.random.default_rng(0)
    member = draw.random((shadows, records)) < 0.5
    spread = draw.uniform(0.1, 10, records)
    return (draw.normal(size=member.shape) + distance * member) * spread + draw.normal(0, 50, records), member


def test_lira_is_nearly_the_most_powerful_test_of_normal_observations() -> None:
    from scipy.stats import norm

    found, member = observed(DISTANCE)
    test = count_true_positives_at_rates("lira", "average", lira_scores(found, member), member, BOUNDS)
    for rate in test.rates:
        best = norm.sf(norm.isf(rate.rate) - DISTANCE)
        assert 0.7 * best < rate.positives / test.members < 1.1 * best
    assert test.auc == pytest.approx(norm.cdf(DISTANCE / 2**0.5), abs=0.02)


def test_a_target_is_not_among_its_own_references() -> None:
    """Otherwise a record whose observations say nothing would be told by its own."""
    found, member = observed(0.0, shadows=32, records=2_000)
    for scores in (lira_scores(found, member), rmia_scores(found, member, found[:, :50])):
        assert count_true_positives_at_rates("lira", "average", scores, member, BOUNDS).auc == pytest.approx(
            0.5, abs=0.01
        )


def test_rmia_finds_members_whose_probability_rises() -> None:
    draw = np.random.default_rng(0)
    member = draw.random((64, 300)) < 0.5
    population = draw.normal(size=(64, 400))
    found = draw.normal(0, 0.3, member.shape) - 2 + 3 * member
    test = count_true_positives_at_rates("rmia", "average", rmia_scores(found, member, population), member, BOUNDS)
    assert test.auc > 0.9
    assert test.rates[1].positives / test.members > 0.2


def test_rates_are_counted_above_the_lowest_threshold_that_keeps_false_positives_down() -> None:
    scores = np.arange(2_000.0).reshape(1, -1)
    member = np.zeros(scores.shape, bool)
    member[0, 1_985:1_990] = member[0, -5:] = True  # among 1,990 others, 10 of which are higher than five members
    test = count_true_positives_at_rates("lira", "planted", scores, member, {0.001: 1.0, 0.01: 1.0})
    assert [(rate.positives, rate.false) for rate in test.rates] == [(5, 1), (10, 19)]
    assert (test.members, test.others, test.records) == (10, 1_990, 2_000)


@pytest.mark.parametrize(("found", "among"), [(0, 50), (3, 50), (50, 50)])
def test_intervals_are_those_of_scipy(found: int, among: int) -> None:
    from scipy.stats import binomtest

    theirs = binomtest(found, among).proportion_ci(0.95, "exact")
    assert clopper_pearson_interval(found, among, 0.05) == pytest.approx((theirs.low, theirs.high))


@pytest.mark.parametrize(
    ("positives", "bound", "exceeded"),
    [(60, 0.05, False), (60, 0.02, True), (1_000, 1.0, False), (10, 0.01, False)],
)
def test_a_bound_is_contradicted_by_clear_counts_alone(positives: int, bound: float, exceeded: bool) -> None:
    assert make_roc_point(0.01, positives, 1_000, 100, 10_000, bound).exceeded is exceeded


def test_few_false_positives_do_not_contradict_a_bound() -> None:
    """Of 1,000 others, one above the threshold may well be five in truth."""
    assert not make_roc_point(0.001, 20, 1_000, 1, 1_000, 0.005).exceeded
    assert make_roc_point(0.001, 20, 1_000, 1_000, 1_000_000, 0.005).exceeded


def test_confidences_are_logits_of_the_own_label() -> None:
    scores = np.array([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])
    shares = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
    own = shares[[0, 1], [1, 0]]
    assert confidence_logits(scores, np.array([1, 0]), logits=True) == pytest.approx(np.log(own / (1 - own)))
    assert confidence_logits(scores, np.array([1, 0]), logits=False) == pytest.approx([1.0, -3.0])


def test_without_noise_the_attack_finds_members_and_epsilon_hides_them() -> None:
    bare, hidden = (attack_released_models(prepared(epsilon=epsilon), 64) for epsilon in (float("inf"), 0.3))
    lira = {(test.attack, test.targets): test for test in bare.tests}["lira", "planted"]
    assert lira.auc > 0.8 and lira.rates[1].positives / lira.members > 0.15
    assert all(rate.bound == 1.0 for test in bare.tests for rate in test.rates)
    assert bare.passed and hidden.passed
    for test in hidden.tests:
        assert test.auc < 0.6
        assert all(rate.bound < 0.05 for rate in test.rates)


def test_noise_that_is_too_small_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    fit_quietly = lambda given: fit_once(dataclasses.replace(given, sigma=given.sigma / 50))
    monkeypatch.setattr(released, "fit_once", fit_quietly)
    assert not attack_released_models(prepared(epsilon=0.3), 64).passed


def test_shadows_have_the_run_s_plan_and_sigma_and_half_of_its_rows() -> None:
    run, (found, given) = prepared(), attacked()
    assert len(given) == found.shadows == 32
    plain = run.make_fit_input(run.spec.seeds[0])
    size = run.roles.task.size
    for fit in given:
        assert (fit.plan, fit.sigma, fit.task, fit.learner) == (plain.plan, plain.sigma, plain.task, plain.learner)
        assert 0.3 * size < len(fit.rows) < 0.7 * size
    keys = {fit.randomness.key for fit in given}
    assert len(keys) == 32 and plain.randomness.key not in keys
    assert len({tuple(fit.rows.index.tolist()) for fit in given}) == 32


def test_a_repeated_attack_finds_the_same_counts() -> None:
    first, second = attacked()[0], attack_released_models(prepared(), 32)
    assert first.tests == second.tests
    assert ReleasedModelAttack.model_validate_json(first.model_dump_json()).tests == first.tests


def test_units_are_in_or_out_together() -> None:
    run = prepared()
    private = run.roles.private
    units = PrivacyUnits(np.arange(len(private)) // 3)
    roles = dataclasses.replace(run.roles, private=dataclasses.replace(private, units=units))
    run = dataclasses.replace(run, loaded=dataclasses.replace(run.loaded, roles=roles))
    data = add_planted_outliers(run, np.random.default_rng(0))
    assert data.records == units.count + data.planted
    member = np.random.default_rng(1).random(data.records) < 0.5
    rows = data.select(member)
    assert rows.units is not None and rows.count == member.sum()
    kept = np.bincount(data.owner[rows.index.numpy()], minlength=data.records)
    assert (kept[~member] == 0).all()
    assert (kept[member] == np.bincount(data.owner)[member]).all()
    assert data.average(np.arange(len(data.owner), dtype=float))[0] == 1.0  # of rows 0, 1 and 2
    assert attack_released_models(run, 32).tests[0].records == units.count


@pytest.mark.parametrize(
    ("learner", "more", "said"),
    [
        ("public-only", {}, "asks nothing of the private data"),
        ("pillar:steps=2,k=5", {"accountant": "rdp", "public_fraction": 0.3, "search": SEARCH}, "a private search"),
    ],
)  # fmt: skip
def test_what_cannot_be_attacked_is_said(learner: str, more: dict[str, Any], said: str) -> None:
    values = {"learner": learner, "dataset": "digits", "train_fraction": 0.2, "public_labels": True, "seeds": 1}
    with pytest.raises(SpecError, match=said):
        attack_released_models(session().prepare(make_spec({**values, **more}, "a test")), 32)


def test_too_few_shadows_are_refused() -> None:
    with pytest.raises(SpecError, match="at least 32 shadows, got 8"):
        attack_released_models(prepared(), 8)
