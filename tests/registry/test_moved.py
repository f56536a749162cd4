"""Plugins of before version 0.3: those that keep to the contract work as they are, others are told what moved."""

from __future__ import annotations

import importlib
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

from dpbench.cli import main
from dpbench.registry import load
from dpbench.registry.moved import MOVED_MODULES
from dpbench.testing.checking import SUITES, check_laws

SCAFFOLDS = Path(__file__).parent / "scaffold_0_2"
"""What `dpbench plugin new` of version 0.2 wrote, each file with `.txt` after its name."""
KINDS = ("dataset", "extractor", "learner")


def install(folder: Path, distribution: str, entry_point: str, module: str) -> None:
    """Write the metadata that an installation would leave in `folder`."""
    info = folder / f"{distribution.replace('-', '_')}-0.1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 0.1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(f"[dpbench]\n{entry_point} = {module}\n", encoding="utf-8")


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_plugin_scaffolded_by_version_0_2_is_found_and_keeps_its_laws(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = SCAFFOLDS / f"dpbench-old-{kind}"
    for file in source.rglob("*.py.txt"):
        (tmp_path / file.stem).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    project = tomllib.loads((source / "pyproject.toml.txt").read_text(encoding="utf-8"))["project"]
    ((name, module),) = project["entry-points"]["dpbench"].items()
    install(tmp_path, project["name"], name, module)
    monkeypatch.syspath_prepend(tmp_path)
    plugins = load()
    assert plugins.broken == ()
    assert plugins.components[kind][name].distribution == project["name"]  # type: ignore[index]
    kept = list(check_laws(plugins, name))
    assert len(kept) >= len(SUITES[kind].laws()) and {law.complaint for law in kept} == {None}  # type: ignore[index]
    laws = importlib.import_module(f"test_{module}").TestLaws
    assert issubclass(laws, SUITES[kind])  # type: ignore[index]


@pytest.mark.parametrize(
    ("code", "old", "new"),
    [
        ("from dpbench.museum.tour import find", "dpbench.museum", "dpbench_lab.museum"),
        ("import dpbench.studies.explain.ladder", "dpbench.studies", "dpbench_lab and dpbench.analysis"),
        ("from dpbench.harness.shared import SharedWork", "dpbench.harness.shared", "dpbench.harness.memo"),
        ("from dpbench.cli import explain", "dpbench.cli.explain", "dpbench_lab.explain.command"),
        ("from dpbench.records.museum import read", "dpbench.records.museum", "dpbench_lab.museum.record"),
    ],
)
def test_a_plugin_that_imports_a_moved_module_is_listed_as_broken_with_the_new_place(
    code: str, old: str, new: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dpbench_reaches_in.py").write_text(f"{code}\n", encoding="utf-8")
    install(tmp_path, "dpbench-reaches-in", "reaches-in", "dpbench_reaches_in")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "dpbench_reaches_in", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["list", "learners"])
    shown = capsys.readouterr()
    assert not ended.value.code and "Traceback" not in shown.out + shown.err
    said = " ".join(shown.out.split())
    assert (
        f"'reaches-in' of distribution 'dpbench-reaches-in' is left out: it imports {old}, which moved to {new} "
        in said
    )
    assert "pillar" in said


@pytest.mark.lab
def test_every_new_place_exists_and_no_old_one_does() -> None:
    for old, new in MOVED_MODULES.items():
        assert all(find_spec(place) for place in new.split(" and ")), new
        parent = old.rpartition(".")[0]
        assert find_spec(parent) is not None and find_spec(old) is None, old
