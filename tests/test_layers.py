"""Imports point one way, checked from the source; and what must be light is light."""

from __future__ import annotations

import ast
import subprocess
import sys
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
    {"privacy"},
    {"learning"},
    {"registry", "records"},
    {"data"},
    {"harness"},
    {"inspection", "sweep"},
    {"board"},
    {"testing"},
    {"scaffold"},
    {"cli"},
)
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def _layer(file: Path) -> str:
    return file.relative_to(ROOT).parts[0].removesuffix(".py")


def _imports(file: Path) -> set[str]:
    """Return the dpbench modules that a file imports when it runs, type-checking imports left out."""
    tree = ast.parse(file.read_text())
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


@pytest.mark.parametrize("file", SOURCES, ids=lambda file: str(file.relative_to(ROOT)))
def test_a_module_imports_only_from_lower_layers(file: Path) -> None:
    mine = RANK[_layer(file)]
    upward = {name for name in _imports(file) if RANK.get(name, 0) > mine}
    assert not upward


def test_every_module_has_a_layer() -> None:
    assert {_layer(file) for file in SOURCES} == set(RANK)


@pytest.mark.parametrize("file", sorted(PLUGINS.rglob("*.py")), ids=lambda file: file.name)
def test_a_plugin_imports_only_the_contract(file: Path) -> None:
    assert _imports(file) <= set(dpbench.__all__)


# CIFAR is published as pickles: read by an unpickler that finds nothing but numpy arrays, see test_cifar100.py.
RESTRICTED = PLUGINS / "dpbench_torchvision_datasets" / "pickles.py"
PICKLES = {"pickle", "_pickle", "dill", "joblib", "cloudpickle"}


@pytest.mark.parametrize("file", SOURCES + sorted(PLUGINS.rglob("*.py")), ids=lambda file: file.name)
def test_nothing_loads_pickle(file: Path) -> None:
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            assert file == RESTRICTED or not {alias.name for alias in node.names} & PICKLES
        if isinstance(node, ast.ImportFrom):
            assert node.module not in PICKLES
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) not in {"pickle.load", "pickle.loads", "pickle.Unpickler"}
        if isinstance(node, ast.Call) and ast.unparse(node.func) in {"torch.load", "np.load"}:
            keywords = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
            assert keywords.get("weights_only") == "True" or keywords.get("allow_pickle") == "False"


@pytest.mark.parametrize(
    "module",
    [
        "dpbench",
        "dpbench.records.result",
        "dpbench.records.spec",
        "dpbench.registry",
        "dpbench.privacy.accounting.accountant",
        "dpbench.board.index",
        "dpbench.board.build",
        "dpbench.board.add",
        "dpbench.cli",
    ],
)
def test_what_every_command_imports_brings_no_torch(module: str) -> None:
    code = f"import sys, {module}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
