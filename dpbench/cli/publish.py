"""`dpbench leaderboard serve` and `dpbench leaderboard publish`."""

from __future__ import annotations

import functools
import sys
import webbrowser
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbench.cli import interrupt

if TYPE_CHECKING:
    from dpbench.site.extras import Extras

Root = Annotated[Path, typer.Option(help="Folder of the leaderboard: boards/, results/ ...")]


def serve(
    root: Root = Path("leaderboard"),
    site: Annotated[Path | None, typer.Option(help="Folder of the built site. \\[default: ROOT/site]")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Preview the built site on this machine until you press Ctrl-C."""
    from dpbench.site import server

    def ready(address: str) -> None:
        print(f"The leaderboard is at {address} (press Ctrl-C to stop)", flush=True)
        if open_browser:
            webbrowser.open(address)

    server.serve(site or root / "site", port, ready)


UP = "../"  # from the documentation to the site
Docs = Annotated[bool, typer.Option("--docs/--no-docs", help="Also build the documentation, if possible.")]


def load_extras(context: typer.Context) -> Extras:
    """Return what is added to pages: `dpbench.main` says what loads it."""
    found: Extras = context.find_root().obj()
    return found


def documentation(context: typer.Context, *, wanted: bool) -> Callable[[Path], None] | None:
    """Return what builds the documentation into a folder of the site, or None where it is not wanted or cannot be."""
    from dpbench.docs import build, build_cached
    from dpbench.errors import DocsMissing
    from dpbench.support.progress import status

    if not wanted:
        return None
    command, extras = context.find_root().command, load_extras(context)
    try:
        with status("Building the documentation (about a minute)"):
            build_cached(command, root=UP, extras=extras)
    except DocsMissing as error:
        print(f"The site was built without documentation. {error}", file=sys.stderr)
        return None
    return functools.partial(build, command=command, root=UP, extras=extras)


def publish(
    context: typer.Context,
    target: Annotated[
        str, typer.Argument(metavar="FOLDER|hf:OWNER/NAME", help="A folder, or a Hugging Face dataset repository.")
    ],
    root: Root = Path("leaderboard"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, without changing anything.")
    ] = False,
    docs: Docs = True,
) -> None:
    """Verify every result, then copy the site to a folder, or the data to a Hugging Face dataset repository.

    A folder gets the site, ready for GitHub Pages. A dataset repository gets leaderboard.json, the results, the boards
    and the schema; set the environment variable HF_TOKEN to a token with write access.
    """
    from dpbench.registry import load
    from dpbench.site.github_pages import read_published_digests
    from dpbench.site.publishing import HUB
    from dpbench.site.publishing import publish as publish_to

    plugins = load()
    plugins.report_broken()
    try:
        if not target.startswith(HUB):
            read_published_digests(Path(target))  # a place that does not fit is said before the documentation is built
        made = None if target.startswith(HUB) else documentation(context, wanted=docs)
        changes = publish_to(target, root, plugins, made, extras=load_extras(context), dry_run=dry_run)
    except KeyboardInterrupt:
        interrupt.say(f"{target} contains either the old site or the complete new one.")
        raise typer.Exit(interrupt.CODE) from None
    for line in changes.lines if dry_run else ():
        print(line)
    counts = f"{len(changes.added)} added, {len(changes.changed)} changed, {len(changes.deleted)} deleted"
    if not changes.lines:
        print(f"{changes.place} is up to date")
    else:
        print(f"{changes.place}: {counts}" + (" if published" if dry_run else ""))
