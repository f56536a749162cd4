"""The randomness of fits: every question of every fit has its own draws, and no draw is used twice.

`research` derives every draw from the fit's `identity` (its settings, plan, sigma, versions and the digests of its
data), a published seed, the release, the step and the purpose. So a run is reproducible to the last bit, while two
learners, two budgets, two datasets or two seeds share no draws: subtracting their answers removes no noise. But anyone
who knows the seed knows the noise, so a model released together with its seed has no guarantee.

`secure` draws everything that the guarantee depends on from the operating system's cryptographic generator: samples
directly, noise through `dpbench.privacy.core.discrete`, and for each question one number, whose hashes are the row
seeds. No draw is stored, and no run is reproducible.

In both, initialisation depends on the seed alone: it does not affect the guarantee, and all learners share it.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import random
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, Protocol

import numpy as np
import torch

from dpbench.errors import PrivacyError
from dpbench.privacy.core import discrete

Kind = Literal["research", "secure"]
Std = float | np.ndarray
"""A standard deviation in grid steps: one for all coordinates, or an array that broadcasts to them."""


class NoiseSource(Protocol):
    """A source of normal noise."""

    def noise(self, shape: Sequence[int], std: Std) -> np.ndarray:
        """Return normal noise of mean 0 and standard deviation `std`, in whole grid steps, int64."""


class QuestionDraws(ABC):
    """The draws of one question: its sample, the seeds of its rows, and its noise."""

    @abstractmethod
    def sample(self, size: int, rate: float) -> np.ndarray:
        """Return a Poisson sample, ascending int64: each of `size` rows independently with chance `rate`."""

    @abstractmethod
    def row_seed_base(self) -> int:
        """Return the number in [0, 2^63) from which `row_seeds` derives this question's row seeds."""

    @abstractmethod
    def check_duration(self, numbers_per_step: int, steps: int) -> None:
        """Warn if drawing `numbers_per_step` numbers in each of `steps` steps is slow; refuse if it is far too slow."""

    @abstractmethod
    def noise(self, shape: Sequence[int], std: Std) -> np.ndarray:
        """Return normal noise of mean 0 and standard deviation `std`, in whole grid steps, int64."""

    @abstractmethod
    def draw(
        self, research: Callable[[np.random.Generator], np.ndarray], secure: Callable[[], np.ndarray]
    ) -> np.ndarray:
        """Return draws from a mechanism's own distribution, for mechanisms without normal noise.

        Args:
            research: makes the draws from this question's generator.
            secure: makes draws with exactly the same distribution from the operating system's generator alone.
        """


@dataclass(frozen=True)
class Randomness:
    """The draws of one fit.

    Covered: the draws of all identities, seeds, releases and steps are independent, as far as the outputs of SHA-256
    and SFC64 (`research`) or the operating system (`secure`) are indistinguishable from independent draws. No question
    gets the draws of another: asking for them twice is refused. Fits that share samples (`tuning`) run over public
    rows.
    Not covered: two fits of the same identity and seed, which have the same draws. The identity does not change if code
    changes without a new version: raise a plugin's version when its questions change.
    """

    key: tuple[str, ...] | None  # None: from the operating system
    checks: np.random.Generator  # which rows are evaluated again: no guarantee rests on it
    initialisation: torch.Generator
    sampling: tuple[str, ...] | None = None  # another key for samples and row seeds, where fits share them
    quiet: bool = False  # one of a number of runs that must stay secret: it says nothing
    _last: dict[str, int] = field(default_factory=dict, repr=False)  # release -> the last step that was given draws

    @classmethod
    def for_fit(cls, kind: Kind, seed: int, identity: str, run: int | None = None) -> Randomness:
        """Return the randomness of a seed's fit or, in private selection, of run number `run` of the seed."""
        if kind == "secure":
            return cls.secure(seed, quiet=run is not None)
        if run is None:
            return cls.research(seed, identity)
        return cls._from_key(seed, ("run", identity, str(seed), str(run)))

    @classmethod
    def research(cls, seed: int, identity: str) -> Randomness:
        """Return randomness derived from a published seed and the identity of the fit (`dpbench.records.identity`)."""
        return cls._from_key(seed, ("fit", identity, str(seed)))

    @classmethod
    def tuning(cls, seed: int, identity: str, fold: int, setting: int) -> Randomness:
        """Return the randomness of one setting in one fold. All settings of a fold share samples and initialisation."""
        shared = ("fold", identity, str(seed), str(fold))
        own = (*shared, str(setting))
        return cls(own, _stream((*own, "checks")), _make_initial_generator(seed, 7, fold), shared)

    @classmethod
    def secure(cls, seed: int, quiet: bool = False) -> Randomness:
        """Return randomness from the operating system; only initialisation depends on the seed.

        Raises:
            SpecError: OpenDP is not installed.
        """
        discrete.check_opendp_installed()
        return cls(None, _make_generator(secrets.token_bytes(32)), _make_initial_generator(seed, 4), quiet=quiet)

    @classmethod
    def _from_key(cls, seed: int, key: tuple[str, ...]) -> Randomness:
        return cls(key, _stream((*key, "checks")), _make_initial_generator(seed, 4))

    def draws(self, release: str, step: int) -> QuestionDraws:
        """Return the draws of a release's `step`-th question, counted from 1.

        Raises:
            PrivacyError: this or a later step of the release was given its draws already.
        """
        if step <= self._last.get(release, 0):
            raise PrivacyError(
                f"Step {step} of release {release!r} asked for its noise twice. Noise that is used twice can be "
                "subtracted from the answers. Make a new Randomness for each fit."
            )
        self._last[release] = step
        if self.key is None:
            return _SecureDraws(release, self.quiet)
        asked = (release, str(step))
        return _SeededDraws((*self.key, *asked), (*(self.sampling or self.key), *asked))


