"""Imports point one way, checked from the source; and what must be light is light."""

from __future__ import annotations

import ast
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpbench
from tests.helpers.layers import ROOT, House

HOUSE = House(Path(dpbench.__file__).parent.parent)
PLUGINS = HOUSE.folder / "plugins"
SOURCES = sorted((HOUSE.folder / ROOT).rglob("*.py"))
PLUGIN_SOURCES = sorted(PLUGINS.rglob("*.py"))
FLOORS = 13
"""From errors to the program: errors, support, privacy, records, data, registry, harness, sweep, board, site, docs,
cli, main."""


def _place(file: Path) -> str:
    return str(file.relative_to(HOUSE.folder))


def test_imports_point_down_and_in_no_circle_also_those_for_types_and_in_functions() -> None:
    assert [*HOUSE.complaints()] == []


def test_the_rooms_lie_on_few_floors() -> None:
    floors = HOUSE.floors()
    assert max(floors.values()) <= FLOORS, floors


PLANTS = {
    "the root": ("privacy/core/plan.py", "def late() -> None:\n    from dpbench import run\n",
                 "dpbench.privacy.core.plan imports dpbench, which does not lie below it"),
    "the root itself": ("records/spec.py", "import dpbench\n",
                        "dpbench.records.spec imports dpbench, which does not lie below it"),
    "a type of a room above": ("analysis/tables.py", "if TYPE_CHECKING:\n    from dpbench.board.index import Index\n",
                               "dpbench.analysis.tables imports dpbench.board.index, which does not lie below it"),
    "a ring above": ("privacy/core/plan.py", "from dpbench.privacy.purity.guard import watched\n",
                     "dpbench.privacy.core.plan imports dpbench.privacy.purity.guard, which does not lie below it"),
    "a module by its text": ("harness/fit.py", "import_module('dpbench.cli')\n",
                             "dpbench.harness.fit imports dpbench.cli, which does not lie below it"),
    "a circle of files": ("records/protocol.py", "def late() -> None:\n    from dpbench.records.spec import Spec\n",
                          "circle: dpbench.records.spec -> dpbench.records.protocol -> dpbench.records.spec"),
    "the lab": ("site/pages.py", "from dpbench_lab.pages import EXTRAS\n",
                "dpbench.site.pages imports dpbench_lab.pages, of the lab"),
    "the lab in a function": ("harness/run.py", "def late() -> None:\n    import dpbench_lab.explain.ladder\n",
                              "dpbench.harness.run imports dpbench_lab.explain.ladder, of the lab"),
    "the lab for types": ("cli/output.py", "if TYPE_CHECKING:\n    from dpbench_lab.inspect import report\n",
                          "dpbench.cli.output imports dpbench_lab.inspect, of the lab"),
    "the lab by its text": ("board/build.py", "import_module('dpbench_lab')\n",
                            "dpbench.board.build imports dpbench_lab, of the lab"),
    "an unknown package": ("attic/__init__.py", "", "attic has no place in LAYERS"),
    "an unknown package that is used": ("harness/fit.py", "import dpbench.attic\n",
                                        "dpbench.harness.fit imports dpbench.attic, which does not lie below it"),
}  # fmt: skip


