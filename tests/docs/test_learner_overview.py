"""The table of all learners: each has a row, with its cost and leads where the boards have results of it."""

from __future__ import annotations

import pytest

from dpbench import registry
from dpbench.docs.tables.learner_overview import HEADS, IMAGES, render_learner_overview
from tests.helpers.readme import index

REGISTRY = registry.load()


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    lines = render_learner_overview(index(), REGISTRY).splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]
    return {row[0].strip("`"): row for row in cells}


def test_every_learner_has_a_row_with_its_idea_and_the_origin_of_its_constants(rows: dict[str, list[str]]) -> None:
    assert rows.keys() == REGISTRY.components["learner"].keys()
    for name, row in rows.items():
        assert len(row) == len(HEADS)
        assert row[1] and row[5] == REGISTRY.find("learner", name).cls.rule_origin.removeprefix(IMAGES)


@pytest.mark.parametrize(("name", "all_data"), [("thrift", True), ("pillar", True), ("jl", False), ("gep", False)])
def test_leads_and_costs_are_those_of_the_boards(name: str, all_data: bool, rows: dict[str, list[str]]) -> None:
    boards = [standing for standing in index().standings if any(it.learner == name for it in standing.entries)]
    first = [
        standing.board.dataset.name
        for standing in boards
        if any(entry.learner == name and entry.rank == 1 for entry in standing.entries)
    ]
    on = "all data" if all_data else ", ".join(sorted(set(first)))
    assert rows[name][4] == f"{len(first)} of {len(boards)}: {on}"
    costs = [entry.compute for board in boards for entry in board.entries if entry.learner == name and entry.compute]
    assert float(rows[name][3].split("(")[1].rstrip(")")) == pytest.approx(max(costs), rel=0.01)


def test_a_learner_without_results_has_no_cost_and_no_lead(rows: dict[str, list[str]]) -> None:
    assert rows["sspp"][3:5] == ["", ""]
