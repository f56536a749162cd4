"""Receipts of five loops as libraries write them: honest ones pass, and every planted fault is found by its name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.receipt_loops import FAULTS, LOOPS, Fault, found


def _needs(loop: str) -> None:
    if loop == "jax":
        pytest.importorskip("jax_privacy")


@pytest.mark.parametrize("loop", LOOPS)
def test_the_receipt_of_an_honest_loop_raises_no_alarm(loop: str, tmp_path: Path) -> None:
    _needs(loop)
    assert found(LOOPS[loop]("", tmp_path), tmp_path) == set()


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault.loop}-{fault.key}")
def test_a_planted_fault_is_found_by_its_name(fault: Fault, tmp_path: Path) -> None:
    _needs(fault.loop)
    assert fault.name in found(LOOPS[fault.loop](fault.key, tmp_path), tmp_path)


def test_twenty_faults_are_planted_in_five_loops() -> None:
    assert len(FAULTS) == 20 and {one.loop for one in FAULTS} == LOOPS.keys()
