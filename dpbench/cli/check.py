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
    """Test a component against every law in dpbench.testing. Exits with 1 if it breaks any."""
    from dpbench.registry import load
    from dpbench.testing.checking import check_laws

    registry = load()
    registry.report_broken_plugins()
    console = Console()
    broken = 0
    told: dict[str, str] = {}  # complaint -> the law that was the first to make it
    for law, complaint in check_laws(registry, component):
        console.print(
            f"{'broken' if complaint else 'holds ':6}  {law}", style="red" if complaint else None, markup=False
        )
        if complaint:
            broken += 1
            first = told.setdefault(complaint, law)
            console.print(
                f"        {complaint if first == law else f'As above: {first}.'}", markup=False, soft_wrap=True
            )
    if broken:
        raise SystemExit(1)
