"""Secure noise is the discrete Gaussian, exactly, and what answers get is a Gaussian rounded to the grid."""

from __future__ import annotations

import importlib.util
import math

import numpy as np
import pytest
from scipy import special, stats

from dpbench.errors import SpecError
from dpbench.privacy.core import discrete
from dpbench.privacy.core.discrete import check_duration, draw_discrete_gaussian, draw_rounded_gaussian


def _pmf(std: float, reach: int) -> np.ndarray:
    """Return the discrete Gaussian's probabilities of -reach .. reach."""
    weights = np.exp(-(np.arange(-reach, reach + 1) ** 2) / (2 * std**2))
    whole: np.ndarray = weights / weights.sum()
    return whole


def _p_value(noise: np.ndarray, probabilities: np.ndarray) -> float:
    """Return the chi-square p value of draws against probabilities of -reach .. reach.

    Both tails are folded into the last cell that expects fifty draws: a cell that expects 0.02 would make one honest
    draw look like a broken sampler, once in forty runs.
    """
    reach = len(probabilities) // 2
    tails = np.cumsum(probabilities)[: reach + 1]
    outermost = reach - int(np.argmax(tails * len(noise) >= 50))
    counts = np.bincount(np.clip(noise, -outermost, outermost) + outermost, minlength=2 * outermost + 1)
    inner = probabilities[reach - outermost + 1 : reach + outermost]
    tail = (1 - inner.sum()) / 2
    return float(stats.chisquare(counts, np.array([tail, *inner, tail]) * len(noise)).pvalue)


@pytest.mark.slow
@pytest.mark.parametrize("std", [0.7, 3.0, 11.5])
def test_draws_follow_the_discrete_gaussian(std: float) -> None:
    assert _p_value(draw_discrete_gaussian((40_000,), std), _pmf(std, 60)) > 1e-6


def test_the_test_tells_another_width_apart() -> None:
    assert _p_value(draw_discrete_gaussian((40_000,), 3.1), _pmf(3.0, 60)) < 1e-6


@pytest.mark.quick(1)
@pytest.mark.parametrize("std", [0.7, 3.0])
def test_answers_get_a_gaussian_rounded_to_the_grid(std: float) -> None:
    ends = stats.norm.cdf((np.arange(-60, 62) - 0.5) / std)
    assert _p_value(draw_rounded_gaussian((40_000,), std), np.diff(ends)) > 1e-6


def test_at_the_width_of_a_grid_the_two_cannot_be_told_apart() -> None:
    noise = draw_rounded_gaussian((40_000,), 2.0**20) / 2.0**20
    assert stats.kstest(noise, "norm").pvalue > 1e-6


@pytest.mark.parametrize("std", [4, 16, 64])
def test_rounding_a_gaussian_is_as_near_to_the_discrete_one_as_stated(std: int) -> None:
    """The chi-square divergence between the two, from which the statement about delta follows."""
    left = np.arange(-12 * std, 1)  # the right half is its mirror image
    discretely = np.exp(-(left**2) / (2 * std**2)) / (std * math.sqrt(2 * math.pi))
    rounded = special.ndtr((left + 0.5) / std) - special.ndtr((left - 0.5) / std)
    terms = (rounded / discretely - 1) ** 2 * discretely
    divergence = 2 * math.fsum(terms) - terms[-1]
    assert 1 / 300 < divergence * std**4 < 1 / 280


@pytest.mark.parametrize("std", [16, 64])
def test_the_factor_between_the_two_is_as_stated_at_every_step(std: int) -> None:
    steps = np.arange(-8 * std, 1)
    discretely = np.exp(-(steps**2) / (2 * std**2)) / (std * math.sqrt(2 * math.pi))
    rounded = special.ndtr((steps + 0.5) / std) - special.ndtr((steps - 0.5) / std)
    stated = (steps**2 / std**2 - 1) / (24 * std**2)
    assert np.allclose(rounded / discretely - 1, stated, rtol=0, atol=8**4 / std**4)


def test_the_statement_about_epsilon_follows_from_the_numbers_it_names() -> None:
    width, numbers = 2.0**discrete.FINEST, 1e12
    ratio = numbers * 40**2 / (24 * width**2)
    assert ratio < 2.2e-13
    assert 2 * ratio < 1e-12
    assert special.log_ndtr(-40) + math.log(2 * numbers) < -300 * math.log(10)


@pytest.mark.slow
def test_each_coordinate_may_have_its_own_width() -> None:
    std = np.array([[1.0, 100.0, 0.0], [1e6, 1.0, 0.0]])
    noise = np.stack([draw_rounded_gaussian((2, 3), std) for _ in range(400)])
    spread = noise.std(0)
    assert np.allclose(spread[std > 0], np.sqrt(std[std > 0] ** 2 + 1 / 12), rtol=0.2)
    assert not noise[:, :, 2].any()


def test_draws_are_not_correlated() -> None:
    columns = draw_rounded_gaussian((20, 2_000), 1e5)
    correlations = np.corrcoef(columns)[np.triu_indices(20, 1)]
    assert np.abs(correlations).max() < 6 / math.sqrt(2_000)


def test_nothing_is_drawn_for_an_answer_without_numbers() -> None:
    assert draw_rounded_gaussian((0, 4), 3.0).shape == (0, 4)
    assert draw_discrete_gaussian((2, 0), 3.0).shape == (2, 0)


@pytest.mark.parametrize("std", [-1.0, math.nan, math.inf, 2.0**60])
def test_a_width_that_is_none_is_refused(std: float) -> None:
    with pytest.raises(SpecError, match="standard deviation"):
        draw_rounded_gaussian((3,), std)


def test_a_missing_sampler_is_one_sentence_with_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"pip install 'dpbench-vision\[secure\]'"):
        discrete.check_opendp_installed()


def test_a_long_fit_says_what_it_costs_and_one_above_a_day_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    check_duration(41_000, 100, "gradient")
    assert capsys.readouterr().err == ""
    check_duration(1_300_000, 100, "gradient")
    assert "100 x 1,300,000 numbers, about 26 min 0 s a fit" in capsys.readouterr().err
    check_duration(1_300_000, 100, "gradient", quiet=True)
    assert capsys.readouterr().err == ""
    with pytest.raises(SpecError, match="above a day"):
        check_duration(1_300_000, 10_000, "gradient", quiet=True)
