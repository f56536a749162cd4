"""`dpbench museum`: list, explain and run the privacy bugs of published code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from dpbench.cli.output import Json

if TYPE_CHECKING:
    from dpbench_lab.museum.exhibit import Exhibit


def museum(
    name: Annotated[str | None, typer.Argument(help="Explain and run this exhibit.")] = None,
    as_json: Json = False,
) -> None:
    """List the exhibits and what catches each. With NAME, explain and run one; exits with 1 if nothing catches it."""
    if name is None:
        _list_exhibits(as_json)
        return
    from dpbench_lab.museum.tour import find_exhibit

    _run_exhibit(find_exhibit(name), as_json)


def _list_exhibits(as_json: bool) -> None:
    from dpbench_lab.museum import record

    if as_json:
        print(record.FILE.read_text(encoding="utf-8"), end="")
        return
    table = Table(Column("exhibit", no_wrap=True), Column("ε, claimed → actual", no_wrap=True), "caught by", box=None)
    for exhibit in record.read_museum_record():
        table.add_row(exhibit.name, exhibit.epsilon, ", ".join(exhibit.stopped))
    console = Console()
    console.print(table, highlight=False)
    console.print("dpbench museum NAME says where a bug was found, shows its code and runs it.", soft_wrap=True)


def _run_exhibit(exhibit: Exhibit, as_json: bool) -> None:
    from dpbench_lab.museum.exhibit import find_first_catching_guard
    from dpbench_lab.museum.matrix import make_exhibit_record

    console = Console()
    if not as_json:
        from rich.syntax import Syntax

        console.print(f"{exhibit.summary}\n\nSource: {exhibit.source}\n", markup=False, highlight=False, soft_wrap=True)
        console.print(Syntax(exhibit.code, "python", background_color="default", word_wrap=True))
    findings = exhibit.visit()
    found = make_exhibit_record(exhibit, findings)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        if found.epsilon:
            console.print(f"\nε, claimed → actual: {found.epsilon}", markup=False, highlight=False)
        for guard, said in findings.items():
            told = f"caught it. {said}" if said else "missed it."
            console.print(f"\n{guard}: {told}", markup=False, highlight=False, soft_wrap=True)
    if find_first_catching_guard(findings) is None:
        raise typer.Exit(1)
