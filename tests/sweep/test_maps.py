"""Maps that cells share: made once, and no number tells."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from dpbench_plugins.learners.pillar import Pillar
from torch import Tensor

import dpbench
from dpbench import Predict, ProbeLearner, PublicData, Task, registry
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from dpbench.sweep.worker import CellWorker
from tests.helpers.sessions import session


def spec(**options: float | str) -> Spec:
    learner = Component(name="pillar", options={"k": 5, "steps": 20, **options})
    return make_spec({"dataset": "digits", "learner": learner, "seeds": 2}, "the test")


def worked(worker: CellWorker, spec: Spec) -> Result:
    return Result.model_validate(json.loads(worker.run_cell(spec.model_dump_json()))["result"])


CELLS = [spec(), spec(learning_rate=1.0), spec(clip=0.1, steps=30), spec(k=7), spec(sample_rate=0.1, init="uniform")]


@pytest.mark.slow
def test_cells_that_share_a_map_get_the_numbers_of_runs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_PLUGINS", "sklearn,pixels,pillar")
    worker, plugins = CellWorker("cpu", 1), registry.load()
    for spec in CELLS:
        found, alone = worked(worker, spec), session(plugins).run(spec)
        assert found.seeds == alone.seeds
        assert found.metrics == alone.metrics


@pytest.mark.slow
@pytest.mark.usefixtures("telling")
def test_a_map_is_made_once_for_all_cells_that_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_PLUGINS", "sklearn,pixels,pillar")
    made: Counter[int] = Counter()
    features = Pillar.features

    def counted(self: Pillar, *asked: object) -> object:
        made[self.k or 0] += 1
        return features(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(Pillar, "features", counted)
    worker = CellWorker("cpu", 1)
    for spec in CELLS:
        worked(worker, spec)
    assert made == {5: 2, 7: 2}  # once a seed


@dataclass(frozen=True)
class TrainsOn(ProbeLearner):
    """Goes on with its map after the fit, as one does who trains it on guessed labels of public examples."""

    name: ClassVar[str] = "trains-on"

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        turn = torch.nn.Parameter(torch.eye(64), requires_grad=False)
        return lambda x: x.flatten(1) @ turn

    def refine(self, predict: Predict, features: Any, public: PublicData) -> Predict:
        turn = features.__closure__[0].cell_contents
        turn.add_(predict(torch.eye(64)).abs().sum())
        return predict


def test_a_map_that_a_fit_has_changed_is_made_again_for_the_next(tmp_path: Path) -> None:
    found = dpbench.run(TrainsOn(steps=5), epsilon=[1.0, 2.0], seeds=1, out=tmp_path, device="cpu")
    alone = dpbench.run(TrainsOn(steps=5), epsilon=2.0, seeds=1, out=tmp_path / "alone", device="cpu")
    assert found[1].record.seeds == alone.record.seeds
