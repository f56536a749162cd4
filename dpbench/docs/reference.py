"""Pages that nobody writes: the reference, made from docstrings, commands and components, and the museum's matrix."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from dpbench import contract, notebook
from dpbench.docs.commands import Command, commands
from dpbench.docs.components import components
from dpbench.museum import matrix
from dpbench.records import museum
from dpbench.registry import KINDS

if TYPE_CHECKING:
    from dpbench.registry import Registry


def generated(command: Command, registry: Registry) -> Mapping[str, str]:
    """Return the text of every generated page by its path within the documentation."""
    listed = {f"reference/{kind}s.rst": components(kind, registry.components[kind]) for kind in KINDS}
    return {
        **listed,
        "reference/commands.md": commands(command),
        "reference/names.rst": names(),
        "reference/privacy.rst": _titled("The closed middle: claims, modules, tests") + _module("dpbench.privacy"),
        "reference/errors.rst": _titled("Errors") + _module("dpbench.errors"),
        "explanation/museum.md": matrix.page(museum.read()).replace("\n### ", "\n## "),
    }


def names() -> str:
    """Return the reference of every public name, each part in the order of the alphabet."""
    parts = [
        _titled("Public names"),
        _chapter("For a person at a notebook", notebook.__all__),
        _chapter("For a plugin", contract.__all__),
    ]
    return "\n".join(parts)


def _chapter(title: str, names: Iterable[str]) -> str:
    made = [f"{name}\n{'~' * len(name)}\n\n{_directive(name)}\n" for name in sorted(names, key=str.lower)]
    return "\n".join([title, "-" * len(title), "", *made])


def _directive(name: str) -> str:
    item = getattr(contract if name in contract.__all__ else notebook, name)
    if isinstance(item, type):
        bases = "   :show-inheritance:\n" if issubclass(item, BaseException) else ""
        return f".. autoclass:: dpbench.{name}\n   :members:\n{bases}"
    return f".. auto{'function' if inspect.isfunction(item) else 'data'}:: dpbench.{name}\n"


def _module(name: str) -> str:
    return f".. automodule:: {name}\n   :no-index:\n"


def _titled(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n"
