"""The exponential mechanism: its law, its sensitivity, its epsilon by hand and by two accountants, and bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from scipy.stats import chi2, norm
from torch import Tensor

from dpbench import (
    Budget,
    Choice,
    Chunk,
    PlanError,
    Planned,
    Release,
    SpecError,
)
from dpbench.errors import ComponentFailed, NotPerExample, NotPlanned, NotPure
from dpbench.harness.guarantee import compute_guarantee
from dpbench.harness.tuning.trials import make_weighted_curator
from dpbench.privacy.core.accounting import accountant, private_search
from dpbench.privacy.core.accounting.crosscheck import cross_check
from dpbench.privacy.core.accounting.private_search import RunCountDistribution
from dpbench.privacy.core.forms.contributions import Rows
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.randomness import QuestionDraws, Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.mechanisms.choice.cells import CellContribution
from dpbench.privacy.mechanisms.choice.choice_plan import choice_loss_variable, compute_eps0, hockey_stick_divergence
from dpbench.privacy.mechanisms.choice.question import check_loss_matrix, choose_candidates, sum_losses
from dpbench.privacy.mechanisms.choice.steps import project_cells_to_losses
from tests.helpers.commands import call
from tests.helpers.worlds import curator_over, private_rows

DELTA = 1e-5
STEP = 2.0**-20


def secure() -> QuestionDraws:
    return Randomness.secure(0, quiet=True).draws("choice", 1)


def research() -> QuestionDraws:
    return Randomness.research(0, "a test").draws("choice", 1)


def odds(totals: Sequence[float], eps0: float) -> np.ndarray:
    """The law, written out: chances proportional to exp(-eps0 L)."""
    weights = np.exp(-eps0 * (np.array(totals) - min(totals)))
    return np.asarray(weights / weights.sum())


def counts_of(totals: Sequence[float], eps0: float, draws: QuestionDraws, times: int) -> np.ndarray:
    """How often each candidate is chosen, over that many parts with these totals."""
    whole = torch.tensor([round(total / STEP) for total in totals]).expand(times, -1)
    return np.bincount(choose_candidates(whole, 2 / eps0, STEP, draws).numpy(), minlength=len(totals))


def chi_square(found: np.ndarray, chances: np.ndarray) -> float:
    expected = chances * found.sum()
    return float(chi2.sf(((found - expected) ** 2 / expected).sum(), len(chances) - 1))


@pytest.mark.quick(1)
@pytest.mark.parametrize(("draws", "times"), [(research, 200_000), (secure, 20_000)])
def test_three_candidates_are_chosen_with_the_chances_of_the_law(
    draws: Callable[[], QuestionDraws], times: int
) -> None:
    totals, eps0 = (10.0, 11.25, 13.5), 0.8
    assert chi_square(counts_of(totals, eps0, draws(), times), odds(totals, eps0)) > 1e-6


def test_two_candidates_are_a_sigmoid() -> None:
    found = counts_of((4.0, 3.0), 1.5, research(), 200_000)
    assert chi_square(found, np.array([1 / (1 + math.exp(1.5)), 1 / (1 + math.exp(-1.5))])) > 1e-6


def test_the_law_of_neighbours_differs_by_eps0_at_most_and_by_that_much_somewhere() -> None:
    eps0, worst = 0.7, 0.0
    for lost in ([0.0, 1.0, 0.5], [1.0, 1.0, 0.0], [0.3, 0.6, 1.0]):
        for totals in ([0.0, 0.0, 0.0], [100.0, 0.0, 50.0], [0.0, 100.0, 100.0]):
            ratio = np.log(odds(np.add(totals, lost).tolist(), eps0) / odds(totals, eps0))
            worst = max(worst, float(np.abs(ratio).max()))
            assert np.ptp(ratio) <= eps0 + 1e-12
    assert 0.99 * eps0 < worst <= eps0 + 1e-12


def test_the_drawn_ratio_of_neighbours_is_that_of_the_law() -> None:
    eps0, times = 1.0, 400_000
    with_row, without = (counts_of(totals, eps0, research(), times) for totals in ((0.0, 1.0), (0.0, 0.0)))
    ratio = math.log(with_row[0] / without[0])
    assert ratio == pytest.approx(math.log(2 / (1 + math.exp(-eps0))), abs=0.01)


@given(st.lists(st.lists(st.floats(width=32), min_size=3, max_size=3), min_size=1, max_size=6), st.integers(0, 5))
@settings(max_examples=200)
def test_a_row_moves_every_total_by_0_to_1_whatever_it_says(rows: list[list[float]], place: int) -> None:
    held, place = torch.tensor(rows), place % len(rows)
    without = torch.cat([held[:place], held[place + 1 :]])
    moved = sum_losses(Rows(held), 3).total - sum_losses(Rows(without), 3).total
    assert moved.dtype == torch.int64
    assert int(moved.min()) >= 0
    assert int(moved.max()) <= 2**20
    assert torch.equal(moved, sum_losses(Rows(held[[place]]), 3).total)


def test_nan_loses_nothing_and_what_is_outside_is_clamped() -> None:
    strange = torch.tensor([[math.nan, math.inf, -math.inf, 7.0, 0.25]])
    assert (sum_losses(Rows(strange), 5).value()).tolist() == [0.0, 1.0, 0.0, 1.0, 0.25]


@given(st.lists(st.integers(-2, 5), max_size=30))
def test_rows_in_cells_lose_what_a_public_matrix_says(index: list[int]) -> None:
    matrix = torch.rand(4, 3, generator=torch.Generator().manual_seed(0))
    cells = CellContribution(torch.tensor(index, dtype=torch.int64), 4)
    inside = [place for place in index if 0 <= place < 4]
    found = project_cells_to_losses(cells.clipped_sum(1.0), check_loss_matrix(matrix, 3))
    direct = sum_losses(Rows(matrix[torch.tensor(inside, dtype=torch.int64)]), 3)
    assert torch.equal(found.total, direct.total)
    assert cells.norms().tolist() == [float(0 <= place < 4) for place in index]
    assert torch.equal(cells.dense().sum(0).long(), cells.clipped_sum(1.0).total)


def test_a_choice_finds_what_loses_least_and_spends_its_step() -> None:
    x = torch.linspace(0, 1, 400).unsqueeze(1)
    rows = PrivateRows(x, (x.squeeze(1) > 0.6).long(), torch.arange(400))
    cuts = torch.tensor([0.1, 0.3, 0.6, 0.9])
    curator = curator_over(rows, [Choice("cut", candidates=9)], sigma=0.5)

    def wrong(chunk: Chunk) -> Tensor:
        return ((chunk.x > cuts) != chunk.y.bool().unsqueeze(1)).float()

    assert curator.handle().noisy_choice(wrong, release="cut", chunk_size=7) == 2
    with pytest.raises(NotPlanned, match="All 1 planned steps of release 'cut' are spent"):
        curator.handle().noisy_choice(wrong, release="cut")


def test_cells_and_a_matrix_choose_what_losses_do() -> None:
    rows, cuts = private_rows(300), torch.tensor([-0.5, 0.0, 0.5])

    def loses(chunk: Chunk) -> Tensor:
        return (chunk.x[:, :1] > cuts).float()

    def cell(chunk: Chunk) -> Tensor:
        return (chunk.x[:, :1] > cuts).sum(1)

    matrix = (torch.arange(4).unsqueeze(1) > torch.arange(3)).to(torch.bool)
    plan = [Choice("cut", 3, steps=50)]
    curator, other = (curator_over(rows, plan, sigma=200.0) for _ in range(2))
    direct = [curator.noisy_choice(loses, release="cut") for _ in range(50)]
    assert direct == [other.noisy_choice(cell, release="cut", project=matrix) for _ in range(50)]
    assert len(set(direct)) == 3


def test_parts_are_chosen_each_by_its_own_votes() -> None:
    rows = private_rows(900, d=3, classes=2)
    plan = [Choice("coins", candidates=2, parts=4, steps=1)]

    def votes(chunk: Chunk) -> Tensor:
        return 2 * chunk.x.argmax(1) + chunk.y

    counts = torch.bincount(2 * rows.x.argmax(1) + rows.y, minlength=8).reshape(4, 2)
    assert torch.equal(curator_over(rows, plan).noisy_choices(votes, release="coins")[:3], counts.argmax(1)[:3])
    sigma = 40.0
    curators = [curator_over(rows, plan, sigma, seed=seed) for seed in range(400)]
    drawn = torch.stack([curator.noisy_choices(votes, release="coins") for curator in curators])
    expected = torch.sigmoid(compute_eps0(sigma) * (counts[:, 1] - counts[:, 0]).double())
    error = (expected * (1 - expected) / 400).sqrt()
    assert bool(((drawn.double().mean(0) - expected).abs() < 4.5 * error + 1e-9).all())


def test_the_first_of_the_least_is_chosen_without_noise() -> None:
    rows = private_rows(10)
    curator = curator_over(rows, [Choice("any", 5)])
    assert curator.noisy_choice(lambda chunk: torch.ones(len(chunk), 5), release="any") == 0


@pytest.mark.parametrize("sigma", [0.0, 1.0])
def test_one_example_is_enough_to_choose(sigma: float) -> None:
    curator = curator_over(private_rows(1), [Choice("any", 3), Choice("parts", 2, parts=4)], sigma)
    assert curator.noisy_choice(lambda chunk: torch.zeros(len(chunk), 3), release="any") in range(3)
    assert curator.noisy_choices(lambda chunk: 2 * chunk.y, release="parts").shape == (4,)


def test_losses_that_read_other_rows_are_refused() -> None:
    curator = curator_over(private_rows(60), [Choice("any", 3)], 1.0)
    with pytest.raises(NotPerExample):
        curator.handle().noisy_choice(lambda chunk: (chunk.x[:, :3] > chunk.x[:, :3].mean(0)).float(), release="any")


def test_a_cell_that_follows_other_rows_is_refused_however_large_its_number() -> None:
    curator = curator_over(private_rows(60), [Choice("any", 3)], 1.0)
    project = torch.zeros(100_000, 3)
    with pytest.raises(NotPerExample):
        curator.noisy_choice(lambda chunk: chunk.y + 90_000 + (len(chunk) > 20), release="any", project=project)


def test_losses_that_remember_are_refused() -> None:
    kept: list[Tensor] = []

    def remembers(chunk: Chunk) -> Tensor:
        kept.append(chunk.x.clone())
        return torch.zeros(len(chunk), 3)

    curator = curator_over(private_rows(), [Choice("any", 3)], 1.0)
    with pytest.raises(NotPure):
        curator.noisy_choice(remembers, release="any")
    with pytest.raises(NotPure):
        curator.guard.raise_earlier_refusal()


def test_a_choice_is_asked_as_one_and_a_release_of_sums_as_one() -> None:
    curator = curator_over(private_rows(), [Choice("any", 3), Release("sum"), Choice("parts", 3, parts=2)], 1.0)
    with pytest.raises(NotPlanned, match="Release 'any' is planned as a Choice"):
        curator.noisy_sum(lambda chunk: chunk.x, release="any", clip=1.0)
    with pytest.raises(NotPlanned, match="Release 'sum' is planned as a Release"):
        curator.noisy_choice(lambda chunk: chunk.x, release="sum")
    with pytest.raises(SpecError, match="Release 'parts' is planned with 2 parts"):
        curator.noisy_choice(lambda chunk: chunk.x, release="parts")


@pytest.mark.parametrize(
    ("rows", "project", "said"),
    [
        (lambda chunk: torch.zeros(len(chunk), 4), None, r"losses \(c, N\) with N in \[1, 3\], as planned"),
        (lambda chunk: torch.zeros(len(chunk), 0), None, r"with N in \[1, 3\]"),
        (lambda chunk: torch.zeros(len(chunk), 3, dtype=torch.bool), None, r"Call .float\(\)"),
        (lambda chunk: chunk.y, torch.full((3, 3), 2.0), r"losses in \[0, 1\] in project, got 2 to 2"),
        (lambda chunk: chunk.y, torch.full((3, 3), math.nan), r"losses in \[0, 1\] in project, got nan"),
        (lambda chunk: chunk.y, torch.zeros(3, 4), r"project \(cells, N\) with N in \[1, 3\]"),
        (lambda chunk: chunk.y.float(), torch.zeros(3, 3), r"one whole number a row, int64 \(c,\)"),
    ],
)  # fmt: skip
def test_what_is_no_loss_is_refused_in_one_sentence(
    rows: Callable[[Chunk], Tensor], project: Tensor | None, said: str
) -> None:
    curator = curator_over(private_rows(), [Choice("any", 3)], 1.0)
    with pytest.raises(SpecError, match=said):
        curator.noisy_choice(rows, release="any", project=project)


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        (Choice("any", 10**9), "over all parts in release 'any' of learner 'sspp', got 1,000,000,000"),
        (Choice("any", 2, parts=10**9), "over all parts in release 'any'"),
        (Choice("any", 1), "candidates=1 to be a whole number >= 2"),
        (Choice("any", 2, parts=0), "parts=0 to be a whole number >= 1"),
        (Choice("any", 2.5), "candidates=2.5 to be a whole number"),  # type: ignore[arg-type]
        (Choice("any", 2, steps=0), "steps=0 to be a whole number >= 1"),
        (Choice("any", 2, relative_noise=0.0), "relative_noise=0.0 between"),
        (Choice("any", "2"), "candidates to be one number"),  # type: ignore[arg-type]
    ],
)  # fmt: skip
def test_a_malformed_choice_is_refused_in_one_sentence(choice: Choice, said: str) -> None:
    with pytest.raises(PlanError, match=said):
        check_plan([choice], "learner 'sspp'")


# epsilon


def tail(e: float, mu: float) -> float:
    """The hockey-stick divergence of one Gaussian release with noise 1 / mu (Balle and Wang 2018)."""
    return float(norm.cdf(mu / 2 - e / mu) - math.exp(e) * norm.cdf(-mu / 2 - e / mu))


def delta_by_hand(e: float, mu: float, eps0s: Sequence[float]) -> float:
    """The divergence of a Gaussian and choices together: an integral over the losses of the choices."""
    if not eps0s:
        return tail(e, mu)
    eps0, *others = eps0s
    weight = 1 / (2 * -math.expm1(-eps0))

    def at(loss: float) -> float:
        return weight * math.exp((loss - eps0) / 2) * delta_by_hand(e - loss, mu, others)

    return float(quad(at, -eps0, eps0, epsabs=1e-12, epsrel=1e-7, limit=200)[0])


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    "epsilon", [pytest.param(0.1, marks=pytest.mark.slow), 1.0, pytest.param(5.0, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(
    "plan",
    [
        [Choice("any", 4), Release("sum")],
        [Choice("any", 4, relative_noise=0.5), Release("sum", steps=9, relative_noise=3.0)],
        [Choice("one", 4), Choice("two", 9, relative_noise=2.0), Release("sum", relative_noise=0.7)],
    ],
)
def test_epsilon_of_three_mixed_plans_is_that_by_hand_and_of_two_accountants(
    plan: list[Planned], epsilon: float
) -> None:
    sigma = accountant.calibrate(plan, Budget(epsilon, DELTA))
    stated = accountant.epsilon(plan, sigma, DELTA)
    assert 0.999 * epsilon < stated <= epsilon
    mu = math.sqrt(sum(use.steps / (sigma * use.relative_noise) ** 2 for use in plan if isinstance(use, Release)))
    eps0s = [2 / (sigma * use.relative_noise) for use in plan if isinstance(use, Choice)]
    assert delta_by_hand(stated, mu, eps0s) == pytest.approx(DELTA, rel=0.01)
    other = cross_check(plan, sigma, DELTA, "pld", stated)
    assert other.accountant == "prv-accountant"
    assert other.lower <= stated <= other.upper
    renyi = accountant.epsilon(plan, sigma, DELTA, "rdp")
    assert stated < renyi < 1.6 * stated


def test_renyi_charges_a_choice_as_the_gaussian_release_of_its_noise() -> None:
    for sigma in (0.5, 3.0, 40.0):
        plans: list[list[Planned]] = [[planned, Release("b")] for planned in (Choice("a", 2), Release("a"))]
        choice, release = (accountant.epsilon(plan, sigma, DELTA, "rdp") for plan in plans)
        assert choice == pytest.approx(release, rel=1e-12)


@pytest.mark.parametrize("name", accountant.ACCOUNTANTS)
def test_a_plan_of_one_choice_is_pure(name: accountant.AccountantName) -> None:
    stated = compute_guarantee((Choice("any", 4, relative_noise=3.0),), Budget(0.5, DELTA), name, "research")
    assert stated.delta == 0
    assert 0.4999 < stated.epsilon <= 0.5
    assert stated.epsilon == compute_eps0(stated.plan[0].sigma)
    assert stated.independent.upper == stated.epsilon
    assert stated.releases == (Choice("any", 4, relative_noise=3.0),)


def test_several_choices_compose_below_the_sum_of_theirs() -> None:
    plan = [Choice("any", 4, steps=20)]
    assert not accountant.is_pure_dp(plan)
    assert accountant.epsilon(plan, 20.0, DELTA) < 0.9 * 20 * compute_eps0(20.0)


def test_steps_of_a_choice_cost_what_as_many_choices_do() -> None:
    steps, names = [Choice("any", 4, steps=3)], [Choice(name, 4) for name in ("one", "two", "three")]
    found = accountant.epsilon(steps, 6.0, DELTA)
    assert found == pytest.approx(accountant.epsilon(names, 6.0, DELTA), rel=1e-6)
    assert found > 2 * compute_eps0(6.0)  # both might be the cost of a single choice


def test_a_private_search_charges_for_choices() -> None:
    plan: list[Planned] = [Choice("any", 4), Release("sum")]
    repeats = RunCountDistribution(5.0)
    sigma = private_search.calibrate(plan, Budget(1.0, DELTA), repeats)
    stated = private_search.epsilon(plan, sigma, DELTA, repeats)
    renyi = private_search.renyi_epsilon(plan, sigma, DELTA, repeats)
    assert private_search.independent_renyi_epsilon(plan, sigma, DELTA, repeats) == pytest.approx(renyi, rel=1e-6)
    assert stated <= private_search.independent_epsilon(plan, sigma, DELTA, repeats) <= 1.02 * stated
    assert private_search.epsilon(plan[1:], sigma, DELTA, repeats) < 0.8 * stated


def test_opacus_does_not_compose_choices() -> None:
    with pytest.raises(PlanError, match="can compose only Gaussian releases, but this plan has a Choice"):
        accountant.epsilon([Choice("any", 4), Release("sum")], 2.0, DELTA, "prv")


@given(st.floats(0.01, 6), st.floats(0.02, 0.98), st.floats(-1.2, 1.2), st.integers(0, 10**6))
@settings(max_examples=150)
def test_the_dominating_pair_dominates_every_choice(eps0: float, share: float, at: float, seed: int) -> None:
    draw = np.random.default_rng(seed)
    totals, lost = draw.exponential(2 / eps0, 5), draw.random(5) > share
    before, after = odds(totals.tolist(), eps0), odds((totals + lost).tolist(), eps0)
    for array, other in ((before, after), (after, before)):
        found = np.maximum(array - math.exp(at * eps0) * other, 0).sum()
        assert found <= float(hockey_stick_divergence(eps0, np.array(at * eps0))) + 1e-12


@pytest.mark.parametrize("eps0", [0.05, 1.0, 7.0])
def test_the_two_forms_of_the_dominating_pair_are_one(eps0: float) -> None:
    variable = choice_loss_variable(eps0)

    def density(t: float) -> float:
        return math.exp((t - eps0) / 2) / (2 * -math.expm1(-eps0))

    def beyond(t: float, at: float) -> float:
        return (1 - math.exp(at - t)) * density(t)

    e = np.linspace(-eps0, eps0, 9)
    for at, expected in zip(e, hockey_stick_divergence(eps0, e), strict=True):
        assert quad(beyond, at, eps0, args=(at,))[0] == pytest.approx(float(expected), abs=1e-12)
        assert float(variable.cdf(at)) == pytest.approx(quad(density, -eps0, at)[0], abs=1e-12)
    moment = quad(lambda t: math.exp(3 * t) * density(t), -eps0, eps0)[0]
    assert variable.rdp(4.0) == pytest.approx(math.log(moment) / 3, rel=1e-9)


def test_a_search_on_stand_ins_knows_choices() -> None:
    curator = make_weighted_curator(
        curator_over(private_rows(200), [Choice("any", 3)], sigma=0.1).curator, {"any": 1.0}, weight=10
    )
    assert curator.noisy_choice(lambda chunk: torch.tensor([1.0, 0, 1]).expand(len(chunk), -1), release="any") == 1


def test_the_command_line_states_the_cost_of_a_plan_with_choices(capsys: pytest.CaptureFixture[str]) -> None:
    call("budget", "--choice", "candidates=9", "--release", "relative_noise=2", "--epsilon", "1", "--json")
    rows = {row["accountant"]: row for row in json.loads(capsys.readouterr().out)}
    assert 0.999 < float(rows["pld"]["epsilon"]) <= 1
    assert "can compose only Gaussian releases" in rows["prv"]["note"]
    call("budget", "--epsilon", "1")
    assert "Expected a plan" in capsys.readouterr().err
    call("budget", "--choice", "relative_noise=2", "--epsilon", "1")
    assert "Expected candidates in --choice relative_noise=2" in capsys.readouterr().err


def test_candidates_as_many_as_the_largest_label_are_refused_whoever_is_there() -> None:
    """A refusal of some datasets alone would tell whether somebody of the rare class is there."""
    x, y = torch.randn(40, 4), torch.arange(40) % 2
    rare = y.clone()
    rare[7] = 2
    for labels in (y, rare):
        rows = PrivateRows(x, labels, torch.arange(40))
        for seed in range(5):
            curator = curator_over(rows, [Choice("rare", 3)], sigma=2.0, seed=seed)
            with pytest.raises(ComponentFailed):
                curator.noisy_choice(lambda chunk: torch.nn.functional.one_hot(chunk.y).float(), release="rare")
