"""What `dpbench check` prints: nothing that a row function says, and no complaint twice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from dpbench import Budget, Choice, Chunk, Curator, Learner, Planned, Predict, PublicData, Release, SpecError, Task
from dpbench.registry import load
from dpbench.testing.checking import check_laws
from tests.helpers.commands import call


@dataclass(frozen=True)
class Shouts(Learner):
    """Fails at every row, and says which."""

    name: ClassVar[str] = "shouts"

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Release("sum")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        self.asked(curator)
        return lambda x: torch.zeros(len(x), 10)

    def asked(self, curator: Curator) -> None:
        curator.noisy_sum(self.rows, release="sum", clip=1.0)

    def rows(self, chunk: Chunk) -> Tensor:
        if len(chunk):
            raise AssertionError(chunk.x)
        return chunk.x if type(self) is Shouts else chunk.y


@dataclass(frozen=True)
class Votes(Shouts):
    """The same of a choice."""

    name: ClassVar[str] = "votes"

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        return [Choice("sum", 2)]

    def asked(self, curator: Curator) -> None:
        curator.noisy_choices(self.rows, release="sum")


@pytest.mark.slow
@pytest.mark.parametrize("learner", [Shouts, pytest.param(Votes, marks=pytest.mark.slow)])
def test_no_law_prints_what_a_row_function_says_and_none_repeats_another(
    learner: type[Learner], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    plugins = load().with_component("learner", learner)
    monkeypatch.setattr("dpbench.registry.load", lambda: plugins)
    assert call("check", learner.name) == 1
    shown = " ".join(capsys.readouterr().out.split())
    assert shown.count("failed: AssertionError in test_checking.py, line ") == 1
    assert shown.count(f"As above: learner {learner.name}: same seeds give same predictions.") > 9
    assert "tensor(" not in shown


@dataclass(frozen=True)
class ForImages(Shouts):
    """Refuses examples of other than `axes` axes."""

    name: ClassVar[str] = "for-images"
    axes: int = 3

    def plan(self, task: Task, budget: Budget) -> Sequence[Planned]:
        if len(task.example_shape) != self.axes:
            raise SpecError(f"Expected examples with {self.axes} axes, got {task.example_shape}.")
        return super().plan(task, budget)


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("component", "examples"),
    [("for-images", " on images"), ("dp-finetune", " on activations"), ("pillar", ""), ("for-images:axes=7", "")],
)
def test_a_learner_is_checked_on_the_examples_that_it_plans_for(component: str, examples: str) -> None:
    laws = check_laws(load().with_component("learner", ForImages), component)
    name = component.partition(":")[0]
    assert next(laws)[0] == f"learner {name}{examples}: importing is light and offline"


def test_a_learner_that_plans_for_no_examples_is_told_what_it_said_of_vectors() -> None:
    found = check_laws(load().with_component("learner", ForImages), "for-images:axes=7")
    laws = {law: complaint for law, complaint, _ in found}
    said = laws["learner for-images: the plan repeats"]
    assert said == "It raised SpecError: Expected examples with 7 axes, got (64,)."
