"""Stability of rank 1: how often the best entry without public labels also wins on half of the test examples.

The test set is split in half at random 1,000 times, from a published seed. On each half, the accuracy of every such
entry over all its seeds is computed; all entries share the same halves. The counts are integers, so every machine gets
the same numbers.

The stability shows whether half of these test examples would name the same winner. It does not show which entry would
win on new examples, because the halves share the luck of the whole test set: of two equal entries, the leading entry
wins three quarters of the halves. Nor does it show the effect of the fit's seeds, which stay the same. Only accuracy
has one bit per test example; boards that rank by another metric have no stability.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from dpbench.analysis.paired import RankingScores
from dpbench.board.index import Stability

HALF_COUNT = 1000
SEED = 0
BATCH_SIZE = 100  # halves at a time


def measure_winner_stability(entries: Sequence[RankingScores], tied_count: int) -> Stability | None:
    """Count the random halves of the test set on which the first entry wins, and on which any entry of rank 1 wins.

    An entry wins a half if no other entry has more correct predictions there. Returns None if there are fewer than two
    entries or test examples, or if the metric is not accuracy.

    Args:
        entries: the scores of the entries, best first.
        tied_count: the number of entries that share rank 1; they come first.
    """
    bits = [entry.bits for entry in entries if entry.bits is not None]
    if len(bits) < 2 or len(bits) < len(entries):
        return None
    correct = np.stack([bit().sum(0, dtype=np.float32) for bit in bits])  # (entries, n): over seeds
    if correct.shape[1] < 2:
        return None
    first = shared = 0
    halves = _draw_random_halves(correct.shape[1])
    for some in range(0, HALF_COUNT, BATCH_SIZE):
        half = halves[some : some + BATCH_SIZE].astype(np.float32)
        hits = half @ correct.T  # (halves, entries): whole numbers below 2^24, exact in any order
        best = hits.max(1)
        first += int((hits[:, 0] == best).sum())
        shared += int((hits[:, :tied_count].max(1) == best).sum())
    return Stability(halves=HALF_COUNT, seed=SEED, first=first, shared=shared)


@functools.lru_cache(maxsize=4)  # boards of one test split share them
def _draw_random_halves(example_count: int) -> np.ndarray:
    """Return random halves of n examples: (HALF_COUNT, n) bool, True for the n // 2 examples in the half."""
    random, halves = np.random.default_rng(SEED), np.empty((HALF_COUNT, example_count), bool)
    for some in range(0, HALF_COUNT, BATCH_SIZE):
        drawn = random.random((BATCH_SIZE, example_count))
        last = np.partition(drawn, example_count // 2 - 1, axis=1)[:, example_count // 2 - 1, None]
        halves[some : some + BATCH_SIZE] = drawn <= last
    return halves
