"""The corrected table of sample complexities, as the documentation has it."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpbench
from dpbench.studies.inspect.complexity import BOUNDS, Bound, Case, page

PAGE = Path(dpbench.__file__).parent / "docs" / "theory" / "table-3.md"


def test_the_page_is_what_the_code_makes() -> None:
    assert PAGE.read_text(encoding="utf-8") == page()


@pytest.mark.parametrize("bound", BOUNDS, ids=lambda bound: bound.method)
def test_a_tenth_of_epsilon_takes_up_to_ten_times_the_examples(bound: Bound) -> None:
    assert 1 < bound.needed(Case(epsilon=0.01)) / bound.needed(Case(epsilon=0.1)) <= 10 + 1e-9


def test_few_dimensions_are_what_pillar_pays_for() -> None:
    pillar, noisy = BOUNDS[-1].needed, BOUNDS[2].needed
    assert pillar(Case(d=10**6)) == pillar(Case())
    assert noisy(Case(d=4 * 1280)) == pytest.approx(2 * noisy(Case()))
    assert pillar(Case(k=160)) == pytest.approx(2 * pillar(Case()))
