"""Maps that cells share: made once, and no number tells."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from dpbench_pillar import Pillar

from dpbench import registry
from dpbench.harness import run
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from dpbench.sweep.memory import Memory


def spec(**options: float | str) -> Spec:
    learner = Component(name="pillar", options={"k": 5, "steps": 20, **options})
    return make_spec({"dataset": "digits", "learner": learner, "seeds": 2}, "the test")


def worked(memory: Memory, one: Spec) -> Result:
    return Result.model_validate(json.loads(memory.work(one.model_dump_json(), "cpu", 1))["result"])


CELLS = [spec(), spec(learning_rate=1.0), spec(clip=0.1, steps=30), spec(k=7), spec(sample_rate=0.1, init="uniform")]


def test_cells_that_share_a_map_get_the_numbers_of_runs_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_PLUGINS", "sklearn,pixels,pillar")
    memory, plugins = Memory(), registry.load()
    for one in CELLS:
        found, alone = worked(memory, one), run.run(one, device="cpu", plugins=plugins)
        assert found.seeds == alone.seeds
        assert found.metrics == alone.metrics


@pytest.mark.usefixtures("telling")
def test_a_map_is_made_once_for_all_cells_that_share_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_PLUGINS", "sklearn,pixels,pillar")
    made: Counter[int] = Counter()
    features = Pillar.features

    def counted(self: Pillar, *asked: object) -> object:
        made[self.k or 0] += 1
        return features(self, *asked)  # type: ignore[arg-type]

    monkeypatch.setattr(Pillar, "features", counted)
    memory = Memory()
    for one in CELLS:
        worked(memory, one)
    assert made == {5: 2, 7: 2}  # once a seed
