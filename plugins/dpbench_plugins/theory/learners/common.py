"""Checks and scores that the learners of theorems share: tasks of two classes, required public data."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbench import SpecError, Task

if TYPE_CHECKING:
    from torch import Tensor


def check_two_classes(task: Task, learner: str) -> None:
    """Check that a task has two classes, as the theorem requires.

    Raises:
        SpecError: the task has another number of classes.
    """
    if task.classes != 2:
        raise SpecError(
            f"Expected a task of two classes in learner {learner!r}, got {task.classes}: its theorem is of a yes or no."
        )


def check_public_examples(task: Task, learner: str) -> None:
    """Check that a task has public examples.

    Raises:
        SpecError: there are none.
    """
    if not task.public:
        raise SpecError(
            f"Learner {learner!r} needs public examples, unlabelled. Add --public-fraction, or m= of the dataset."
        )


def check_points_differ(public: Tensor, learner: str) -> None:
    """Check that public examples are not all the same point.

    Raises:
        SpecError: the public examples are all the same point.
    """
    if len(public) > 1 and bool((public == public[0]).all()):
        raise SpecError(
            f"Expected public examples that differ in learner {learner!r}, got {len(public)} times the same point."
        )


def make_binary_scores(scores: Tensor) -> Tensor:
    """Return scores (c, 2) of no and yes, from scores (c,) that are positive for yes."""
    import torch

    return torch.stack([-scores, scores], 1)
