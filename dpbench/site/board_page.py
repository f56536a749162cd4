"""A board's page."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.board.index import Standing
from dpbench.board.rows import count_rivals
from dpbench.records.protocol import Protocol
from dpbench.records.setting import facts
from dpbench.site import text, view
from dpbench.site.context import Site
from dpbench.site.cost import cost_chart
from dpbench.site.lines import k_chart
from dpbench.site.picture import Chart
from dpbench.site.render import PREVIEW, Renderer


def board_page(site: Site, standing: Standing, against: Sequence[Chart], renderer: Renderer) -> bytes:
    """Return the page of a board; `against` are the charts of its family, against epsilon."""
    table = view.table(site.rows[standing.board.name])
    family = site.family(standing)
    rows = (*table.rows, *table.unranked)
    k, best = k_chart(site.rows[standing.board.name], site.looks), view.best(standing)
    labels = best is not None and best.reads_labels  # as all entries do
    values = {
        "standing": standing, "table": table, "family": family, "looks": site.looks, "learners": site.learners,
        "best": best, "first": view.first(standing, labels=labels), "with_labels": view.first(standing, labels=True),
        "count": count_rivals(standing, labels=labels), "all": view.count(standing),
        "worthy": next((one for one in standing.entries if one.rank == 1 and one.worth), None),
        "control": view.control(standing), "ceiling": view.ceiling(standing),
        "epsilon_charts": against, "k_chart": k, "cost_chart": cost_chart(standing, site.looks),
        "protocol": _list_facts(standing),
        "rules": sorted({row.entry.selection for row in rows} | set(standing.board.selection)),
        "before": sum(view.is_by_other_code(row.entry) for row in rows),
        "read": sum(row.entry.reads_private for row in rows),
        "tied": sum(entry.rank == 1 and entry.reads_labels is labels for entry in standing.entries),
        "corrected": any(view.uncorrected(row.entry) for row in rows),
    }  # fmt: skip
    path = f"boards/{standing.board.name}"
    return renderer.page("board", f"{path}.html", "home", values, f"{path}.png" if table.entries else PREVIEW)


def _list_facts(standing: Standing) -> list[tuple[str, str]]:
    board = standing.board
    chance = view.chance(standing, board.metric)
    return [
        ("Board", board.name),
        *facts(board, Protocol, board.implied),
        *([("Split", view.describe_split(standing))] if standing.private else []),
        *([("A uniform guess", f"{text.percent(chance)}%")] if chance else []),
        ("Ranked selections", ", ".join(board.selection)),
    ]