@pytest.mark.quick(4)
@pytest.mark.parametrize("planted", PLANTS)
def test_what_is_planted_in_a_copy_is_found(planted: str, tmp_path: Path) -> None:
    file, code, complaint = PLANTS[planted]
    for source in SOURCES:
        copy = tmp_path / _place(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
    place = tmp_path / ROOT / file
    place.parent.mkdir(exist_ok=True)
    with place.open("a", encoding="utf-8") as target:
        target.write(f"\n{code}")
    found = {*House(tmp_path).complaints()} - {*HOUSE.complaints()}
    assert complaint in found or _turned(complaint) & found, found


def _turned(circle: str) -> set[str]:
    """Return a circle told from each of its files."""
    steps = circle.removeprefix("circle: ").split(" -> ")[:-1]
    turns = [steps[place:] + steps[:place] for place in range(len(steps))]
    return {f"circle: {' -> '.join([*turn, turn[0]])}" for turn in turns}


def test_two_rooms_that_import_each_other_are_a_circle_though_no_two_files_do(tmp_path: Path) -> None:
    for file, code in {
        "sweep/one.py": "import dpbench.board.other", "board/other.py": "", "sweep/other.py": "",
        "board/one.py": "import dpbench.sweep.other",
    }.items():  # fmt: skip
        (tmp_path / ROOT / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / ROOT / file).write_text(code, encoding="utf-8")
    found = [complaint for complaint in House(tmp_path).complaints() if complaint.startswith("circle")]
    assert {*found} <= _turned("circle: sweep -> board -> sweep") and len(found) == 1


def test_no_room_has_the_name_of_something_public_which_it_would_hide() -> None:
    assert {name.removeprefix(f"{ROOT}.") for name in HOUSE.files} & {
        *dpbench.__all__,
        *dpbench.NOTEBOOK,
        *dpbench.RECEIPTS,
    } == set()


SHARED_NAMES = {
    "Search": "`dpbench.receipts.Search` is public, and says of any loop what `[search]` says of a run",
}  # fmt: skip
"""Class names that mean two things, and why."""


def test_a_public_class_shares_its_name_with_no_other() -> None:
    found: dict[str, list[str]] = {}
    for file in SOURCES:
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.setdefault(node.name, []).append(_place(file))
    shared = {name: files for name, files in found.items() if len(files) > 1}
    assert {name: files for name, files in shared.items() if name not in SHARED_NAMES} == {}, "rename all but one"
    assert shared.keys() == SHARED_NAMES.keys(), "a name that means one thing needs no reason"


TEXT = {"read_text", "write_text"}


def test_every_text_file_is_read_and_written_as_utf_8_whatever_the_locale() -> None:
    found = []
    for file in SOURCES + PLUGIN_SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TEXT:
                named = any(keyword.arg == "encoding" for keyword in node.keywords)
                found += [] if named else [f"{_place(file)}:{node.lineno}"]
    assert found == []


# CIFAR is published as pickles: read by an unpickler that finds nothing but numpy arrays, see test_cifar100.py.
RESTRICTED = PLUGINS / "dpbench_plugins" / "datasets" / "torchvision" / "pickles.py"
PICKLES = {"pickle", "_pickle", "dill", "joblib", "cloudpickle"}


def test_nothing_loads_pickle() -> None:
    loads = [(_place(file), line) for file in SOURCES + PLUGIN_SOURCES for line in _loads_pickle(file)]
    assert [where for where in loads if where != (_place(RESTRICTED), "import pickle")] == []


def _loads_pickle(file: Path) -> Iterator[str]:
    """Yield what reads pickles in a file, or might."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import) and {alias.name for alias in node.names} & PICKLES:
            yield ast.unparse(node)
        if isinstance(node, ast.ImportFrom) and node.module in PICKLES:
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"pickle.load", "pickle.loads", "pickle.Unpickler"}:
            yield ast.unparse(node)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "np.load"}:
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            if not (keywords.get("weights_only") == "True" or keywords.get("allow_pickle") == "False"):
                yield ast.unparse(node)


@pytest.mark.parametrize("arguments", [["--help"], ["list"]], ids=" ".join)
def test_help_and_the_list_import_no_large_package(arguments: list[str]) -> None:
    code = f"""
import sys
from dpbench.main import main
try:
    main({arguments!r})
except SystemExit as ended:
    heavy = {{"torch", "pandas", "numpy", "filelock", "rich.progress"}} & set(sys.modules)
    sys.exit(f"imports {{heavy}}" if heavy or ended.code else 0)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


LIGHT = (
    "dpbench",
    "dpbench.records.result",
    "dpbench.records.spec",
    "dpbench.registry",
    "dpbench.privacy.core.accounting.accountant",
    "dpbench.audit.figures",
    "dpbench.board.index",
    "dpbench.board.build",
    "dpbench.board.add",
    "dpbench.cli.commands",
)
LIGHT_STUDIES = ("dpbench_lab.inspect.report", "dpbench_lab.commands")


IMPORTS = """
import importlib, sys
for module in sys.argv[1:]:
    importlib.import_module(module)
    if heavy := {"torch", "matplotlib"} & set(sys.modules):
        sys.exit(f"{module} imports {heavy}")
"""


def test_importing_dpbench_brings_nothing_that_takes_time() -> None:
    slow = {"numpy", "pydantic", "PIL", "rich", "typer", "importlib.metadata"}
    code = f"import dpbench, sys; print({slow} & set(sys.modules) or 'none')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("none", "")


@pytest.mark.parametrize(
    "modules", [pytest.param(LIGHT, id="harness"), pytest.param(LIGHT_STUDIES, id="lab", marks=pytest.mark.lab)]
)
def test_what_every_command_imports_brings_neither_torch_nor_matplotlib(modules: tuple[str, ...]) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS, *modules], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
