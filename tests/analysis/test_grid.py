"""Grids: what stands in which column, and what a chart draws of them."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from dpbench.analysis.grid import make_numeric_grid
from dpbench.analysis.reader import read_results
from dpbench.analysis.rows import ResultRow, compute_distance_behind, find_best_score, make_result_row
from dpbench.records.result import Interval

DIGITS = Path(__file__).parents[2] / "leaderboard" / "results" / "digits-eps1"


def scored(mean: float) -> ResultRow:
    row = make_result_row(read_results([DIGITS])[0][0])
    return replace(row, facts=replace(row.facts, metrics={"accuracy": Interval(mean=mean, low=None, high=None)}))


def test_columns_ascend_and_a_line_has_a_gap_where_it_has_no_row() -> None:
    result, other = scored(0.5), scored(0.7)
    grid = make_numeric_grid("t", "accuracy", "ε", {"a": {math.inf: other, 0.1: result}, "b": {0.1: other}})
    assert grid.columns == ("ε 0.1", "ε ∞")
    assert [line.rows for line in grid.lines] == [(result, other), (other, None)]
    assert [(line.label, row) for line, row in grid.column(1)] == [("a", other)]


def test_a_chart_has_finite_values_alone_and_says_which_lines_are_references() -> None:
    row = scored(0.5)
    grid = make_numeric_grid(
        "t", "accuracy", "ε", {"a": {1.0: row, math.inf: row}}, {"free": {math.inf: row}, "b": {1.0: row}}
    )
    assert [(line.label, line.reference, list(line.points)) for line in grid.series] == [
        ("a", False, [1.0]), ("b", True, [1.0]),
    ]  # fmt: skip


def test_a_distance_is_from_the_largest_accuracy_and_from_the_smallest_loss() -> None:
    low, high = (Interval(mean=mean, low=None, high=None) for mean in (0.25, 0.75))
    assert find_best_score("accuracy", [low, high]) is high and find_best_score("nll", [low, high]) is low
    assert compute_distance_behind("accuracy", low, high) == compute_distance_behind("nll", high, low) == 0.5
    assert compute_distance_behind("accuracy", high, high) == 0
