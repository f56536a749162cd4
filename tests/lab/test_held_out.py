"""Held-out training examples: no unit is divided, the plan is that of the rest, and scores repeat."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from dpbench.harness.loaded import LoadedRun
from dpbench.privacy.core.rows import PrivacyUnits
from dpbench.records.spec import make_spec
from dpbench_lab.held_out import hold_out_examples
from tests.helpers.sessions import session


def load(units: np.ndarray | None = None) -> LoadedRun:
    spec = make_spec({"learner": "class-means:k=12", "dataset": "digits", "extractor": "pixels", "seeds": 1}, "a test")
    loaded = session().load(spec)
    if units is None:
        return loaded
    private = replace(loaded.roles.private, units=PrivacyUnits(units))
    task = replace(loaded.roles.task, size=private.count)
    return replace(loaded, roles=replace(loaded.roles, private=private, task=task))


def test_four_fifths_are_trained_on_and_the_others_scored() -> None:
    whole = load().roles.private
    run = hold_out_examples(load())
    kept = run.prepared.roles.private
    assert (len(run.y), len(kept)) == (round(0.2 * len(whole)), len(whole) - len(run.y))
    held = torch.from_numpy(np.setdiff1d(whole.index.numpy(), kept.index.numpy()))
    assert run.x.equal(whole.held[held].float())
    assert run.prepared.roles.task.size == kept.count
    assert run.score(0) == run.score(0) != hold_out_examples(load(), 1).score(0)


def test_no_unit_is_on_both_sides() -> None:
    whole = load().roles.private
    owners = np.arange(len(whole)) // 3
    kept = hold_out_examples(load(owners)).prepared.roles.private
    assert kept.units is not None and kept.count == kept.units.count < owners.max() + 1
    remaining = np.isin(whole.index.numpy(), kept.index.numpy())
    assert not {*owners[remaining]} & {*owners[~remaining]}
