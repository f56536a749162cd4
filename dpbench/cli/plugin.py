"""`dpbench plugin`: create your own plugin."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpbench import scaffold
from dpbench.registry import load

app = typer.Typer(help="Create your own plugin.", no_args_is_help=True)


class NewPluginKind(StrEnum):
    """The kind of component that a new plugin provides."""

    learner = "learner"
    extractor = "extractor"
    dataset = "dataset"


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Name of the component, like my-method.")],
    kind: Annotated[NewPluginKind, typer.Option(help="What it provides.")] = NewPluginKind.learner,
    out: Annotated[Path, typer.Option(help="Folder in which to create dpbench-NAME.")] = Path(),
) -> None:
    """Create a working plugin package, ./dpbench-NAME, which passes every law and is yours to change."""
    registry = load()
    registry.report_broken_plugins()
    folder = scaffold.create_package(name, kind.value, out, registry)
    print(f"Wrote {folder}. Next:\n")
    for command in scaffold.list_next_commands(folder, name, kind.value):
        print(f"  {command}")
