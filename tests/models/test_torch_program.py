"""Models of version 0.2 are still read, and what their operations do ends no more than their own process."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dpbench
from dpbench.errors import DataError, SpecError
from dpbench.models import worker
from tests.helpers.commands import Refusal
from tests.helpers.models import OLD_MODEL, write_old_model

FAR = torch.full((64,), 10**12)
CRAFTED: dict[str, tuple[list[Any], dict[str, Tensor], str]] = {
    "max_pool2d_with_indices_backward": (
        [["aten.view.default", [{"value": 0}, [64, 1, 8, 8]], {}],
         ["aten.max_pool2d_with_indices_backward.default",
          [{"tensor": "t0"}, {"value": 1}, [2, 2], [2, 2], [0, 0], [1, 1], False, {"tensor": "t1"}], {}]],
        {"t0": torch.ones(64, 1, 4, 4), "t1": torch.full((64, 1, 4, 4), 10**12)}, r"by SIG\w+",
    ),
    "embedding_dense_backward": (
        [["aten.embedding_dense_backward.default", [{"value": 0}, {"tensor": "t0"}, 10, -1, True], {}]],
        {"t0": FAR}, r"by SIG\w+",
    ),
    "native_layer_norm_backward": (
        [["aten.full.default", [[2 * 10**7, 1], 1.0], {"device": {"device": "here"}}],
         ["aten.native_layer_norm_backward.default",
          [{"value": 1}, {"value": 1}, [1], *[{"tensor": "t0"}] * 4, [True, True, True]], {}]],
        {"t0": torch.ones(1)}, r"by SIG\w+",
    ),
    "division": (
        [["aten.div.Tensor_mode", [{"tensor": "t0"}, {"tensor": "t1"}], {"rounding_mode": "trunc"}]],
        {"t0": torch.full((64, 10), -(2**63)), "t1": torch.full((64, 10), -1)}, "by SIGFPE",
    ),
    "memory": ([["aten.full.default", [[1_180_000_000], 0.0], {}]], {}, "more than 1.25 GiB of memory"),
    "time": (
        [["aten.full.default", [[2000, 2000], 1e-3], {}],
         *(["aten.mm.default", [{"value": 1}, {"value": number}], {}] for number in range(1, 9001))],
        {}, "more than 2 seconds",
    ),
}  # fmt: skip


@pytest.mark.quick("max_pool2d_with_indices_backward")
@pytest.mark.parametrize("crafted", CRAFTED)
def test_a_crafted_file_ends_its_own_process_and_predict_says_how(
    crafted: str, tmp_path: Path, refusal: Refusal, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, tensors, said = CRAFTED[crafted]
    monkeypatch.setattr(worker, "SECONDS", 2 if crafted == "time" else 60)
    file = tmp_path / "model.safetensors"
    file.write_bytes(write_old_model(steps, tensors))
    assert re.search(f"^dpbench: Model .* cannot be read: .*({said})", refusal.command("predict", file))


def test_a_model_of_version_0_2_predicts_as_it_did(tmp_path: Path) -> None:
    model = dpbench.load_model(OLD_MODEL)
    scores = model.decision_function(np.arange(192, dtype=np.uint8).reshape(3, 8, 8) % 17)
    assert scores.shape == (3, 10)
    assert np.abs(scores[:, :3] - EXPECTED).max() < 1e-6
    assert model.save(tmp_path / "same.safetensors").read_bytes() == OLD_MODEL.read_bytes()
    with pytest.raises(SpecError, match=r"to end in \.safetensors"):
        model.save(tmp_path / "other.onnx")


EXPECTED = [[2.9695373, -0.8524707, -2.5076237], [0.7821151, 0.4359478, 2.1506104], [0.811708, -1.8961773, -1.8644581]]
"""Scores that version 0.2 gives."""


@pytest.mark.slow
def test_an_old_model_that_was_changed_or_has_other_operations_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.safetensors"
    file.write_bytes(OLD_MODEL.read_bytes().replace(b"class-means", b"class-meanz", 1))
    with pytest.raises(DataError, match="damaged or was changed"):
        dpbench.load_model(file)
    others = ("aten.from_file.default", "aten._print.default", "os.system", "aten.set_.source_Tensor")
    for operation in (*others, "aten.rand.default", "aten.native_dropout.default"):
        file.write_bytes(write_old_model([[operation, [], {}]], {}))
        with pytest.raises(DataError, match="an operation that a model may not have"):
            dpbench.load_model(file)
    file.write_bytes(write_old_model([["aten.mm.default", [{"value": 0}, {"value": 7}], {}]], {}))
    with pytest.raises(DataError, match=r"^Model .* cannot be read: "):
        dpbench.load_model(file)
