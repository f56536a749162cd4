"""The action that checks receipts: its steps run in bash, one after the other, as GitHub would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml  # type: ignore[import-untyped]

from dpbench.receipts import Search, Training, gaussian_steps, receipt
from tests.helpers.readme import ROOT

FOLDER = ROOT / ".github" / "actions" / "receipt"
STEPS = yaml.safe_load((FOLDER / "action.yml").read_text(encoding="utf-8"))["runs"]["steps"]
LOOP = '''
import torch

def loop(x, y, seed):
    """Two steps of clipped sums with noise of sigma NOISE."""
    generator, finite = torch.Generator().manual_seed(seed), x.isfinite().all(1)
    x, rows = x[finite].double(), 0.5 - torch.nn.functional.one_hot(y[finite], 2).double()
    norms = rows.norm(dim=1) * x.norm(dim=1)
    total = (rows * (1 / norms.clamp(min=1e-30)).clamp(max=1).unsqueeze(1)).T @ x
    return [total + NOISE * torch.randn(total.shape, generator=generator) for _ in range(2)]

def test_the_loop(dpbench_audit):
    dpbench_audit(loop, "model.receipt.json", steps=2, canaries=1_000)
'''


def run_steps(folder: Path, receipts: str, tests: str = "") -> subprocess.CompletedProcess[str]:
    """Run the scripts of all steps with the inputs in their environment; pip only says what it would install."""
    programs = folder / "programs"
    programs.mkdir()
    (programs / "pip").write_text('#!/bin/sh\necho "pip $@"\n', encoding="utf-8")
    (programs / "pip").chmod(0o755)
    path = os.pathsep.join([str(programs), str(Path(sys.executable).parent), os.environ["PATH"]])
    given = {"inputs.receipts": receipts, "inputs.tests": tests, "github.action_path": str(FOLDER)}
    scripts = [step["run"] for step in STEPS if not step.get("if") or tests]
    environment = {**os.environ, "PATH": path}
    for name, value in (pair for step in STEPS for pair in step["env"].items()):
        environment[name] = re.sub(r"\$\{\{ (\S+) \}\}", lambda found: given[found[1]], value)
    return subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", "\n".join(scripts)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a receipt and the test of a loop that adds the noise of the receipt."""
    training = Training(events=gaussian_steps(sigma=4.0, steps=2), size=1_000)
    made = receipt(
        training, epsilon=2.0, delta=1e-5, unit="image", adjacency="add-or-remove-one", search=Search(runs=1)
    )
    made.write(tmp_path / "model.receipt.json")
    (tmp_path / "test_privacy.py").write_text(LOOP.replace("NOISE", "4.0"), encoding="utf-8")
    return tmp_path


@pytest.mark.slow
def test_receipts_are_checked_and_loops_audited(folder: Path) -> None:
    done = run_steps(folder, "**/*.receipt.json", "test_privacy.py")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"pip install {FOLDER}/../../.. pytest" in done.stdout and (FOLDER / "../../..").resolve() == ROOT
    assert "ok model.receipt.json: a receipt" in done.stdout and "1 passed" in done.stdout


@pytest.mark.slow
def test_a_loop_with_less_noise_fails_the_action(folder: Path) -> None:
    (folder / "test_privacy.py").write_text(LOOP.replace("NOISE", "2.0"), encoding="utf-8")
    done = run_steps(folder, "*.json", "test_privacy.py")
    assert done.returncode != 0 and "1 failed" in done.stdout


def test_a_receipt_with_a_mismatch_fails_the_action(folder: Path) -> None:
    file = folder / "model.receipt.json"
    file.write_text(file.read_text(encoding="utf-8").replace('"epsilon": 2.0', '"epsilon": 0.2'), encoding="utf-8")
    done = run_steps(folder, "model.receipt.json")
    assert done.returncode != 0 and "MISMATCH" in done.stdout


def test_a_pattern_without_a_receipt_fails_the_action(folder: Path) -> None:
    done = run_steps(folder, "models/*.json")
    assert done.returncode == 1 and "No receipt matches: models/*.json" in done.stdout


def test_no_strangers_text_stands_in_a_script() -> None:
    assert [step["shell"] for step in STEPS] == ["bash"] * 3
    assert not [step["run"] for step in STEPS if "${{" in step["run"]]
