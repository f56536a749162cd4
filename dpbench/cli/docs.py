"""`dpbench docs`: build and open the documentation on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dpbench.cli.publish import load_extras


def docs(
    context: typer.Context,
    out: Annotated[Path | None, typer.Option(help="Build into this folder. \\[default: the cache folder]")] = None,
    open_it: Annotated[bool, typer.Option("--open/--no-open", help="Open it in the browser.")] = True,
) -> None:
    """Build the documentation if it has changed, and open it. Needs the extra `docs`; works offline."""
    import webbrowser

    from dpbench.docs import build_cached_documentation, build_documentation
    from dpbench.support.progress import show_status

    command, extras = context.find_root().command, load_extras(context)
    with show_status("Building the documentation (about a minute)"):
        if out is None:
            folder = build_cached_documentation(command, extras=extras)
        else:
            build_documentation(out, command, extras=extras)
            folder = out.resolve()
    print(folder / "index.html")
    if open_it:
        webbrowser.open((folder / "index.html").as_uri())
