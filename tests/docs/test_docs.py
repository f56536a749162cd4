"""Every command of the README and the documentation runs, and what they name exists."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from PIL import Image

import dpbench
from dpbench import registry
from dpbench.cli import main
from dpbench.cli.given import split_components
from dpbench.docs.tables import board_tables, unseen_data
from dpbench.main import build_command_line
from dpbench.privacy import MECHANISM
from dpbench.records.packed import list_records
from dpbench.records.result import Result
from dpbench.sweep import ready_made_sweeps
from dpbench.sweep.grid import read_grid
from tests.conftest import write_mirror
from tests.helpers import readme

INSTALL = 'pip install -e ".[offline]" && '
TESTS = 'pip install -e ".[test,offline]" && pytest'
NOTEBOOK = "how-to/notebook.md"
CI = "how-to/run.md"  # of the others every night
RUN = [page for page in readme.PAGES if page.commands() and page is not readme.README]
COMMANDS = typer.main.get_command(build_command_line())
PINNED = Path(__file__).parents[2] / ".ci" / "constraints.txt"
CODED = [page for page in readme.PAGES if page.code()]


def commands(page: readme.Page) -> list[list[str]]:
    """Return the words of every command of a page, but for pip's and the tests."""
    lines = [command.removeprefix(INSTALL) for command in page.commands()]
    return [shlex.split(line) for line in lines if line != TESTS]


@pytest.mark.long  # `.ci/run` runs it too, before the tests
def test_the_readmes_first_command_runs_as_a_program(tmp_path: Path) -> None:
    done = subprocess.run(
        commands(readme.README)[0], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout
    assert len(list((tmp_path / "dpbench-results").glob("*.json"))) == 1


@pytest.fixture(scope="module")
def few_images(surroundings: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for DPBENCH_DATA with just enough images for what pages run: each goes through a network."""
    return write_mirror(tmp_path_factory.mktemp("few-images"), train=220, test=30)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A person's own folder of images: three classes that differ in their colour."""
    folder = tmp_path_factory.mktemp("own") / "photos"
    generator = np.random.default_rng(0)
    for split, count in (("train", 20), ("test", 5)):
        for number, kind in enumerate(("cat", "dog", "owl")):
            (folder / split / kind).mkdir(parents=True)
            for index in range(count):
                pixels = generator.normal(60, 40, (32, 32, 3)) + 70 * np.eye(3)[number]
                image = Image.fromarray(pixels.clip(0, 255).astype(np.uint8))
                image.save(folder / split / kind / f"{index}.png")
    return folder


@pytest.mark.slow
@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.long] * (page.name != CI)) for page in RUN]
)
def test_the_commands_of_a_page_run_one_after_the_other(
    page: readme.Page,
    few_images: Path,
    photos: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(few_images))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "photos").symlink_to(photos)
    for program, *words in commands(page):
        assert program == "dpbench"
        arguments = [found for word in words for found in _globbed(word)]
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        said = capsys.readouterr()
        assert not ended.value.code, (words, said.err)
        assert said.out, words
    for _, *words in commands(page):
        if words[0] == "run":
            out = _given(words).get("--out", "dpbench-results")
            assert len(list((tmp_path / out).glob("*.json"))) >= _cells(words), words


def test_the_readmes_commands_are_those_of_the_tutorial_which_run() -> None:
    tutorial = [words for page in RUN if page.name.startswith("tutorial/") for words in commands(page)]
    assert len(commands(readme.README)) == 4
    assert all(words in tutorial for words in commands(readme.README))


def _globbed(word: str) -> list[str]:
    found = sorted(map(str, Path().glob(word))) if "*" in word else [word]
    assert found, word
    return found


def _given(arguments: list[str]) -> dict[str, str]:
    return dict(itertools.pairwise(arguments))


def _cells(arguments: list[str]) -> int:
    given = _given(arguments)
    learners = split_components([given.get("--learner", "pillar")], "--learner")
    return len(learners) * len(given.get("--epsilon", "1").split(","))


@pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.long] * (page.name == NOTEBOOK)) for page in CODED]
)
@pytest.mark.slow
def test_the_code_of_a_page_runs(page: readme.Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(page.code(), page.name, "exec"), {"__name__": "page"})


@pytest.mark.lab
@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_commands_that_are_not_run_exist_and_the_line_above_says_why(page: readme.Page) -> None:
    for above, block in page.not_run():
        assert re.fullmatch("<!-- not run by tests.*: .+ -->", above), (page.name, block)
        for words in block:
            _check_exists(words)


def _check_exists(words: list[str]) -> None:
    command: Any = COMMANDS
    for word in words:
        command = getattr(command, "commands", {}).get(word, command)
    known = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    assert not getattr(command, "commands", {}), words
    assert {word for word in words if word.startswith("--")} <= known, words


def test_the_readme_is_a_page() -> None:
    assert len(readme.README.text.splitlines()) <= 160


@pytest.mark.lab
def test_what_the_readme_links_to_is_there() -> None:
    links = re.findall(r"\]\(([^)#]+)", readme.README.text)
    assert len(links) > 15
    assert [link for link in links if not (readme.ROOT / link).is_file()] == []


@pytest.mark.lab
def test_every_claim_names_tests_that_are_there() -> None:
    (table,) = re.findall(r"^\| claim \|.*?\n\n", EPSILON.text, re.DOTALL | re.MULTILINE)
    rows = table.strip().splitlines()[2:]
    assert len(rows) >= 14
    for row in rows:
        tests = re.findall(r"`([\w/]*test_\w+\.py|lab/museum/)`", row.rstrip(" |").rpartition("| ")[2])
        assert tests, row
        assert all((readme.ROOT / "tests" / test).exists() for test in tests), row


EPSILON = readme.Page(readme.DOCS / "explanation" / "epsilon.md")


def test_continuous_integration_runs_the_readmes_install_and_test_commands() -> None:
    lines = [line.strip() for line in (readme.ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()]
    with_pip = [command for command in readme.README.commands() if command.startswith("pip ")]
    assert with_pip == [INSTALL + "dpbench run --learner pillar --dataset digits", TESTS]
    assert all(command in lines for command in with_pip)
    slow = (readme.ROOT / ".ci" / "slow").read_text(encoding="utf-8")
    assert '\npytest -m "slow and not long"' in slow
    nightly = (readme.ROOT / ".github" / "workflows" / "nightly.yml").read_text(encoding="utf-8")
    assert "pytest -m long\n" in nightly


@pytest.mark.parametrize(
    ("name", "failing"),
    [*itertools.product(["run"], ["pip", "pytest", "dpbench", "ruff", "mypy"]), ("slow", "pip"), ("slow", "pytest")],
)
def test_continuous_integration_fails_if_any_of_its_commands_does(name: str, failing: str, tmp_path: Path) -> None:
    script = readme.ROOT / ".ci" / name
    programs = dict.fromkeys(("pip", "pytest", "dpbench", "ruff", "mypy", "python3", "apt-get"), "exit 0")
    for program, body in {**programs, failing: "exit 3"}.items():
        (tmp_path / program).write_text(f"#!/bin/sh\n{body}\n", encoding="utf-8")
        (tmp_path / program).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}"}
    assert subprocess.run([script], env=environment, timeout=60, check=False, capture_output=True).returncode == 3
    (tmp_path / failing).write_text("#!/bin/sh\n", encoding="utf-8")
    assert subprocess.run([script], env=environment, timeout=60, check=False, capture_output=True).returncode == 0


def test_the_constraints_are_names_and_exact_versions_only() -> None:
    for line in (readme.ROOT / ".ci" / "constraints.txt").read_text(encoding="utf-8").splitlines():
        assert re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9._+!-]+", line), line


