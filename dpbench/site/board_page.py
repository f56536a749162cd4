"""The page of a board."""

from __future__ import annotations

from collections.abc import Sequence

from markupsafe import Markup

from dpbench.board.index import Standing
from dpbench.board.rows import count_rivals
from dpbench.records.protocol import Protocol
from dpbench.records.setting import describe_record_fields
from dpbench.site import text, view
from dpbench.site.context import SiteContext
from dpbench.site.cost import make_cost_chart
from dpbench.site.lines import make_k_chart
from dpbench.site.picture import Chart
from dpbench.site.render import PREVIEW, PageRenderer


def render_board_page(
    site: SiteContext, standing: Standing, against: Sequence[Chart], additions: Sequence[Markup], renderer: PageRenderer
) -> bytes:
    """Return the page of a board, with the sections that other packages add.

    `against` holds the charts of scores against epsilon for the board's family.
    """
    table = view.make_board_table(site.rows[standing.board.name])
    family = site.family(standing)
    rows = (*table.rows, *table.unranked)
    k, best = make_k_chart(site.rows[standing.board.name], site.looks), view.find_best_entry(standing)
    labels = best is not None and best.reads_labels  # as all entries do
    values = {
        "standing": standing, "table": table, "family": family, "looks": site.looks, "learners": site.learners,
        "best": best, "first": view.list_first_rank_entries(standing, labels=labels),
        "with_labels": view.list_first_rank_entries(standing, labels=True),
        "count": count_rivals(standing, labels=labels), "all": view.count_ranked_entries(standing),
        "worthy": next((entry for entry in standing.entries if entry.rank == 1 and entry.worth), None),
        "control": view.find_public_only_result(standing), "ceiling": view.find_non_private_result(standing),
        "epsilon_charts": against, "k_chart": k, "cost_chart": make_cost_chart(standing, site.looks),
        "additions": additions, "protocol": _list_protocol_facts(standing),
        "rules": sorted({row.entry.selection for row in rows} | set(standing.board.selection)),
        "before": sum(view.has_earlier_mechanism(row.entry) for row in rows),
        "read": sum(row.entry.reads_private for row in rows),
        "tied": sum(entry.rank == 1 and entry.reads_labels is labels for entry in standing.entries),
        "corrected": any(view.uncorrected_rank(row.entry) for row in rows),
    }  # fmt: skip
    path = f"boards/{standing.board.name}"
    return renderer.page("board", f"{path}.html", "home", values, f"{path}.png" if table.entries else PREVIEW)


def _list_protocol_facts(standing: Standing) -> list[tuple[str, str]]:
    board = standing.board
    chance = view.find_chance_score(standing, board.metric)
    return [
        ("Board", board.name),
        *describe_record_fields(board, Protocol, board.implied_keys),
        *([("Split", view.describe_split(standing))] if standing.private else []),
        *([("A uniform guess", f"{text.format_percent(chance)}%")] if chance else []),
        ("Ranked selections", ", ".join(board.selection)),
    ]
