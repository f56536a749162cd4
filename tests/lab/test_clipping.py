"""The study of clipping rules: none exceeds the clip, `clip` is what dpbench does, and the record is whole."""

from __future__ import annotations

import itertools
from typing import Any, get_args

import pytest
import torch
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.thrift import Thrift
from hypothesis import given
from hypothesis import strategies as st

import dpbench
from dpbench.api import Learner
from dpbench.testing import LearnerLaws
from dpbench_lab.clipping import study
from dpbench_lab.clipping.rules import ScalingRule, compute_scale_factors, make_learner_with_rule

RULES: tuple[ScalingRule, ...] = get_args(ScalingRule)
RuledDPSGD: Any = make_learner_with_rule(DPSGD)
RuledThrift: Any = make_learner_with_rule(Thrift)
NORMS = st.lists(st.floats(0, 1e6), min_size=1, max_size=9)


@pytest.mark.parametrize("rule", RULES)
@given(NORMS)
def test_no_rule_makes_a_gradient_longer_than_the_clip(rule: ScalingRule, norms: list[float]) -> None:
    u = torch.tensor(norms, dtype=torch.float64)
    scaled = u * compute_scale_factors(u, rule)
    assert bool((scaled <= 1 + 1e-12).all()) and bool(scaled.isfinite().all())


def test_each_rule_gives_the_norm_that_its_paper_states() -> None:
    u = torch.tensor([0.0, 0.5, 2.0], dtype=torch.float64)
    found = {rule: (u * compute_scale_factors(u, rule)).tolist() for rule in RULES}
    assert found["clip"] == [0, 0.5, 1]
    assert found["automatic"] == pytest.approx([0, 0.5 / 0.6, 2 / 2.1])
    assert found["normalised"] == pytest.approx([0, 1, 1])
    assert found["psac"] == pytest.approx([0, 0.5 / (0.5 + 0.1 / 0.6), 2 / (2 + 0.1 / 2.1)])


class TestPSACLaws(LearnerLaws):
    learner = RuledDPSGD(rule="psac")


class TestNormalisedLaws(LearnerLaws):
    learner = RuledThrift(rule="normalised")


for _suite in (TestPSACLaws, TestNormalisedLaws):
    pytest.mark.slow(_suite)


@pytest.mark.slow
def test_the_rule_clip_is_what_dpbench_does(tmp_path: object) -> None:
    def accuracy(learner: Learner) -> float:
        found = dpbench.run(learner, "digits", "pixels", float("inf"), seeds=1, out=str(tmp_path), device="cpu")
        return found.accuracy

    assert accuracy(RuledDPSGD(steps=20, learning_rate=0.3)) == pytest.approx(
        accuracy(DPSGD(steps=20, learning_rate=0.3)), abs=0.01
    )


def test_the_record_has_every_rule_on_every_board() -> None:
    found = {(row.data, row.epsilon, row.learner, row.rule): row for row in study.read_scores()}
    assert found.keys() == {(*cell, rule) for cell, rule in itertools.product(study.list_study_cells(), RULES)}
    for row in found.values():
        assert len(row.scores) == len(study.SEEDS) and row.pace in study.PACES
        assert row.private == pytest.approx(int(row.data.partition(", ")[2].replace(",", "")), rel=0.01)


def test_the_table_states_paired_gains() -> None:
    first, *others = study.read_scores()
    assert study.compute_gain_over_clipping(first, first).mean == 0
    shifted = first.model_copy(update={"scores": tuple(score + 0.01 for score in first.scores), "rule": "psac"})
    assert study.compute_gain_over_clipping(shifted, first).mean == pytest.approx(0.01)
    lines = study.render_table([first, *others]).splitlines()
    assert len(lines) == 2 + len(study.list_study_cells()) + len(study.LEARNERS)
