"""The leaderboard as a static site: pages that need no server, load nothing from elsewhere and run no stranger's code.

Layout::

    index.html                   all boards, and a table of all entries
    boards/<board>.html          one board: standings, charts, protocol, how to submit
    entries/<board>/<id>.html    one entry: command, privacy, scores, settings, provenance
    results/<board>/<id>.json    the raw files
    leaderboard.json             the index
    404.html                     for servers that want one
    assets/                      one style, our few lines of script, and the libraries
"""

from __future__ import annotations

from pathlib import Path

from dpbench.board.index import Index
from dpbench.board.site import output
from dpbench.board.site.scripts import check_installed

__all__ = ["build_site"]


def build_site(index: Index, root: Path, out: Path) -> None:
    """Write the site of `index` into the folder `out`, which it replaces as a whole; the same index, the same bytes.

    Args:
        index: all boards with their entries.
        root: the leaderboard's folder, where each `entry.file` lies.
        out: where the site goes: absent, empty, or a site that was built before.

    Raises:
        DataError: a package of the extra `board` is missing; a name that is no file's; a result that cannot be read.
        OutputError: `out` holds what no build made, or cannot be written.
    """
    check_installed()
    output.check_names(index)
    from dpbench.board.site import entries, pages

    with output.fresh(out) as site, entries.writing(index, root, site):
        pages.write(index, site)
