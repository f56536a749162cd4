"""`dpbench check`: run the laws on one component of a plugin."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console


def check_component(
    component: Annotated[
        str, typer.Argument(help="A learner, extractor or dataset, like pillar or pillar:k=8; joined extractors: A+B.")
    ],
) -> None:
    """Test a component against every law in dpbench.testing. Exits with 1 if it breaks any.

    A law is reported as not tested if there was nothing to compare, for example no copy of a dataset's files.
    """
    from dpbench.registry import load
    from dpbench.testing.checking import check_laws

    registry = load()
    registry.report_broken_plugins()
    console = Console()
    broken = 0
    told: dict[str, str] = {}  # complaint -> the law that was the first to make it
    for law, complaint, untested in check_laws(registry, component):
        word, style = ("broken", "red") if complaint else ("not tested", "yellow") if untested else ("holds", "green")
        console.print(f"{word:10}  {law}", style=style, markup=False)
        if untested:
            console.print(f"            {untested}", markup=False, soft_wrap=True)
        if complaint:
            broken += 1
            first = told.setdefault(complaint, law)
            console.print(
                f"            {complaint if first == law else f'As above: {first}.'}", markup=False, soft_wrap=True
            )
    if broken:
        raise SystemExit(1)
