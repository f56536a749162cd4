"""What comes with dpbench as plugins is held to what plugins may do, and no plugin needs another."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import dpbench
from tests.helpers.plugin_layers import PluginHouse

HOUSE = PluginHouse(Path(dpbench.__file__).parent.parent)


def test_plugins_import_the_contract_and_what_they_share_but_no_other_plugin_and_in_no_circle() -> None:
    assert [*HOUSE.complaints()] == []


LEARNERS = "dpbench_plugins/learners"
PLANTS = {
    "a private module of dpbench": (
        f"{LEARNERS}/pillar.py", "def late() -> None:\n    from dpbench.privacy.curator import make_handle\n",
        "dpbench_plugins.learners.pillar imports dpbench.privacy.curator make_handle, not in dpbench.__all__"),
    "a name outside the contract": (
        f"{LEARNERS}/spectrum.py", "from dpbench import load_model\n",
        "dpbench_plugins.learners.spectrum imports dpbench load_model, not in dpbench.__all__"),
    "dpbench itself": (
        f"{LEARNERS}/pillar.py", "import dpbench\n",
        "dpbench_plugins.learners.pillar imports dpbench, not in dpbench.__all__"),
    "another plugin": (
        f"{LEARNERS}/pillar.py", "if TYPE_CHECKING:\n    from dpbench_plugins.learners.thrift import Thrift\n",
        "dpbench_plugins.learners.pillar imports dpbench_plugins.learners.thrift of plugin "
        "dpbench_plugins.learners.thrift"),
    "a part of another plugin": (
        f"{LEARNERS}/pillar.py", "import_module('dpbench_plugins.learners.networks.tail')\n",
        "dpbench_plugins.learners.pillar imports dpbench_plugins.learners.networks.tail of plugin "
        "dpbench_plugins.learners.networks"),
    "a plugin, from what plugins share": (
        f"{LEARNERS}/spectrum.py", "from dpbench_plugins.learners import thrift\n",
        "dpbench_plugins.learners.spectrum imports dpbench_plugins.learners.thrift of plugin "
        "dpbench_plugins.learners.thrift"),
    "a circle": (
        f"{LEARNERS}/spectrum.py", "def late() -> None:\n    from dpbench_plugins.learners import coordinates\n",
        "circle: dpbench_plugins.learners.spectrum -> dpbench_plugins.learners.coordinates -> "
        "dpbench_plugins.learners.spectrum"),
    "a module that is not there": (
        f"{LEARNERS}/pillar.py", "import dpbench_plugins.learners.attic\n",
        "dpbench_plugins.learners.pillar imports dpbench_plugins.learners.attic, which does not exist"),
    "the lab": (
        f"{LEARNERS}/pillar.py", "import dpbench_lab.explain\n",
        "dpbench_plugins.learners.pillar imports dpbench_lab.explain of another package"),
    "the museum, from an exhibit": (
        "dpbench_lab/museum/exhibits/memory.py", "from dpbench_lab.museum import tour\n",
        "dpbench_lab.museum.exhibits.memory imports dpbench_lab.museum.tour of another package"),
    "a private module, from an exhibit": (
        "dpbench_lab/museum/exhibits/memory.py", "from dpbench.api import Learner\n",
        "dpbench_lab.museum.exhibits.memory imports dpbench.api Learner, not in dpbench.__all__"),
    "a hook without an entry point": (
        f"{LEARNERS}/spectrum.py", "@hookimpl\ndef dpbench_learners():\n    return []\n",
        "dpbench_plugins.learners.spectrum has a hook and no entry point"),
    "an unknown package": ("attic/__init__.py", "", "attic is unknown: give it a line in PACKAGES"),
}  # fmt: skip


@pytest.mark.quick(4)
@pytest.mark.parametrize("planted", PLANTS)
def test_what_is_planted_in_a_copy_is_found(planted: str, tmp_path: Path) -> None:
    file, code, complaint = PLANTS[planted]
    shutil.copyfile(HOUSE.folder / "pyproject.toml", tmp_path / "pyproject.toml")
    for source in HOUSE.files.values():
        copy = tmp_path / source.relative_to(HOUSE.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    place = tmp_path / "plugins" / file
    place.parent.mkdir(exist_ok=True)
    with place.open("a", encoding="utf-8") as target:
        target.write(f"\n{code}")
    found = {*PluginHouse(tmp_path).complaints()}
    turned = complaint.replace("spectrum", "X").replace("coordinates", "spectrum").replace("X", "coordinates")
    assert complaint in found or (complaint.startswith("circle") and turned in found), found


def test_a_plugin_whose_file_is_gone_is_an_entry_point_too_many(tmp_path: Path) -> None:
    entry = '[project.entry-points.dpbench]\nabsent = "dpbench_plugins.absent"\n'
    (tmp_path / "pyproject.toml").write_text(entry, encoding="utf-8")
    (tmp_path / "plugins").mkdir()
    assert [*PluginHouse(tmp_path).complaints()] == ["dpbench_plugins.absent is an entry point without a hook"]
