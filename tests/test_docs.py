"""Every command of the README runs, and what it names exists."""

from __future__ import annotations

import itertools
import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

import dpbench
from dpbench import registry
from dpbench.board.build import current, index_of, verified
from dpbench.board.verify.known import Known
from dpbench.board.verify.review import Review
from dpbench.cli import app, main
from dpbench.cli.several import components
from dpbench.records.result import Result
from dpbench.sweep import read_grid
from dpbench.sweep.figures import ready
from tests import readme
from tests.conftest import write_mirror

INSTALL = 'pip install -e ".[test,offline]" && '
RUNNABLE = [command.removeprefix(INSTALL) for command in readme.commands() if command != "pytest"]


def test_the_readmes_first_command_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        shlex.split(RUNNABLE[0]), cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert len(list((tmp_path / "dpbench-results").glob("*.json"))) == 1


@pytest.fixture(scope="module")
def few_images(surroundings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for DPBENCH_DATA with just enough images for what the README runs: each goes through a network."""
    return write_mirror(tmp_path_factory.mktemp("few-images"), train=420, test=50)


@pytest.mark.parametrize("command", RUNNABLE[1:])
def test_a_command_of_the_readme_runs(
    command: str,
    few_images: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(few_images))
    monkeypatch.chdir(tmp_path)
    program, *arguments = shlex.split(command)
    assert program == "dpbench"
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert not ended.value.code
    assert capsys.readouterr().out
    if arguments[0] == "run":
        assert len(list((tmp_path / "dpbench-results").glob("*.json"))) == _cells(arguments)


def _cells(arguments: list[str]) -> int:
    given = dict(itertools.pairwise(arguments))
    learners = components([given.get("--learner", "pillar")])
    return len(learners) * len(given.get("--epsilon", "1").split(","))


def test_continuous_integration_runs_the_readmes_install_and_test_commands() -> None:
    lines = [line.strip() for line in (readme.ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    assert INSTALL + "dpbench run --learner pillar --dataset digits" in lines
    assert "pytest" in lines
    assert "pytest" in readme.commands()


def test_the_constraints_are_names_and_exact_versions_only() -> None:
    for line in (readme.ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line), line


GROUPS = {
    "data": ("list", "fetch", "import", "remove"),
    "leaderboard": ("verify", "build", "add", "exchange", "diff", "export", "serve", "publish"),
    "plugin": ("new",),
    "results": ("table", "show"),
    "cache": ("list", "clear"),
}


def test_every_flag_in_the_readme_exists_and_every_flag_of_run_is_in_the_readme() -> None:
    shown = _flags("run") | _flags("tune")
    others = set().union(*(_flags(name) for name in ("explain", "inspect", "sweep", "plot", "pretrain")))
    others |= set().union(*(_flags(group, command) for group, commands in GROUPS.items() for command in commands))
    named = set(re.findall(r"(?<![\w|-])--[a-z][a-z-]+", readme.TEXT))
    elsewhere = {"--release", "--sigma", "--spec", "--check", "--benchmark-enable", "--help", "--hypothesis-profile"}
    assert shown - {"--help"} <= named | {"--no-public-labels"}
    assert named - elsewhere <= shown | others


def _flags(*command: str) -> set[str]:
    page = CliRunner().invoke(app, [*command, "--help"], terminal_width=200).output
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", page))


def test_the_readmes_tables_are_those_of_the_committed_results() -> None:
    for table in readme.tables():
        assert table in readme.TEXT, table


@pytest.fixture(scope="module")
def reviewed() -> Review:
    return verified(readme.LEADERBOARD, Known.here(readme.LEADERBOARD, registry.load()))


def test_every_committed_result_passes_every_check(reviewed: Review) -> None:
    assert [f"{one.file}: {one}" for one in reviewed.complaints] == []
    assert len(reviewed.results) >= 100


def test_the_committed_leaderboard_is_what_the_results_make() -> None:
    assert current(index_of(readme.LEADERBOARD, registry.load()), readme.LEADERBOARD)


def test_every_learner_that_fits_is_on_every_board_that_was_run() -> None:
    filled = [standing for standing in readme.index().standings if standing.entries]
    assert len(filled) == 9
    for standing in filled:
        ran = {entry.learner for entry in standing.entries if entry.selection == "default"}
        assert ran == LEARNERS, standing.board.name
        assert {entry.seeds for entry in standing.entries} == {5}


LEARNERS = {
    "adadps", "class-means", "dp-raft", "dp-sgd", "gep", "jl", "non-private", "pillar", "public-only", "whitened"
}  # fmt: skip


@pytest.mark.parametrize("figure", sorted(folder.name for folder in readme.FIGURES.iterdir()))
def test_a_committed_figure_is_drawn_from_all_cells_of_its_sweep(figure: str) -> None:
    folder = readme.FIGURES / figure
    grid = read_grid(ready.find(Path(figure)), registry.load())
    results = {file.name: Result.read(file) for file in folder.glob("*.json")}
    if any(result.privacy.repeatable for result in results.values()):
        assert {cell.file_name for cell in grid.cells} == results.keys()
    else:  # by the code before: `verify` says so, and defaults were others, so that only how many there are can be held
        assert len(results) == len(grid.cells)
    assert 10_000 < (folder / f"{figure}.png").stat().st_size < 200_000


def test_every_name_of_the_contract_can_be_imported() -> None:
    for name in dpbench.__all__:
        assert getattr(dpbench, name)


def test_the_readmes_sweep_is_a_grid_of_24_cells() -> None:
    (text,) = (block for block in re.findall(r"```toml\n(.*?)```", readme.TEXT, re.DOTALL) if "[grid]" in block)
    grid = read_grid(tomllib.loads(text), registry.load())
    assert (grid.name, len(grid.cells), grid.duplicates) == ("k-on-digits", 24, 0)
