"""`dpbench plugin`: begin a plugin of your own."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from dpbench import scaffold
from dpbench.registry import load

app = typer.Typer(help="Plugins: begin one of your own.", no_args_is_help=True)


class Begun(StrEnum):
    """What a new plugin may bring."""

    learner = "learner"
    extractor = "extractor"
    dataset = "dataset"


@app.command()
def new(
    name: Annotated[str, typer.Argument(help="Of the component, like my-method.")],
    kind: Annotated[Begun, typer.Option(help="What it brings.")] = Begun.learner,
    out: Annotated[Path, typer.Option(help="Where to put the folder dpbench-NAME.")] = Path(),
) -> None:
    """Write a whole plugin package, ./dpbench-NAME, that keeps every law as it is; then make it yours."""
    registry = load()
    registry.report_broken()
    folder = scaffold.create(name, kind.value, out, registry)
    print(f"Wrote {folder}. Next:\n")
    for command in scaffold.next_commands(folder, name, kind.value):
        print(f"  {command}")
