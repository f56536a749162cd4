"""Units: whoever's rows they are, together they move an answer by at most what one row may."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpbench.api import Choice, Chunk, Release, Task
from dpbench.errors import SpecError
from dpbench.privacy.binding import bind
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Contribution, Joined, RankOne, Rows, Scaled
from dpbench.privacy.core.forms.residual.bases import DenseBasis
from dpbench.privacy.core.forms.residual.form import Residual
from dpbench.privacy.core.head import HeadGradient
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.privacy.core.sum import Sum
from dpbench.privacy.core.witness import AuditWitness, SumObservation
from dpbench.privacy.mechanisms.choice.cells import count_rows_in_cells, wrap_as_cells
from dpbench.privacy.mechanisms.choice.question import LeastLossChoice, MajorityChoiceByPart, sum_losses
from dpbench.privacy.mechanisms.choice.steps import project_cells_to_losses
from dpbench.privacy.mechanisms.votes import assign_shards
from tests.helpers.worlds import note, noted

CLASSES, FEATURES = 3, 6
RowFn = Callable[[Chunk], Tensor | Contribution | Blocks]


def world(sizes: Sequence[int], seed: int = 0, power: int = 0) -> PrivateRows:
    """Return rows of units of these sizes, in no order; some are huge, tiny, not finite or zero."""
    draw = torch.Generator().manual_seed(seed)
    of = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(sizes)), sizes))
    x = torch.randn(len(of), FEATURES, generator=draw) * 10.0**power
    for place, number in enumerate((math.inf, math.nan, 0.0, 1e-30, 3e18)):
        x[place::17] = number if place % 2 else x[place::17] * (number if math.isfinite(number) else 1e12)
    return PrivateRows(x, torch.randint(CLASSES, (len(of),), generator=draw), torch.arange(len(of)), PrivacyUnits(of))


def without(rows: PrivateRows, unit: int) -> PrivateRows:
    """Return the rows of all other units."""
    assert rows.units is not None
    kept = np.flatnonzero(rows.units.of != unit)
    of = rows.units.of[kept]
    left = torch.from_numpy(kept)
    return PrivateRows(rows.x[left], rows.y[left], torch.arange(len(kept)), PrivacyUnits(of - (of > unit)))


def summed(
    rows: PrivateRows, asked: RowFn, clip: float | tuple[float, ...], chunk_size: int | None, mapped: bool = False
) -> tuple[IntegerSum, ...]:
    """Return the integer sums behind an answer over all units."""
    seen: list[SumObservation] = []
    task = Task(rows.example_shape, CLASSES, rows.count, torch.device("cpu"))
    randomness = Randomness.research(0, "a test of units")
    curator = bind(rows, task, [Release("sum")], 1.0, randomness, AuditWitness(seen.append))
    curator = curator.answer(MapQuestion(lambda x: x.nan_to_num(0.0, 1e20, -1e20))) if mapped else curator
    curator.answer(Sum(asked, "sum", clip, chunk_size))
    return seen[0].sums


def length(change: Tensor, grid: Tensor) -> Fraction:
    """Return the exact square of the L2 norm of whole steps on a grid."""
    steps = torch.broadcast_to(grid, change.shape).flatten().tolist()
    return sum(
        ((number * Fraction(step)) ** 2 for number, step in zip(change.flatten().tolist(), steps, strict=True)),
        Fraction(),
    )


def outer(chunk: Chunk) -> RankOne:
    return RankOne(chunk.x[:, :CLASSES] * 3, chunk.rows, bias=True)


SCALE = torch.rand(CLASSES, FEATURES + 1, generator=torch.Generator().manual_seed(3)) + 0.1
DIRECTIONS = torch.linalg.qr(torch.randn(CLASSES * FEATURES, 4, generator=torch.Generator().manual_seed(4)))[0]
BASIS = DenseBasis(DIRECTIONS.reshape(CLASSES, FEATURES, 4).contiguous())
HEAD = HeadGradient(torch.randn(CLASSES, FEATURES + 1, generator=torch.Generator().manual_seed(5)), bias=True)
FORMS: dict[str, RowFn] = {
    "dense": lambda chunk: chunk.x,
    "joined": lambda chunk: Joined((chunk.x, chunk.x[:, :2])),
    "outer": outer,
    "outer without bias": lambda chunk: RankOne(chunk.x[:, :CLASSES], chunk.rows),
    "scaled": lambda chunk: Scaled(outer(chunk), SCALE),
    "blocks": lambda chunk: Blocks((chunk.x, outer(chunk))),
    "residual": lambda chunk: Residual(RankOne(chunk.x[:, :CLASSES], chunk.rows), BASIS),
    "head": HEAD,
}


@pytest.mark.quick(3)
@pytest.mark.parametrize("form", FORMS)
@settings(max_examples=settings().max_examples // 2)
@given(
    st.lists(st.integers(1, 50), min_size=2, max_size=5),
    st.integers(0, 2**31),
    st.integers(-4, 4),
    st.sampled_from([None, 1, 7]),
)
def test_a_unit_moves_a_sum_by_at_most_the_clip_exactly(
    form: str, sizes: list[int], seed: int, power: int, chunk_size: int | None
) -> None:
    rows, clips = world(sizes, seed, power), (0.7, 1.3) if form == "blocks" else 0.7
    unit = seed % len(sizes)
    whole = summed(rows, FORMS[form], clips, chunk_size, mapped=form == "head")
    rest = summed(without(rows, unit), FORMS[form], clips, None, mapped=form == "head")
    for total, other, clip in zip(whole, rest, clips if isinstance(clips, tuple) else (clips,), strict=True):
        assert torch.equal(total.grid, other.grid)
        assert length(total.total - other.total, total.grid) <= Fraction(clip) ** 2


@pytest.mark.parametrize("clip", [0.7, 3.0])
def test_a_sum_over_units_is_that_of_the_means_of_their_clipped_rows(clip: float) -> None:
    sizes = [1, 2, 3, 50]
    rows = world(sizes)
    assert rows.units is not None
    x = rows.x.double()
    x = torch.where(x.isfinite().all(1, keepdim=True), x, 0)
    clipped = x * (clip / x.norm(dim=1, keepdim=True).clamp(min=clip))
    means = torch.stack([clipped[rows.units.of == unit].mean(0) for unit in range(len(sizes))])
    (found,) = summed(rows, FORMS["dense"], clip, None)
    torch.testing.assert_close(found.value(), means.sum(0), rtol=1e-4, atol=1e-5)


@pytest.mark.quick(3)
@pytest.mark.parametrize("form", FORMS)
def test_how_units_are_cut_into_chunks_changes_no_sum(form: str) -> None:
    rows, clips = world([5, 1, 30, 8]), (0.7, 1.3) if form == "blocks" else 0.7
    sums = [summed(rows, FORMS[form], clips, size, mapped=form == "head") for size in (None, 1, 7)]
    for other in sums[1:]:
        assert all(torch.equal(total.total, two.total) for total, two in zip(sums[0], other, strict=True))


@pytest.mark.parametrize("form", FORMS)
def test_units_of_one_row_each_change_nothing_to_the_bit(form: str) -> None:
    rows, clips = world([1] * 30), (0.7, 1.3) if form == "blocks" else 0.7
    plain = PrivateRows(rows.held, rows.y, rows.index)
    pairs = zip(*(summed(each, FORMS[form], clips, None, mapped=form == "head") for each in (rows, plain)), strict=True)
    assert all(torch.equal(pair.total, other.total) for pair, other in pairs)


def test_units_are_sampled_whole_and_each_with_its_chance() -> None:
    sizes = [1, 5, 20] * 40
    rows = world(sizes)
    assert rows.units is not None
    labelled = PrivateRows(
        torch.from_numpy(rows.units.of).float().unsqueeze(1).repeat(1, 2), rows.y, rows.index, rows.units
    )
    task = Task((2,), CLASSES, rows.count, torch.device("cpu"))
    curator = bind(labelled, task, [Release("sum", steps=200, sample_rate=0.1)], 1.0, Randomness.research(0, "units"))

    def asked(chunk: Chunk) -> Tensor:
        note(chunk.x[:, 0].long().bincount(minlength=len(sizes)))
        return chunk.x

    for _ in range(200):
        curator.answer(Sum(asked, "sum", 1.0, 10_000))
    drawn = torch.stack(
        [
            found
            for found in noted()
            if int(found.sum()) > 0 and bool(torch.isin(found, torch.tensor([0, *sizes])).all())
        ]
    )
    assert bool(((drawn == 0) | (drawn == torch.tensor(sizes))).all())
    chance = (drawn > 0).double().mean(0)
    assert bool((chance - 0.1).abs().max() < 5 * math.sqrt(0.09 / len(drawn)))


@given(st.integers(1, 10_000))
def test_the_shares_of_a_unit_add_up_to_one_at_most(size: int) -> None:
    share = Fraction(float(PrivacyUnits(np.zeros(size, np.int64)).shares[0]))
    assert 1 - Fraction(1, 2**40) < size * share <= 1


def test_a_map_keeps_units() -> None:
    rows = world([3, 4])
    task = Task(rows.example_shape, CLASSES, rows.count, torch.device("cpu"))
    curator = bind(rows, task, [Release("sum")], 1.0, Randomness.research(0, "units"))
    assert curator.answer(MapQuestion(lambda x: x[:, :2])).rows.units is rows.units


@given(st.lists(st.integers(1, 50), min_size=2, max_size=4), st.integers(0, 2**31))
def test_a_unit_loses_at_most_one_by_each_candidate_and_gains_nothing(sizes: list[int], seed: int) -> None:
    rows = world(sizes, seed)
    assert rows.units is not None
    kept = torch.from_numpy(rows.units.of != seed % len(sizes))
    draw = torch.Generator().manual_seed(seed)
    lost = torch.rand(len(rows), 5, generator=draw) * 3 - 1
    whole, rest = (sum_losses(Rows(lost[some]), 5, rows.units.shares[some]) for some in (kept | True, kept))
    change = (whole.total - rest.total).tolist()
    assert all(0 <= Fraction(number) * Fraction(float(whole.grid)) <= 1 for number in change)
    cells = torch.randint(-1, 4, (len(rows),), generator=draw)
    matrix = torch.rand(4, 6, generator=draw)
    in_cells = wrap_as_cells(lambda chunk: chunk.y, 4)
    both = []
    for some in (kept | True, kept):
        chunk = Chunk(rows.x[some], cells[some], cells[some])
        both.append(project_cells_to_losses(count_rows_in_cells(in_cells(chunk), rows.units.shares[some]), matrix))
    change = (both[0].total - both[1].total).tolist()
    assert all(0 <= Fraction(number) * Fraction(float(both[0].grid)) <= 1 for number in change)


def test_choices_over_units_count_each_unit_once() -> None:
    """One unit of fifty rows votes for 0, three of one row each for 1."""
    of = np.array([0] * 50 + [1, 2, 3])
    y = torch.tensor([0] * 50 + [1] * 3)
    rows = PrivateRows(torch.zeros(53, 1), y, torch.arange(53), PrivacyUnits(of))
    task = Task((1,), CLASSES, 4, torch.device("cpu"))
    plan = [Choice("choice", 2, steps=1), Choice("votes", 2, parts=1)]
    curator = bind(rows, task, plan, 0.0, Randomness.research(0, "units"))
    assert (
        curator.answer(LeastLossChoice(lambda chunk: torch.stack([chunk.y != 0, chunk.y != 1], 1).float(), "choice"))
        == 1
    )
    assert curator.answer(MajorityChoiceByPart(lambda chunk: chunk.y, "votes")).tolist() == [1]


def test_votes_deal_a_units_rows_to_one_shard_whatever_the_others_are() -> None:
    rows = world([4, 1, 9, 30, 2])
    assert rows.units is not None
    shard = assign_shards(rows, 3, salt=7).shard
    for unit in range(rows.count):
        assert len(set(shard[rows.units.of == unit])) == 1
    less = assign_shards(without(rows, 2), 3, salt=7).shard
    assert less.tolist() == shard[rows.units.of != 2].tolist()


@pytest.mark.parametrize("of", [[0, 2], [-1, 0], [], [[0, 1]]])
def test_units_that_are_no_numbering_are_refused(of: list[int]) -> None:
    with pytest.raises(SpecError, match="counted from 0 without gaps"):
        PrivacyUnits(np.array(of, dtype=np.int64))
