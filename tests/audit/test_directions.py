"""Directions without noise: found whatever they are, and honest noise is doubted as seldom as the level says."""

from __future__ import annotations

import numpy as np

from dpbench.audit.directions import FEWEST_SPARE, check_noise_directions

M, D = 120, 60


def least_p(vectors: np.ndarray) -> float:
    (check,) = check_noise_directions([vectors], "of a test")
    return check.p


def test_honest_noise_is_doubted_as_seldom_as_the_level_says() -> None:
    ps = [least_p(np.random.default_rng(seed).normal(size=(M, D))) for seed in range(400)]
    assert sum(p < 0.05 for p in ps) <= 36  # 20 at most are expected: more than 36 happens once in 2,000 times


def test_a_direction_without_noise_is_found_and_so_is_one_that_floats_round() -> None:
    generator = np.random.default_rng(0)
    noise, secret = generator.normal(size=(M, D)), generator.normal(size=D)
    secret /= np.linalg.norm(secret)
    flat = noise - np.outer(noise @ secret, secret)
    assert least_p(flat) == 0
    assert least_p(flat.astype(np.float32).astype(float)) < 1e-50
    assert least_p(noise - 0.1 * np.outer(noise @ secret, secret)) > 0.01  # less noise there is no missing direction


def test_more_vectors_than_coordinates_are_needed() -> None:
    vectors = np.random.default_rng(0).normal(size=(D + FEWEST_SPARE - 1, D))
    assert not [*check_noise_directions([vectors], "of a test")] and not [*check_noise_directions([], "of a test")]
