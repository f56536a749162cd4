"""Generate the reference pages: directives for Sphinx's autodoc, tables, and the help of all commands."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import typer

from dpbench import contract, notebook, receipts
from dpbench.privacy.mechanisms.table import mechanisms
from dpbench.registry import KINDS
from dpbench.registry.components import READS_WORDS
from dpbench.support.settings import SettingRow, list_settings

if TYPE_CHECKING:
    from dpbench.registry import ComponentKind, Registration, Registry

Command = Any  # typer's, whose classes have moved between its versions
INTRODUCTIONS: Mapping[str, str] = {
    "learner": "Write settings after the name: ``pillar:k=20,center=false``. A setting whose default is ``auto`` "
    "follows the budget, see :doc:`/how-to/tune`.",
    "dataset": "Write options after the name: ``imagefolder:photos``. How to get the data: :doc:`/how-to/data`.",
    "extractor": "Write options after the name: ``pixels:flat=false``. :doc:`/how-to/features` compares extractors.",
}
RECEIPT_NAMES = ("Receipt", "receipt")


def generate_pages(command: Command, registry: Registry) -> Mapping[str, str]:
    """Return the text of every generated page, by path within the documentation."""
    listed = {f"reference/{kind}s.rst": render_components(kind, registry.components[kind]) for kind in KINDS}
    return {
        **listed,
        "reference/commands.md": render_commands(command),
        "reference/names.rst": render_public_names(),
        "reference/privacy.rst": _render_title("The privacy core: claims, modules, tests")
        + _render_module_directive("dpbench.privacy")
        + render_mechanism_claims(),
        "reference/errors.rst": _render_title("Errors") + _render_module_directive("dpbench.errors"),
    }


def render_mechanism_claims() -> str:
    """Return a reStructuredText table of the claims of every mechanism except sums; see `privacy.mechanisms.table`."""
    rows = [(claim, mechanism.module, claim.module) for mechanism in mechanisms() for claim in mechanism.claims]
    lines = [
        f"   * - {claim.text}\n     - {f'{package}.{module}'.rstrip('.')}\n     - {', '.join(claim.tests)}"
        for claim, package, module in rows
    ]
    head = "\n\n.. list-table:: Claims of the mechanisms\n   :header-rows: 1\n\n"
    return "\n".join([f"{head}   * - claim\n     - where\n     - tested in", *lines, ""])


def render_commands(root: Command) -> str:
    """Return the help of every command in Markdown, as typer's generator writes it."""
    from typer.cli import get_docs_for_click

    return get_docs_for_click(obj=root, ctx=typer.Context(root), name="dpbench", title="The command line")


def render_components(kind: ComponentKind, registrations: Mapping[str, Registration]) -> str:
    """Return the page of a component kind: every component with its docstring, settings and defaults."""
    parts = [_render_title(f"{kind.capitalize()}s"), INTRODUCTIONS[kind], ""]
    for name, item in sorted(registrations.items()):
        reads = getattr(item.cls, "public", None)
        said = f" *Reads of the public data:* {READS_WORDS[reads]}." if reads in READS_WORDS else ""
        brought = f"*From* ``{item.distribution}``, *plugin* ``{item.plugin}``.{said}"
        shown = f".. autoclass:: {item.cls.__module__}.{item.cls.__qualname__}\n   :no-index:\n"
        parts += [name, "-" * len(name), "", brought, "", shown, _render_settings(item.cls)]
    return "\n".join(parts)


def _render_settings(cls: type) -> str:
    """Return the table of a component's settings; empty if it has none."""
    rows = [SettingRow("setting", "default", "values", "meaning"), *list_settings(cls)]
    lines = ["   * - " + "\n     - ".join(row) for row in rows]
    return "\n".join([".. list-table:: Settings\n   :header-rows: 1\n", *lines, ""]) if rows[1:] else ""


def render_public_names() -> str:
    """Return the reference of all public names, in chapters, each in alphabetical order."""
    parts = [
        _render_title("Public names"),
        _render_chapter("For a person at a notebook", notebook.__all__),
        _render_chapter("For a plugin", contract.__all__),
        _render_chapter("For any training loop", RECEIPT_NAMES),
        _render_receipt_parts(),
    ]
    return "\n".join(parts)


def _render_chapter(title: str, names: Iterable[str]) -> str:
    made = [f"{name}\n{'~' * len(name)}\n\n{_render_directive(name)}\n" for name in sorted(names, key=str.lower)]
    return "\n".join([title, "-" * len(title), "", *made])


def _render_receipt_parts() -> str:
    """Return the reference of the names that only `dpbench.receipts` exports: receipt parts, events and exporters."""
    made = []
    for name in sorted({*receipts.__all__} - {*RECEIPT_NAMES}, key=str.lower):
        kind = "function" if inspect.isfunction(getattr(receipts, name)) else "class"
        made.append(f"{name}\n{'~' * len(name)}\n\n.. auto{kind}:: dpbench.receipts.{name}\n")
    return "\n".join(["Parts of a receipt", "------------------", "", *made, ""])


def _render_directive(name: str) -> str:
    home = contract if name in contract.__all__ else receipts if name in RECEIPT_NAMES else notebook
    item = getattr(home, name)
    if isinstance(item, type):
        bases = "   :show-inheritance:\n" if issubclass(item, BaseException) else ""
        return f".. autoclass:: dpbench.{name}\n   :members:\n{bases}"
    return f".. auto{'function' if inspect.isfunction(item) else 'data'}:: dpbench.{name}\n"


def _render_module_directive(name: str) -> str:
    return f".. automodule:: {name}\n   :no-index:\n"


def _render_title(title: str) -> str:
    return f"{title}\n{'=' * len(title)}\n\n"
