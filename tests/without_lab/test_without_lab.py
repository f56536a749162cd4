"""Without the lab dpbench runs, lists, ranks and publishes as with it, on a small board."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from dpbench.board.build import INDEX, SCHEMA, write_index
from dpbench.board.distance import compute_mean_distances
from dpbench.board.index import Index
from dpbench.main import load_extras
from dpbench.records.board import find_board
from dpbench.site import build_site
from tests.helpers.boards import synthetic
from tests.site.test_site import filed, standing_of
from tests.without_lab import tree

BOARDS = ("digits-eps1", "pcam-resnet50-eps0.1")
CODE = """
import sys
from pathlib import Path
import dpbench
from dpbench.board.build import write_index
from dpbench.board.index import Index
from dpbench.main import is_lab_installed, load_extras
from dpbench.site import build_site

assert not is_lab_installed() and Path(dpbench.__file__).is_relative_to(Path.cwd())
root = Path(sys.argv[1])
index = Index.read(root / "leaderboard.json")
build_site(index, root, Path("site"), extras=load_extras())
write_index(index, Path("."))
try:
    dpbench.figure("pillar-figure-4")
except dpbench.SpecError as error:
    print(error)
"""


@pytest.fixture(scope="module")
def less(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the packages without the lab."""
    folder = tmp_path_factory.mktemp("without")
    return tree.copy_tree(folder, lab=False, parts=("dpbench", "plugins", "pyproject.toml"))


@pytest.fixture(scope="module")
def board(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A leaderboard of one board with results, and one without."""
    root = tmp_path_factory.mktemp("board")
    filled = filed(root, find_board(BOARDS[0]), synthetic(find_board(BOARDS[0]), 5, seed=0))
    standings = (filled, standing_of(find_board(BOARDS[1]), []))
    write_index(Index(ranking="By the mean.", distances=compute_mean_distances(standings), standings=standings), root)
    return root


@pytest.mark.slow
def test_the_index_its_schema_and_the_data_of_every_page_are_the_same_and_no_link_is_dead(
    less: Path, board: Path, tmp_path: Path
) -> None:
    done = tree.run_python(less, "-c", CODE, board)
    assert done.returncode == 0, done.stdout
    assert done.stdout.startswith("Expected the package dpbench_lab, which draws sweeps beside papers")
    build_site(Index.read(board / INDEX), board, tmp_path / "site", extras=load_extras())
    assert [*tree.compare_files(board, less, (INDEX, SCHEMA))] == []
    assert [*tree.compare_sites(tmp_path / "site", less / "site")] == []


def test_commands_of_the_harness_are_there_and_those_of_the_lab_are_unknown(less: Path) -> None:
    done = tree.run_python(less, "-m", "dpbench", "--help")
    assert done.returncode == 0 and "  leaderboard " in done.stdout and "  explain " not in done.stdout
    refused = tree.run_python(less, "-m", "dpbench", "museum")
    assert refused.returncode == 2 and "No such command 'museum'" in refused.stdout


def test_a_page_that_differs_and_a_dead_link_are_found(tmp_path: Path) -> None:
    for name, page in (("whole", '<a href="one.html">\nfirst\nsecond\n'), ("less", '<a href="one.html">\nthird\n')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "index.html").write_text(page, encoding="utf-8")
        (tmp_path / name / "data.json").write_text(name, encoding="utf-8")
    (tmp_path / "whole" / "one.html").touch()
    (tmp_path / "whole" / "museum.html").touch()
    assert [*tree.compare_sites(tmp_path / "whole", tmp_path / "less")] == [
        "one.html is not built without the lab",
        "data.json differs without the lab",
        "index.html has lines without the lab that it has not with it",
        "index.html leads to one.html, which is not there",
    ]


def test_nothing_in_the_tree_but_the_lab_and_its_tests_imports_the_lab_at_its_top() -> None:
    """What the other tests import has to be there without the lab."""
    found = []
    for file in sorted((tree.ROOT / "tests").rglob("*.py")):
        place = file.relative_to(tree.ROOT).as_posix()
        imports = [node for node in ast.parse(file.read_text(encoding="utf-8")).body if isinstance(node, IMPORTS)]
        names = [name for node in imports for name in imported(node)]
        if any(name.partition(".")[0] == tree.LAB or name.startswith("tests.lab") for name in names):
            found += [] if place.startswith(tree.LAB_TESTS) else [place]
    assert found == []


IMPORTS = ast.Import | ast.ImportFrom


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
