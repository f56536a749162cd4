"""The confusion matrix of a result as text, over all seeds: in full with few classes, otherwise its largest errors."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpbench.records.result import Result

MAX_PRINTED_CLASSES = 20  # classes of a matrix that is printed whole
MAX_ERRORS = 10  # of a larger one
MAX_NAME_LENGTH = 14  # letters of a class


def sum_confusion_matrices(result: Result) -> np.ndarray | None:
    """Return the confusion matrix (k, k) summed over seeds, with true classes as rows; None if a seed lacks it."""
    found = [seed.matrix for seed in result.seeds if seed.matrix]
    return np.sum(found, 0) if found and len(found) == len(result.seeds) else None


def list_largest_errors(result: Result, matrix: np.ndarray) -> list[tuple[str, str, float]]:
    """Return the most frequent errors, at most `MAX_ERRORS`: true class, guessed class, share of the true class."""
    off = matrix * (1 - np.eye(len(matrix), dtype=int))
    places = [divmod(int(place), len(off)) for place in np.argsort(-off, axis=None, kind="stable")[:MAX_ERRORS]]
    names = result.task.classes
    return [(names[a], names[b], float(off[a, b] / matrix[a].sum())) for a, b in places if off[a, b]]


def format_confusion_matrix(result: Result) -> Iterator[str]:
    """Yield the confusion matrix as lines, in percent of each true class; with many classes, only the largest errors.

    It yields nothing for results of versions that did not record the matrix.
    """
    matrix = sum_confusion_matrices(result)
    if matrix is None:
        return
    if len(matrix) > MAX_PRINTED_CLASSES:
        yield "The most frequent errors, over all seeds, in percent of the true class:"
        for true, guess, share in list_largest_errors(result, matrix):
            yield f"  {true} taken for {guess}: {100 * share:.1f}"
        return
    names = [
        name if len(name) <= MAX_NAME_LENGTH else f"{name[: MAX_NAME_LENGTH - 1]}…" for name in result.task.classes
    ]
    width, counts = max(map(len, names)), matrix.sum(1)
    yield "Confusion over all seeds: percent of each true class (rows), by guessed class (columns, in the same order)"
    for name, row, count in zip(names, matrix, counts, strict=True):
        yield f"  {name:{width}}" + "".join(f"{100 * hits / count:6.1f}" if count else "     -" for hits in row)