@pytest.mark.lab
def test_every_flag_that_a_page_names_exists_and_every_flag_of_run_is_on_a_page() -> None:
    known: dict[str, set[str]] = {}
    for path, command in walk(COMMANDS):
        known[path] = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    named = {flag for page in readme.PAGES for flag in re.findall(r"(?<![\w|-])--[a-z][a-z-]+", page.text)}
    assert {flag for flag in known["run"] if flag.startswith("--")} <= named | {"--no-public-labels", "--help"}
    others = {
        "--strict",
        "--no-index",
        "--check",
        "--benchmark-enable",
        "--cov",
        "--hypothesis-profile",
        "--config",
        "--quick",
        "--full",
        "--help",
        "--torch-backend",
        "--repo",
    }  # of the linters, pytest, uv, tests/gpu, git and gh
    assert named - others <= set().union(*known.values())


def walk(command: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    yield path, command
    for name, value in getattr(command, "commands", {}).items():
        yield from walk(value, f"{path} {name}".strip())


GLOSSARY = readme.Page(readme.DOCS / "glossary.md")


def avoided() -> dict[str, str]:
    """Return the synonyms that the glossary avoids, each with the term to use instead."""
    rows = (row.strip(" |").split("|") for row in re.findall(r"^\| .* \|$", GLOSSARY.text, re.MULTILINE)[1:])
    found = {word.strip(): row[0].strip() for row in rows if len(row) == 3 for word in row[2].split(",")}
    return {word: term for word, term in found.items() if word}


def prose(page: readme.Page) -> str:
    """Return a page's text without code, comments and addresses of links."""
    text = re.sub(r"^```.*?^```$|<!--.*?-->|`[^`\n]+`|\]\([^)]*\)", "", page.text, flags=re.DOTALL | re.MULTILINE)
    return " ".join(text.split())


@pytest.mark.parametrize(
    "page", [page for page in readme.PAGES if page.file != GLOSSARY.file], ids=lambda page: page.name
)
def test_a_page_uses_the_terms_of_the_glossary(page: readme.Page) -> None:
    known = avoided()
    assert len(known) >= 20
    said = [word for word in known if re.search(rf"\b{re.escape(word)}\b", prose(page), re.IGNORECASE)]
    assert {word: f"say {known[word]}" for word in said} == {}


@pytest.mark.lab
@pytest.mark.parametrize("page", readme.PAGES, ids=lambda page: page.name)
def test_the_tables_of_a_page_are_those_of_the_committed_results(page: readme.Page) -> None:
    assert page.with_tables() == page.text, "python -m tests.helpers.readme writes them"


def test_every_table_of_results_is_on_a_page() -> None:
    shown = [name for page in readme.PAGES for name in re.findall(r"<!-- table: (\S+) -->", page.text)]
    assert set(shown) == set(readme.TABLES)


@pytest.mark.skipif(
    f"matplotlib=={version('matplotlib')}" not in PINNED.read_text(encoding="utf-8").split(),
    reason="another version of matplotlib writes other SVG",
)
def test_the_images_of_pages_are_drawn_from_the_committed_results() -> None:
    for file, text in readme.draw_images().items():
        assert file.read_text(encoding="utf-8") == text, "python -m tests.helpers.readme draws it"


@pytest.mark.parametrize("image", sorted((readme.DOCS / "images").glob("*.png")), ids=lambda file: file.stem)
def test_an_image_of_a_page_is_that_of_the_leaderboard(image: Path) -> None:
    (origin,) = (file for file in readme.LEADERBOARD.rglob(image.name) if "site" not in file.parts)  # what was built
    same = image.read_bytes() == origin.read_bytes()  # by itself: pytest would compare two images line by line
    assert same, f"copy it from {origin.relative_to(readme.LEADERBOARD)}"


def test_the_readme_says_how_far_the_order_of_learners_holds_on_data_that_no_rule_was_chosen_on() -> None:
    assert unseen_data.describe_order_comparison(readme.compared_orders()) in readme.README.text
    origins = [item.cls.rule_origin for item in registry.load().components["learner"].values()]
    assert not re.search("GTSRB|traffic|ODIR|fundus|PatchCamelyon|PCAM|CIFAR-100", "; ".join(origins))


def test_every_board_that_was_run_has_our_learners_by_the_code_as_it_stands() -> None:
    filled = [standing for standing in readme.index().standings if standing.entries]
    tails = [standing for standing in filled if "-tail-" in standing.board.name]
    families = {re.sub(r"-eps[\d.]+$", "", standing.board.name) for standing in filled if standing not in tails}
    assert families == {*board_tables.FAMILIES, *WITHOUT_LATEST}
    for standing in filled:
        family = re.sub(r"-eps[\d.]+$", "", standing.board.name)
        ran = {entry.learner for entry in standing.entries if entry.selection == "default"}
        if standing in tails:
            assert ran - {"public-only"} == TAILS
            assert {(entry.challenge is None, entry.seeds) for entry in standing.entries} <= {(True, 3), (False, 5)}
            assert len(standing.entries) >= 4, standing.board.name
            continue
        every = DEFAULTS if family in WITHOUT_LATEST else DEFAULTS | LATEST
        every = every - {"non-private"} if family in WITHOUT_CEILING else every
        assert every <= ran <= DEFAULTS | LATEST | {"gep"}, standing.board.name
        assert {entry.mechanism for entry in standing.entries if entry.role == "entry"} == {MECHANISM}
        assert {entry.seeds for entry in standing.entries} == {5}


def test_boards_of_tails_show_the_frozen_learners_of_their_figure() -> None:
    made = [Result.read(file) for file in list_records(readme.FIGURES / "tails")]
    boards = [standing.board for standing in readme.index().standings if "-tail-" in standing.board.name]
    assert len(boards) == 5
    for board in boards:
        for figure in board.published:
            (score,) = {
                f"{result.metrics[board.metric].mean:.4f}"
                for result in made
                if (result.spec.learner.name, result.spec.dataset.name) == (figure.learner, board.dataset.name)
                and not result.spec.extractor.options.get("layer")
                and (result.spec.epsilon == board.epsilon or figure.learner == "public-only")
            }
            assert f"{figure.value:.4f}" == score, (board.name, figure.learner)


DEFAULTS = {
    "adadps", "class-means", "dp-raft", "dp-sgd", "jl", "least-squares", "non-private", "pillar", "prototypes",
    "public-only", "public-prior", "thrift", "whitened",
}  # fmt: skip
LATEST = {"dp-newton", "public-origin"}
WITHOUT_LATEST = {
    "cifar10-lite0", "cifar10-lite012", "cifar10-patches-randp", "cifar10-randp",
    "fashion-mnist-lite0-128", "gtsrb-image-lite0-128",
}  # fmt: skip
TAILS = {"dp-finetune", "public-tail", "self-tail"}
WITHOUT_CEILING = {  # with 20 and 43 classes, and with 3,840 features, non-private takes hours
    "cifar100-coarse-lite0-128", "cifar10-lite012", "gtsrb-image-lite0-128", "gtsrb-track-lite0-128",
}  # fmt: skip


@pytest.mark.quick(6)
@pytest.mark.parametrize("figure", sorted(folder.name for folder in readme.FIGURES.iterdir()))
def test_a_committed_figure_is_drawn_from_all_cells_of_its_sweep(figure: str) -> None:
    folder = readme.FIGURES / figure
    grid = read_grid(ready_made_sweeps.find_sweep_file(Path(figure)), registry.load())
    results = {file.name: Result.read(file) for file in list_records(folder)}
    if any(
        result.privacy.uses_current_mechanism for result in results.values()
    ):  # by the code before, defaults were others
        assert all(results.keys() & cell.file_names for cell in grid.cells)
    assert len(results) == len(grid.cells)
    assert 10_000 < (folder / f"{figure}.png").stat().st_size < 200_000


def test_every_name_of_the_contract_can_be_imported() -> None:
    for name in dpbench.__all__:
        assert getattr(dpbench, name)


def test_the_documented_sweep_is_a_grid_of_24_cells() -> None:
    sweep = readme.Page(readme.DOCS / "how-to" / "sweep.md")
    (text,) = (block for block in sweep.blocks("toml") if "[grid]" in block)
    grid = read_grid(tomllib.loads(text), registry.load())
    assert (grid.name, len(grid.cells), grid.duplicates) == ("k-on-digits", 24, 0)
