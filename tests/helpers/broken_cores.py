"""Cores that are broken in one place: what the audit is tried on. The first six passed the audit as it was at first."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpbench.privacy.core import randomness

Patch = pytest.MonkeyPatch
Seeded: Any = randomness._SeededDraws
Make = Callable[["Asked"], np.ndarray]
MISSED: dict[str, Callable[[Patch], None]] = {}
"""What passed the audit before it looked at structure."""
MORE: dict[str, Callable[[Patch], None]] = {}
"""What was made up afterwards."""
UNSEEN: dict[str, Callable[[Patch], None]] = {}
"""What passes: one direction of 650 cannot be told from chance unless it is known, nor a row in none of 30 samples."""
SAMPLED = "dp-sgd:sample_rate=0.2"
CANARIES = 4_000
"""Answers of one axis and as many numbers or more are the canaries': their noise is left as it is."""
LEARNERS: dict[str, str] = {}
"""Who has to ask for something to be wrong."""


class Asked:
    """One array of noise that the core asks for."""

    def __init__(self, draws: Any, shape: Sequence[int], plain: Callable[..., np.ndarray]) -> None:
        self.draws, self.shape, self._plain = draws, tuple(shape), plain
        self.fit, self.step = draws._shared[:-1], int(draws._shared[-1])
        self.first = not getattr(draws, "asked", False)
        draws.asked = True

    def normal(self) -> np.ndarray:
        """Return what the honest core adds, in standard deviations."""
        found: np.ndarray = self._plain(self.draws, self.shape, 2.0**40) / 2.0**40
        return found

    def other(self, *key: object) -> np.random.Generator:
        """Return a generator of this fit's own, by whatever key."""
        return randomness._stream((*self.fit, *map(str, key)))


def noise_of(made: Make) -> Callable[[Patch], None]:
    """Return what puts other noise into the learner's answers."""

    def put(patch: Patch) -> None:
        plain = Seeded.noise

        def noise(self: Any, shape: Sequence[int], std: Any) -> np.ndarray:
            if len(shape) == 1 and shape[0] >= CANARIES:
                found: np.ndarray = plain(self, shape, std)
                return found
            other: np.ndarray = np.rint(made(Asked(self, shape, plain)) * std).astype(np.int64)
            return other

        patch.setattr(Seeded, "noise", noise)

    return put


def sample_of(made: Callable[[Any, int, float, np.ndarray], np.ndarray]) -> Callable[[Patch], None]:
    """Return what draws samples otherwise, given the draws, the number of rows, the rate and the honest sample."""

    def put(patch: Patch) -> None:
        plain = Seeded.sample

        def sample(self: Any, size: int, rate: float) -> np.ndarray:
            honest = plain(self, size, rate)
            return honest if rate == 1 or size < 2 else np.sort(made(self, size, rate, honest))

        patch.setattr(Seeded, "sample", sample)

    return put


def stream_of(draws: Any, *key: object) -> np.random.Generator:
    """Return a generator for the samples of one release, by whatever key."""
    return randomness._stream((*draws._shared[:-1], "samples", *map(str, key)))


def forgotten_column(asked: Asked) -> np.ndarray:
    noise = asked.normal()
    noise[..., -1] = 0 if noise.ndim > 1 else noise[..., -1]
    return noise


def after(asked: Asked, step: int) -> np.ndarray:
    return asked.other("innovation", step, asked.shape).standard_normal(asked.shape)


def lag_three(asked: Asked) -> np.ndarray:
    noise, step = after(asked, 1 + (asked.step - 1) % 3), 1 + (asked.step - 1) % 3
    while step < asked.step:
        step += 3
        noise = 0.5 * noise + math.sqrt(0.75) * after(asked, step)
    return noise


def one_class(asked: Asked) -> np.ndarray:
    noise = asked.normal()
    noise[0] *= 0.9 if noise.ndim > 1 else 1
    return noise


