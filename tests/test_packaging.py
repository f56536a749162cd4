"""Installed as a stranger would: a plugin from its own project, and the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import dpbench
from dpbench import scaffold
from dpbench.records.result import Result
from dpbench.testing.checking import SUITES
from tests.conftest import built_once
from tests.helpers import readme

TEMPLATES = Path(scaffold.__file__).parent / "templates"
MAIN = ("-c", "from dpbench.cli import main; main()")
# Several commands, each one argument, in one process: importing torch is most of what a command costs.
COMMANDS = """
import sys
from dpbench.cli import main
for command in sys.argv[1:]:
    try:
        main(command.split())
    except SystemExit as ended:
        if ended.code:
            raise
"""
OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation")


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a fresh environment that sees this one's packages, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder)
    inherited = [path for path in sys.path if "site-packages" in path]
    (_site(folder) / "inherited.pth").write_text(
        "\n".join([*inherited, str(readme.ROOT), str(readme.ROOT / "plugins")]), encoding="utf-8"
    )
    return folder / "bin" / "python"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the wheel of this tree."""
    command = (sys.executable, "-m", "pip", "wheel", "-q", *OFFLINE, readme.ROOT, "-w")
    folder = built_once(tmp_path_factory, "wheel", lambda folder: _run(*command, folder))
    (built,) = folder.glob("dpbench_vision-*.whl")
    return built


def _site(environment: Path) -> Path:
    (site,) = environment.glob("lib/python*/site-packages")
    return site


def _run(*command: str | Path, cwd: Path | None = None, **environment: str) -> str:
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


def _result(folder: Path) -> Result:
    (file,) = (folder / "dpbench-results").glob("*.json")
    return Result.read(file)


def _install(python: Path, *what: str | Path, cwd: Path) -> None:
    _run(sys.executable, "-m", "pip", "--python", python, "install", "-q", *OFFLINE, *what, cwd=cwd)


@pytest.mark.long
def test_the_readmes_plugin_is_installed_listed_checked_and_run(fresh: Path, tmp_path: Path) -> None:
    project = tmp_path / "dpbench-class-sums"
    project.mkdir()
    for name in ("pyproject.toml", "dpbench_class_sums.py"):
        (project / name).write_text(readme.file_named(name), encoding="utf-8")
    assert len((project / "dpbench_class_sums.py").read_text(encoding="utf-8").splitlines()) < 80

    _install(fresh, project, cwd=tmp_path)

    listed = json.loads(_run(fresh, *MAIN, "list", "learners", "--json"))
    assert {"class-sums", "pillar", "dp-sgd"} <= {learner["name"] for learner in listed["learners"]}
    assert listed["broken"] == []
    run = "run --learner class-sums --dataset digits"
    checked = _run(fresh, "-c", COMMANDS, "check class-sums", run, cwd=tmp_path)
    assert checked.count("holds ") == len(SUITES["learner"].laws())
    assert "broken" not in checked
    result = _result(tmp_path)
    assert result.components["learner"].distribution == "dpbench-class-sums"
    assert result.metrics["accuracy"].mean > 0.7


def test_a_plugin_of_the_scaffold_is_installed_checked_and_run_as_the_command_says(fresh: Path, tmp_path: Path) -> None:
    said = _run(fresh, *MAIN, "plugin", "new", "mymethod", cwd=tmp_path)
    assert "pip install -e ./dpbench-mymethod" in said
    where = (fresh, "-c", "import dpbench_mymethod; print(dpbench_mymethod.__file__)")
    _install(fresh, "-e", "./dpbench-mymethod", cwd=tmp_path)
    assert Path(_run(*where).strip()) == tmp_path / "dpbench-mymethod" / "dpbench_mymethod.py"
    _install(fresh, "./dpbench-mymethod", cwd=tmp_path)
    assert Path(_run(*where).strip()) == _site(fresh.parent.parent) / "dpbench_mymethod.py"

    run = "run --board digits-eps1 --learner mymethod"
    checked = _run(fresh, "-c", COMMANDS, "check mymethod", run, cwd=tmp_path)
    assert checked.count("holds ") == len(SUITES["learner"].laws())
    result = _result(tmp_path)
    assert result.components["learner"].distribution == "dpbench-mymethod"
    assert result.metrics["accuracy"].mean > 0.8


@pytest.mark.lab
def test_the_wheel_brings_the_plugins_and_works(wheel: Path, tmp_path: Path) -> None:
    content = tmp_path / "content"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(content)
    plugins = readme.ROOT / "plugins"
    modules = {str(file.relative_to(plugins)) for file in plugins.rglob("*.py")}
    assert len(modules) > 30 and modules <= names
    assert not {name.partition("/")[0] for name in names} & {"tests", "leaderboard", ".ci"}
    boards = {f"dpbench/boards/{file.name}" for file in (readme.LEADERBOARD / "boards").glob("*.toml")}
    figures = {"dpbench_lab/figures/published.json", "dpbench/sweep/ready_made/pillar-figure-4.toml"}
    assert {"dpbench/py.typed", *figures} <= names
    written = [file for file in readme.DOCS.rglob("*") if file.suffix in {".md", ".ipynb", ".svg", ".html", ".css"}]
    assert len(written) > 30
    assert {f"dpbench/docs/{file.relative_to(readme.DOCS)}" for file in written} <= names
    templates = {f"dpbench/scaffold/templates/{file.name}" for file in TEMPLATES.iterdir()}
    assert len(templates) == 7
    assert templates <= names
    assert boards and boards <= names
    papers = {f"dpbench_lab/claims/papers/{file.name}" for file in (readme.LEADERBOARD / "claims").iterdir()}
    assert len(papers) > 40 and papers <= names
    assert "dpbench_plugins/networks/randp-wrn16-4.safetensors" in names

    code = "import dpbench, sys; print(dpbench.__file__, file=sys.stderr); from dpbench.cli import main; main()"
    listed = json.loads(_run(sys.executable, "-P", "-c", code, "list", "--json", PYTHONPATH=str(content)))
    assert {learner["name"] for learner in listed["learners"]} >= {"pillar", "dp-sgd"}
    assert listed["broken"] == []
    code = "import dpbench_plugins.learners.pillar as p; print(p.__file__)"
    where = _run(sys.executable, "-P", "-c", code, PYTHONPATH=str(content))
    assert where.startswith(str(content))
    asked = ("run", "--board", "digits-eps1", "--learner", "class-means", "--json")
    run = (sys.executable, "-P", *MAIN, *asked)
    result = json.loads(_run(*run, "--out", str(tmp_path / "out"), PYTHONPATH=str(content)))
    assert result["spec"]["epsilon"] == 1.0
    assert result["provenance"]["commit"] is None


def test_the_licence_the_version_and_the_citation_agree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as files:
        (text,) = (files.read(name).decode() for name in files.namelist() if name.endswith("/LICENSE"))
        (facts,) = (files.read(name).decode() for name in files.namelist() if name.endswith(".dist-info/METADATA"))
    assert "Apache License" in text and "Version 2.0, January 2004" in text
    cited = dict(line.split(": ", 1) for line in (readme.ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
                 if line[0] not in " -" and ": " in line)  # fmt: skip
    assert f"\nVersion: {cited['version']}\n" in facts
    assert dpbench.__version__ == cited["version"]
    assert f"\nLicense-Expression: {cited['license']}\n" in facts
