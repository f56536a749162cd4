"""Opacus trains as `dp-sgd` does: its accuracies are within the intervals, and the accountants agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.harness.session import open_session
from dpbench_lab.reproduce.opacus_peer import (
    PeerComparison,
    Training,
    compare_with_opacus,
    list_specs,
    read_comparisons,
    write_comparisons,
    write_markdown,
)
from tests.helpers.commands import call

PAGE = Path(__file__).parents[2] / "dpbench" / "docs" / "explanation" / "speed.md"


def test_the_committed_comparisons_agree_and_the_page_shows_them() -> None:
    found = read_comparisons()
    assert all(comparison.agrees for comparison in found)
    assert write_markdown(found) in PAGE.read_text(encoding="utf-8")


def test_accuracies_further_apart_than_their_intervals_do_not_agree() -> None:
    first = read_comparisons()[0]
    apart = first.model_copy(update={"opacus": Training(accuracies=(0.5, 0.51, 0.52), seconds=1.0)})
    assert first.agrees and not apart.agrees
    assert apart.cells[5].startswith("no: -")


def test_compare_only_shows_stored_comparisons_and_fails_where_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("reproduce", "opacus-peer", "--compare-only") == 0
    assert "no entry of a board" in capsys.readouterr().out
    assert call("reproduce", "opacus-peer", "--compare-only", "--out", tmp_path) != 0
    assert "Expected comparisons with Opacus in" in capsys.readouterr().err
    first = read_comparisons()[0]
    wrong = first.model_copy(update={"opacus": Training(accuracies=(0.5, 0.51, 0.52), seconds=1.0)})
    write_comparisons([wrong], tmp_path / "opacus_peer.json")
    assert call("reproduce", "opacus-peer", "--compare-only", "--out", tmp_path) != 0
    assert "differ by more than their intervals explain" in capsys.readouterr().err
    assert call("reproduce", "opacus-peer", "--workers", "2") != 0


@pytest.mark.quick("1")
@pytest.mark.parametrize("place", [0, 1])
def test_opacus_trains_as_the_harness_does(place: int) -> None:
    board, spec = list_specs(2)[place]
    found: PeerComparison = compare_with_opacus(board, spec, open_session("cpu"))
    assert abs(found.difference) < 0.06
    assert found.epsilons["Opacus rdp"] == pytest.approx(found.epsilons["dpbench rdp"], rel=0.01)
    assert found.epsilons["Opacus prv"] == pytest.approx(found.epsilons["dpbench pld"], rel=0.02)
