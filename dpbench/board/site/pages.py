"""The site's files other than those of entries."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dpbench.board.index import Index
from dpbench.board.site import text
from dpbench.board.site.boards import board_page
from dpbench.board.site.charts.parts import LABEL
from dpbench.board.site.overview import overview
from dpbench.board.site.render import STATIC, renderer, static
from dpbench.board.site.scripts import libraries


def write(index: Index, site: Path) -> None:
    """Write them into the folder `site`."""
    for path, content in _files(index):
        file = site / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)


def _files(index: Index) -> Iterator[tuple[str, bytes]]:
    shared = renderer()
    learners = sorted({text.shown(entry.learner, LABEL) for standing in index.standings for entry in standing.entries})
    yield "index.html", overview(index, shared)
    for standing in index.standings:
        yield f"boards/{standing.board.name}.html", board_page(standing, index, learners, shared)
    yield "404.html", shared.lost()
    yield "leaderboard.json", index.model_dump_json(indent=2).encode() + b"\n"
    for name in STATIC:
        yield f"assets/{name}", static(name)
    for name, content in libraries().items():
        yield f"assets/{name}", content
