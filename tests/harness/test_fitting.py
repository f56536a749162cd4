"""How a learner meets rows: one way for all fits, whose refusals are final."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from dpbench import Budget, Chunk, Curator, Learner, Predict, PublicData, Release, Task
from dpbench.errors import ComponentFailed, DpbenchError
from dpbench.harness.fitting import fit_once, predict_isolated
from dpbench.privacy.core.witness import AuditWitness, SumObservation
from dpbench.privacy.curator import make_learner_curator
from tests.helpers.worlds import fit_input


@dataclass(frozen=True)
class Sums(Learner):
    """The noisy class sums of the features, asked for once of two times."""

    name: ClassVar[str] = "sums"
    search_space: ClassVar[dict[str, Sequence[Any]]] = {}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums", steps=2)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        total = self.ask(curator)
        return lambda x: x @ total.T

    def fail(self, curator: Curator) -> None:
        """Ask with a row function that fails, which may depend on a row."""
        with contextlib.suppress(DpbenchError):
            curator.noisy_sum(lambda chunk: 1 / 0, release="sums", clip=1.0)  # type: ignore[arg-type,return-value]

    def ask(self, curator: Curator) -> Tensor:
        eye = torch.eye(curator.task.classes)

        def rows(chunk: Chunk) -> Tensor:
            return eye[chunk.y].unsqueeze(2) * chunk.x.unsqueeze(1)

        answer: Tensor = curator.noisy_sum(rows, release="sums", clip=1.0)
        return answer


def test_a_fit_states_what_it_spent_and_its_predictor_gives_scores() -> None:
    fitted = fit_once(fit_input(Sums()))
    assert fitted.spent == {"sums": 1}
    assert predict_isolated(fitted, torch.ones(7, 5)).shape == (7, 3)


def test_the_same_input_with_fresh_randomness_gives_the_same_scores() -> None:
    first, second = (predict_isolated(fit_once(fit_input(Sums())), torch.eye(5)) for _ in range(2))
    assert (first == second).all()


def test_a_learner_holds_what_wrap_makes_of_its_curator() -> None:
    asked: list[str] = []

    def counted(curator: Any) -> Curator:
        exact = make_learner_curator(curator)

        def answer(question: Any) -> Any:
            asked.extend(question.releases)
            return exact.answer(question)

        return Curator(exact.task, exact.sigma, answer)

    fit_once(fit_input(Sums()), wrap=counted)
    assert asked == ["sums"]


def test_a_witness_sees_the_sum_before_its_noise() -> None:
    seen: list[SumObservation] = []
    fit_once(fit_input(Sums()), witness=AuditWitness(seen.append))
    assert [observation.release for observation in seen] == ["sums"]


def test_an_input_without_noise_is_the_same_with_another_sigma() -> None:
    given = fit_input(Sums())
    exact = fit_once(replace(given, sigma=0.0)).predict(torch.eye(5))
    noisy = fit_once(fit_input(Sums())).predict(torch.eye(5))
    assert not torch.equal(exact, noisy)


def test_a_learner_that_catches_a_refusal_and_then_fails_is_refused_for_good() -> None:
    class FailsLater(Sums):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            self.fail(curator)
            raise IndexError

    with pytest.raises(ComponentFailed, match="A row function of release 'sums' failed") as refused:
        fit_once(fit_input(FailsLater()))
    assert refused.value.final


def test_a_learner_that_fails_by_itself_is_not_refused_for_good() -> None:
    class Fails(Sums):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            raise ZeroDivisionError

    with pytest.raises(ComponentFailed, match="ZeroDivisionError") as failed:
        fit_once(fit_input(Fails()))
    assert not failed.value.final


def test_a_predictor_that_catches_a_refusal_is_refused_for_good() -> None:
    class AsksLater(Sums):
        def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
            total = self.ask(curator)

            def predict(x: Tensor) -> Tensor:
                self.fail(curator)
                return x @ total.T

            return predict

    with pytest.raises(ComponentFailed, match="A row function of release 'sums' failed") as refused:
        predict_isolated(fit_once(fit_input(AsksLater())), torch.ones(7, 5))
    assert refused.value.final
