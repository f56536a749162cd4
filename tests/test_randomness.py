"""Streams repeat from their seed, never share a draw, and secure ones keep only a commitment."""

from __future__ import annotations

import numpy as np
import torch

from dpbench.privacy.randomness import Randomness, row_seeds


def _draws(randomness: Randomness) -> dict[str, np.ndarray]:
    streams = {name: getattr(randomness, name) for name in ("sampling", "noise", "rows", "checks")}
    drawn = {name: stream.standard_normal(50_000) for name, stream in streams.items()}
    drawn["initialisation"] = torch.randn(50_000, generator=randomness.initialisation).double().numpy()
    return drawn


def test_research_streams_repeat() -> None:
    first, second = _draws(Randomness.research(3)), _draws(Randomness.research(3))
    assert all(np.array_equal(first[name], second[name]) for name in first)


def test_no_two_streams_or_seeds_are_correlated() -> None:
    columns = [*_draws(Randomness.research(0)).values(), *_draws(Randomness.research(1)).values()]
    correlations = np.corrcoef(columns)[np.triu_indices(len(columns), 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(50_000)


def test_secure_streams_differ_each_time_and_keep_a_commitment() -> None:
    first, second = Randomness.secure(0), Randomness.secure(0)
    assert first.commitment != second.commitment
    assert first.commitment is not None
    assert len(first.commitment) == 64
    drawn = _draws(first), _draws(second)
    for name in ("sampling", "noise", "rows", "checks"):
        assert not np.array_equal(drawn[0][name], drawn[1][name])


def test_secure_noise_cannot_be_had_from_the_published_seed() -> None:
    assert not np.array_equal(_draws(Randomness.secure(0))["noise"], _draws(Randomness.research(0))["noise"])


def test_initialisation_follows_the_seed_even_in_secure_runs() -> None:
    secure, research = _draws(Randomness.secure(5)), _draws(Randomness.research(5))
    assert np.array_equal(secure["initialisation"], research["initialisation"])


def test_a_rows_seed_depends_on_its_own_place_alone() -> None:
    among = row_seeds(42, np.array([3, 8, 11]))
    assert row_seeds(42, np.array([8])).tolist() == [among[1]]


def test_row_seeds_do_not_repeat_across_rows_and_steps() -> None:
    seeds = np.concatenate([row_seeds(base, np.arange(10_000)) for base in (1, 2, 2**62)])
    assert len(np.unique(seeds)) == 30_000
    assert bool((seeds >= 0).all())
