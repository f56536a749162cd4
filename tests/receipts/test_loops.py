"""Receipts of five loops as libraries write them: honest ones pass, and every planted fault is found by its name."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from dpbench import receipt
from dpbench.receipts import Receipt, Search, check, from_opacus
from dpbench.receipts.events import flatten_to_terms
from tests.helpers import readme
from tests.helpers.receipt_loops import FAULTS, LOOPS, Fault, found

JAX = {"jax": pytest.mark.slow}  # compiles what it computes


def _needs(loop: str) -> None:
    if loop == "jax":
        pytest.importorskip("jax_privacy")


@pytest.mark.quick(2)
@pytest.mark.parametrize("loop", [pytest.param(loop, marks=JAX.get(loop, ())) for loop in LOOPS])
def test_the_receipt_of_an_honest_loop_raises_no_alarm(loop: str, tmp_path: Path) -> None:
    _needs(loop)
    assert found(LOOPS[loop]("", tmp_path), tmp_path) == set()


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    "fault", [pytest.param(fault, id=f"{fault.loop}-{fault.key}", marks=JAX.get(fault.loop, ())) for fault in FAULTS]
)
def test_a_planted_fault_is_found_by_its_name(fault: Fault, tmp_path: Path) -> None:
    _needs(fault.loop)
    assert fault.name in found(LOOPS[fault.loop](fault.key, tmp_path), tmp_path)


def test_twenty_faults_are_planted_in_five_loops() -> None:
    assert len(FAULTS) == 20 and {fault.loop for fault in FAULTS} == LOOPS.keys()


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


@pytest.mark.slow
@pytest.mark.parametrize(("batch", "whole"), [(20, False), (60, True)])
def test_opacus_with_a_memory_manager_and_with_full_batches_raises_no_alarm(batch: int, whole: bool) -> None:
    from opacus import PrivacyEngine
    from opacus.utils.batch_memory_manager import BatchMemoryManager

    data = torch.utils.data.TensorDataset(torch.randn(60, 4), torch.randint(2, (60,)))
    model = torch.nn.Linear(4, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = PrivacyEngine(accountant="rdp")
        made, optimizer, loader = engine.make_private(
            module=model, optimizer=torch.optim.Adam(model.parameters()), noise_multiplier=2.0, max_grad_norm=1.0,
            data_loader=torch.utils.data.DataLoader(data, batch_size=batch),
        )  # fmt: skip
        with BatchMemoryManager(data_loader=loader, max_physical_batch_size=8, optimizer=optimizer) as parts:
            for rows, labels in parts:
                optimizer.zero_grad()
                torch.autograd.backward(torch.nn.functional.cross_entropy(made(rows), labels))
                optimizer.step()
        read = from_opacus(engine, optimizer, parts, clipped_per="row")
        stated = receipt(read, epsilon=engine.get_epsilon(1e-4), delta=1e-4, unit="row", search=Search(runs=1))
    assert read.batches is not None and read.batches.drawn == "poisson" and read.batches.size == batch
    assert read.batches.steps == 60 // batch and check(stated).mismatches == ()
    assert whole == (flatten_to_terms(read.events)[0].sampler is None)


@pytest.mark.parametrize(("version", "wrong"), [("1.6.0", ()), ("1.5.4", ("noise",))])
def test_opacus_with_adaptive_clipping_releases_a_count_too(
    version: str, wrong: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    from opacus import PrivacyEngine

    data = torch.utils.data.TensorDataset(torch.randn(200, 4), torch.randint(2, (200,)))
    model = torch.nn.Linear(4, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = PrivacyEngine(accountant="rdp")
        made, optimizer, loader = engine.make_private(
            module=model, optimizer=torch.optim.Adam(model.parameters()), noise_multiplier=1.5, max_grad_norm=1.0,
            clipping="adaptive", data_loader=torch.utils.data.DataLoader(data, batch_size=50),
            target_unclipped_quantile=0.5, clipbound_learning_rate=0.2, max_clipbound=1e8, min_clipbound=0.05,
            unclipped_num_std=1.0,
        )  # fmt: skip
        for rows, labels in loader:
            optimizer.zero_grad()
            torch.autograd.backward(torch.nn.functional.cross_entropy(made(rows), labels))
            optimizer.step()
    if wrong:  # before 1.6, optimizer and accountant had the noise multiplier of the gradient alone
        gradient = (1.5**-2 - 2.0**-2) ** -0.5
        optimizer.noise_multiplier = gradient
        engine.accountant.history = [(gradient, rate, steps) for _, rate, steps in engine.accountant.history]
    monkeypatch.setattr("dpbench.receipts.exporters.opacus_engine.find_installed_version", lambda name: version)
    read = from_opacus(engine, optimizer, loader, clipped_per="row")
    assert read.noise is not None and read.noise.second is not None
    assert (read.noise.second.sigma, read.noise.dtype) == (2.0, "float32")
    assert read.noise.sigma == pytest.approx(1.5)
    stated = receipt(read, epsilon=engine.get_epsilon(1e-4), delta=1e-4, unit="row", search=Search(runs=1))
    assert tuple(mismatch.name for mismatch in check(stated).mismatches) == wrong
