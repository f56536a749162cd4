"""The leaderboard as a static site: no server, no external resources, no third-party scripts.

Layout::

    index.html                       learners by dataset and epsilon, what epsilon means, how to submit
    boards/<board>.html, .csv, .png  one board: standings, charts, protocol; its table and preview image
    entries.html, .csv, .parquet     every entry, sorted and filtered
    llms.txt                         an overview of the site, on one page, for language models
    entries/<board>/<id>.html        one entry: command, privacy, scores, settings, provenance
    results/<board>/<id>.json        the raw files
    learners.html, learners/         one page per learner
    data.html, datasets/, extractors/
    audits.html                      re-runs and audits
    ...                              pages of other packages: see `extras`
    leaderboard.json                 the index
    docs/                            the documentation, if it is built too
    404.html, assets/                for servers that support it; the site's own styles and script

The pages are complete without scripts. The site's own script sorts and filters tables.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from dpbench.board.index import Index
from dpbench.registry import Registry, load
from dpbench.site import entry_pages, layout, pages
from dpbench.site.context import SiteContext
from dpbench.site.extras import NO_EXTRAS, SiteExtras
from dpbench.support.folders import replace_site

__all__ = ["build_site"]


def build_site(
    index: Index,
    root: Path,
    out: Path,
    plugins: Registry | None = None,
    docs: Callable[[Path], None] | None = None,
    extras: SiteExtras = NO_EXTRAS,
) -> None:
    """Write the site of `index` into `out` and replace all content of that folder. The same index gives the same bytes.

    Args:
        index: all boards with their entries.
        root: the leaderboard's folder, which contains each `entry.file`.
        out: the folder of the site: missing, empty, or from an earlier build.
        plugins: the registry if it is already loaded; it describes learners, datasets and extractors.
        docs: builds the documentation into a given folder; without it, the site has no documentation.
        extras: additional pages and parts of pages.

    Raises:
        DataError: a name is not valid as a file name, or a result cannot be read.
        SpecError: the environment names a malformed address; see `settings`.
        OutputError: `out` holds files that no build wrote, or cannot be written.
    """
    extras = extras.for_leaderboard(root)
    layout.check_names(index)
    site = SiteContext.from_index(index, root, plugins or load(), docs=docs is not None, studies=extras.sections)
    with replace_site(out) as folder:
        with entry_pages.write_entry_pages(site, folder):
            pages.write_pages(site, extras, folder)
        if docs is not None:
            docs(folder / "docs")
