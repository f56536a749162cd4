"""Each question of each fit has draws of its own: none is used twice, and secure ones come from the system alone."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from dpbench.errors import PrivacyError
from dpbench.privacy.core import randomness as chance
from dpbench.privacy.core.randomness import (
    Randomness,
    draw_poisson_sample,
    draw_secure_sample,
    make_selection_generator,
    row_seeds,
)

ONE, OTHER = "1" * 64, "2" * 64
MANY = 20_000


def _noise(of: Randomness, release: str = "gradient", step: int = 1, n: int = MANY) -> np.ndarray:
    return of.draws(release, step).noise((n,), 2.0**20).astype(float)


def test_research_draws_repeat() -> None:
    first, second = (Randomness.research(3, ONE) for _ in range(2))
    for step in (1, 2):
        draws, other = (each.draws("gradient", step) for each in (first, second))
        assert np.array_equal(draws.sample(1000, 0.1), other.sample(1000, 0.1))
        assert np.array_equal(draws.noise((50,), 100.0), other.noise((50,), 100.0))
        assert draws.row_seed_base() == other.row_seed_base()
    assert np.array_equal(first.checks.random(9), second.checks.random(9))


def test_no_noise_is_shared_by_two_questions() -> None:
    """Between identities (learner, epsilon, dataset ...), seeds, releases, steps, folds, settings and runs."""
    fits = {f"fit {seed} {of[0]}": Randomness.research(seed, of) for seed in (0, 1) for of in (ONE, OTHER)}
    fits |= {
        f"run {seed} {run}": Randomness.for_fit("research", seed, ONE, run) for seed in (0, 1) for run in (0, 1, 2)
    }
    places = list(itertools.product((0, 1), (ONE, OTHER), (0, 1), (0, 1)))
    fits |= {f"fold {place}": Randomness.tuning(*place) for place in places}
    fits |= {f"secure {again}": Randomness.secure(0) for again in (0, 1)}
    columns = {
        f"{name}, {release}, {step}": _noise(fit, release, step, 2_000)
        for name, fit in fits.items()
        for release, step in itertools.product(("gradient", "mean"), (1, 2))
    }
    correlations = np.corrcoef(list(columns.values()))[np.triu_indices(len(columns), 1)]
    assert len(columns) == 4 * (4 + 6 + 16 + 2)
    assert np.abs(correlations).max() < 6 / np.sqrt(2_000)


def test_names_do_not_run_into_each_other() -> None:
    """Release `a` at step 11 is not release `a1` at step 1, whatever the separator."""
    drawn = [
        Randomness.research(0, ONE).draws(release, step).row_seed_base()
        for release, step in (("a", 11), ("a1", 1), ('a", "1', 1), ("a\0", 1), ("a", 1))
    ]
    assert len(set(drawn)) == len(drawn)


def test_samples_and_row_seeds_are_not_shared_either() -> None:
    fits = [
        Randomness.research(0, ONE), Randomness.research(0, OTHER), Randomness.research(1, ONE),
        Randomness.for_fit("research", 0, ONE, 1), Randomness.tuning(0, ONE, 0, 0), Randomness.tuning(0, ONE, 1, 0),
        Randomness.secure(0), Randomness.secure(0),
    ]  # fmt: skip
    draws = [fit.draws("gradient", step) for fit in fits for step in (1, 2)]
    assert len({draw.sample(10_000, 0.1).tobytes() for draw in draws}) == len(draws)
    assert len({draw.row_seed_base() for draw in draws}) == len(draws)


def test_settings_of_a_fold_share_samples_and_start_and_not_noise() -> None:
    randomness, other = Randomness.tuning(0, ONE, 2, 0), Randomness.tuning(0, ONE, 2, 1)
    draws = [fit.draws("gradient", 1) for fit in (randomness, other)]
    assert np.array_equal(draws[0].sample(1000, 0.3), draws[1].sample(1000, 0.3))
    assert draws[0].row_seed_base() == draws[1].row_seed_base()
    assert randomness.initialisation.initial_seed() == other.initialisation.initial_seed()
    assert not np.array_equal(draws[0].noise((50,), 1e6), draws[1].noise((50,), 1e6))


def test_a_sample_says_nothing_of_the_noise() -> None:
    draws = Randomness.research(0, ONE).draws("gradient", 1)
    chosen = np.isin(np.arange(MANY), draws.sample(MANY, 0.5))
    assert abs(np.corrcoef(chosen, draws.noise((MANY,), 1e6))[0, 1]) < 5 / np.sqrt(MANY)


def test_sample_and_noise_come_from_streams_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chance, "draw_poisson_sample", lambda size, rate, generator: generator.standard_normal(size))
    draws = Randomness.research(0, ONE).draws("gradient", 1)
    assert not np.isclose(draws.sample(50, 0.5) * 1e6, draws.noise((50,), 1e6), atol=1).any()


def test_blocks_of_one_answer_have_noise_of_their_own() -> None:
    draws = Randomness.research(0, ONE).draws("both", 1)
    first, second = draws.noise((MANY,), 1e6), draws.noise((MANY,), 1e6)
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / np.sqrt(MANY)


@pytest.mark.parametrize("kind", ["research", "secure"])
def test_noise_that_was_given_out_is_not_given_again(kind: chance.Kind) -> None:
    fit = Randomness.for_fit(kind, 0, ONE)
    fit.draws("gradient", 1)
    fit.draws("mean", 1)
    fit.draws("gradient", 2)
    for step in (1, 2):
        with pytest.raises(PrivacyError, match="twice"):
            fit.draws("gradient", step)


def test_noise_is_normal_in_whole_steps() -> None:
    noise = Randomness.research(0, ONE).draws("gradient", 1).noise((100_000,), 2.0**20)
    assert noise.dtype == np.int64
    assert stats.kstest(noise / 2.0**20, "norm").pvalue > 1e-3


def test_initialisation_follows_the_seed_alone() -> None:
    starts = [
        torch.randn(9, generator=fit.initialisation)
        for fit in (Randomness.research(5, ONE), Randomness.research(5, OTHER), Randomness.secure(5))
    ]
    assert torch.equal(starts[0], starts[1])
    assert torch.equal(starts[0], starts[2])


@pytest.mark.parametrize("rate", [1e-4, 0.02, 0.5, 1.0])
@pytest.mark.parametrize("kind", ["research", "secure"])
def test_samples_have_the_stated_rate(kind: chance.Kind, rate: float) -> None:
    drawn = Randomness.for_fit(kind, 0, ONE).draws("gradient", 1).sample(200_000, rate)
    assert drawn.dtype == np.int64
    assert bool((np.diff(drawn) > 0).all())
    assert abs(len(drawn) - 200_000 * rate) <= 5 * np.sqrt(200_000 * rate * (1 - rate))


@pytest.mark.parametrize("rate", [0.5, 1024 / 45_000, 2.0**-11])
def test_a_secure_samples_rate_is_exact(monkeypatch: pytest.MonkeyPatch, rate: float) -> None:
    """A row is chosen for exactly rate * 2^64 of the 2^64 values of its bits."""
    from fractions import Fraction

    edge = Fraction(rate) * 2**64
    assert edge.denominator == 1
    bits = np.array([0, int(edge) - 1, int(edge), 2**64 - 1], np.uint64)
    monkeypatch.setattr("os.urandom", lambda count: bits.tobytes())
    assert draw_secure_sample(4, rate).tolist() == [0, 1]


def test_a_secure_fit_touches_no_seeded_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    fit = Randomness.secure(0)

    def refused(*_: object, **__: object) -> None:
        raise AssertionError("a seeded generator was asked")

    for name in ("Generator", "SFC64", "PCG64", "PCG64DXSM", "Philox", "MT19937", "default_rng", "RandomState"):
        monkeypatch.setattr(np.random, name, refused)
    for name in ("randn", "rand", "randint", "randperm", "normal", "bernoulli", "poisson", "Generator"):
        monkeypatch.setattr(torch, name, refused)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    draws = fit.draws("gradient", 1)
    draws.sample(1_000, 0.1)
    draws.row_seed_base()
    draws.noise((3, 4), 1e6)
    make_selection_generator("secure", 0, ONE).random()
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # type: ignore[index]


def test_secure_draws_differ_each_time_and_leave_nothing_behind() -> None:
    first, second = Randomness.secure(0), Randomness.secure(0)
    assert first.key is None
    assert not np.array_equal(_noise(first), _noise(second))
    assert first.draws("rows", 1).row_seed_base() != second.draws("rows", 1).row_seed_base()
    assert not np.array_equal(first.checks.random(4), second.checks.random(4))


def test_the_choice_of_runs_follows_the_identity_and_seed() -> None:
    drawn = [make_selection_generator("research", seed, of).random() for seed in (0, 1) for of in (ONE, OTHER)]
    assert len(set(drawn)) == 4
    assert make_selection_generator("research", 0, ONE).random() == drawn[0]
    assert make_selection_generator("secure", 0, ONE).random() != make_selection_generator("secure", 0, ONE).random()


def test_the_draws_of_a_step_take_two_digests_and_one_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    fit, made = Randomness.research(0, ONE), list[str]()

    def note(name: str) -> None:
        honest = getattr(chance, name)

        def noted(key: object) -> object:
            made.append(name)
            return honest(key)

        monkeypatch.setattr(chance, name, noted)

    note("_hash_key")
    note("_make_generator")
    for step in range(1, 21):
        fit.draws("gradient", step).row_seed_base()
    assert (made.count("_hash_key"), made.count("_make_generator")) == (40, 20)


def test_a_sample_by_gaps_is_one_by_single_draws() -> None:
    generator = np.random.default_rng(0)
    counts = np.zeros(50)
    for _ in range(4_000):
        counts[draw_poisson_sample(50, 0.2, generator)] += 1
    assert np.abs(counts / 4_000 - 0.2).max() < 5 * np.sqrt(0.2 * 0.8 / 4_000)


def test_a_rows_seed_depends_on_its_own_place_alone() -> None:
    among = row_seeds(42, np.array([3, 8, 11]))
    assert row_seeds(42, np.array([8])).tolist() == [among[1]]


def test_row_seeds_do_not_repeat_across_rows_and_steps() -> None:
    seeds = np.concatenate([row_seeds(base, np.arange(10_000)) for base in (1, 2, 2**62)])
    assert len(np.unique(seeds)) == 30_000
    assert bool((seeds >= 0).all())
