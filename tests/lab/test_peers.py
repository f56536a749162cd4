"""Other libraries train as `dp-sgd` does: their accuracies are within the intervals, and the accountants agree."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.errors import SpecError
from dpbench.harness.session import open_session
from dpbench_lab.reproduce import peers
from dpbench_lab.reproduce.catalogue import PEERS
from dpbench_lab.reproduce.peer_section import make_board_section_renderer
from dpbench_lab.reproduce.peers import (
    LibraryFitScores,
    compare_with_peer,
    find_measured_file,
    list_board_specs,
    load_peer,
    read_comparisons,
    render_peer_table,
    write_comparisons,
)
from tests.helpers.commands import call

PAGE = Path(__file__).parents[2] / "dpbench" / "docs" / "explanation" / "speed.md"
APART = LibraryFitScores(accuracies=(0.5, 0.51, 0.52), seconds=1.0)


@pytest.mark.parametrize("name", PEERS)
def test_the_committed_comparisons_agree(name: str) -> None:
    found = read_comparisons(name)
    assert len(found) >= 6 and all(comparison.agrees for comparison in found)


def test_the_accountants_of_peers_agree_as_the_page_says() -> None:
    """Both RDP accountants of a comparison within 0.3%, and jax_privacy's PLD to four decimals."""
    for name in PEERS:
        for found in read_comparisons(name):
            assert found.epsilons[f"{found.implementation} rdp"] == pytest.approx(
                found.epsilons["dpbench rdp"], rel=3e-3
            )
    for found in read_comparisons("jax-peer"):
        assert abs(found.epsilons["jax_privacy pld"] - found.epsilons["dpbench pld"]) < 5e-5


def test_the_page_shows_the_comparisons_with_opacus() -> None:
    assert render_peer_table(read_comparisons("opacus-peer")) in PAGE.read_text(encoding="utf-8")


def test_accuracies_further_apart_than_their_intervals_do_not_agree() -> None:
    first = read_comparisons("opacus-peer")[0]
    apart = first.model_copy(update={"theirs": APART})
    assert first.agrees and not apart.agrees
    assert apart.cells[5].startswith("no: -")


def test_compare_only_shows_stored_comparisons_and_fails_where_they_differ(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("reproduce", "opacus-peer", "--compare-only") == 0
    assert "no entry of a board" in capsys.readouterr().out
    assert call("reproduce", "opacus-peer", "--compare-only", "--out", tmp_path) != 0
    assert "Expected comparisons in" in capsys.readouterr().err
    wrong = read_comparisons("opacus-peer")[0].model_copy(update={"theirs": APART})
    write_comparisons([wrong], find_measured_file("opacus-peer", tmp_path))
    assert call("reproduce", "opacus-peer", "--compare-only", "--out", tmp_path) != 0
    assert "differ by more than their intervals explain" in capsys.readouterr().err
    assert call("reproduce", "opacus-peer", "--workers", "2") != 0


@pytest.mark.quick("opacus-peer-1")
@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("name", ["opacus-peer", pytest.param("jax-peer", marks=pytest.mark.slow)])
def test_another_library_trains_as_the_harness_does(name: str, place: int) -> None:
    board, spec = list_board_specs(2)[place]
    peer = load_peer(name)
    found = compare_with_peer(board, spec, open_session("cpu"), peer)
    assert abs(found.difference) < 0.06
    tight, loose = (found.epsilons[f"{peer.implementation} {accountant}"] for accountant in peer.accountants)
    assert tight == pytest.approx(found.epsilons["dpbench pld"], rel=0.02)
    assert loose == pytest.approx(found.epsilons["dpbench rdp"], rel=0.01)


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peers, "find_installed_version", lambda package: None)
    with pytest.raises(SpecError, match=r"jax-peer needs jax_privacy, jax, optax\. Install it: pip install .*peers"):
        load_peer("jax-peer")


def test_the_page_of_a_board_shows_its_comparisons_and_other_pages_do_not() -> None:
    section = make_board_section_renderer()
    first = read_comparisons("opacus-peer")[0]
    shown = section(f"{first.board}-eps{first.epsilon:g}")
    assert f'<td class="number">{first.cells[4]}</td>' in shown and "without a rank" in shown
    assert not section("digits-eps0.03")
