"""All files of the site except the files of entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from markupsafe import Markup

from dpbench.board.export import render_leaderboard_csv, render_leaderboard_parquet
from dpbench.board.index import Standing
from dpbench.site import component_pages, learner_pages, view
from dpbench.site.audits_page import render_audits_page
from dpbench.site.board_page import render_board_page
from dpbench.site.citations import render_citations_page
from dpbench.site.compare_page import render_compare_page
from dpbench.site.context import SiteContext
from dpbench.site.entries_page import render_entries_page
from dpbench.site.extras import SiteExtras
from dpbench.site.home_page import make_heat_maps, render_epsilon_pages, render_home
from dpbench.site.lines import make_epsilon_charts
from dpbench.site.overview import render_overview
from dpbench.site.picture import Chart
from dpbench.site.preview import render_board_preview, render_map_preview
from dpbench.site.render import (
    PREVIEW,
    STATIC_FILES,
    PageRenderer,
    make_renderer,
    make_site_stylesheet,
    read_static_file,
)
from dpbench.support.progress import show_status


def write_pages(site: SiteContext, extras: SiteExtras, folder: Path) -> None:
    """Write all files of the site into `folder`, except the files of entries."""
    with show_status("Writing pages") as update:
        for path, content in _render_files(site, extras):
            update(path)
            file = folder / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)


def _render_files(site: SiteContext, extras: SiteExtras) -> Iterator[tuple[str, bytes]]:
    shared = make_renderer(site.settings, extras.packages, site.root)
    found = make_heat_maps(site)
    yield "index.html", render_home(site, found, [sentence() for sentence in extras.evidence], shared)
    yield from render_epsilon_pages(site, found, shared)
    yield "entries.html", render_entries_page(site, found, shared)
    yield "entries.csv", render_leaderboard_csv(site.index).encode("utf-8", "replace")
    yield "entries.parquet", render_leaderboard_parquet(site.index)
    yield "llms.txt", render_overview(site)
    sections = [read() for read in extras.boards]
    for family in site.families:
        against = make_epsilon_charts([site.rows[standing.board.name] for standing in family], site.looks)
        for standing in family:
            yield from _render_board(site, standing, against, sections, shared)
    yield from learner_pages.render_learner_pages(site, [charts(site) for charts in extras.charts], shared)
    yield from component_pages.render_component_pages(site, shared)
    yield "compare.html", render_compare_page(site, shared)
    yield "cite.html", render_citations_page(site, shared)
    yield "audits.html", render_audits_page(site, shared)
    for page in extras.pages:
        yield from page.files(site, shared)
    yield "404.html", shared.render_not_found()
    yield "leaderboard.json", site.index.encode()
    yield PREVIEW, render_map_preview(found[0] if found else None)
    yield "assets/site.css", make_site_stylesheet()
    for name in STATIC_FILES:
        yield f"assets/{name}", read_static_file(name)


def _render_board(
    site: SiteContext,
    standing: Standing,
    against: Sequence[Chart],
    sections: Sequence[Callable[[str], Markup]],
    shared: PageRenderer,
) -> Iterator[tuple[str, bytes]]:
    path = f"boards/{standing.board.name}"
    own = [section(standing.board.name) for section in sections]
    yield f"{path}.html", render_board_page(site, standing, against, own, shared)
    yield (
        f"{path}.csv",
        render_leaderboard_csv(site.index.model_copy(update={"standings": (standing,)})).encode("utf-8", "replace"),
    )
    if view.count_ranked_entries(standing):
        yield f"{path}.png", render_board_preview(standing, site.looks)
