"""What was made by other code than is installed is not taken for new."""

from __future__ import annotations

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from dpbench.data.concat import Concat
from dpbench.records.result import Result
from dpbench.registry import load
from dpbench.support import code
from dpbench.support.code import code_digest
from tests.helpers.commands import call

CELLS = """
name = "cells"
[fixed]
dataset = "digits"
seeds = 1
[grid]
learner = ["class-means:k=5"]
epsilon = [0.5, 1.0]
"""


class Here:
    """A class of this file."""


def module(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> type:
    """Return the class of a plugin written to `folder`."""
    monkeypatch.syspath_prepend(folder)
    code._module_digest.cache_clear()
    sys.modules.pop(name, None)
    found = __import__(name).Plugin
    assert isinstance(found, type)
    return found


def test_a_digest_follows_every_file_of_a_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "a_plugin"
    package.mkdir()
    (package / "__init__.py").write_text("class Plugin: ...\n", encoding="utf-8")
    (package / "part.py").write_text("x = 1\n", encoding="utf-8")
    first = code_digest(module(tmp_path, "a_plugin", monkeypatch))
    assert first is not None and len(first) == 16
    assert code_digest(module(tmp_path, "a_plugin", monkeypatch)) == first
    (package / "part.py").write_text("x = 2\n", encoding="utf-8")
    assert code_digest(module(tmp_path, "a_plugin", monkeypatch)) != first


def test_a_digest_follows_the_component_that_another_inherits_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a_base.py").write_text("from dpbench import Extractor\nclass Plugin(Extractor): ...\n", "utf-8")
    (tmp_path / "a_plugin.py").write_text("import a_base\nclass Plugin(a_base.Plugin): ...\n", "utf-8")
    module(tmp_path, "a_base", monkeypatch)
    first = code_digest(module(tmp_path, "a_plugin", monkeypatch))
    (tmp_path / "a_base.py").write_text("from dpbench import Extractor\nclass Plugin(Extractor): x = 1\n", "utf-8")
    module(tmp_path, "a_base", monkeypatch)
    changed = code_digest(module(tmp_path, "a_plugin", monkeypatch))
    assert first is not None and changed is not None and first != changed


def write_package(folder: Path, files: dict[str, str]) -> Path:
    """Write modules of a package `a_package` with a plugin `a_package.plugin`, and return the plugin's file."""
    package = folder / "a_package"
    for name, text in {"__init__.py": "", **files}.items():
        (package / name).parent.mkdir(parents=True, exist_ok=True)
        (package / name).write_text(text, encoding="utf-8")
    return package / "plugin.py"


IMPORTS = {
    "at the top": "import a_package.shared\n",
    "by name": "from a_package import shared\n",
    "of what is in it": "from a_package.shared import x\n",
    "relative": "from .shared import x\n",
    "in a function": "def late():\n    from a_package.shared import x\n",
    "by its text": "from importlib import import_module\nimport_module('a_package.shared')\n",
    "by another module": "from a_package import between\n",
}


@pytest.mark.parametrize("way", IMPORTS)
def test_an_import_of_its_own_distribution_counts(way: str, tmp_path: Path) -> None:
    files = {"plugin.py": IMPORTS[way], "shared.py": "x = 1\n", "between.py": "import a_package.shared\n"}
    found = code.find_same_distribution_imports("a_package.plugin", write_package(tmp_path, files))
    assert "a_package.shared" in found
    assert ("a_package.between" in found) == (way == "by another module")


def test_an_import_of_dpbench_or_of_another_distribution_does_not_count(tmp_path: Path) -> None:
    site = tmp_path / "site-packages"
    (site / "other").mkdir(parents=True)
    (site / "other" / "__init__.py").write_text("x = 1\n", encoding="utf-8")
    plugin = write_package(site, {"plugin.py": "import numpy\nimport dpbench.api\nimport other\n"})
    assert code.find_same_distribution_imports("a_package.plugin", plugin) == {}


def test_what_a_plugin_imports_changes_its_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    digests = []
    for text in ("x = 1\n", "x = 1\n", "x = 2\n"):
        write_package(tmp_path, {"plugin.py": "import a_package.shared\nclass Plugin: ...\n", "shared.py": text})
        for cached in (code._module_digest, code._shared_modules_digest, code._list_source_imports):
            cached.cache_clear()
        for name in ("a_package", "a_package.plugin", "a_package.shared"):
            sys.modules.pop(name, None)
        digests.append(code_digest(import_module("a_package.plugin").Plugin))
    assert digests[0] == digests[1] != digests[2] and None not in digests


USERS = ("least-squares", "prototypes", "public-prior", "thrift", "dp-finetune")


@pytest.mark.parametrize("learner", USERS)
def test_the_digest_of_a_learner_covers_the_spectrum_that_it_shares(learner: str) -> None:
    module = code.find_plugin_module(load().find("learner", learner).cls.__module__)
    assert "dpbench_plugins.learners.spectrum" in code.find_same_distribution_imports(
        module, Path(str(sys.modules[module].__file__))
    )


def test_digests_of_all_plugins_need_no_torch() -> None:
    program = (
        "import sys; from dpbench.registry import load; from dpbench.support.code import code_digest\n"
        "found = [code_digest(item.cls) for items in load().components.values() for item in items.values()]\n"
        "sys.exit(None in found or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_class_without_files_and_dpbench_itself_have_none() -> None:
    assert code_digest(Here) is not None
    assert code_digest(type("Typed", (), {"__module__": "__main__nowhere"})) is None
    assert code_digest(Concat) is None


@pytest.fixture
def swept(tmp_path: Path) -> list[str]:
    """Return the arguments of a sweep that has run once."""
    file = tmp_path / "cells.toml"
    file.write_text(CELLS, encoding="utf-8")
    arguments = ["sweep", str(file), "--out", str(tmp_path / "out"), "--workers", "1"]
    assert call(*arguments) == 0
    return arguments


def edited(folder: Path) -> None:
    """Let the results say that they were made by other code, as if the plugin had been edited since."""
    for file in folder.glob("*.json"):
        result = Result.read(file)
        made = {**result.provenance, "code": {**result.provenance["code"], "learner": "0" * 16}}
        result.model_copy(update={"provenance": made}).with_evidence_digest().write(folder)


@pytest.mark.long
def test_cells_that_other_code_ran_are_said_and_run_again_on_request(
    swept: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edited(tmp_path / "out")
    capsys.readouterr()
    assert call(*swept) == 0
    assert (
        "2 of the finished cells were run by another version of the code; --refresh re-runs" in capsys.readouterr().out
    )
    assert call(*swept, "--dry-run") == 0
    assert "2 other code" in capsys.readouterr().out
    assert call(*swept, "--refresh") == 0
    assert "2 cells run, 0 done before" in capsys.readouterr().out
    assert call(*swept) == 0
    assert "0 cells run, 2 done before" in capsys.readouterr().out


@pytest.mark.slow
def test_a_run_says_what_it_replaces(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["run", "--learner", "class-means:k=5", "--seeds", "1", "--out", str(tmp_path)]
    assert call(*arguments) == 0
    assert "(replaced" not in capsys.readouterr().out
    assert call(*arguments) == 0
    assert "replaced a result with the same predictions" in capsys.readouterr().out.replace("\n", " ")
    (file,) = tmp_path.glob("*.json")
    result = Result.read(file)
    seeds = tuple(seed.model_copy(update={"predictions": "0" * 64}) for seed in result.seeds)
    result.model_copy(update={"seeds": seeds}).with_evidence_digest().write(tmp_path)
    assert call(*arguments) == 0
    assert "replaced other predictions, accuracy " in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_features_that_other_code_extracted_are_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "cache"))
    arguments = ["run", "--learner", "class-means:k=5", "--seeds", "1", "--out", str(tmp_path)]
    assert call(*arguments) == 0
    assert "has changed since" not in capsys.readouterr().err
    for manifest in (tmp_path / "cache" / "features").glob("*/manifest.json"):
        text = manifest.read_text(encoding="utf-8")
        manifest.write_text(text.replace('"code": "', '"code": "0'), encoding="utf-8")
    assert call(*arguments) == 0
    told = capsys.readouterr().err
    assert told.count("The code of extractor 'pixels' has changed since its features were extracted") == 2
    assert "dpbench cache clear " in told
