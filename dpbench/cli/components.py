"""`dpbench list`: what is installed, and what is broken."""

from __future__ import annotations

import inspect
import json
from enum import StrEnum
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from dpbench.registry import KINDS, Kind, Registry, load


class Listed(StrEnum):
    """What may be listed."""

    datasets = "datasets"
    extractors = "extractors"
    learners = "learners"


def list_components(
    what: Annotated[Listed | None, typer.Argument(help="Only these.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show every dataset, extractor and learner, who brought it, and plugins that are broken."""
    registry = load()
    kinds = [kind for kind in KINDS if what is None or what == f"{kind}s"]
    if as_json:
        print(json.dumps(_plain(registry, kinds), indent=2))
        return
    console = Console()
    for kind in kinds:
        table = Table(f"{kind}s", "summary", "from", box=None, title_justify="left")
        for name, item in sorted(registry.components[kind].items()):
            table.add_row(name, _summary(item.cls), f"{item.distribution} {item.version}")
        console.print(table, end="\n\n")
    for broken in registry.broken:
        console.print(str(broken), style="red", markup=False)


def _plain(registry: Registry, kinds: list[Kind]) -> dict[str, object]:
    listed: dict[str, object] = {
        f"{kind}s": [
            {
                "name": name,
                "summary": _summary(item.cls),
                "plugin": item.plugin,
                "distribution": item.distribution,
                "version": item.version,
            }
            for name, item in sorted(components.items())
        ]
        for kind, components in registry.components.items()
        if kind in kinds
    }
    return {**listed, "broken": [vars(broken) for broken in registry.broken]}


def _summary(cls: type) -> str:
    return " ".join((inspect.getdoc(cls) or "").split("\n\n")[0].split())
