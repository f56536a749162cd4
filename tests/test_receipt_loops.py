"""Receipts of five loops as libraries write them: honest ones pass, and every planted fault is found by its name."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

from dpbench.receipts import Receipt, check
from tests import readme
from tests.receipt_loops import FAULTS, LOOPS, Fault, found

JAX = {"jax": pytest.mark.slow}  # compiles what it computes


def _needs(loop: str) -> None:
    if loop == "jax":
        pytest.importorskip("jax_privacy")


@pytest.mark.parametrize("loop", [pytest.param(loop, marks=JAX.get(loop, ())) for loop in LOOPS])
def test_the_receipt_of_an_honest_loop_raises_no_alarm(loop: str, tmp_path: Path) -> None:
    _needs(loop)
    assert found(LOOPS[loop]("", tmp_path), tmp_path) == set()


@pytest.mark.parametrize(
    "fault", [pytest.param(one, id=f"{one.loop}-{one.key}", marks=JAX.get(one.loop, ())) for one in FAULTS]
)
def test_a_planted_fault_is_found_by_its_name(fault: Fault, tmp_path: Path) -> None:
    _needs(fault.loop)
    assert fault.name in found(LOOPS[fault.loop](fault.key, tmp_path), tmp_path)


def test_twenty_faults_are_planted_in_five_loops() -> None:
    assert len(FAULTS) == 20 and {one.loop for one in FAULTS} == LOOPS.keys()


def test_the_receipt_that_a_newcomer_writes_from_the_page_has_no_mismatch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code, *_ = readme.Page(readme.DOCS / "how-to" / "receipts.md").blocks("python")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        exec(compile(code, "receipts.md", "exec"), {"__name__": "page"})
    checked = check(Receipt.read(tmp_path / "model.receipt.json"), tmp_path)
    assert checked.passed, checked.mismatches
    assert len(checked.opinions) == 2
