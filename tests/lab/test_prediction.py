"""What theorems make of measured features."""

from __future__ import annotations

import math

import pytest

from dpbench.records.spec import make_spec
from dpbench_lab.inspect.inspection import run_inspection
from dpbench_lab.inspect.prediction import predict_gains
from dpbench_lab.inspect.report import (
    ClassPair,
    EigenvalueSpectrum,
    Inspection,
    PairSeparability,
    SeparabilityRange,
    make_request,
)
from tests.helpers.sessions import session


def _found(xi: tuple[float, ...], gamma: float) -> PairSeparability:
    spread = SeparabilityRange(smallest=xi, median=xi, largest=xi)
    pair = ClassPair(classes=("a", "b"), gamma=gamma, wrong=0.0, own=xi, shared=xi)
    return PairSeparability(pairs=(pair,), possible=1, own=spread, shared=spread)


def _spectrum(explained: tuple[float, ...]) -> EigenvalueSpectrum:
    return EigenvalueSpectrum(eigenvalues=(1.0,), explained=explained, participation_ratio=1, entropy_rank=1)


def test_both_readings_are_their_formulas() -> None:
    found = predict_gains((4, 16, 64), 64, _spectrum((0.25, 0.81, 1.0)), _found((0.5, 0.005, 0.0), 0.2))
    assert found.printed == pytest.approx((4 * (0.98 - 0.5) / 0.98, 2 * (0.98 - 0.005) / 0.98, 1))
    assert found.noise == pytest.approx((0.5 / 0.5, 0.995 / 0.9, 1))
    assert (found.best_printed, found.best_noise) == (16, 16)
    assert math.sqrt(0.005 * 1.995) < 0.2
    assert found.kept == 16


def test_a_margin_that_no_k_keeps_is_said() -> None:
    found = predict_gains((4, 16), 64, _spectrum((0.25, 0.81)), _found((0.5, 0.1), -0.1))
    assert (found.gamma, found.kept) == (0.0, None)


def _inspected(dataset: str) -> Inspection:
    values = {"dataset": dataset, "extractor": "pixels", "public_fraction": 0.5, "learner": "public-only"}
    spec = make_spec(values, "the test")
    return run_inspection(make_request(spec, ["1,5,20,50"], read_private=False, pairs=5, svm_c=100.0), session())


def test_drawn_features_of_low_rank_are_seen_through(fresh_cache: object) -> None:
    head = _inspected("theory-lowrank:n=3000,d=50,k=5,tau=0.5,test=10,seed=1").prediction
    assert head is not None
    assert head.best_noise == 1  # a margin widens the target's direction, which is then the first
    assert head.noise[1] == pytest.approx(1 / math.sqrt(0.5), rel=0.1)  # half of the energy is thrown away
    none = _inspected("theory-lowrank:n=3000,d=50,k=5,tau=0.0,s=0,test=10,seed=1").prediction
    assert none is not None
    assert none.noise[1] == pytest.approx(1, rel=0.1)
