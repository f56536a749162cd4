"""Whole runs, audits and laws of learners that choose and vote: those of the museum, and what noise costs them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, cast

import jsonschema
import numpy as np
import pytest
import torch
from torch import Tensor

from dpbench import (
    Budget,
    Choice,
    Chunk,
    Curator,
    Learner,
    PlanError,
    Planned,
    Predict,
    PublicData,
    Release,
    SpecError,
    Task,
    gaussian_sigma,
)
from dpbench.audit.audit_fit import CHOICES_LEFT_OUT, audit, audit_prepared_run
from dpbench.board.build import make_schema
from dpbench.board.verify import audits, checks
from dpbench.board.verify.derive import compare_epsilon, derive_epsilon, make_epsilon_inputs
from dpbench.errors import LawBroken
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.mechanisms import votes
from dpbench.privacy.mechanisms.choice import question
from dpbench.privacy.mechanisms.choice.choice_plan import compute_eps0
from dpbench.privacy.mechanisms.votes import ShardAssignment
from dpbench.records.audit import PARTS, Audit
from dpbench.records.result import Result
from dpbench.testing import LearnerLaws
from dpbench_lab.explain.lifting import Protection, lift_protection
from dpbench_lab.museum.exhibits.elections import CommitteeLearner, PrototypeLearner, StumpLearner
from dpbench_lab.museum.strangers import extend_registry, prepare_learner, run_learner
from tests.helpers.sessions import session
from tests.helpers.worlds import curator_over, private_rows

DELTA = 1e-5


def nearest(shard: Chunk, queries: Tensor) -> Tensor:
    """Label each query as the nearest example of the shard is."""
    apart: Tensor = (queries.unsqueeze(1) - shard.x).square().sum(2).argmin(1)
    return shard.y[apart]


@dataclass(frozen=True)
class Mixed(StumpLearner):
    """A plan of two choices and a sum."""

    name: ClassVar[str] = "mixed"

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [*super().plan(task, budget), Release("mean", relative_noise=3.0)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        predict = super().fit(curator, public, generator)
        curator.noisy_sum(lambda chunk: chunk.x, release="mean", clip=1.0)
        return predict


def test_a_run_of_one_choice_states_pure_epsilon_and_is_derived_again(tmp_path: Path) -> None:
    result = run_learner(PrototypeLearner, epsilon=1.0)
    assert result.metrics["accuracy"].mean > 0.7
    (planned,) = result.privacy.plan
    assert planned.as_planned == Choice("classes", candidates=10, parts=30)
    assert result.privacy.delta == 0.0
    read = Result.read(result.write(tmp_path))
    assert read == result
    answer = derive_epsilon(make_epsilon_inputs(read))
    assert not isinstance(answer, str) and answer[0] == result.privacy.epsilon == compute_eps0(planned.sigma)
    assert [*compare_epsilon(read.privacy, answer)] == []
    assert 0.999 * result.privacy.epsilon < result.privacy.independent.lower <= result.privacy.epsilon
    assert jsonschema.Draft202012Validator(make_schema()).is_valid(json.loads(read.model_dump_json()))


@pytest.mark.slow
def test_an_audit_of_choices_stands_on_a_leaderboard_beside_its_result() -> None:
    result = run_learner(PrototypeLearner)
    found = audit(result, session(extend_registry(PrototypeLearner)), canaries=1_000)
    assert found.repeats is True
    assert [*audits.check_audit(found, result)] == []
    missing = found.model_copy(update={"noise": None})
    assert [field for field, _ in audits.check_audit(missing, result)] == ["attack"]


def test_a_result_that_claims_more_of_a_choice_than_holds_is_found() -> None:
    result = run_learner(PrototypeLearner)
    assert [*checks._check_result_content(result)] == []
    (planned,) = result.privacy.plan
    for plan, delta in (((planned,), DELTA), ((planned, planned.model_copy(update={"name": "other"})), 0.0)):
        forged = result.model_copy(update={"privacy": result.privacy.model_copy(update={"plan": plan, "delta": delta})})
        assert "privacy.delta" in [field for field, _ in checks._check_result_content(forged)]
    huge = planned.model_copy(update={"candidates": 10**9})
    with pytest.raises(PlanError, match="over all parts"):
        make_epsilon_inputs(result.model_copy(update={"privacy": result.privacy.model_copy(update={"plan": (huge,)})}))


@pytest.mark.slow
def test_a_run_of_choices_and_a_sum_repeats_and_is_derived_again() -> None:
    result, other = (run_learner(Mixed, epsilon=1.0) for _ in range(2))
    assert result.seeds[0].predictions == other.seeds[0].predictions
    assert result.seeds[0].spent == {"classes": 1, "pixel": 1, "mean": 1}
    assert [*compare_epsilon(result.privacy, derive_epsilon(make_epsilon_inputs(result)))] == []
    assert result.privacy.delta == DELTA


@pytest.mark.slow
def test_a_choice_of_secure_randomness_runs() -> None:
    result = run_learner(Mixed, secure_rng=True)
    assert result.privacy.rng == "secure"
    assert result.metrics["accuracy"].mean > 0.7


def test_a_choice_without_privacy_takes_the_least() -> None:
    result = run_learner(StumpLearner, epsilon=math.inf)
    assert (result.privacy.epsilon, result.privacy.sigma) == (math.inf, 0.0)
    assert result.metrics["accuracy"].mean > 0.7


@pytest.mark.slow
def test_an_audit_of_choices_and_sums_passes_and_says_what_it_leaves_out() -> None:
    found = audit_prepared_run(prepare_learner(Mixed, epsilon=1.0), 0, 2_000)
    assert found.figures.failed == ()
    assert found.noise is not None
    assert {check.name for check in found.noise.checks if check.name.startswith("law")} == {
        f"law of {name!r}, {how}" for name in ("classes", "pixel") for how in ("part by part", "one by one")
    }
    assert found.left_out == (CHOICES_LEFT_OUT,)
    alone = audit_prepared_run(prepare_learner(PrototypeLearner), 0, 2_000)
    assert alone.figures.failed == ()
    assert alone.attack is None
    assert alone.part_passed("attack") is None
    assert Audit.model_validate_json(alone.model_dump_json()) == alone


def laws_of(learner: Learner) -> LearnerLaws:
    return cast(LearnerLaws, type("Suite", (LearnerLaws,), {"learner": learner})())


@pytest.mark.slow
def test_a_learner_that_chooses_keeps_the_laws() -> None:
    suite = laws_of(Mixed())
    suite.test_no_release_outside_the_plan()
    suite.test_every_planned_step_is_asked()
    suite.test_rows_ignore_their_neighbours()
    suite.test_choices_follow_their_law()
    suite.test_all_it_learns_comes_from_answers()
    suite.test_questions_follow_answers_alone()


def test_the_law_of_choices_notices_a_broken_core(monkeypatch: pytest.MonkeyPatch) -> None:
    least = question.draw_candidates
    monkeypatch.setattr(question, "draw_candidates", lambda totals, scale, draws: least(totals, scale * 4, draws))
    with pytest.raises(LawBroken, match="A choice is not drawn by its law"):
        laws_of(PrototypeLearner()).test_choices_follow_their_law()


def test_what_noise_costs_a_choice_is_not_explained() -> None:
    curator = curator_over(private_rows(), [Choice("any", 3)]).handle()
    with pytest.raises(SpecError, match="Expected release 'any' to ask for sums"):
        lift_protection(curator, {}, Protection(True, True), torch.Generator()).noisy_choice(
            lambda chunk: chunk.x, release="any"
        )


@dataclasses.dataclass(frozen=True)
class Confident(CommitteeLearner):
    """Answers where many teachers agree."""

    name: ClassVar[str] = "confident"

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Release("largest", relative_noise=2.0), Release("votes")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        queries, classes = public.x[: self.queries], curator.task.classes
        counts = curator.noisy_votes(
            nearest, queries, release="votes", shards=self.shards, confident="largest", threshold=20.0
        )
        kept = ~counts.isnan().any(1)
        shard = Chunk(queries[kept], counts[kept].argmax(1), torch.zeros(int(kept.sum()), dtype=torch.int64))
        return lambda x: torch.nn.functional.one_hot(nearest(shard, x), classes).float()


@pytest.mark.slow
def test_a_run_of_votes_states_the_epsilon_of_a_gaussian_release() -> None:
    result = run_learner(CommitteeLearner)
    assert result.metrics["accuracy"].mean > 0.6
    (planned,) = result.privacy.plan
    assert planned.sigma == pytest.approx(gaussian_sigma(Budget(4.0, 1e-5)), rel=1e-3)
    assert run_learner(CommitteeLearner).seeds[0].predictions == result.seeds[0].predictions


def test_votes_of_secure_randomness_run() -> None:
    assert run_learner(CommitteeLearner, secure_rng=True).metrics["accuracy"].mean > 0.6


@pytest.mark.slow
@pytest.mark.parametrize("learner", [CommitteeLearner, Confident])
def test_an_audit_of_votes_passes_in_all_three_parts(learner: type[Learner]) -> None:
    found = audit_prepared_run(prepare_learner(learner), 0, 4_000)
    assert found.figures.failed == ()
    assert [found.part_passed(part) for part in PARTS] == [True, True, True]
    assert found.attack is not None
    assert found.attack.mu is not None
    assert found.attack.mean == pytest.approx(found.attack.mu, rel=0.2)


@pytest.mark.slow
def test_the_law_of_votes_notices_shards_by_position(monkeypatch: pytest.MonkeyPatch) -> None:
    laws_of(CommitteeLearner()).test_an_example_has_one_vote()
    dealt = votes.assign_shards

    def by_position(rows: PrivateRows, shards: int, salt: int) -> ShardAssignment:
        return dataclasses.replace(dealt(rows, shards, salt), shard=np.arange(len(rows)) % shards)

    monkeypatch.setattr(votes, "assign_shards", by_position)
    with pytest.raises(LawBroken, match="an example moved more than one vote of a query"):
        laws_of(CommitteeLearner()).test_an_example_has_one_vote()
