"""Votes of teachers: who is in which shard, what one example moves, what is refused."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpbench import (
    Chunk,
    Release,
    SpecError,
    Teacher,
)
from dpbench.errors import ComponentFailed, NotPerExample, NotPlanned, NotPure
from dpbench.harness.tuning.trials import make_weighted_curator
from dpbench.privacy.core.exact.quantised import quantise
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.mechanisms.votes import add_votes, assign_shards
from tests.helpers.worlds import curator_over, note, private_rows

QUERIES = torch.randn(12, 5, generator=torch.Generator().manual_seed(1))
PLAN = [Release("votes"), Release("confident")]


def nearest(shard: Chunk, queries: Tensor) -> Tensor:
    """Label each query as the nearest example of the shard is."""
    apart: Tensor = (queries.unsqueeze(1) - shard.x).square().sum(2).argmin(1)
    return shard.y[apart]


def size_as_label(shard: Chunk, queries: Tensor) -> Tensor:
    return torch.full((len(queries),), len(shard) % 3)


def by_seed(shard: Chunk, queries: Tensor) -> Tensor:
    return torch.full((len(queries),), int(shard.seeds.sum()) % 3)


def without(rows: PrivateRows, place: int) -> PrivateRows:
    kept = torch.cat([torch.arange(place), torch.arange(place + 1, len(rows))])
    return dataclasses.replace(rows, held=rows.held[kept], y=rows.y[kept], index=torch.arange(len(kept)))


def votes_of(rows: PrivateRows, teacher: Teacher, shards: int = 8, sigma: float = 0.0) -> Tensor:
    return curator_over(rows, PLAN, sigma).handle().noisy_votes(teacher, QUERIES, release="votes", shards=shards)


@given(st.integers(0, 39), st.integers(1, 39), st.sampled_from([nearest, size_as_label, by_seed]))
@settings(max_examples=25, deadline=None)
def test_taking_an_example_away_moves_one_vote_a_query(place: int, shards: int, teacher: Teacher) -> None:
    rows = private_rows()
    moved = (votes_of(rows, teacher, shards) - votes_of(without(rows, place), teacher, shards)).abs()
    assert float(moved.max()) <= 1
    assert float(moved.square().sum(1).max()) <= 2


@pytest.mark.parametrize("mapped", [False, True])
def test_an_example_stays_in_its_shard_whoever_else_is_there(mapped: bool) -> None:
    rows = private_rows(60)
    rows = dataclasses.replace(rows, held=quantise(rows.x)) if mapped else rows
    whole, fewer = assign_shards(rows, 7, salt=5), assign_shards(without(rows, 3), 7, salt=5)
    for field in ("shard", "seed"):
        assert np.array_equal(np.delete(getattr(whole, field), 3), getattr(fewer, field))
    assert not np.array_equal(whole.shard, assign_shards(rows, 7, salt=6).shard)


def test_equal_examples_share_a_shard_and_other_labels_do_not_count_as_equal() -> None:
    x = torch.ones(40, 5)
    y = torch.arange(40) % 2
    shard = assign_shards(PrivateRows(x, y, torch.arange(40)), 10**6, salt=0).shard
    assert len(set(shard[::2])) == len(set(shard[1::2])) == 1
    assert shard[0] != shard[1]


def test_shards_are_about_as_large_as_each_other_and_hold_every_example_once() -> None:
    rows, seen = private_rows(2_000), list[Tensor]()
    dealt = assign_shards(rows, 20, salt=1)
    for shard in dealt.shards(rows, torch.device("cpu")):
        assert 60 < len(shard) < 145
        assert torch.equal(shard.x, rows.x[np.flatnonzero(dealt.shard == len(seen))])
        seen.append(shard.x.clone())
    assert sum(map(len, seen)) == 2_000


def test_a_shard_is_wiped_when_its_teacher_is_done() -> None:
    rows = private_rows()
    for shard in assign_shards(rows, 3, 0).shards(rows, torch.device("cpu")):
        kept = shard
    assert bool(kept.x.isnan().all())
    assert not bool(kept.y.any())


def test_labels_that_are_no_class_are_no_votes() -> None:
    total = torch.zeros(4, 3, dtype=torch.int64)
    add_votes(total, torch.tensor([-1, 0, 3, 2]))
    assert total.tolist() == [[0, 0, 0], [1, 0, 0], [0, 0, 0], [0, 0, 1]]


def test_noise_has_the_spread_that_is_stated() -> None:
    rows, queries = private_rows(60), torch.zeros(4_000, 5)
    plan = [Release("votes"), Release("confident", relative_noise=0.5)]
    exact, noisy = (
        curator_over(rows, plan, sigma).noisy_votes(size_as_label, queries, release="votes", shards=6)
        for sigma in (0.0, 1.5)
    )
    assert float((noisy - exact).std() / (1.5 * math.sqrt(2 * 4_000))) == pytest.approx(1, abs=0.03)
    answer = curator_over(rows, plan, 1.5).noisy_votes(
        size_as_label, queries, release="votes", shards=6, confident="confident", threshold=0.0
    )
    answered = ~answer.isnan().any(1)
    assert torch.equal(answered, ~answer.isnan().all(1))
    chance = 0.5 * math.erfc(-float(exact[0].max()) / (0.75 * math.sqrt(4_000)) / math.sqrt(2))
    assert float(answered.double().mean()) == pytest.approx(chance, abs=0.03)
    spread = 1.5 * math.sqrt(2 * int(answered.sum()))
    assert float((answer - exact)[answered].std() / spread) == pytest.approx(1, abs=0.03)


def test_nobody_is_answered_above_what_all_teachers_say() -> None:
    curator = curator_over(private_rows(), PLAN)
    answer = curator.noisy_votes(nearest, QUERIES, release="votes", shards=4, confident="confident", threshold=5.0)
    assert bool(answer.isnan().all())
    assert curator.ledger.spent == {"votes": 1, "confident": 1}


def test_votes_repeat_with_their_seed() -> None:
    rows = private_rows()
    assert torch.equal(votes_of(rows, nearest, sigma=2.0), votes_of(rows, nearest, sigma=2.0))


def test_a_teacher_that_remembers_is_refused() -> None:
    kept: list[int] = []

    def remembers(shard: Chunk, queries: Tensor) -> Tensor:
        kept.append(len(shard))
        return nearest(shard, queries)

    with pytest.raises(NotPure, match="A teacher of release 'votes' changed what it reaches"):
        votes_of(private_rows(), remembers)


def test_a_teacher_that_draws_from_a_generator_is_refused() -> None:
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(NotPure):
        votes_of(private_rows(), lambda shard, queries: torch.randint(3, (len(queries),), generator=generator))


def test_a_teacher_that_remembers_where_nobody_looks_is_refused() -> None:
    def remembers(shard: Chunk, queries: Tensor) -> Tensor:
        note(len(shard))
        return torch.full((len(queries),), len(_notes()) % 3)

    with pytest.raises(NotPerExample, match="gave different labels when it was called twice on the same shard"):
        votes_of(private_rows(), remembers)


def _notes() -> list[object]:
    import threading

    notes: list[object] = vars(threading.main_thread())["dpbench_notes"]
    return notes


def test_a_teacher_that_changes_the_queries_is_refused() -> None:
    def writes(shard: Chunk, queries: Tensor) -> Tensor:
        queries[0] = shard.x[0]
        return nearest(shard, queries)

    queries = QUERIES.clone()
    with pytest.raises(NotPure):
        curator_over(private_rows(), PLAN).noisy_votes(writes, queries, release="votes", shards=5)


def test_a_teacher_may_fit_by_gradients() -> None:
    def trained(shard: Chunk, queries: Tensor) -> Tensor:
        head = torch.zeros(5, 3)
        with torch.enable_grad():
            head.requires_grad_()
            for _ in range(3):
                loss = torch.nn.functional.cross_entropy(shard.x @ head, shard.y)
                (gradient,) = torch.autograd.grad(loss, head)
                head = (head - gradient).detach().requires_grad_()
        return (queries @ head).argmax(1)

    assert float(votes_of(private_rows(), trained, shards=4).sum()) == 4 * len(QUERIES)


def test_a_teacher_that_fails_ends_the_fit_without_a_private_value() -> None:
    def fails(shard: Chunk, queries: Tensor) -> Tensor:
        raise ValueError(f"the secret is {shard.x}")

    curator = curator_over(private_rows(), PLAN)
    with pytest.raises(ComponentFailed) as failed:
        curator.noisy_votes(fails, QUERIES, release="votes", shards=5)
    assert "secret" not in str(failed.value)
    with pytest.raises(ComponentFailed):
        curator.noisy_votes(nearest, QUERIES, release="confident", shards=5)


@pytest.mark.parametrize(
    ("teacher", "found"),
    [
        (lambda shard, queries: torch.zeros(len(queries), 3), r"torch.float32 \(12, 3\)"),
        (lambda shard, queries: torch.zeros(len(queries) + 1, dtype=torch.int64), r"torch.int64 \(13,\)"),
        (lambda shard, queries: [0] * len(queries), "list"),
    ],
)
def test_labels_of_another_shape_are_refused(teacher: Teacher, found: str) -> None:
    with pytest.raises(SpecError, match=rf"labels from a teacher, int64 \(12,\), one per query, got {found}"):
        votes_of(private_rows(), teacher)


@pytest.mark.parametrize(
    ("queries", "release", "shards", "said"),
    [
        (QUERIES, "votes", 41, r"shards=41 .* in \[1, 40\]"),
        (QUERIES, "votes", 0, "shards=0"),
        (QUERIES, "votes", "4", "shards='4' to be a whole number"),
        (QUERIES[:0], "votes", 4, "at least one public query"),
        (QUERIES, "some", 4, "sample_rate=1 of votes, got 0.5 in release 'some'"),
    ],
)
def test_what_cannot_be_asked_is_refused_in_one_sentence(queries: Tensor, release: str, shards: int, said: str) -> None:
    curator = curator_over(private_rows(), [*PLAN, Release("some", sample_rate=0.5)])
    with pytest.raises(SpecError, match=said):
        curator.noisy_votes(nearest, queries, release=release, shards=shards)


def test_the_largest_counts_have_a_release_of_their_own() -> None:
    curator = curator_over(private_rows(), [Release("votes", steps=2)])
    with pytest.raises(SpecError, match="Expected two different releases, got 'votes' both"):
        curator.noisy_votes(nearest, QUERIES, release="votes", shards=4, confident="votes", threshold=2.0)


def test_a_threshold_that_nothing_is_compared_with_is_refused_before_anything_is_spent() -> None:
    curator = curator_over(private_rows(), PLAN)
    with pytest.raises(SpecError, match=r"a release named by confident with threshold=5\.0, got none"):
        curator.noisy_votes(nearest, QUERIES, release="votes", shards=4, threshold=5.0)
    assert curator.ledger.spent["votes"] == 0


def test_votes_are_spent_as_any_release() -> None:
    curator = curator_over(private_rows(), PLAN)
    curator.noisy_votes(nearest, QUERIES, release="votes", shards=4)
    with pytest.raises(NotPlanned, match="All 1 planned steps of release 'votes' are spent"):
        curator.noisy_votes(nearest, QUERIES, release="votes", shards=4)


def test_stand_ins_vote_in_fewer_shards_of_the_real_size() -> None:
    def one_each(shard: Chunk, queries: Tensor) -> Tensor:
        return torch.zeros(len(queries), dtype=torch.int64)

    curator = make_weighted_curator(curator_over(private_rows(400), PLAN).curator, {}, weight=10.0)
    answer = curator.noisy_votes(one_each, QUERIES, release="votes", shards=50)
    assert torch.equal(answer, torch.tensor([50.0, 0, 0]).expand(12, -1))


def test_mapped_rows_are_not_dealt_as_their_last_bits_may_follow_their_place() -> None:
    curator = curator_over(private_rows(), [Release("votes")], sigma=1.0)
    mapped = curator.map(lambda x: x)
    with pytest.raises(SpecError, match="got a curator whose rows are mapped"):
        mapped.noisy_votes(lambda shard, queries: torch.zeros(len(queries), dtype=torch.int64), torch.zeros(2, 3),
                           release="votes", shards=2)  # fmt: skip
    assert curator.ledger.spent["votes"] == 0
