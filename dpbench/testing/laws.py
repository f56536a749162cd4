"""The base class of all suites of laws, and the laws that all plugins share."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
import unittest
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from dpbench import contract
from dpbench.errors import LawBroken
from dpbench.support.code import find_plugin_module, get_top_package

# Run in a fresh interpreter: sockets raise, and an import of torch ends it, before seconds are spent on it.
_IMPORT_SCRIPT = """
import os, socket, sys
def refuse(*arguments, **keywords): raise OSError("importing a plugin must not use the network")
socket.socket.connect = socket.getaddrinfo = refuse
def refuse_torch(event, details):
    if event == "import" and details[0] == "torch":
        os.write(2, b"torch")
        os._exit(1)
sys.path[:0] = {path!r}
sys.addaudithook(refuse_torch)
import {module}
"""


class NotTested(unittest.SkipTest):
    """A law was not tested, because there was nothing to compare; the text says why. pytest reports it as skipped."""


class Laws:
    """Base class of the suites; a law is a method whose name begins with `test_`."""

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Refuse a suite that overrides, hides or skips a law."""
        super().__init_subclass__(**keywords)
        inherited = {name for base in cls.__mro__[1:] for name in vars(base) if name.startswith("test_")}
        bent = sorted(name for name in vars(cls) if name in inherited or name in {"__test__", "pytestmark"})
        if bent:
            raise LawBroken(f"{cls.__name__} redefines {', '.join(bent)}; a law can be kept or broken, not changed.")

    @classmethod
    def laws(cls) -> list[str]:
        """Return the names of all laws of this suite, in the order of their definition."""
        names = [name for base in reversed(cls.__mro__) for name in vars(base) if name.startswith("test_")]
        return list(dict.fromkeys(names))

    def subject(self) -> Any:
        """Return the component under test."""
        raise NotImplementedError

    def test_importing_is_light_and_offline(self) -> None:
        """Importing a plugin uses no network and does not import torch, because every command imports every plugin."""
        module = type(self.subject()).__module__
        code = _IMPORT_SCRIPT.format(path=[entry for entry in sys.path if entry], module=module)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["it failed"])[-1]
            reason = "it imports torch; import it inside the functions that use it" if reason == "torch" else reason
            raise LawBroken(f"Importing {module} is not light: {reason}.")

    def test_only_the_contract_is_imported(self) -> None:
        """A plugin imports from dpbench only the names in `dpbench.__all__`."""
        module = type(self.subject()).__module__
        for file in _list_source_files(module):
            for name in _list_imported_names(ast.parse(file.read_text(encoding="utf-8"))):
                if name not in contract.__all__ and get_top_package(name) != get_top_package(module):
                    raise LawBroken(f"{file.name} imports dpbench's {name!r}, which is not in dpbench.__all__.")


def expect(holds: bool, complaint: str | Callable[[], str]) -> None:
    """Raise `LawBroken` with the complaint unless the law `holds`."""
    if not holds:
        raise LawBroken(complaint if isinstance(complaint, str) else complaint())


def _list_source_files(module: str) -> list[Path]:
    if module == "__main__":
        return []  # a class of a notebook: no command imports it, and there is no file to read
    spec = importlib.util.find_spec(find_plugin_module(module))
    if spec is None or spec.origin is None:
        raise LawBroken(f"The source of {module} cannot be found.")
    origin = Path(spec.origin)
    return sorted(origin.parent.rglob("*.py")) if spec.submodule_search_locations else [origin]


def _list_imported_names(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.startswith("dpbench."))
        elif isinstance(node, ast.ImportFrom) and node.module == "dpbench":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("dpbench."):
            yield str(node.module)
