"""`dpbench leaderboard serve` and `dpbench leaderboard publish`."""

from __future__ import annotations

import functools
import sys
import webbrowser
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpbench.cli import interrupt

if TYPE_CHECKING:
    from dpbench.site.extras import SiteExtras

RootOption = Annotated[Path, typer.Option(help="Folder of the leaderboard: boards/, results/ ...")]


def serve(
    root: RootOption = Path("leaderboard"),
    site: Annotated[Path | None, typer.Option(help="Folder of the built site. \\[default: ROOT/site]")] = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port; 0 picks a free one.")] = 8000,
    open_browser: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Preview the built site on this machine until you press Ctrl-C."""
    from dpbench.site import server

    def print_address(address: str) -> None:
        print(f"The leaderboard is at {address} (press Ctrl-C to stop)", flush=True)
        if open_browser:
            webbrowser.open(address)

    server.serve(site or root / "site", port, print_address)


FOLDER_IS_DEPRECATED = (
    "dpbench: dpbench leaderboard publish FOLDER is deprecated and will be removed in version 0.4. Use dpbench "
    "leaderboard build --site FOLDER, and let an action deploy that folder, as .github/workflows/pages.yml does."
)
SITE_FROM_DOCS = "../"  # from the documentation to the site
DocsOption = Annotated[bool, typer.Option("--docs/--no-docs", help="Also build the documentation, if possible.")]


def load_extras(context: typer.Context) -> SiteExtras:
    """Load the additions to pages with the function that `dpbench.main` passes to the program."""
    found: SiteExtras = context.find_root().obj()
    return found


def make_docs_builder(context: typer.Context, *, wanted: bool) -> Callable[[Path], None] | None:
    """Return a function that builds the documentation into the site.

    Return None if the documentation is not wanted, or if the packages that build it are not installed.

    Raises:
        DocsNotBuilt: a page, a link or a notebook is broken.
    """
    from dpbench.docs import build_cached_documentation, build_documentation
    from dpbench.errors import DocsMissing
    from dpbench.support.progress import show_status

    if not wanted:
        return None
    command, extras = context.find_root().command, load_extras(context)
    try:
        with show_status("Building the documentation (about a minute)"):
            build_cached_documentation(command, root=SITE_FROM_DOCS, extras=extras)
    except DocsMissing as error:
        print(f"The site was built without documentation. {error}", file=sys.stderr)
        return None
    return functools.partial(build_documentation, command=command, root=SITE_FROM_DOCS, extras=extras)


def publish(
    context: typer.Context,
    target: Annotated[
        str,
        typer.Argument(
            metavar="hf:OWNER/NAME|FOLDER",
            help="A Hugging Face dataset repository. A folder is deprecated: use dpbench leaderboard build --site.",
        ),
    ],
    root: RootOption = Path("leaderboard"),
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change, without changing anything.")
    ] = False,
    docs: Annotated[
        bool, typer.Option("--docs/--no-docs", help="With a folder only: also build the documentation, if possible.")
    ] = True,
) -> None:
    """Verify every result, then upload the data to a Hugging Face dataset repository.

    The repository gets leaderboard.json, the results, the boards and the schema; set the environment variable HF_TOKEN
    to a token with write access. To publish the site, build it with dpbench leaderboard build --site FOLDER and let an
    action deploy it, as .github/workflows/pages.yml does.
    """
    from dpbench.registry import load
    from dpbench.site.github_pages import read_published_digests
    from dpbench.site.publishing import HUB_PREFIX
    from dpbench.site.publishing import publish as publish_to

    hub = target.startswith(HUB_PREFIX)
    plugins = load()
    plugins.report_broken_plugins()
    try:
        if not hub:
            read_published_digests(Path(target))  # a place that does not fit is said before the documentation is built
        made = None if hub else make_docs_builder(context, wanted=docs)
        changes = publish_to(target, root, plugins, made, extras=load_extras(context), dry_run=dry_run)
    except KeyboardInterrupt:
        partial = f"{target} may contain a part of the new files. Publish again to complete it."
        interrupt.print_interrupt_message(
            partial if hub else f"{target} contains either the old site or the complete new one."
        )
        raise typer.Exit(interrupt.EXIT_CODE) from None
    if not hub:
        print(FOLDER_IS_DEPRECATED, file=sys.stderr)
    for line in changes if dry_run else ():
        print(line)
    kinds = Counter(line.partition(" ")[0] for line in changes)
    counts = f"{kinds['add']} added, {kinds['change']} changed, {kinds['delete']} deleted"
    if not changes:
        print(f"{target} is up to date")
    else:
        print(f"{target}: {counts}" + (" if published" if dry_run else ""))
