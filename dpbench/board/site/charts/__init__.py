"""The charts of a board's page. None is drawn that would show nothing: one needs two budgets, one two values of k."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.board.index import Standing
from dpbench.board.site import view
from dpbench.board.site.charts.entries import entries_chart
from dpbench.board.site.charts.epsilon import epsilon_chart
from dpbench.board.site.charts.parts import Chart
from dpbench.board.site.charts.scatter import k_chart, seconds_chart

__all__ = ["Chart", "board_charts"]


def board_charts(
    standing: Standing, table: view.Table, family: Sequence[Standing], learners: Sequence[str]
) -> list[Chart]:
    """Return the charts that have something to show.

    Args:
        standing: the board.
        table: its rows.
        family: the boards that differ from it in epsilon alone, itself among them.
        learners: all of the leaderboard, as words; their order decides what each looks like.
    """
    found = [
        entries_chart(standing, table),
        epsilon_chart(standing, family, learners),
        k_chart(standing, table, learners),
        seconds_chart(standing, table, learners),
    ]
    return [chart for chart in found if chart is not None]
