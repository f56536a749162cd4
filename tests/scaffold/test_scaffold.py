"""`dpbench plugin new`: what it writes installs, keeps every law and is clean; what it must not write is refused."""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import IO

import pytest

from dpbench import errors, registry, scaffold
from dpbench.registry import KINDS, ComponentKind
from dpbench.support.files import write_atomically
from dpbench.testing.checking import SUITES
from tests.helpers import readme
from tests.helpers.commands import call

Output = pytest.CaptureFixture[str]
LONG = "a" * scaffold.MAX_LENGTH
NAMES = ["a", "my-method", "k-2", LONG, "-".join("b" * (scaffold.MAX_LENGTH // 2))]

UNTESTED = {"dataset": 2, "extractor": 0, "learner": 0}  # laws: of data that come with a package, no copy is made


def refusal(capsys: Output, out: Path, *arguments: str) -> str:
    """Return the one sentence with which the command is refused; nothing is written then."""
    before = sorted(out.rglob("*"))
    assert call("plugin", "new", *arguments, "--out", out) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert sorted(out.rglob("*")) == before
    return captured.err


def begun(kind: ComponentKind, name: str, folder: Path) -> Path:
    return scaffold.create_package(name, kind, folder, registry.load())


def run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=cwd,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "name",
    ["", "Mine", "my_method", "2fast", "-mine", "mine-", "my--method", "mé", "my.method", "a/b", "../mine", LONG + "a"],
)
def test_a_malformed_name_is_refused_before_anything_is_written(name: str, tmp_path: Path) -> None:
    with pytest.raises(errors.SpecError, match="lower-case letters, digits and single dashes"):
        begun("learner", name, tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pillar", "plugin 'pillar' of distribution 'dpbench-vision' provides the learner 'pillar'"),
        (
            "resnet50",
            "plugin 'torchvision-models' of distribution 'dpbench-vision' provides the extractor 'resnet50'",
        ),
        ("sklearn", "plugin 'sklearn' of distribution 'dpbench-vision' already exists"),
        ("vision", "it would replace the installed distribution 'dpbench-vision'"),
        ("plugins", "it would shadow the module dpbench_plugins in"),
        ("My_Method", "'My_Method' to be lower-case letters"),
        ("concat", "dpbench keeps it for extractors that are joined"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_name_that_is_somebodys_is_refused_and_says_whose(
    capsys: Output, tmp_path: Path, name: str, said: str, kind: ComponentKind
) -> None:
    assert said in refusal(capsys, tmp_path, name, "--kind", kind)


@pytest.mark.parametrize(
    ("kind", "name", "hidden"),
    [
        ("learner", "rank-one", "RankOne"),
        ("learner", "learner-laws", "LearnerLaws"),
        ("extractor", "tensor", "Tensor"),
        ("dataset", "records", "Records"),
        ("dataset", "none", "None"),
        ("learner", "exception", "Exception"),
        ("learner", "test-laws", "TestLaws"),
    ],
)
def test_a_class_that_would_hide_a_name_of_its_module_is_refused(
    capsys: Output, tmp_path: Path, kind: ComponentKind, name: str, hidden: str
) -> None:
    assert f"its class {hidden} would shadow" in refusal(capsys, tmp_path, name, "--kind", kind)


@pytest.mark.parametrize("there", ["file", "folder", "link"])
def test_nothing_is_overwritten(capsys: Output, tmp_path: Path, there: str) -> None:
    place = tmp_path / "dpbench-mine"
    if there == "file":
        place.write_text("mine")
    elif there == "folder":
        place.mkdir()
    else:
        place.symlink_to(tmp_path / "nowhere")
    assert f"Expected a new folder, got {place}, which exists" in refusal(capsys, tmp_path, "mine")


def test_a_place_that_cannot_be_written_is_refused(capsys: Output) -> None:
    assert call("plugin", "new", "mine", "--out", "/dev/null/x") == 1
    assert capsys.readouterr().err.startswith("dpbench: Cannot write /dev/null/x/dpbench-mine")


def test_what_fails_halfway_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[Path] = []

    def full(path: Path, write: Callable[[IO[bytes]], object]) -> None:
        if written:
            raise errors.OutputError("no space left")
        written.append(path)
        write_atomically(path, write)

    monkeypatch.setattr(scaffold, "write_atomically", full)
    with pytest.raises(errors.OutputError, match="no space left"):
        begun("learner", "mine", tmp_path)
    assert [path.name for path in written] == ["pyproject.toml"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_written_and_what_to_type_next_are_said(
    capsys: Output, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: ComponentKind
) -> None:
    monkeypatch.chdir(tmp_path)
    assert call("plugin", "new", "mine", "--kind", kind) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "Wrote dpbench-mine. Next:"
    assert said[2:4] == ["  pip install -e ./dpbench-mine", "  dpbench check mine"]
    assert said[4].startswith("  dpbench run --learner ")
    assert "mine" in said[4]
    assert sorted(str(file.relative_to(tmp_path)) for file in tmp_path.rglob("*") if file.is_file()) == [
        "dpbench-mine/.gitignore",
        "dpbench-mine/README.md",
        "dpbench-mine/dpbench_mine.py",
        "dpbench-mine/pyproject.toml",
        "dpbench-mine/tests/test_dpbench_mine.py",
    ]


def test_a_folder_with_a_space_is_quoted() -> None:
    command, *_ = scaffold.list_next_commands(Path("my work/dpbench-mine"), "mine", "learner")
    assert command == "pip install -e 'my work/dpbench-mine'"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_every_module_compiles_and_is_short_and_names_are_filled_in(kind: ComponentKind, name: str) -> None:
    files = scaffold.render_package(name, kind)
    for path, text in files.items():
        assert "{{" not in text
        assert "{%" not in text
        assert text.endswith("\n")
        assert not text.endswith("\n\n")
        if path.endswith(".py"):
            ast.parse(text)
            assert len(text.splitlines()) <= 80
            assert max(map(len, text.splitlines())) <= 120
    project = tomllib.loads(files["pyproject.toml"])["project"]
    assert project["name"] == f"dpbench-{name}"
    assert project["entry-points"]["dpbench"] == {name: f"dpbench_{name.replace('-', '_')}"}
    assert "license" not in project
    assert "authors" not in project


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_the_package_is_clean_by_its_own_rules_and_by_ours(kind: ComponentKind, name: str, tmp_path: Path) -> None:
    ruff = shutil.which("ruff", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    if ruff is None:
        pytest.skip("ruff is not installed: it comes with the extra `dev`")
    folder = begun(kind, name, tmp_path)
    lint = tomllib.loads((readme.ROOT / "pyproject.toml").read_text())["tool"]["ruff"]["lint"]
    run(ruff, "check", "--no-cache", ".", cwd=folder)
    run(ruff, "format", "--no-cache", "--check", ".", cwd=folder)
    ours = ("--select", ",".join(lint["select"]), "--ignore", ",".join(lint["ignore"]))
    run(ruff, "check", "--no-cache", *ours, ".", cwd=folder)


def _visible(folder: Path, name: str, module: str) -> None:
    """Give the written module the entry point that installing would."""
    info = folder / f"{module}-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: dpbench-{name}\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text(f"[dpbench]\n{name} = {module}\n")


@pytest.mark.quick("dataset", "extractor")
@pytest.mark.parametrize("kind", KINDS)
def test_a_registered_plugin_keeps_every_law_as_it_was_written(
    kind: ComponentKind, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = f"begun-{kind}"
    folder = begun(kind, name, tmp_path)
    _visible(folder, name, f"dpbench_begun_{kind}")
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("COLUMNS", "200")
    assert registry.load().find(kind, name).distribution == f"dpbench-{name}"
    assert call("check", name) == 0
    shown = capsys.readouterr().out
    assert shown.count("not tested ") == UNTESTED[kind]
    assert shown.count("holds ") == len(SUITES[kind].laws()) - UNTESTED[kind]
    assert "broken" not in shown


OWN_TESTS = """
import os, sys, pytest
for folder in sys.argv[1:]:
    os.chdir(folder)
    if status := pytest.main(["-q", "-p", "no:cacheprovider"]):
        sys.exit(status)
"""


@pytest.mark.long
def test_the_packages_own_tests_pass_as_they_were_written(tmp_path: Path) -> None:
    folders = [begun(kind, f"own-{kind}", tmp_path) for kind in KINDS]
    said = run(sys.executable, "-c", OWN_TESTS, *folders)
    tested = [len(SUITES[kind].laws()) - UNTESTED[kind] for kind in KINDS]
    assert [int(count) for count in re.findall(r"(\d+) passed", said)] == tested


def test_a_learners_search_space_names_its_fields(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = begun("learner", "searched", tmp_path)
    _visible(folder, "searched", "dpbench_searched")
    monkeypatch.syspath_prepend(folder)
    plugins = registry.load()
    space = plugins.find("learner", "searched").cls.search_space
    assert space
    for field, values in space.items():
        for value in values:
            assert getattr(plugins.build("learner", "searched", {field: value}), field) == value


def test_the_templates_ask_for_the_distribution_that_this_is() -> None:
    (depends,) = tomllib.loads(scaffold.render_package("mine", "learner")["pyproject.toml"])["project"]["dependencies"]
    assert depends == tomllib.loads((readme.ROOT / "pyproject.toml").read_text())["project"]["name"]
