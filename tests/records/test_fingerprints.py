"""What is kept of fingerprints, and when two of them are the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dpbench.records.fingerprints import (
    TOLERANCE,
    CodeDigests,
    ComponentBehaviour,
    ComponentFingerprints,
    FitFingerprint,
    read_fingerprints,
    settings_key,
)

OLD, NEW, OTHER = (CodeDigests(dpbench=digit * 16, plugin=digit * 16) for digit in "123")
SCORES = np.random.default_rng(0).normal(size=(50, 10))
EMPTY = ComponentFingerprints(kind="learner", name="mine")


def behaviour(scores: np.ndarray = SCORES, task: str = "a task") -> ComponentBehaviour:
    return ComponentBehaviour(task=task, fits={"2": FitFingerprint.from_scores(scores, 12), "inf": "It refuses."})


def moved(by: float) -> ComponentBehaviour:
    return behaviour(SCORES + by * SCORES.std() * np.random.default_rng(1).normal(size=SCORES.shape))


@pytest.mark.parametrize(("by", "same"), [(0.0, True), (TOLERANCE / 3, True), (3 * TOLERANCE, False), (1.0, False)])
def test_scores_are_compared_with_a_tolerance(by: float, same: bool) -> None:
    assert behaviour().agrees(moved(by)) is same


def test_a_label_of_a_tie_may_differ_and_more_may_not() -> None:
    turned, many = SCORES.copy(), SCORES.copy()
    turned[-1] = -turned[-1]  # beyond the scores that are kept
    many[-5:] = -many[-5:]
    assert behaviour().agrees(behaviour(turned)) and not behaviour().agrees(behaviour(many))


def test_scores_are_kept_to_a_part_of_the_tolerance() -> None:
    kept = FitFingerprint.from_scores(SCORES, 12).values().reshape(12, 10)
    assert np.abs(kept - SCORES[:12]).max() < TOLERANCE / 10


def test_constant_scores_are_compared_too() -> None:
    assert behaviour(np.ones((50, 10))).agrees(behaviour(np.ones((50, 10))))
    assert not behaviour(np.ones((50, 10))).agrees(behaviour(2 * np.ones((50, 10))))


def test_another_task_or_a_refusal_less_is_no_agreement() -> None:
    assert not behaviour().agrees(behaviour(task="another"))
    fits: dict[str, FitFingerprint | str] = {
        "2": FitFingerprint.from_scores(SCORES, 12),
        "inf": FitFingerprint.from_scores(SCORES, 12),
    }
    assert not behaviour().agrees(ComponentBehaviour(task="a task", fits=fits))


def test_a_fingerprint_stands_once_for_all_codes_that_have_it() -> None:
    kept = EMPTY.with_behaviour({"k": 5}, behaviour(), OLD).with_behaviour({"k": 5}, moved(TOLERANCE / 3), NEW)
    assert len(kept.prints) == 1 and kept.has_same_behaviour({"k": 5}, OLD, NEW) is True
    kept = kept.with_behaviour({"k": 5}, moved(1.0), OTHER)
    assert len(kept.prints) == 2 and kept.has_same_behaviour({"k": 5}, OLD, OTHER) is False


def test_of_unknown_codes_and_settings_nobody_knows() -> None:
    kept = EMPTY.with_behaviour({"k": 5}, behaviour(), OLD)
    assert kept.has_same_behaviour({"k": 5}, OLD, NEW) is None and kept.has_same_behaviour({"k": 6}, OLD, OLD) is None


def test_of_settings_that_no_task_covers_nobody_knows() -> None:
    nothing = ComponentBehaviour(task="", fits={}, not_covered="k is too large.")
    kept = EMPTY.with_behaviour({"k": 5000}, nothing, OLD).with_behaviour({"k": 5000}, nothing, NEW)
    assert len(kept.prints) == 1 and kept.has_same_behaviour({"k": 5000}, OLD, NEW) is None


def test_settings_that_were_left_open_have_to_be_chosen_alike() -> None:
    asked = {"k": None}
    kept = EMPTY.with_choices(asked, {"a task": {"k": 5}}, OLD).with_choices(asked, {"a task": {"k": 5}}, NEW)
    kept = kept.with_choices(asked, {"a task": {"k": 6}}, OTHER)
    assert [kept.has_same_choices(asked, OLD, code) for code in (NEW, OTHER)] == [True, False]
    assert kept.has_same_choices({"k": 5}, OLD, OTHER) is True
    assert EMPTY.has_same_choices(asked, OLD, NEW) is None


def test_what_is_written_is_read(tmp_path: Path) -> None:
    kept = EMPTY.with_behaviour({"k": 5, "ridge": float("inf")}, behaviour(), OLD)
    kept.write(tmp_path)
    found = read_fingerprints(tmp_path, "learner", "mine")
    assert found.behaviour({"ridge": float("inf"), "k": 5}, OLD) == behaviour()
    assert read_fingerprints(tmp_path, "learner", "another").prints == ()


def test_settings_are_found_whatever_their_order_and_however_infinity_is_spelled() -> None:
    assert settings_key({"a": 1, "b": float("inf")}) == settings_key({"b": "Infinity", "a": 1})
