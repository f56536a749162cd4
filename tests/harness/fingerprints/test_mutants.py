"""A fingerprint tells what computes otherwise: mutants of every learner, small changes; and nothing else."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from dpbench.errors import DpbenchError
from dpbench.harness.fingerprints import learners
from dpbench.harness.fingerprints.taking import take_fingerprint
from dpbench.privacy.core import randomness
from dpbench.records.fingerprints import ComponentBehaviour
from dpbench.registry import Registry, load
from tests.harness.fingerprints.mutants import MUTANTS, SETTINGS, Mutant
from tests.harness.fingerprints.sources import RenameLocals, plugins_with, replaced, transformed

Settings = dict[str, Any]


def taken(plugins: Registry, learner: str, settings: Settings) -> ComponentBehaviour:
    return take_fingerprint("learner", learner, settings, plugins)


@cache
def honest(learner: str, settings: tuple[tuple[str, Any], ...]) -> ComponentBehaviour:
    found = taken(load(), learner, dict(settings))
    assert not found.not_covered
    return found


def test_there_are_five_mutants_of_each_learner() -> None:
    counts = {name: sum(mutant.learner == name for mutant in MUTANTS) for name in load().components["learner"]}
    assert counts == dict.fromkeys(load().components["learner"], 5)


@pytest.mark.long
@pytest.mark.filterwarnings("default")  # a mutant may divide by zero
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.learner}: {mutant.instead}")
def test_a_mutant_changes_the_fingerprint(mutant: Mutant) -> None:
    settings = {**SETTINGS[mutant.learner], **mutant.settings}
    before = honest(mutant.learner, tuple(settings.items()))
    with plugins_with(replaced(mutant.file, mutant.text, mutant.instead)) as plugins:
        try:
            after = taken(plugins, mutant.learner, settings)
        except (DpbenchError, ValueError, RuntimeError):
            return
    assert not before.agrees(after)


@pytest.mark.long
def test_renaming_every_local_variable_changes_no_fingerprint() -> None:
    before = {name: honest(name, tuple(settings.items())) for name, settings in SETTINGS.items()}
    rename = RenameLocals()
    with plugins_with(transformed(rename.visit)) as plugins:
        after = {name: taken(plugins, name, settings) for name, settings in SETTINGS.items()}
    assert rename.renamed > 500
    assert [name for name in SETTINGS if not before[name].agrees(after[name])] == []


SGD: Settings = {"steps": 30, "learning_rate": 0.3}
LEARNING: Settings = {"k": 20, "steps": 20, "learning_rate": 0.3}
CHANGES: dict[str, tuple[str, Settings, Settings]] = {
    "a clip 1% larger": ("dp-sgd", SGD, {"clip": 1.01}),
    "a step less": ("dp-sgd", SGD, {"steps": 29}),
    "a learning rate 1% larger": ("dp-sgd", SGD, {"learning_rate": 0.303}),
    "more momentum": ("dp-sgd", SGD, {"momentum": 0.91}),
    "another start": ("dp-sgd", SGD, {"init": "uniform"}),
    "samples of 99%": ("dp-sgd", SGD, {"sample_rate": 0.99}),
    "another scaling": ("dp-sgd", SGD, {"scaling": "norm"}),
    "another optimiser": ("dp-sgd", SGD, {"optimiser": "adam"}),
    "a component more": ("pillar", LEARNING, {"k": 21}),
    "components that are not centred": ("pillar", {**LEARNING, "scaling": "none"}, {"center": False}),
    "no shrinkage": ("thrift", {**LEARNING, "graph": 0.5}, {"shrink": False}),
    "a little more whitening": ("thrift", {**LEARNING, "graph": 0.5}, {"whitening": 0.32}),
    "a little more of the graph": ("thrift", {**LEARNING, "graph": 0.5}, {"graph": 0.52}),
    "a ridge 3% larger": ("whitened", LEARNING, {"ridge": 0.0031}),
    "another power iteration": ("gep", {**LEARNING, "refresh": 5}, {"power_iterations": 2}),
    "anchors kept for longer": ("gep", {**LEARNING, "refresh": 5}, {"refresh": 6}),
    "a component less": ("prototypes", {"k": 40, "groups": 2}, {"k": 39}),
    "a public fit that is smoother": ("public-prior", {**LEARNING, "graph": 0.3}, {"ridge": 0.4}),
    "a travel 1% longer": ("dp-raft", {"steps": 20, "travel": 30.0}, {"travel": 30.3}),
    "a public fit 5% looser": ("public-only", {"regularisation": 15.0}, {"regularisation": 15.75}),
}


@pytest.mark.long
@pytest.mark.parametrize("change", CHANGES)
def test_a_small_change_of_settings_changes_the_fingerprint(change: str) -> None:
    learner, settings, changed = CHANGES[change]
    before = honest(learner, tuple(settings.items()))
    assert not before.agrees(taken(load(), learner, {**settings, **changed}))


def test_another_seed_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = honest("class-means", (("k", 12),))
    monkeypatch.setattr(learners, "SEED", 1)
    assert not before.agrees(taken(load(), "class-means", {"k": 12}))


def test_noise_that_is_one_percent_larger_changes_the_fingerprint(monkeypatch: pytest.MonkeyPatch) -> None:
    before = honest("class-means", (("k", 12),))
    noise = randomness._SeededDraws.noise
    monkeypatch.setattr(randomness._SeededDraws, "noise", lambda self, shape, std: noise(self, shape, 1.01 * std))
    assert not before.agrees(taken(load(), "class-means", {"k": 12}))


def test_a_fingerprint_repeats() -> None:
    before = honest("class-means", (("k", 12),))
    assert before.agrees(taken(load(), "class-means", {"k": 12}))
