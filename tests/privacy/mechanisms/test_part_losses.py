"""Choices by losses part by part: one choice among all combinations, for a row and for a unit in several parts."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy.stats import chi2
from torch import Tensor

from dpbench import Choice, Chunk, Release, SpecError, Task
from dpbench.errors import NotPerExample, NotPlanned, NotPure
from dpbench.harness.guarantee import compute_guarantee
from dpbench.privacy.binding import bind
from dpbench.privacy.core.plan import Budget
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.privacy.core.witness import AuditWitness, ChoiceObservation
from dpbench.privacy.curator import make_learner_curator
from dpbench.privacy.mechanisms.choice.choice_plan import compute_eps0
from dpbench.privacy.mechanisms.choice.parts import PartLosses, combine_losses_with_parts
from dpbench.privacy.mechanisms.choice.replay import log_probabilities
from tests.helpers.worlds import curator_over, private_rows

PARTS, CANDIDATES = 3, 4
PLAN = (Choice("any", CANDIDATES, parts=PARTS),)


def lose(chunk: Chunk) -> Tensor:
    """What a row holds in its first columns; the last one is its part."""
    return chunk.x[:, :CANDIDATES]


def part_of(chunk: Chunk) -> Tensor:
    return chunk.x[:, CANDIDATES].long()


def held(part: Sequence[int], lost: Sequence[Sequence[float]] | Tensor, of: Sequence[int] | None = None) -> PrivateRows:
    """Rows that lose so much by the candidates of such a part, and whose they are."""
    columns = torch.as_tensor(lost, dtype=torch.float32).reshape(len(part), CANDIDATES)
    x = torch.cat([columns, torch.tensor(part, dtype=torch.float32).reshape(-1, 1)], 1)
    units = None if of is None else PrivacyUnits(np.array(of, dtype=np.int64))
    return PrivateRows(x, torch.zeros(len(part), dtype=torch.int64), torch.arange(len(part)), units)


def seen(rows: PrivateRows, sigma: float = 1.0, seed: int = 0, chunk_size: int | None = None) -> ChoiceObservation:
    """Return a choice as an audit sees it."""
    found: list[ChoiceObservation] = []
    task = Task(rows.example_shape, 2, rows.count, torch.device("cpu"))
    curator = bind(
        rows,
        task,
        PLAN,
        sigma,
        Randomness.research(seed, "a test"),
        AuditWitness(lambda _: None, on_choice=found.append),
    )
    make_learner_curator(curator).noisy_choices(lose, part=part_of, release="any", chunk_size=chunk_size)
    return found[0]


def totals(rows: PrivateRows, chunk_size: int | None = None) -> Tensor:
    """Return the total losses in whole steps, (parts, candidates)."""
    return seen(rows, chunk_size=chunk_size).lost.total.reshape(PARTS, CANDIDATES)


def by_combination(lost: np.ndarray) -> np.ndarray:
    """Return the total loss of every combination, given those by part (parts, candidates)."""
    return np.array([sum(row[v] for row, v in zip(lost, combination, strict=True)) for combination in COMBINATIONS])


COMBINATIONS = [*product(range(CANDIDATES), repeat=PARTS)]
NUMBERS = st.floats(width=32)
ROWS = st.lists(
    st.tuples(st.integers(-1, PARTS), st.lists(NUMBERS, min_size=CANDIDATES, max_size=CANDIDATES)),
    min_size=1,
    max_size=7,
)


@given(st.lists(st.floats(0, 20), min_size=PARTS * CANDIDATES, max_size=PARTS * CANDIDATES), st.floats(0.3, 20))
def test_parts_chosen_on_their_own_are_one_choice_among_all_combinations(numbers: list[float], sigma: float) -> None:
    lost = np.array(numbers).reshape(PARTS, CANDIDATES)
    by_part = log_probabilities(lost, sigma)
    whole = log_probabilities(by_combination(lost)[None], sigma)[0]
    np.testing.assert_allclose(by_combination(by_part), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(("secure", "times"), [(False, 4_000), (True, 400)])
def test_combinations_are_drawn_with_the_chances_of_one_exponential_mechanism(secure: bool, times: int) -> None:
    """As many copies of the three parts as combinations are drawn: one question, and one draw for each part."""
    part, lost = [0, 0, 1, 2, 2, 2], torch.rand(6, CANDIDATES, generator=torch.Generator().manual_seed(1)) * 1.5
    copies = [PARTS * copy + number for copy in range(times) for number in part]
    rows, sigma = held(copies, lost.repeat(times, 1)), 0.7
    randomness = Randomness.secure(0, quiet=True) if secure else Randomness.research(0, "a test")
    task, plan = Task(rows.example_shape, 2, len(rows), torch.device("cpu")), Choice("any", CANDIDATES, PARTS * times)
    curator = make_learner_curator(bind(rows, task, [plan], sigma, randomness))
    drawn = curator.noisy_choices(lose, part=part_of, release="any").reshape(times, PARTS)
    counts = np.bincount((drawn @ torch.tensor([CANDIDATES**2, CANDIDATES, 1])).numpy(), minlength=len(COMBINATIONS))
    own = totals(held(part, lost)).numpy() * 2.0**-20
    expected = times * np.exp(log_probabilities(by_combination(own)[None], sigma))[0]
    assert chi2.sf(((counts - expected) ** 2 / expected).sum(), len(COMBINATIONS) - 1) > 1e-6


@given(ROWS, st.integers(0, 6))
def test_a_row_moves_its_own_part_by_0_to_1_whatever_it_says(rows: list[tuple[int, list[float]]], place: int) -> None:
    place %= len(rows)
    part, numbers = [row[0] for row in rows], [row[1] for row in rows]
    whole = totals(held(part, numbers))
    own = totals(held([part[place]], [numbers[place]]))
    rest = [*range(place), *range(place + 1, len(rows))]
    if rest:
        without = totals(held([part[number] for number in rest], [numbers[number] for number in rest]))
        assert torch.equal(whole - without, own)
    inside = [part[place]] if 0 <= part[place] < PARTS else []
    assert not own[[index for index in range(PARTS) if index not in inside]].any()
    assert 0 <= int(own.min()) <= int(own.max()) <= 2**20


@given(st.lists(st.integers(1, 60), min_size=2, max_size=4), st.integers(0, 10**6))
@example([1, 6], 1)  # a sixth of 2^20 steps rounds up: six of them are too many
def test_a_unit_in_several_parts_moves_every_combination_by_at_most_1(sizes: list[int], seed: int) -> None:
    draw = np.random.default_rng(seed)
    of = draw.permutation(np.repeat(np.arange(len(sizes)), sizes))
    full = seed % 2 == 1  # all rows lose all they can: roundings add up there
    part = draw.integers(0 if full else -1, PARTS, len(of))
    some = [1.0, math.inf] if full else [0.0, 0.3, 1.0, 2.0, math.inf]
    lost = torch.from_numpy(draw.choice(some, (len(of), CANDIDATES))).float()
    kept = np.flatnonzero(of != len(sizes) - 1)
    whole = totals(held(part.tolist(), lost, of.tolist()))
    rest = totals(held(part[kept].tolist(), lost[torch.from_numpy(kept)], of[kept].tolist()))
    moved = (whole - rest).numpy()
    assert all(0 <= Fraction(int(loss), 2**20) <= 1 for loss in by_combination(moved))


def test_a_unit_of_fifty_images_in_three_classes_counts_once() -> None:
    """It loses all by candidate 0 of every part; in each part two units of one image lose by candidate 1."""
    others = [(index, part) for part in range(PARTS) for index in range(2)]
    unit = [0] * 48 + [1 + place for place in range(len(others))]
    part = [place % PARTS for place in range(48)] + [part for _, part in others]
    lost = [[1.0, 0.0, 1.0, 1.0]] * 48 + [[0.0, 1.0, 1.0, 1.0]] * len(others)
    found = totals(held(part, lost, unit)).double() * 2.0**-20
    assert found[:, 0].tolist() == pytest.approx([1 / 3] * 3, abs=1e-4)
    assert float(found[:, 0].sum()) <= 1
    assert found[:, 1].tolist() == [2.0] * 3


@given(
    ROWS,
    st.lists(
        st.tuples(
            st.integers(0, PARTS - 1),
            st.lists(st.sampled_from([0.0, 0.4, 1.0, 3.0]), min_size=CANDIDATES, max_size=CANDIDATES),
        ),
        min_size=1,
        max_size=6,
    ),
    st.floats(0.1, 10),
)
def test_neighbours_that_differ_by_a_unit_in_several_parts_have_laws_within_eps0(
    rows: list[tuple[int, list[float]]], unit: list[tuple[int, list[float]]], sigma: float
) -> None:
    part, numbers = ([row[place] for row in (*rows, *unit)] for place in (0, 1))
    of = [*range(len(rows)), *[len(rows)] * len(unit)]
    worst = []
    for count in (len(of), len(rows)):
        lost = totals(held(part[:count], numbers[:count], of[:count])).numpy() * 2.0**-20  # type: ignore[arg-type]
        worst.append(log_probabilities(by_combination(lost)[None], sigma)[0])
    ratio = worst[0] - worst[1]
    assert np.abs(ratio).max() <= compute_eps0(sigma) + 1e-9
    assert np.ptp(ratio) <= compute_eps0(sigma) + 1e-9  # bounded range, which composition rests on


def test_losses_of_votes_choose_what_votes_do() -> None:
    rows = private_rows(300, d=3, classes=CANDIDATES)

    def votes(chunk: Chunk) -> Tensor:
        return CANDIDATES * chunk.x.argmax(1) + chunk.y

    def disagree(chunk: Chunk) -> Tensor:
        return 1 - torch.nn.functional.one_hot(chunk.y, CANDIDATES).float()

    for seed in range(20):
        curator, other = (curator_over(rows, PLAN, 60.0, seed=seed) for _ in range(2))
        chosen = other.noisy_choices(disagree, part=lambda chunk: chunk.x.argmax(1), release="any")
        assert torch.equal(curator.noisy_choices(votes, release="any"), chosen)


def test_losses_of_one_part_choose_what_a_single_choice_does() -> None:
    rows, plan = private_rows(200), [Choice("any", 3)]
    for seed in range(20):
        curator, other = (curator_over(rows, plan, 60.0, seed=seed) for _ in range(2))
        parts = other.noisy_choices(lambda chunk: chunk.x[:, :3], part=lambda chunk: 0 * chunk.y, release="any")
        assert parts.tolist() == [curator.noisy_choice(lambda chunk: chunk.x[:, :3], release="any")]


@pytest.mark.parametrize("units", [False, True])
def test_how_rows_are_cut_into_chunks_changes_no_total(units: bool) -> None:
    draw = torch.Generator().manual_seed(0)
    part = torch.randint(-1, PARTS + 1, (90,), generator=draw).tolist()
    rows = held(
        part, torch.rand(90, CANDIDATES, generator=draw) * 2, [place // 7 for place in range(90)] if units else None
    )
    assert torch.equal(totals(rows), totals(rows, chunk_size=7))


def test_without_noise_each_part_has_the_first_of_its_least() -> None:
    rows = held([0, 0, 1], [[1, 0, 1, 1], [1, 0.5, 1, 1], [1, 1, 1, 0]])
    assert seen(rows, sigma=0.0).chosen.tolist() == [1, 3, 0]


def test_the_form_says_what_its_rows_are() -> None:
    form = combine_losses_with_parts(lose, part_of, PLAN[0])(
        Chunk(held([1, -1, 2], torch.ones(3, CANDIDATES)).x, torch.zeros(3), torch.zeros(3))
    )
    assert form.norms().tolist() == pytest.approx([2.0, 0.0, 2.0], rel=1e-5)
    expected = torch.zeros(3, PARTS, CANDIDATES)
    expected[0, 1] = expected[2, 2] = 1
    assert torch.equal(form.dense(), expected)
    assert torch.equal(form.take(torch.tensor([2])).dense(), expected[2:])
    with pytest.raises(SpecError, match="Expected clip=1 of losses by parts"):
        form.clipped_sum(0.5)
    with pytest.raises(SpecError, match="Expected a part for each of 3 rows of losses, got 2"):
        PartLosses(form.part[:2], form.rows, PARTS)


def test_a_part_that_follows_other_rows_is_refused() -> None:
    curator = curator_over(private_rows(60), PLAN, 1.0)
    with pytest.raises(NotPerExample):
        curator.noisy_choices(
            lambda chunk: chunk.x[:, :CANDIDATES].sigmoid(),
            part=lambda chunk: chunk.y * (len(chunk) > 20),
            release="any",
        )


def test_a_part_that_remembers_is_refused() -> None:
    kept: list[Tensor] = []

    def remembers(chunk: Chunk) -> Tensor:
        kept.append(chunk.y.clone())
        return chunk.y

    curator = curator_over(private_rows(), PLAN, 1.0)
    with pytest.raises(NotPure):
        curator.noisy_choices(lose, part=remembers, release="any")


@pytest.mark.parametrize(
    ("rows", "part", "said"),
    [
        (lambda chunk: torch.zeros(len(chunk), 5), lambda chunk: chunk.y, r"with N in \[1, 4\], as planned"),
        (lambda chunk: chunk.y, lambda chunk: chunk.y, r"one contribution per row"),
        (lambda chunk: chunk.x[:, :3], lambda chunk: chunk.y.float(), r"whole number a row, int64 \(c,\), from a row"),
        (lambda chunk: chunk.x[:, :3], lambda chunk: chunk.x, r"over parts, got torch.float32"),
        (lambda chunk: chunk.x[:, :3].bool(), lambda chunk: chunk.y, r"Call .float\(\)"),
    ],
)  # fmt: skip
def test_what_is_no_loss_of_a_part_is_refused_in_one_sentence(
    rows: Callable[[Chunk], Tensor], part: Callable[[Chunk], Tensor], said: str
) -> None:
    curator = curator_over(private_rows(), PLAN, 1.0)
    with pytest.raises(SpecError, match=said):
        curator.noisy_choices(rows, part=part, release="any")


def test_another_number_of_candidates_than_over_no_rows_is_refused() -> None:
    curator = curator_over(private_rows(), PLAN, 1.0)
    with pytest.raises(NotPerExample, match="another form, shape or scale"):
        curator.noisy_choices(
            lambda chunk: chunk.x[:, : 3 if len(chunk) else 4], part=lambda chunk: chunk.y, release="any"
        )


def test_a_step_is_spent_and_a_release_of_sums_is_refused() -> None:
    curator = curator_over(private_rows(), [*PLAN, Release("sum")], 1.0)
    for name, said in (("sum", "Release 'sum' is planned as a Release"), ("any", None), ("any", "are spent")):
        if said is None:
            curator.noisy_choices(lambda chunk: chunk.x[:, :3], part=lambda chunk: chunk.y, release=name)
        else:
            with pytest.raises(NotPlanned, match=said):
                curator.noisy_choices(lambda chunk: chunk.x[:, :3], part=lambda chunk: chunk.y, release=name)


def test_all_parts_together_are_stated_as_one_pure_choice() -> None:
    stated = compute_guarantee(PLAN, Budget(0.5, 1e-5), "pld", "research")
    assert (stated.delta, stated.epsilon) == (0, compute_eps0(stated.plan[0].sigma))
    assert 0.4999 < stated.epsilon <= 0.5
    assert stated.independent.lower <= stated.epsilon <= stated.independent.upper
