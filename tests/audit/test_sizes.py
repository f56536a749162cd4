"""The law of the sizes of Poisson samples, against enumeration, chi-square and honest samples."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, chi2

from dpbench.audit.figures import compute_figures
from dpbench.audit.sizes import FEWEST_INCLUSIONS, sample_size_tails
from dpbench.records.audit import NoiseStatistics, SampleStatistics


@pytest.mark.parametrize(("steps", "members", "rate"), [(1, 8, 0.1), (3, 8, 0.1), (4, 3, 0.5), (3, 6, 0.9)])
def test_tails_of_few_are_those_of_all_sizes_that_there_can_be(steps: int, members: int, rate: float) -> None:
    chances = binom.pmf(np.arange(members + 1), members, rate)
    squares = (np.arange(members + 1) - members * rate) ** 2 / (members * rate * (1 - rate))
    sums, law = [], []
    for sizes in product(range(members + 1), repeat=steps):
        sums.append(squares[list(sizes)].sum())
        law.append(chances[list(sizes)].prod())
    found, weights = np.array(sums), np.array(law)
    values = np.unique(found.round(6))
    for value in values[:: max(1, len(values) // 12)]:
        above, below = weights[found >= value - 1e-5].sum(), weights[found <= value + 1e-5].sum()
        near = weights[np.abs(found - value) < 0.1 * found.std()].sum()  # bins may hold neighbours as well
        assert sample_size_tails(value, steps, members, rate) == pytest.approx(
            (above, below), rel=1e-3, abs=1e-9 + near
        )


@pytest.mark.parametrize("steps", [10, 50])
def test_tails_of_many_are_those_of_chi_square(steps: int) -> None:
    members, rate = 10**6, 0.01
    assert steps * members * rate > FEWEST_INCLUSIONS
    for quantile in (1e-5, 0.01, 0.5, 0.99, 1 - 1e-5):
        value = float(chi2.ppf(quantile, steps))
        expected = 1 - quantile, quantile
        assert sample_size_tails(value, steps, members, rate) == pytest.approx(expected, rel=0.02)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("steps", "members", "rate"), [(10, 1_000, 0.001), (4_999, 1_000, 0.001), (5_001, 1_000, 0.001)]
)
def test_honest_samples_are_refused_as_often_as_is_said(steps: int, members: int, rate: float) -> None:
    """Chi-square rejects 7 in 1,000 of ten samples of an expected one at a level of 1 in 1,000."""
    rng, variance = np.random.default_rng(0), members * rate * (1 - rate)
    drawn = rng.binomial(members, rate, (2_000, steps))
    sums = ((drawn - members * rate) ** 2).sum(1) / variance
    cut = float(np.quantile(sums, 0.98))
    assert sample_size_tails(cut, steps, members, rate)[0] == pytest.approx(0.02, abs=0.01)
    assert sample_size_tails(float(np.quantile(sums, 0.02)), steps, members, rate)[1] == pytest.approx(0.02, abs=0.012)


@pytest.mark.parametrize("squares", [0.0, 1e3, 1e9])
def test_sizes_that_cannot_be_chance_are_told_from_it(squares: float) -> None:
    assert min(sample_size_tails(squares, 200, 1_000, 0.01)) < 1e-9


def test_a_record_that_says_who_was_sampled_is_held_to_the_law_and_an_older_one_to_chi_square() -> None:
    squares = 42.0  # of ten samples: five inclusions in one, say
    unstated = dict.fromkeys(("counts", "rate", "members", "units"))
    older = SampleStatistics(release="gradient", steps=10, sizes=squares, rows=squares, **unstated)
    told = older.model_copy(update={"rate": 0.001, "members": 1_000, "units": 1_000})
    failed = [
        compute_figures(
            1.0, 1e-5, None, NoiseStatistics(numbers=0, squares=0, padding=0, padding_squares=0, samples=(sizes,)), None
        )
        for sizes in (older, told)
    ]
    assert [bool(figures.failed) for figures in failed] == [True, False]
