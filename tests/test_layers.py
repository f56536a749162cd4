"""Imports point one way, checked from the source; and what must be light is light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import dpbench

ROOT = Path(dpbench.__file__).parent
PLUGINS = ROOT.parent / "plugins"

# Each layer may import what stands before it, and itself.
LAYERS = (
    {"errors"},
    {"support"},
    {"api"},
    {"hooks"},
    {"privacy"},
    {"learning", "records"},
    {"data"},
    {"registry"},
    {"harness"},
    {"audit", "explain", "inspection", "models", "sweep"},
    {"board", "reproduce"},
    {"testing"},
    {"notebook"},
    {"museum", "scaffold"},
    {"docs"},
    {"cli"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def _layer(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def _place(file: Path) -> str:
    return str(file.relative_to(ROOT.parent))


def _imports(file: Path) -> set[str]:
    """Return the dpbench modules that a file imports when it runs, type-checking imports left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "dpbench":
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpbench."):
            found.add(str(node.module).split(".")[1])
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("dpbench.")}
    return found


SOURCES = [file for file in sorted(ROOT.rglob("*.py")) if file != ROOT / "__init__.py"]
PLUGIN_SOURCES = sorted(PLUGINS.rglob("*.py"))


def test_a_module_imports_only_from_lower_layers() -> None:
    offenders = []
    for file in SOURCES:
        mine = RANK[_layer(file)]
        offenders += [(_place(file), name) for name in sorted(_imports(file)) if RANK.get(name, 0) > mine]
    assert offenders == []


def _graph() -> dict[str, set[str]]:
    """Return which modules of dpbench each imports, for its types too."""
    files = {".".join(Path(_place(file)).with_suffix("").parts).removesuffix(".__init__"): file for file in SOURCES}
    graph: dict[str, set[str]] = {name: set() for name in files}
    for name, file in files.items():
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                wanted = {f"{node.module}.{alias.name}" for alias in node.names}
                graph[name] |= {one if one in files else node.module for one in wanted} & files.keys()
            elif isinstance(node, ast.Import):
                graph[name] |= {alias.name for alias in node.names} & files.keys()
    return graph


def test_no_modules_import_each_other_not_even_for_their_types() -> None:
    try:
        tuple(TopologicalSorter(_graph()).static_order())
    except CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


FLOORS = 12
"""From errors to the command line: errors, support, privacy, records, data, registry, harness, sweep, reproduce, board,
docs, cli."""


def test_the_rooms_lie_on_few_floors() -> None:
    below: dict[str, set[str]] = {room: set() for room in RANK}
    for file in SOURCES:
        below[_layer(file)] |= (_imports(file) & RANK.keys()) - {_layer(file)}
    floors: dict[str, int] = {}
    for room in TopologicalSorter(below).static_order():  # which refuses rooms that import each other
        floors[room] = 1 + max((floors[one] for one in below[room]), default=0)
    assert max(floors.values()) <= FLOORS, floors


TEXT = {"read_text", "write_text"}


def test_every_text_file_is_read_and_written_as_utf_8_whatever_the_locale() -> None:
    found = []
    for file in SOURCES + PLUGIN_SOURCES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TEXT:
                named = any(one.arg == "encoding" for one in node.keywords)
                found += [] if named else [f"{_place(file)}:{node.lineno}"]
    assert found == []


def test_every_module_has_a_layer() -> None:
    assert {_layer(file) for file in SOURCES} == set(RANK)


def test_a_plugin_imports_only_the_contract() -> None:
    assert [(_place(file), more) for file in PLUGIN_SOURCES if (more := _imports(file) - set(dpbench.__all__))] == []


# CIFAR is published as pickles: read by an unpickler that finds nothing but numpy arrays, see test_cifar100.py.
RESTRICTED = PLUGINS / "dpbench_plugins.datasets.torchvision" / "pickles.py"
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
    "dpbench.studies.inspect.report",
    "dpbench.cli",
)


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


def test_what_every_command_imports_brings_neither_torch_nor_matplotlib() -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS, *LIGHT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