def some_without(asked: Asked) -> np.ndarray:
    noise = asked.normal()
    noise.reshape(-1)[7::200] = 0
    return noise


def in_pairs(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    pairs = honest[honest < size // 2]
    return np.concatenate([2 * pairs, 2 * pairs + 1])


MISSED["no noise on the bias column"] = noise_of(forgotten_column)
MISSED["correlation of 0.5 at lag 3"] = noise_of(lag_three)
MISSED["moving average of 0.1 over steps"] = noise_of(
    lambda asked: (after(asked, asked.step) + 0.1 * after(asked, asked.step - 1)) / math.sqrt(1.01)
)
MISSED["one class with 90% of the noise"] = noise_of(one_class)
MISSED["half a percent of coordinates without noise"] = noise_of(some_without)
MISSED["rows sampled in pairs"] = sample_of(in_pairs)


def moving_average_in_place(asked: Asked) -> np.ndarray:
    noise = asked.normal()
    flat = noise.reshape(-1)
    flat[1:] = (flat[1:] + 0.1 * flat[:-1].copy()) / math.sqrt(1.01)
    return noise


def without_direction(asked: Asked) -> np.ndarray:
    noise = asked.normal()
    direction = asked.other("direction", asked.shape).standard_normal(asked.shape)
    direction /= np.linalg.norm(direction)
    noise -= float((noise * direction).sum()) * direction
    return noise


def alternating(asked: Asked) -> np.ndarray:
    noise = asked.normal()
    flat = noise.reshape(-1)
    flat[::2] *= 1.1
    flat[1::2] *= math.sqrt(2 - 1.21)
    return noise


def shared(asked: Asked) -> np.ndarray:
    common = float(asked.other("common", asked.step).standard_normal())
    return math.sqrt(0.98) * asked.normal() + math.sqrt(0.02) * common


def by_coordinate(asked: Asked) -> np.ndarray:
    size = math.prod(asked.shape)
    few = np.array([asked.other("coordinate", place, asked.step).standard_normal() for place in range(50)])
    return few[np.arange(size) % 50].reshape(asked.shape)


def from_pool(asked: Asked) -> np.ndarray:
    pool = stats.norm.ppf((np.arange(500) + 0.5) / 500)
    return asked.other("pool", asked.step, asked.shape).choice(pool, asked.shape)


def skipped_step(asked: Asked) -> np.ndarray:
    return asked.normal() * (asked.step != 5)


def second_block(asked: Asked) -> np.ndarray:
    return asked.normal() * asked.first


def permuted(asked: Asked) -> np.ndarray:
    base = asked.other("base", asked.shape).standard_normal(asked.shape)
    order = asked.other("order", asked.step).permutation(base.size)
    flat: np.ndarray = base.reshape(-1)[order]
    return flat.reshape(asked.shape)


def centred(asked: Asked) -> np.ndarray:
    noise = asked.normal()
    return noise - noise.mean(0) if noise.ndim > 1 else noise


def drifting(asked: Asked) -> np.ndarray:
    return asked.normal() * math.sqrt(1.15 - 0.3 * (asked.step - 1) / 29)


NOISES: dict[str, Make] = {
    "noise cut off at 2 sigma, rescaled": lambda asked: asked.normal().clip(-2, 2) / 0.9594,
    "noise cut off at 3 sigma": lambda asked: asked.normal().clip(-3, 3),
    "Laplace noise of the same variance": lambda asked: asked.other("laplace", asked.step, asked.shape).laplace(
        scale=math.sqrt(0.5), size=asked.shape
    ),
    "Student's t with 8 degrees of freedom": lambda asked: (
        asked.other("t", asked.step, asked.shape).standard_t(8, asked.shape) * math.sqrt(6 / 8)
    ),
    "noise rounded to a quarter of sigma": lambda asked: np.rint(4 * asked.normal()) / 4,
    "noise with a mean of 0.05 sigma": lambda asked: asked.normal() + 0.05,
    "noise whose variance drifts from 115% to 85% over the steps": drifting,
    "noise of the step before, every second step": lambda asked: after(asked, (asked.step + 1) // 2),
    "noise of the step before with the other sign": lambda asked: (
        after(asked, (asked.step + 1) // 2) * (-1) ** asked.step
    ),
    "noise of the step before, one place on": lambda asked: np.roll(after(asked, 0).reshape(-1), asked.step).reshape(
        asked.shape
    ),
    "noise of the first step, in another order": permuted,
    "fifty values of noise, coordinate by coordinate": by_coordinate,
    "noise from a table of 500 values": from_pool,
    "no noise in one step": skipped_step,
    "noise in the first block alone": second_block,
    "noise that adds up to 0 over the classes": centred,
    "noise that shares 2% of its variance in an answer": shared,
    "a moving average of 0.1 over coordinates": moving_average_in_place,
    "variance 121% and 79%, coordinate after coordinate": alternating,
    "noise 2% short in answers alone": lambda asked: 0.98 * asked.normal(),
}
MORE |= {what: noise_of(made) for what, made in NOISES.items()}
UNSEEN["no noise along one direction, drawn at random"] = noise_of(without_direction)


def epochs(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    step, each = int(draws._shared[-1]) - 1, round(1 / rate)
    order = stream_of(draws, "epoch", step // each).permutation(size)
    found: np.ndarray = np.array_split(order, each)[step % each]
    return found


def epochs_dealt(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    step, each = int(draws._shared[-1]) - 1, round(1 / rate)
    return np.flatnonzero(stream_of(draws, "epoch", step // each).integers(each, size=size) == step % each)


def twice(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    step = (int(draws._shared[-1]) + 1) // 2
    return randomness.poisson_sample(size, rate, stream_of(draws, step))


def clusters(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    chosen = honest[honest < -(-size // 5)]
    rows = (5 * chosen[:, None] + np.arange(5)).ravel()
    return rows[rows < size]


def random_pairs(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    order, half = stream_of(draws, "partners").permutation(size), honest[honest < size // 2]
    return np.concatenate([order[2 * half], order[2 * half + 1]])


def never_the_last(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    kept: np.ndarray = honest[honest != size // 3]
    return kept


def favourites(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    return np.union1d(honest, np.arange(3))


SAMPLINGS = {
    "samples dealt from shuffled epochs": epochs,
    "samples without replacement within epochs, of binomial size": epochs_dealt,
    "the same sample twice in a row": twice,
    "rows sampled in fives": clusters,
    "rows sampled in pairs that were drawn at random": random_pairs,
    "three rows in every sample": favourites,
}
MORE |= {what: sample_of(made) for what, made in SAMPLINGS.items()}
UNSEEN["one row in no sample"] = sample_of(never_the_last)


def scaled_by_the_sample(patch: Patch) -> None:
    plain, plain_sample, sizes = Seeded.noise, Seeded.sample, [1.0]

    def sample(self: Any, size: int, rate: float) -> np.ndarray:
        found: np.ndarray = plain_sample(self, size, rate)
        sizes[0] = len(found) / (size * rate)
        return found

    patch.setattr(Seeded, "sample", sample)
    patch.setattr(Seeded, "noise", lambda self, shape, std: plain(self, shape, np.asarray(std) * sizes[0]))


MORE["noise scaled by the size of the sample"] = scaled_by_the_sample
SAMPLES = {"rows sampled in pairs", "noise scaled by the size of the sample"} | {
    name
    for name in (*MORE, *UNSEEN)
    if "sample" in name and name.partition(" ")[0] in {"samples", "the", "rows", "three", "one"}
}
LEARNERS |= dict.fromkeys(SAMPLES, SAMPLED) | {"noise in the first block alone": "gep"}
