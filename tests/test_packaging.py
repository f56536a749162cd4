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

from tests import readme


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the interpreter of a fresh environment that sees this one's packages, so that nothing is downloaded."""
    folder = tmp_path_factory.mktemp("fresh")
    venv.create(folder, with_pip=True)
    (site,) = folder.glob("lib/python*/site-packages")
    inherited = [path for path in sys.path if "site-packages" in path] + [
        str(readme.ROOT),
        str(readme.ROOT / "plugins"),
    ]
    (site / "inherited.pth").write_text("\n".join(inherited))
    return folder / "bin" / "python"


def _run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        list(map(str, command)),
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_readmes_plugin_is_installed_listed_checked_and_run(fresh: Path, tmp_path: Path) -> None:
    project = tmp_path / "dpbench-class-sums"
    project.mkdir()
    for name in ("pyproject.toml", "dpbench_class_sums.py"):
        (project / name).write_text(readme.file_named(name))
    assert len((project / "dpbench_class_sums.py").read_text().splitlines()) < 80

    _run(fresh, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-build-isolation", project)
    dpbench = (fresh, "-c", "from dpbench.cli import main; main()")

    listed = json.loads(_run(*dpbench, "list", "learners", "--json"))
    assert {"class-sums", "pillar", "dp-sgd"} <= {learner["name"] for learner in listed["learners"]}
    assert listed["broken"] == []
    checked = _run(*dpbench, "check", "class-sums")
    assert checked.count("holds") == 12
    assert "broken" not in checked
    run = (*dpbench, "run", "--learner", "class-sums", "--dataset", "digits", "--out", tmp_path / "out", "--json")
    result = json.loads(_run(*run))
    assert result["components"]["learner"]["distribution"] == "dpbench-class-sums"
    assert result["metrics"]["accuracy"]["mean"] > 0.7


def test_the_wheel_brings_the_plugins_and_works(tmp_path: Path) -> None:
    _run(
        sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-index", "--no-build-isolation",
        "-w", tmp_path, readme.ROOT,
    )  # fmt: skip
    (wheel,) = tmp_path.glob("dpbench_vision-*.whl")
    content = tmp_path / "content"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        archive.extractall(content)
    assert {path.name for path in (readme.ROOT / "plugins").glob("*.py")} <= names
    assert not {name.partition("/")[0] for name in names} & {"tests", "leaderboard", ".ci"}
    boards = {f"dpbench/boards/{file.name}" for file in (readme.LEADERBOARD / "boards").glob("*.toml")}
    assert {"dpbench/py.typed", "dpbench/sweep/figures/published.json", "dpbench/sweep/figures/pillar-figure-4.toml"} <= names
    assert boards and boards <= names
    assert "dpbench_networks/randp-wrn16-4.safetensors" in names

    code = "import dpbench, sys; print(dpbench.__file__, file=sys.stderr); from dpbench.cli import main; main()"
    listed = json.loads(_run(sys.executable, "-P", "-c", code, "list", "--json", PYTHONPATH=str(content)))
    assert {learner["name"] for learner in listed["learners"]} >= {"pillar", "dp-sgd"}
    assert listed["broken"] == []
    where = _run(sys.executable, "-P", "-c", "import dpbench_pillar as p; print(p.__file__)", PYTHONPATH=str(content))
    assert where.startswith(str(content))
    asked = ("run", "--board", "digits-eps1", "--learner", "class-means", "--json")
    run = (sys.executable, "-P", "-c", "from dpbench.cli import main; main()", *asked)
    result = json.loads(_run(*run, "--out", str(tmp_path / "out"), PYTHONPATH=str(content)))
    assert result["spec"]["epsilon"] == 1.0
    assert result["provenance"]["commit"] is None
