"""`dpbench cache`: list and clear the files that are kept between runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from dpbench.support.messages import format_bytes

app = typer.Typer(help="List and clear features and other files kept between runs.", no_args_is_help=True)


@app.command("list")
def list_holdings() -> None:
    """List the cache, largest entries first."""
    from dpbench.data.holdings import list_cache_entries
    from dpbench.support.paths import cache_folder

    held = list_cache_entries()
    table = Table("name", "what", Column("size", justify="right"), "written", box=None)
    for entry in held:
        written = datetime.fromtimestamp(entry.used).astimezone().date().isoformat()
        table.add_row(entry.name, escape(entry.what), format_bytes(entry.size), written)
    if held:
        Console().print(table)
    total = format_bytes(sum(entry.size for entry in held)) or "nothing"
    print(f"{total} in {cache_folder()} (set DPBENCH_CACHE to use another folder)")


@app.command()
def clear(
    names: Annotated[list[str] | None, typer.Argument(help="Entries as `dpbench cache list` names them.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Clear the whole cache.")] = False,
) -> None:
    """Delete cache entries. Later runs extract or compute them again when they need them."""
    from dpbench.data import holdings
    from dpbench.errors import SpecError

    if bool(names) == everything:
        raise SpecError("Expected names of cache entries, or --all. `dpbench cache list` shows the names.")
    cleared = holdings.clear_cache(names or [])
    print(f"Cleared {len(cleared)} entries, {format_bytes(sum(entry.size for entry in cleared)) or '0 MB'}")
