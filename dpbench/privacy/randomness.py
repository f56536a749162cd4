"""Where randomness comes from: one stream a purpose, none used twice.

`research` derives everything from a seed that results publish: runs repeat to the last bit, but whoever knows the
seed knows the noise, so a model released together with its seed has no guarantee. `secure` takes 256 bits from the
operating system for sampling and noise and keeps only a SHA-256 commitment to them. Neither stream is a
cryptographic generator (PCG64DXSM): state recovery from outputs is outside the threat model.
"""

from __future__ import annotations

import hashlib
import secrets
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch


@dataclass(frozen=True)
class Randomness:
    """The streams of one fit. Sampling, noise, row seeds, checks and initialisation never share a draw."""

    sampling: np.random.Generator
    noise: np.random.Generator
    rows: np.random.Generator
    checks: np.random.Generator
    initialisation: torch.Generator
    commitment: str | None  # SHA-256 of the operating system's entropy; None for research

    @classmethod
    def of(cls, kind: Literal["research", "secure"], seed: int, run: int | None = None) -> Randomness:
        """Return the streams of one fit, of either kind; of run number `run` where a seed stands for several."""
        if kind == "secure":
            return cls.secure(seed)
        return cls.research(seed) if run is None else cls._from(np.random.SeedSequence(seed, spawn_key=(8, run)), seed)

    @classmethod
    def research(cls, seed: int) -> Randomness:
        """Derive every stream from a published seed."""
        return cls._from(np.random.SeedSequence(seed), seed)

    @classmethod
    def tuning(cls, seed: int, fold: int, setting: int) -> Randomness:
        """Return the streams of one setting in one fold: noise is its own, samples and initialisation are the fold's.

        None of them is a stream of `research`, whatever the seeds.
        """
        shared = np.random.SeedSequence(seed, spawn_key=(5, fold))
        sampling, rows, checks = map(_stream, shared.spawn(3))
        noise = _stream(np.random.SeedSequence(seed, spawn_key=(6, fold, setting)))
        start = _torch_stream(np.random.SeedSequence(seed, spawn_key=(7, fold)))
        return cls(sampling, noise, rows, checks, start, None)

    @classmethod
    def secure(cls, seed: int) -> Randomness:
        """Take the curator's streams from the operating system; only initialisation follows the seed."""
        entropy = secrets.token_bytes(32)
        return cls._from(np.random.SeedSequence(int.from_bytes(entropy)), seed, hashlib.sha256(entropy).hexdigest())

    @classmethod
    def _from(cls, curator: np.random.SeedSequence, seed: int, commitment: str | None = None) -> Randomness:
        sampling, noise, rows, checks = map(_stream, curator.spawn(4))
        # Spawn key 4 is the one that the curator's four streams do not use.
        start = _torch_stream(np.random.SeedSequence(seed, spawn_key=(4,)))
        return cls(sampling, noise, rows, checks, start, commitment)


def _stream(sequence: np.random.SeedSequence) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64DXSM(sequence))


def _torch_stream(sequence: np.random.SeedSequence) -> torch.Generator:
    return torch.Generator().manual_seed(int(sequence.generate_state(1, np.uint64)[0] >> 1))


def row_seeds(base: int, rows: np.ndarray) -> np.ndarray:
    """Return one int64 seed per row, a hash (SplitMix64) of this step's `base` and the row's place in the data.

    A row's seed depends on no other row, so augmentation stays a per-example operation.
    """
    with np.errstate(over="ignore"):
        z = np.uint64(base) + (rows.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(1)).astype(np.int64)
