"""The pytest plugin `dpbench-audit`: it is installed, and fails a test whose loop is looser than its receipt."""

from __future__ import annotations

from importlib.metadata import entry_points
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import one_hot

from dpbench import Receipt, SpecError, receipt
from dpbench.receipts import Concentrated, Search, Training, gaussian_steps
from dpbench.receipts.pytest_plugin import LoopAuditor, make_claim_from_receipt


def written(sigma: float) -> Receipt:
    training = Training(events=gaussian_steps(sigma=sigma, steps=100), size=1_000)
    return receipt(training, epsilon=40, delta=1e-5, unit="row", adjacency="add-or-remove-one", search=Search(runs=1))


def loop(x: Tensor, y: Tensor, seed: int) -> list[Tensor]:
    """Two steps of clipped sums with noise of sigma 2."""
    generator, finite = torch.Generator().manual_seed(seed), x.isfinite().all(1)
    x, rows = x[finite].double(), 0.5 - one_hot(y[finite], 2).double()
    norms = rows.norm(dim=1) * x.norm(dim=1)
    total = (rows * (1 / norms.clamp(min=1e-30)).clamp(max=1).unsqueeze(1)).T @ x
    return [total + 2 * torch.randn(total.shape, generator=generator) for _ in range(2)]


def test_the_fixture_is_an_entry_point_of_pytest(dpbench_audit: LoopAuditor) -> None:
    (found,) = entry_points(group="pytest11", name="dpbench-audit")
    assert found.value == "dpbench.receipts.pytest_plugin"
    assert isinstance(dpbench_audit, LoopAuditor)


def test_a_loop_as_tight_as_its_receipt_passes(dpbench_audit: LoopAuditor) -> None:
    assert dpbench_audit(loop, written(2.0), steps=2, canaries=1_000).passed


def test_a_loop_with_less_noise_than_its_receipt_fails_the_test(dpbench_audit: LoopAuditor) -> None:
    with pytest.raises(pytest.fail.Exception, match=r"less private than its receipt states.\nnoise"):
        dpbench_audit(loop, written(2.3), steps=2, canaries=1_000)


def test_a_receipt_that_does_not_fit_itself_fails_the_test(dpbench_audit: LoopAuditor) -> None:
    with pytest.raises(pytest.fail.Exception, match="epsilon: 1 is stated"):
        dpbench_audit(loop, written(2.0).model_copy(update={"epsilon": 1.0}), steps=2)


def test_a_file_that_changed_after_its_receipt_fails_the_test(dpbench_audit: LoopAuditor, tmp_path: Path) -> None:
    model = tmp_path / "model.pt"
    model.write_bytes(b"weights")
    training = Training(events=gaussian_steps(sigma=2.0, steps=100), size=1_000)
    made = receipt(
        training, epsilon=40, delta=1e-5, unit="row", adjacency="add-or-remove-one", search=Search(runs=1),
        files={"model": model},
    )  # fmt: skip
    file = made.write(tmp_path / "model.receipt.json")
    model.write_bytes(b"others")
    with pytest.raises(pytest.fail.Exception, match=r"hash: model model\.pt is not the file"):
        dpbench_audit(loop, file, steps=2)


def test_a_loop_or_a_receipt_that_cannot_be_audited_fails_the_test_in_a_sentence(
    dpbench_audit: LoopAuditor, tmp_path: Path
) -> None:
    with pytest.raises(pytest.fail.Exception, match="Expected 3 answers of shape") as failed:
        dpbench_audit(loop, written(2.0), steps=3)
    assert "\n" not in str(failed.value)
    with pytest.raises(pytest.fail.Exception, match="Cannot read receipt"):
        dpbench_audit(loop, tmp_path / "gone.json")


def test_a_receipt_of_another_mechanism_cannot_be_held_to_a_loop() -> None:
    other = written(2.0).model_copy(update={"training": Training(events=Concentrated(rho=1.0))})
    with pytest.raises(SpecError, match="steps of one Gaussian mechanism"):
        make_claim_from_receipt(other)
