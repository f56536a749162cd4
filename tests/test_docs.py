"""Every command of the README runs, and what it names exists."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dpbench
from dpbench import Release, registry
from dpbench.cli import app
from dpbench.figures import ready
from dpbench.privacy.accountant import epsilon
from dpbench.result import Result
from dpbench.sweep import read_grid
from tests import readme

INSTALL = 'pip install -e ".[test,offline]" && '
RUNNABLE = [command.removeprefix(INSTALL) for command in readme.commands() if command != "pytest"]


@pytest.fixture(scope="module")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("readme-cache")


@pytest.mark.parametrize("command", RUNNABLE)
def test_a_command_of_the_readme_runs(command: str, cifar_mirror: Path, shared_cache: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "DPBENCH_DATA": str(cifar_mirror), "DPBENCH_CACHE": str(shared_cache)}
    done = subprocess.run(
        command, shell=True, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout
    if command.startswith("dpbench run"):
        assert len(list((tmp_path / "dpbench-results").glob("*.json"))) == 1


def test_continuous_integration_runs_the_readmes_install_and_test_commands() -> None:
    lines = [line.strip() for line in (readme.ROOT / ".ci" / "run").read_text().splitlines()]
    assert INSTALL + "dpbench run --learner pillar --dataset digits" in lines
    assert "pytest" in lines
    assert "pytest" in readme.commands()


def test_the_constraints_are_names_and_exact_versions_only() -> None:
    for line in (readme.ROOT / ".ci" / "constraints.txt").read_text().splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line), line


def test_every_flag_in_the_readme_exists_and_every_flag_of_run_is_in_the_readme() -> None:
    shown = _flags("run") | _flags("tune")
    others = (_flags("inspect") | _flags("sweep")).union(
        *(_flags("data", command) for command in ("list", "fetch", "import", "remove"))
    )
    named = set(re.findall(r"(?<![\w|-])--[a-z][a-z-]+", readme.TEXT))
    elsewhere = {"--release", "--sigma", "--spec", "--check", "--benchmark-enable", "--help"}
    assert shown - {"--help"} <= named | {"--no-public-labels"}
    assert named - elsewhere <= shown | others


def _flags(*command: str) -> set[str]:
    page = CliRunner().invoke(app, [*command, "--help"], terminal_width=200).output
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))


def test_the_readmes_figures_are_those_of_the_committed_results() -> None:
    assert readme.cifar_table() in readme.TEXT
    assert readme.chest_table() in readme.TEXT
    assert readme.figure_table() in readme.TEXT


FOLDERS = (readme.DEFAULT, readme.TUNED, readme.CHEST, readme.FIGURE)
COMMITTED = [file for folder in FOLDERS for file in sorted(folder.glob("*.json"))]


def test_every_committed_result_is_in_a_folder_that_is_checked() -> None:
    assert sorted(readme.RESULTS.rglob("*.json")) == sorted(COMMITTED)
    assert len(COMMITTED) >= 50


@pytest.mark.parametrize("file", COMMITTED, ids=lambda file: f"{file.parent.name}/{file.name}")
def test_a_committed_result_comes_from_a_clean_tree_and_states_what_plan_and_sigma_give(file: Path) -> None:
    result = Result.read(file)
    privacy = result.privacy
    plan = [Release(r.name, r.steps, r.sample_rate, r.relative_noise) for r in privacy.plan]
    assert result.digest == result.spec.digest
    assert file.name == result.file_name
    assert result.provenance["dirty"] is False
    assert epsilon(plan, privacy.sigma, privacy.delta, privacy.accountant) == privacy.epsilon
    assert privacy.epsilon <= result.spec.epsilon
    assert all(seed.spent == {r.name: r.steps for r in privacy.plan} for seed in result.seeds)
    chosen = {"default", "by-hand"} if file.parent == readme.FIGURE else {"default"}
    assert result.selection in ({"public-validation"} if "tuned" in file.parent.name else chosen)
    if result.search is not None:
        assert not result.search.private_touched
        assert result.search.chosen in [trial.setting for trial in result.search.trials]


def test_every_name_of_the_contract_can_be_imported() -> None:
    for name in dpbench.__all__:
        assert getattr(dpbench, name)


def test_the_readmes_sweep_is_a_grid_of_24_cells() -> None:
    (text,) = (block for block in re.findall(r"```toml\n(.*?)```", readme.TEXT, re.DOTALL) if "[grid]" in block)
    grid = read_grid(tomllib.loads(text), registry.load())
    assert (grid.name, len(grid.cells), grid.merged) == ("k-on-digits", 24, 0)


def test_the_committed_sweep_describes_the_committed_results() -> None:
    grid = read_grid(ready.find(Path("pillar-figure-4")), registry.load())
    assert {cell.file_name for cell in grid.cells} == {file.name for file in readme.FIGURE.glob("*.json")}


def test_the_laws_of_the_rules_hold_for_this_tree() -> None:
    for file in [*readme.ROOT.glob("dpbench/**/*.py"), *readme.ROOT.glob("plugins/**/*.py")]:
        assert len(file.read_text().splitlines()) <= 250, f"{file} is too long to keep in mind"
