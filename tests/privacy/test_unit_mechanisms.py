"""The rules that the page on the price of the unit compares: each bounds a unit, and one of them is the core's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dpbench import Chunk, RankOne, Release, Task
from dpbench.privacy.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.privacy.curator import make_learner_curator
from tests.helpers.unit_mechanisms import RULES, Pairs, Private, Ruled, mean_of_clips

OWNERS = np.array([0, 1, 1, 2, 0, 3, 3, 3, 3, 2])
PLACES = torch.tensor([0, 0, 1, 0, 1, 0, 1, 2, 3, 1])


def outer(seed: int = 0, alike: bool = False) -> RankOne:
    draw = torch.Generator().manual_seed(seed)
    left, right = torch.randn(10, 3, generator=draw), torch.randn(10, 5, generator=draw)
    if alike:  # rows of a unit point the same way: no sum is longer
        first = [int(np.flatnonzero(owner == OWNERS)[0]) for owner in OWNERS]
        left, right = left[first], right[first]
    return RankOne(left * torch.logspace(-2, 2, 10).unsqueeze(1), right, bias=True)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("alike", [False, True])
def test_no_rule_lets_a_unit_move_the_sum_by_more_than_the_clip(rule: str, alike: bool) -> None:
    private = Private(Pairs(torch.from_numpy(OWNERS)), PLACES)
    for seed in range(5):
        rows = outer(seed, alike)
        weighted = rows.dense() * RULES[rule](private, rows, 0.7)[:, None, None]
        for owner in range(4):
            assert weighted[torch.from_numpy(owner == OWNERS)].sum(0).norm() <= 0.7 * (1 + 1e-5)


def test_the_mean_of_clipped_rows_is_what_the_core_answers() -> None:
    rows, y = torch.randn(10, 5, generator=torch.Generator().manual_seed(0)), torch.arange(10) % 3
    held = PrivateRows(rows, y, torch.arange(10), PrivacyUnits(OWNERS))
    curator = bind(held, Task((5,), 3, 4, torch.device("cpu")), [Release("a", 2)], 0.0, Randomness.research(0, "test"))

    def gradient(chunk: Chunk) -> RankOne:
        return RankOne(torch.nn.functional.one_hot(chunk.y, 3).float(), chunk.rows)

    ruled = Ruled(curator, Private(Pairs(torch.from_numpy(OWNERS)), PLACES), mean_of_clips, torch.Generator())
    ours, cores = (
        handle.noisy_sum(gradient, release="a", clip=1.0) for handle in (ruled.handle(), make_learner_curator(curator))
    )
    assert torch.allclose(ours, cores, atol=0.02)  # rows are in 8 bits there
    assert ours.norm() > 0.5
