"""A plugin can be deleted with its entry point: `dpbench list` loses its names, and nothing else breaks."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import dpbench

ROOT = Path(dpbench.__file__).parent.parent
ENTRIES: dict[str, str] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "entry-points"
]["dpbench"]
QUICK = {"thrift", "networks", "huggingface"}  # what others import from stood in these
IGNORED = shutil.ignore_patterns("__pycache__", "*.safetensors", "docs", "static")
KINDS = ("datasets", "extractors", "learners")
Names = set[tuple[str, str]]


@dataclass(frozen=True)
class Copy:
    """A copy of this tree, installed by a folder of metadata alone."""

    folder: Path

    def install(self, entries: dict[str, str]) -> None:
        """Write metadata with these entry points."""
        info = self.folder / "dpbench_vision-1.dist-info"
        info.mkdir(exist_ok=True)
        lines = ["[dpbench]", *(f"{name} = {module}" for name, module in entries.items())]
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: dpbench-vision\nVersion: 1\n", encoding="utf-8")
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

    def list(self) -> dict[str, Any]:
        """Return what `dpbench list --json` prints here."""
        code = "import sys, dpbench; sys.argv = ['dpbench', 'list', '--json']; from dpbench.cli import main; main()"
        paths = {"PYTHONPATH": os.pathsep.join([str(self.folder), str(self.folder / "plugins")])}
        done = subprocess.run(
            [sys.executable, "-P", "-c", code], env={**os.environ, **paths}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    def files(self, module: str) -> Path:
        """Return the module's file, or the folder of a package."""
        place = self.folder.joinpath("plugins", *module.split("."))
        return place if place.is_dir() else place.with_suffix(".py")


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Copy:
    folder = tmp_path_factory.mktemp("tree")
    for name in ("dpbench", "plugins"):
        shutil.copytree(ROOT / name, folder / name, ignore=IGNORED)
    return Copy(folder)


@pytest.fixture(scope="module")
def whole(copy: Copy) -> dict[str, Any]:
    copy.install(ENTRIES)
    return copy.list()


@pytest.fixture
def deleted(copy: Copy, plugin: str, tmp_path: Path) -> Iterator[None]:
    """The plugin is gone, while this lasts."""
    file = copy.files(ENTRIES[plugin])
    copy.install({name: module for name, module in ENTRIES.items() if name != plugin})
    shutil.move(file, tmp_path / file.name)
    yield
    shutil.move(tmp_path / file.name, file)


def names(listed: dict[str, Any], plugin: str | None = None) -> Names:
    return {(kind, item["name"]) for kind in KINDS for item in listed[kind] if plugin in {None, item["plugin"]}}


def test_a_copy_lists_what_this_tree_registers(whole: dict[str, Any], copy: Copy) -> None:
    assert {item["plugin"] for kind in KINDS for item in whole[kind]} == {*ENTRIES}
    assert {item["version"] for kind in KINDS for item in whole[kind]} == {"1"}  # of the copy
    assert whole["broken"] == []


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "plugin", [pytest.param(name, marks=[pytest.mark.long] * (name not in QUICK)) for name in sorted(ENTRIES)]
)
def test_a_plugin_that_is_deleted_takes_its_own_names_alone(
    plugin: str, deleted: None, whole: dict[str, Any], copy: Copy
) -> None:
    left = copy.list()
    own = names(whole, plugin)
    assert own and names(left) == names(whole) - own
    assert (left["broken"], left["clashes"]) == ([], [])
    print(f"without {plugin}: {', '.join(sorted(name for _, name in own))} gone, {len(names(left))} left")


@pytest.mark.slow
def test_a_plugin_that_is_deleted_without_its_entry_point_is_named_as_broken(copy: Copy, whole: dict[str, Any]) -> None:
    copy.install({**ENTRIES, "absent": "dpbench_plugins.absent"})
    listed = copy.list()
    assert names(listed) == names(whole)
    assert [item["plugin"] for item in listed["broken"]] == ["absent"], listed["broken"]