def make_selection_generator(kind: Kind, seed: int, identity: str) -> random.Random:
    """Return the generator that draws the number of runs of a private selection and the settings of each run."""
    if kind == "secure":
        return random.SystemRandom()
    return random.Random(int.from_bytes(_hash_key(("selection", identity, str(seed)))))


class _SeededDraws(QuestionDraws):
    def __init__(self, key: tuple[str, ...], shared: tuple[str, ...]) -> None:
        self._shared, self._normals = shared, _stream((*key, "noise"))

    def sample(self, size: int, rate: float) -> np.ndarray:
        return draw_poisson_sample(size, rate, _stream((*self._shared, "sample")))

    def row_seed_base(self) -> int:
        return int.from_bytes(_hash_key((*self._shared, "rows"))[:8]) >> 1

    def check_duration(self, numbers_per_step: int, steps: int) -> None:
        pass  # ten nanoseconds a number

    def noise(self, shape: Sequence[int], std: Std) -> np.ndarray:
        noise = self._normals.standard_normal(tuple(shape))  # blocks of one answer go on in the stream
        noise *= std
        return np.rint(noise, out=noise).astype(np.int64)

    def draw(
        self, research: Callable[[np.random.Generator], np.ndarray], secure: Callable[[], np.ndarray]
    ) -> np.ndarray:
        return research(self._normals)


class _SecureDraws(QuestionDraws):
    def __init__(self, release: str, quiet: bool) -> None:
        self._release, self._quiet = release, quiet

    def sample(self, size: int, rate: float) -> np.ndarray:
        return np.arange(size) if rate == 1 else draw_secure_sample(size, rate)

    def row_seed_base(self) -> int:
        return secrets.randbits(63)

    def check_duration(self, numbers_per_step: int, steps: int) -> None:
        discrete.check_duration(numbers_per_step, steps, self._release, quiet=self._quiet)

    def noise(self, shape: Sequence[int], std: Std) -> np.ndarray:
        return discrete.draw_rounded_gaussian(shape, std)

    def draw(
        self, research: Callable[[np.random.Generator], np.ndarray], secure: Callable[[], np.ndarray]
    ) -> np.ndarray:
        return secure()


def draw_poisson_sample(size: int, rate: float, generator: np.random.Generator) -> np.ndarray:
    """Draw a Poisson sample of `size` examples, each with chance `rate`; return their indices, ascending int64.

    It draws the gaps between chosen indices, which are geometric, so it costs O(size * rate), not O(size).
    """
    if rate == 1:
        return np.arange(size)
    expected = size * rate
    count = int(expected + 6 * math.sqrt(expected) + 16)
    parts, last = [], -1
    while last < size:
        gaps = np.minimum(generator.geometric(rate, count), size + 1)  # a longer gap leaves the range all the same
        parts.append(last + np.cumsum(gaps))
        last = int(parts[-1][-1])
    chosen = np.concatenate(parts)
    return chosen[: np.searchsorted(chosen, size)]


def draw_secure_sample(size: int, rate: float) -> np.ndarray:
    """Draw a Poisson sample from the operating system: a row is in if its 64 random bits are below rate * 2^64.

    Exact for rates of at least 2^-11, because these doubles are multiples of 2^-64. A smaller rate is rounded down by
    less than 2^-64; a lower rate never costs more epsilon.
    """
    below = np.uint64(math.floor(Fraction(rate) * 2**64))
    return np.flatnonzero(np.frombuffer(os.urandom(8 * size), np.uint64) < below)


class _DigestSeed(np.random.bit_generator.ISeedSequence):
    """Seeds a generator directly with a digest, which costs a fifth of a `SeedSequence`."""

    def __init__(self, digest: bytes) -> None:
        self._digest = digest

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        """Return the first words of the digest."""
        return np.frombuffer(self._digest, dtype, n_words)


def _make_generator(digest: bytes) -> np.random.Generator:
    return np.random.Generator(np.random.SFC64(_DigestSeed(digest)))  # type: ignore[arg-type]  # any ISeedSequence will do


def _stream(key: tuple[str, ...]) -> np.random.Generator:
    return _make_generator(_hash_key(key))


def _hash_key(key: tuple[str, ...]) -> bytes:
    return hashlib.sha256(json.dumps(key).encode()).digest()


def _make_initial_generator(seed: int, *place: int) -> torch.Generator:
    state = np.random.SeedSequence(seed, spawn_key=place).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(state[0] >> 1))


def row_seeds(base: int, rows: np.ndarray) -> np.ndarray:
    """Return one int64 seed per row, a hash (SplitMix64) of this question's `base` and the row's index in the data.

    Removing a row shifts the indices after it, so the privacy argument does not need equal seeds in neighbouring
    datasets. It needs seeds that are independent of the data and each uniform: then the rows that two datasets share
    can be coupled to equal seeds. SplitMix64 is not cryptographic; that its seeds are as good as uniform is an
    assumption.
    """
    z = rows.astype(np.uint64)
    z += np.uint64(1)
    z *= np.uint64(0x9E3779B97F4A7C15)
    z += np.uint64(base)
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        z ^= z >> np.uint64(shift)
        z *= np.uint64(factor)
    z ^= z >> np.uint64(31)
    z >>= np.uint64(1)
    return z.view(np.int64)
