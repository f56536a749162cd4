"""The audit under a patient's epsilon: what is sampled, clipped or divided by image fails."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpbench.audit import auditing_curator
from dpbench.audit.audit_fit import audit_prepared_run
from dpbench.harness.prepare import PreparedRun
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.audit import Audit
from dpbench.records.spec import make_spec
from dpbench.registry import Registration, Registry, load
from tests.harness.test_unit_runs import Wards
from tests.helpers.sessions import session

Drawn = tuple[np.ndarray, Tensor | None]


@cache
def prepared(learner: str) -> PreparedRun:
    components = {kind: dict(items) for kind, items in load().components.items()}
    components["dataset"]["wards"] = Registration(Wards, "tests", "tests", "1")
    wanted = {"learner": learner, "dataset": "wards", "seeds": 1, "unit": "patient", "public_labels": True}
    return session(Registry(components)).prepare(make_spec(wanted, "a test"))


def audited(learner: str = "dp-sgd:steps=3") -> Audit:
    return audit_prepared_run(prepared(learner), 0, 4_000)


@pytest.fixture(autouse=True)
def one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask one question of a release again, the first: enough, and quick."""
    monkeypatch.setattr(auditing_curator, "FEATURE_REPLAYS", 1)


@pytest.mark.slow
@pytest.mark.parametrize("learner", ["dp-sgd:steps=6,sample_rate=0.3", "gep:steps=2,k=10", "pate:shards=20"])
def test_an_honest_run_of_patients_passes(learner: str) -> None:
    found = audited(learner)
    assert found.passed, found.figures.failed


def clipped_by_image(rows: PrivateRows, honest: Drawn) -> Drawn:
    return honest[0], None


def sampled_by_image(rows: PrivateRows, honest: Drawn) -> Drawn:
    kept = np.random.default_rng(len(honest[0])).random(len(honest[0])) < 0.9
    return honest[0][kept], None if honest[1] is None else honest[1][torch.from_numpy(kept)]


def mean_over_drawn_images(rows: PrivateRows, honest: Drawn) -> Drawn:
    assert rows.units is not None
    patients = len(np.unique(rows.units.of[honest[0]]))
    return honest[0], torch.full((len(honest[0]),), patients / max(1, len(honest[0])), dtype=torch.float64)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (clipped_by_image, "a row moved a sum by"),
        (sampled_by_image, "of a unit some examples were sampled, and others not"),
        (mean_over_drawn_images, "clips more or less than its own contribution"),
    ],
)
def test_a_core_that_takes_images_for_patients_fails(
    broken: Callable[[PrivateRows, Drawn], Drawn], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain: Any = PrivateRows.expand_units

    def expand_units(self: PrivateRows, sample: np.ndarray, device: torch.device) -> Drawn:
        found: Drawn = plain(self, sample, device)
        return found if self.units is None else broken(self, found)

    prepared("dp-sgd:steps=3")
    monkeypatch.setattr(PrivateRows, "expand_units", expand_units)
    found = audited()
    assert found.part_passed("sensitivity") is False
    assert any(said in line for line in found.figures.failed), found.figures.failed


@pytest.mark.slow
def test_larger_units_that_are_sampled_more_often_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit is there where one of its images was drawn."""
    plain: Any = PrivateRows.expand_units

    def expand_units(self: PrivateRows, sample: np.ndarray, device: torch.device) -> Drawn:
        if self.units is not None and len(sample) < self.count:
            rate = len(sample) / self.count
            images = np.random.default_rng(len(sample)).random(len(self)) < rate
            sample = np.unique(self.units.of[images])
        found: Drawn = plain(self, sample, device)
        return found

    prepared("dp-sgd:steps=3")
    monkeypatch.setattr(PrivateRows, "expand_units", expand_units)
    found = audited()
    assert any("at another rate than planned" in line for line in found.figures.failed), found.figures.failed
