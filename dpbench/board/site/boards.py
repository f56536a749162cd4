"""A board's page."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.board.index import Index, Standing
from dpbench.board.site import text, view
from dpbench.board.site.charts import board_charts
from dpbench.board.site.render import Renderer


def board_page(standing: Standing, index: Index, learners: Sequence[str], renderer: Renderer) -> bytes:
    """Return the page of a board; `learners` are all of the leaderboard, which decides what each looks like."""
    table = view.table(standing)
    akin = view.family(standing, index)
    rows = (*table.ranked, *table.unranked)
    values = {
        "standing": standing,
        "table": table,
        "family": akin,
        "charts": board_charts(standing, table, akin, learners),
        "protocol": _protocol(standing),
        "rules": sorted({row.entry.selection for row in rows} | set(standing.board.selection)),
    }
    return renderer.page("board", 1, values)


def _protocol(standing: Standing) -> list[tuple[str, str]]:
    board = standing.board
    seeds = ", ".join(map(str, board.seeds))
    facts = [("Board", board.name), ("Dataset", str(board.dataset)), ("Extractor", str(board.extractor))]
    if standing.private:
        images = f"{standing.private:,} private, {standing.public:,} public, {standing.test:,} test"
        facts.append(("Images", images))
    public = str(board.public_dataset) if board.public_dataset else f"{board.public_fraction:.4g} of the training split"
    return [
        *facts,
        ("Public data", f"{public}, {'labelled' if board.public_labels else 'unlabelled'}"),
        ("Private share kept", f"{board.train_fraction:.4g}"),
        *([("Classes, first to last", f"{board.imbalance:g} : 1")] if board.imbalance else []),
        ("ε, δ", f"{text.budget(board.epsilon)}, {board.delta:g}"),
        ("Accountant", board.accountant),
        ("Neighbours", board.adjacency),
        ("Seeds", f"{seeds}; split seed {board.split_seed}"),
        ("Ranked by", view.metric_name(board.metric).lower()),
        ("Ranked selections", ", ".join(board.selection)),
    ]
