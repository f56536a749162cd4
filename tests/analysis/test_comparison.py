"""Two results held against each other."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.analysis import comparison
from dpbench.analysis.comparison import compare_results, describe_difference, pair_results
from dpbench.analysis.paired import PairedComparison
from dpbench.errors import SpecError
from tests.analysis.test_tables import DIGITS, HIGH, LOW, find_result, with_loss
from tests.helpers.commands import Output, Refusal, call


def test_the_difference_of_two_results_has_its_interval_and_a_verdict() -> None:
    said = "\n".join(describe_difference(find_result(LOW, "pillar"), find_result(LOW, "dp-raft")))
    assert "A: pillar, ε 0.1: 81.79" in said
    assert "A - B: +10.64 ±" in said
    assert said.endswith("The difference is significant at 5%.")


def test_an_interval_wider_than_all_scores_is_no_number(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = PairedComparison(difference=-0.02, error=0.5, degrees_of_freedom=4.0)
    monkeypatch.setattr(comparison, "compare_results", lambda *_: wide)
    said = " ".join(describe_difference(find_result(LOW, "pillar"), find_result(LOW, "dp-raft")))
    assert "-2.00 (too few test examples or seeds for an interval) points of accuracy" in said


def test_results_on_other_data_or_seeds_are_not_compared() -> None:
    with pytest.raises(SpecError, match=r"624 examples of pneumonia.*359 examples of digits"):
        compare_results(find_result(LOW, "pillar"), find_result(DIGITS, "pillar"))


def test_the_difference_of_two_losses_is_no_percentage() -> None:
    pair = with_loss("pillar", 1.5), with_loss("whitened", 0.75)
    said = "\n".join(describe_difference(*pair, "nll"))
    assert "A - B: +0.750" in said
    assert "%:" not in said.replace("at 5%", "")


def test_results_of_two_learners_are_paired_by_data_and_epsilon() -> None:
    ours = [find_result(LOW, "pillar"), find_result(DIGITS, "pillar")]
    theirs = [find_result(DIGITS, "dp-raft"), find_result(LOW, "dp-raft")]
    pairs = [*pair_results(ours, theirs)]
    assert pairs == [(ours[0], theirs[1]), (ours[1], theirs[0])]
    assert [*pair_results(ours[:1], theirs[:1])] == [(ours[0], theirs[0])]  # as they are named; the test refuses them
    with pytest.raises(SpecError, match="found none among 2 and 1, such as"):
        [*pair_results(ours, [find_result(HIGH, "pillar")])]
    with pytest.raises(SpecError, match=r"Expected one result for each side, got 2: .*Name two files\."):
        [*pair_results([*ours, ours[0]], theirs)]


def test_learners_are_compared_by_name_in_a_folder(tmp_path: Path, capsys: Output, refusal: Refusal) -> None:
    for learner in ("pillar", "dp-raft"):
        find_result(LOW, learner).result.write(tmp_path)
    (tmp_path / "other.json").write_text("{}", encoding="utf-8")
    asked = ("compare", "pillar", "dp-raft", "--results", tmp_path)
    assert call(*asked, "--epsilon", "0.1") == 0
    assert "A - B: +10.64 ±" in capsys.readouterr().out
    assert "found none. It has results of dp-raft, pillar." in refusal.command(*asked, "--epsilon", "3")
    assert "learner jl in" in refusal.command("compare", "pillar", "jl", "--results", tmp_path)
    assert "no such folder" in refusal.command("compare", "pillar", "jl", "--results", tmp_path / "none")
