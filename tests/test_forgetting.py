"""A fit leaves nothing behind that a later one could find."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, Task
from dpbench.errors import NotPure
from dpbench.harness.run import run
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import Registered, Registry, load

START: dict[int, Tensor] = {}


@dataclass(frozen=True)
class Sums(Learner):
    """Noisy class sums, asked for in one release."""

    name: ClassVar[str] = "sums"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("sums")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        total = self.asked(curator)
        return lambda x: (x.flatten(1) - 0.3) @ total.T

    def asked(self, curator: Curator) -> Tensor:
        eye = torch.eye(curator.task.classes)
        rows: Any = lambda chunk: eye[chunk.y].unsqueeze(2) * (chunk.x.flatten(1) - 0.3).unsqueeze(1)
        answer: Tensor = curator.noisy_sum(rows, release="sums", clip=1.0)
        return answer


@dataclass(frozen=True)
class KeepsInAModule(Sums):
    """Asks once, and takes the answer in every later fit of this process."""

    def asked(self, curator: Curator) -> Tensor:
        if curator.task.classes not in START:
            START[curator.task.classes] = super().asked(curator)
        return START[curator.task.classes]


@dataclass(frozen=True)
class KeepsInItself(Sums):
    """Averages over all fits of one object."""

    @cached_property
    def _all(self) -> list[Tensor]:
        return []

    def asked(self, curator: Curator) -> Tensor:
        self._all.append(super().asked(curator))
        return torch.stack(self._all).sum(0)


def ran(learner: type[Learner], seeds: int = 3) -> Result:
    installed = load().components
    brought = {**installed["learner"], "sums": Registered(learner, "tiny-plugin", "tiny-wheel", "0.1")}
    spec = make_spec({"learner": "sums", "seeds": seeds, "epsilon": 0.5}, "the test")
    return run(spec, device="cpu", plugins=Registry({**installed, "learner": brought}))


def test_an_answer_that_a_module_keeps_is_refused() -> None:
    START.clear()
    with pytest.raises(NotPure, match=r"leaves something behind: its fit changed .*START"):
        ran(KeepsInAModule)


def test_what_an_object_keeps_is_gone_with_the_fit() -> None:
    kept, honest = ran(KeepsInItself), ran(Sums)
    assert [seed.predictions for seed in kept.seeds] == [seed.predictions for seed in honest.seeds]
