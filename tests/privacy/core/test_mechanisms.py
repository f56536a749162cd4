"""Sampling is Poisson, clipping binds, noise is normal with the stated deviation."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from dpbench.api import Release
from dpbench.errors import SpecError
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.contributions import Contribution, RankOne, Rows, Scaled
from dpbench.privacy.core.noise import add_noise
from dpbench.privacy.core.randomness import QuestionDraws, Randomness, draw_poisson_sample
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers.worlds import curator_over


def _generator(seed: int = 0) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(seed))


def _draws(seed: int = 0) -> QuestionDraws:
    return Randomness.research(seed, "a test").draws("sum", 1)


@pytest.mark.parametrize("rate", [0.01, 0.3, 0.9])
def test_batch_sizes_are_binomial(rate: float) -> None:
    generator, size, draws = _generator(1), 400, 4000
    sizes = np.array([len(draw_poisson_sample(size, rate, generator)) for _ in range(draws)])
    quantiles = np.unique(stats.binom.ppf(np.linspace(0.1, 0.9, 9), size, rate))
    edges = np.concatenate([[-1], quantiles, [size]])
    expected = np.diff(stats.binom.cdf(edges, size, rate)) * draws
    counted = np.histogram(sizes, bins=edges + 0.5)[0]
    assert stats.chisquare(counted, expected).pvalue > 1e-3


def test_every_example_is_drawn_at_the_rate_and_on_its_own() -> None:
    generator, size, rate, draws = _generator(2), 50, 0.2, 20_000
    drawn = np.zeros((draws, size))
    for row in drawn:
        row[draw_poisson_sample(size, rate, generator)] = 1
    deviation = math.sqrt(rate * (1 - rate) / draws)
    assert np.abs(drawn.mean(0) - rate).max() < 4.5 * deviation
    correlations = np.asarray(np.corrcoef(drawn.T))[np.triu_indices(size, 1)]
    assert np.abs(correlations).max() < 5.5 / math.sqrt(draws)


@given(st.integers(1, 500), st.floats(1e-12, 1.0), st.integers(0, 2**32))
def test_samples_are_ascending_indices_without_repeats(size: int, rate: float, seed: int) -> None:
    sample = draw_poisson_sample(size, rate, _generator(seed))
    assert sample.dtype == np.int64
    assert bool((np.diff(sample) > 0).all())
    assert not len(sample) or (sample[0] >= 0 and sample[-1] < size)


def test_rate_one_takes_every_example() -> None:
    assert draw_poisson_sample(5, 1.0, _generator()).tolist() == [0, 1, 2, 3, 4]


@given(st.integers(0, 2**32), st.floats(1e-3, 1e3), st.sampled_from([1e-8, 1e-3, 1.0, 1e8, 1e30]))
def test_no_single_row_contributes_more_than_the_clip(seed: int, clip: float, magnitude: float) -> None:
    draw = torch.Generator().manual_seed(seed)
    left, right = torch.randn(1, 3, generator=draw), torch.randn(1, 40, generator=draw) * magnitude
    outer = RankOne(left, right)
    scale = torch.rand(3, 40, generator=draw) + 0.01
    forms: list[Contribution] = [Rows(right), outer, RankOne(left, right, bias=True), Scaled(outer, scale)]
    for form in forms:
        total = form.clipped_sum(clip).value()
        assert total.dtype == torch.float64
        assert float(total.norm()) <= clip * (1 + 1e-9)


def test_rows_within_the_clip_are_summed_unchanged() -> None:
    rows = torch.tensor([[0.3, 0.4], [0.0, -0.5]])
    torch.testing.assert_close(Rows(rows).clipped_sum(1.0).value(), rows.double().sum(0), rtol=0, atol=2**-23)


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 3e38])
def test_a_row_that_is_not_finite_counts_as_zero(poison: float) -> None:
    rows = torch.tensor([[0.3, 0.4], [poison, poison], [0.1, 0.0]])
    without = Rows(rows[[0, 2]]).clipped_sum(1.0)
    assert torch.equal(Rows(rows).clipped_sum(1.0).total, without.total)
    left = torch.ones(3, 1)
    found, expected = RankOne(left, rows).clipped_sum(1.0), RankOne(left[:2], rows[[0, 2]]).clipped_sum(1.0)
    assert torch.equal(found.total, expected.total)


def _summed(value: float, count: int, grid: float = 2.0**-20) -> IntegerSum:
    total = torch.full((count,), round(value / grid), dtype=torch.int64)
    return IntegerSum(total, torch.tensor(grid, dtype=torch.float64))


def test_noise_is_normal_with_the_stated_deviation() -> None:
    std = 2.5
    noise = add_noise(_summed(0, 100_000), std, _draws(3)).double().numpy()
    assert stats.kstest(noise / std, "norm").pvalue > 1e-3
    assert abs(noise.std() / std - 1) < 4 / math.sqrt(2 * len(noise))
    assert abs(noise.mean()) < 4 * std / math.sqrt(len(noise))


def test_noise_is_centred_on_the_sum() -> None:
    answer = add_noise(_summed(1234.5, 100_000), 1.0, _draws(4))
    assert float(answer.double().mean()) == pytest.approx(1234.5, abs=4 / math.sqrt(1e5))


def test_each_entry_has_the_same_noise_on_whatever_grid() -> None:
    grids = 2.0 ** -torch.arange(10, 26, dtype=torch.float64)
    answer = add_noise(IntegerSum(torch.zeros(20_000, 16, dtype=torch.int64), grids), 3.0, _draws(6)).double()
    assert bool(((answer.std(0) / 3 - 1).abs() < 4.5 / math.sqrt(2 * 20_000)).all())
    assert torch.equal((answer / grids).round()[answer.abs() < 0.5], (answer / grids)[answer.abs() < 0.5])


def test_a_grid_of_one_entry_is_one_number_whatever_its_shape() -> None:
    sums = [IntegerSum(torch.zeros(3, 1, dtype=torch.int64), torch.full(shape, 2.0**-20)) for shape in ((), (1, 1))]
    flat, deep = (add_noise(total, 3.0, _draws(7)) for total in sums)
    assert torch.equal(flat, deep)


def test_answers_are_multiples_of_the_sums_own_grid() -> None:
    for value in (0.0, 0.1234567890123):
        answer = add_noise(_summed(value, 1000), 3.0, _draws(5)).double()
        inside = answer[answer.abs() < 8]  # beyond, float32 itself is coarser than the grid
        assert torch.equal(inside * 2**20, (inside * 2**20).round())


@pytest.mark.parametrize(
    ("row", "clip"),
    [
        (RankOne(torch.full((1, 3), 7.7e18), torch.full((1, 5), 1.8e19)), 1e-7),
        (RankOne(torch.full((1, 3), 1e-20), torch.full((1, 5), 1e38)), 1e-9),
        (RankOne(torch.full((1, 3), 1e38), torch.full((1, 5), 1e-20), bias=True), 1e-9),
        (Rows(torch.full((1, 70_000), 1e36)), 2.2e-7),
        (Rows(torch.full((1, 7), 1e25)), 1e-9),
        (Scaled(RankOne(torch.full((1, 3), 1e18), torch.full((1, 5), 1e18)), torch.full((3, 5), 2e-8)), 1e-9),
    ],
    ids=["both factors huge", "tiny and huge", "huge and tiny", "many columns", "a huge row", "a tiny scale"],
)
def test_a_huge_row_moves_the_sum_by_no_more_than_a_tiny_clip(row: Contribution, clip: float) -> None:
    assert float(row.clipped_sum(clip).value().norm()) <= clip * (1 + 1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_noise_that_64_bits_cannot_hold_is_refused(sign: float) -> None:
    """Cast to integers it would be one constant, and the answer's sign that of the sum without noise."""
    rows = PrivateRows(torch.full((4, 2), sign), torch.zeros(4, dtype=torch.int64), torch.arange(4))
    huge = curator_over(rows, [Release("sum", relative_noise=1e15)], sigma=1.0)
    with pytest.raises(SpecError, match="relative_noise"):
        huge.noisy_sum(lambda chunk: chunk.x, release="sum", clip=1.0)
    wide = Scaled(RankOne(torch.ones(4, 1), torch.ones(4, 2)), torch.tensor([[2e-8, 9e7]]))
    with pytest.raises(SpecError, match="scale varies less"):
        add_noise(wide.clipped_sum(1.0), 10.0, Randomness.research(0, "a test").draws("sum", 1))
