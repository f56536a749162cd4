"""An unbalanced part of a balanced split: class by class, fewer examples are kept."""

from __future__ import annotations

import math

import numpy as np

from dpbench.errors import SpecError


def subsample(labels: np.ndarray, classes: int, imbalance: float | None, split_seed: int, part: int) -> np.ndarray:
    """Return which examples (n,) of a split are kept, ascending: all of them, or of class c the share imbalance^-f.

    f = c / (classes - 1) rises from 0, the first class, which is kept whole, to 1, the last (Cao et al. 2019, section
    4, "long-tailed"). The test split is cut as the training split is, so that accuracy is that of a population with
    these very shares; balanced accuracy stands beside it. A public dataset, whose classes may be others, stays whole.

    Covered: the guarantee is about the rows that are kept, as it is about those that `train_fraction` keeps.
    Not covered: which rows those are rests on the labels of all.

    Args:
        labels: (n,) int64 in [0, classes).
        classes: how many there are.
        imbalance: first class to last, in shares kept; None keeps everything.
        split_seed: decides which examples of a class are kept.
        part: tells the splits of one dataset apart.

    Raises:
        SpecError: a class that has examples would be left without.
    """
    if imbalance is None:
        return np.arange(len(labels))
    random = np.random.default_rng(np.random.SeedSequence(split_seed, spawn_key=(part,)))
    falls = [label / max(1, classes - 1) for label in range(classes)]
    found = [random.permutation(np.flatnonzero(labels == label)) for label in range(classes)]
    left = [rows[: round(imbalance**-fall * len(rows))] for rows, fall in zip(found, falls, strict=True)]
    if any(len(rows) and not len(some) for rows, some in zip(found, left, strict=True)):
        limits = [math.log(2 * len(rows)) / fall for rows, fall in zip(found, falls, strict=True) if len(rows) and fall]
        raise SpecError(
            f"Expected imbalance={imbalance:g} below {math.exp(min(limits)):.4g}, so that every class that has "
            "examples keeps at least one. Use a smaller value."
        )
    return np.sort(np.concatenate(left))
