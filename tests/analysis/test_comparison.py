"""Two results held against each other."""

from __future__ import annotations

import pytest

from dpbench.analysis.comparison import compare_results, describe_difference
from dpbench.errors import SpecError
from tests.analysis.test_tables import DIGITS, LOW, find_result, with_loss


def test_the_difference_of_two_results_has_its_interval_and_a_verdict() -> None:
    said = "\n".join(describe_difference(find_result(LOW, "pillar"), find_result(LOW, "dp-raft")))
    assert "A: pillar, ε 0.1: 81.79" in said
    assert "A - B: +10.64 ±" in said
    assert said.endswith("The difference is significant at 5%.")


def test_results_on_other_data_or_seeds_are_not_compared() -> None:
    with pytest.raises(SpecError, match=r"624 examples of pneumonia.*359 examples of digits"):
        compare_results(find_result(LOW, "pillar"), find_result(DIGITS, "pillar"))


def test_the_difference_of_two_losses_is_no_percentage() -> None:
    pair = with_loss("pillar", 1.5), with_loss("whitened", 0.75)
    said = "\n".join(describe_difference(*pair, "nll"))
    assert "A - B: +0.750" in said
    assert "%:" not in said.replace("at 5%", "")
