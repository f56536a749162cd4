"""Challenge seeds follow from the evidence and the commit alone, and scores follow from the seeds that are put in."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from dpbench.records.board import find_board
from dpbench.records.challenge import CHALLENGE_COUNT, derive_challenge_seeds, replace_seeds
from tests.helpers import boards

DIGESTS = st.text("0123456789abcdef", min_size=40, max_size=64)


@given(evidence=DIGESTS, commit=DIGESTS)
def test_seeds_are_five_whole_numbers_that_every_program_reads_exactly(evidence: str, commit: str) -> None:
    seeds = derive_challenge_seeds(evidence, commit)
    assert seeds == derive_challenge_seeds(evidence, commit)
    assert len({*seeds}) == CHALLENGE_COUNT and all(0 <= seed < 2**53 for seed in seeds)
    assert json.loads(json.dumps([float(seed) for seed in seeds])) == list(seeds)


def test_another_result_or_another_commit_has_other_seeds() -> None:
    found = [
        derive_challenge_seeds(evidence, commit) for evidence in ("a" * 64, "b" * 64) for commit in ("1" * 40, "2" * 40)
    ]
    assert len({seed for seeds in found for seed in seeds}) == 4 * CHALLENGE_COUNT


def test_scores_are_those_of_the_seeds_that_were_put_in() -> None:
    _, first, second = boards.synthetic(find_board("digits-eps1"), 3, seed=0)
    assert first.metrics != second.metrics  # computed before, and kept by neither copy
    replaced = replace_seeds(first, second.seeds[:3])
    assert replaced.metrics["accuracy"].mean == sum(seed.accuracy for seed in second.seeds[:3]) / 3
    assert replaced.spec.seeds == second.spec.seeds[:3]
    assert first.spec.seeds != replaced.spec.seeds
