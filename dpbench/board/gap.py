"""The smallest true difference between two learners that a board can detect, given its test set and number of seeds.

Two learners with the same assumed accuracy a, whose errors are independent of each other, differ on 2a(1 - a) of the
test examples. With n independent examples, the standard error of the difference is sqrt(2a(1 - a)/n) if a learner errs
on the same examples with every seed, and sqrt(2a(1 - a)/(nS)) if each of S seeds errs on other examples; real learners
lie between. The smallest gap is 2.80 standard errors: a single two-sided test at 5% detects it in four of five cases.
The gap is smaller for learners that err on the same examples, and larger with correction for many comparisons.

For balanced accuracy, the variance is that of a mean over C classes with n_c examples each, so n is C² / sum(1/n_c).
If results record units of test images, such as lesions, n counts units, because all images of a unit may be right or
wrong together.
"""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np

from dpbench.board.index import Gap
from dpbench.records.board import Board
from dpbench.records.result import Result
from dpbench.records.units import decode_units

ACCURACY = 0.8  # assumed of both learners
POWER = 0.8  # chance that a gap of this size is found
LEVEL = 0.05
DIGITS = 5


def compute_smallest_gap(board: Board, result: Result, seeds: int) -> Gap | None:
    """Return the smallest true difference that a board can detect; None for a metric such as AUROC.

    Args:
        board: the board, for its metric.
        result: any result of the board, for its test set.
        seeds: the number of seeds over which an entry's score is averaged.
    """
    examples = _count_independent_examples(board, result)
    if not examples:
        return None
    normal = NormalDist()
    errors = normal.inv_cdf(1 - LEVEL / 2) + normal.inv_cdf(POWER)
    high = errors * math.sqrt(2 * ACCURACY * (1 - ACCURACY) / examples)
    low = high / math.sqrt(seeds)
    return Gap(accuracy=ACCURACY, low=round(low, DIGITS), high=round(high, DIGITS), examples=round(examples, 1))


def _count_independent_examples(board: Board, result: Result) -> float:
    """Return the effective number of test examples; 0 if the metric is not a mean over examples or classes.

    Balanced accuracy also gives 0 if no seed of the result has a confusion matrix.
    """
    task = result.task
    if board.metric == "accuracy":
        return task.test if task.test_units is None else len(np.unique(decode_units(task.test_units, task.test)))
    kept = next((seed.evidence for seed in result.seeds if seed.evidence), None)
    if board.metric != "balanced_accuracy" or kept is None:
        return 0
    sizes = [size for size in kept.class_sizes if size]
    return len(sizes) ** 2 / math.fsum(1 / size for size in sizes)
