"""An unbalanced part of a balanced split: class by class, fewer examples are kept."""

from __future__ import annotations

import numpy as np


def kept(labels: np.ndarray, classes: int, imbalance: float | None, split_seed: int, part: int) -> np.ndarray:
    """Return which examples (n,) of a split are kept, ascending: all of them, or of class c the share imbalance^-f.

    f = c / (classes - 1) rises from 0, the first class, which is kept whole, to 1, the last (Cao et al. 2019, section
    4, "long-tailed"). Of each class that has an example one is kept at least. The test split is cut as the training
    split is, so that accuracy is that of a population with these very shares; balanced accuracy stands beside it.

    Covered: the guarantee is about the rows that are kept, as it is about those that `train_fraction` keeps.
    Not covered: which rows those are rests on the labels of all.

    Args:
        labels: (n,) int64 in [0, classes).
        classes: how many there are.
        imbalance: first class to last, in shares kept; None keeps everything.
        split_seed: decides which examples of a class are kept.
        part: tells the splits of one dataset apart.
    """
    if imbalance is None:
        return np.arange(len(labels))
    random = np.random.default_rng(np.random.SeedSequence(split_seed, spawn_key=(part,)))
    chosen = []
    for label in range(classes):
        found = random.permutation(np.flatnonzero(labels == label))
        share = imbalance ** -(label / max(1, classes - 1))
        chosen.append(found[: max(1, round(share * len(found)))])
    return np.sort(np.concatenate(chosen))
