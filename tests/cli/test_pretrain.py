"""`dpbench pretrain`: bad input is one sentence, an interruption keeps what was done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dpbench_plugins.extractors.randp import pretraining
from dpbench_plugins.extractors.randp.extractor import RandPWRN
from dpbench_plugins.extractors.randp.pretraining import Pretrainer
from dpbench_plugins.networks.network_checkpoint import Checkpoint
from torch import Tensor

from tests.cli.test_cli import refusal
from tests.helpers.commands import Output, call
from tests.helpers.randp import Tiny, tensors

QUICK = "randp-wrn16-4:canvas=16,probe=none"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the registered extractor have the smallest network."""
    monkeypatch.setattr(RandPWRN, "network", Tiny.network)
    monkeypatch.setattr(RandPWRN, "size", Tiny.size)


def pretrained(out: Path, *more: str) -> int:
    return call("pretrain", QUICK, "--steps", "4", "--batch", "4", "--device", "cpu", "--out", str(out), *more)


def test_it_writes_a_checkpoint_and_tells_the_loss(tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "w.safetensors"
    assert pretrained(out) == 0
    captured = capsys.readouterr()
    assert captured.out == f"Wrote the weights of randp-wrn16-4: {out}\n"
    assert re.findall(r"step (\d) of 4: loss -?\d\.\d+", captured.err) == ["1", "2", "3", "4"]
    assert Checkpoint.load(out).about["steps"] == "4"


def test_flags_win_over_options_and_options_reach_the_recipe(tmp_path: Path) -> None:
    out = tmp_path / "w.safetensors"
    assert call("pretrain",
        f"{QUICK},steps=900,batch=5,generator=dead-leaves,seed=4", "--steps", "1", "--device", "cpu", "--out", str(out)
    ) == 0  # fmt: skip
    about = Checkpoint.load(out).about
    assert (about["generator"], about["seed"], about["steps"]) == ("dead-leaves", "4", "1")
    assert '"batch": 5' in about["recipe"]


def test_an_interruption_says_how_to_go_on_and_that_gives_the_same_weights(
    tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, broken, step = tmp_path / "whole.safetensors", tmp_path / "broken.safetensors", Pretrainer.step
    monkeypatch.setattr(pretraining, "SAVE_AFTER", 0.0)
    assert pretrained(whole) == 0

    def interrupted(training: Pretrainer) -> Tensor:
        if training.done == 3:
            raise KeyboardInterrupt
        return step(training)

    with monkeypatch.context() as patch:
        patch.setattr(Pretrainer, "step", interrupted)
        assert pretrained(broken) == 130
    assert "repeat the command with --resume to continue" in capsys.readouterr().err
    assert pretrained(broken, "--resume") == 0
    assert re.findall(r"step (\d) of 4", capsys.readouterr().err) == ["4"]
    expected, other = tensors(whole), tensors(broken)
    assert expected.keys() == other.keys()
    assert all(bool((expected[name] == other[name]).all()) for name in expected)


def test_what_is_there_is_not_overwritten(tmp_path: Path, capsys: Output) -> None:
    out = tmp_path / "w.safetensors"
    out.write_text("precious")
    assert "already exists" in refusal(capsys, "pretrain", QUICK, "--out", str(out), "--device", "cpu")
    assert out.read_text() == "precious"


@pytest.mark.parametrize(
    ("extractor", "sentence"),
    [
        ("randp-wrn16", "Unknown extractor 'randp-wrn16'. Did you mean 'randp-wrn16-4'?"),
        ("pixels", "Extractor 'pixels' cannot be pre-trained. These can: randp-resnet9, randp-wrn16-4, randp-wrn40-4."),
        ("randp-wrn16-4:sed=1", "Unknown option 'sed' of the recipe of 'randp-wrn16-4'. Did you mean 'seed'?"),
        ("randp-wrn16-4:dead-leaves", "Expected key=value after 'randp-wrn16-4', got 'dead-leaves'."),
        ("randp-wrn16-4:generator=fractals", "Expected generator=fractals in the recipe of 'randp-wrn16-4'"),
        ("randp-wrn16-4:batch=1", "Expected batch=1 >= 2 to pre-train."),
    ],
)
def test_what_cannot_be_is_one_sentence(tmp_path: Path, capsys: Output, extractor: str, sentence: str) -> None:
    assert sentence in refusal(capsys, "pretrain", extractor, "--out", str(tmp_path / "w.safetensors"))
    assert not list(tmp_path.iterdir())


def test_nothing_to_resume_is_one_sentence(tmp_path: Path, capsys: Output) -> None:
    said = refusal(capsys, "pretrain", QUICK, "--resume", "--device", "cpu", "--out", str(tmp_path / "w.safetensors"))
    assert "Expected an unfinished pre-training at" in said
