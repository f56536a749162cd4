"""`dpbench cache`: list and clear the files that are kept between runs."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table

from dpbench.support.messages import bytes_in_words

app = typer.Typer(help="List and clear features and other files kept between runs.", no_args_is_help=True)


@app.command("list")
def list_holdings() -> None:
    """List the cache, largest entries first."""
    from dpbench.data.holdings import list_entries
    from dpbench.support.paths import cache_folder

    held = list_entries()
    table = Table("name", "what", Column("size", justify="right"), "written", box=None)
    for one in held:
        written = datetime.fromtimestamp(one.used).astimezone().date().isoformat()
        table.add_row(one.name, escape(one.what), bytes_in_words(one.size), written)
    if held:
        Console().print(table)
    total = bytes_in_words(sum(one.size for one in held)) or "nothing"
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
    print(f"Cleared {len(cleared)} entries, {bytes_in_words(sum(one.size for one in cleared)) or '0 MB'}")
