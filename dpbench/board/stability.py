"""Stability of rank 1: how often the best entry without public labels is also the best on half of the test examples.

The test set is cut in half at random 1,000 times, without replacement and from a published seed. On each half, every
such entry has the mean of its correct answers over the examples of the half and over seeds; the same halves serve all
entries. Counts are of whole answers, so every machine finds the same.

What it says: whether half of these test examples name the same winner. What it does not say: what other examples would
have named, as halves inherit the luck of the whole (of two equal entries the one ahead wins three halves in four), and
how seeds of the fit matter, which stay as they are. Only accuracy has one bit a test example;
boards that rank by another metric have no stability.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from dpbench.analysis.paired import Scores
from dpbench.board.index import Stability

HALVES = 1000
SEED = 0
BATCH_SIZE = 100  # halves at a time


def measure_stability(entries: Sequence[Scores], tied: int) -> Stability | None:
    """Return the stability of the first of `entries`, which are sorted, best first; the first `tied` share rank 1.

    An entry counts as the best of a half where no other has more correct answers there. None where there is nothing
    to compare: fewer than two entries or test examples, or a metric other than accuracy.
    """
    bits = [entry.bits for entry in entries if entry.bits is not None]
    if len(bits) < 2 or len(bits) < len(entries):
        return None
    correct = np.stack([bit().sum(0, dtype=np.float32) for bit in bits])  # (entries, n): over seeds
    if correct.shape[1] < 2:
        return None
    first = shared = 0
    halves = _draw_halves(correct.shape[1])
    for some in range(0, HALVES, BATCH_SIZE):
        half = halves[some : some + BATCH_SIZE].astype(np.float32)
        hits = half @ correct.T  # (halves, entries): whole numbers below 2^24, exact in any order
        best = hits.max(1)
        first += int((hits[:, 0] == best).sum())
        shared += int((hits[:, :tied].max(1) == best).sum())
    return Stability(halves=HALVES, seed=SEED, first=first, shared=shared)


@functools.lru_cache(maxsize=4)  # boards of one test split share them
def _draw_halves(n: int) -> np.ndarray:
    """Return random halves of n examples: (HALVES, n) bool, True for the n // 2 that are in."""
    random, halves = np.random.default_rng(SEED), np.empty((HALVES, n), bool)
    for some in range(0, HALVES, BATCH_SIZE):
        drawn = random.random((BATCH_SIZE, n))
        last = np.partition(drawn, n // 2 - 1, axis=1)[:, n // 2 - 1, None]
        halves[some : some + BATCH_SIZE] = drawn <= last
    return halves
