"""What the learners of theorems share: tasks of two classes, and public data that must be there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbench import SpecError, Task

if TYPE_CHECKING:
    from torch import Tensor


def check_two_classes(task: Task, learner: str) -> None:
    """Refuse a task that the theorem does not speak of.

    Raises:
        SpecError: not two classes.
    """
    if task.classes != 2:
        raise SpecError(
            f"Expected a task of two classes in learner {learner!r}, got {task.classes}: its theorem is of a yes or no."
        )


def check_public(task: Task, learner: str) -> None:
    """Refuse a task without public examples.

    Raises:
        SpecError: there is none.
    """
    if not task.public:
        raise SpecError(
            f"Learner {learner!r} needs public examples, unlabelled. Add --public-fraction, or m= of the dataset."
        )


def check_variety(public: Tensor, learner: str) -> None:
    """Refuse public examples that tell nothing.

    Raises:
        SpecError: they are all the same point.
    """
    if len(public) > 1 and bool((public == public[0]).all()):
        raise SpecError(
            f"Expected public examples that differ in learner {learner!r}, got {len(public)} times the same point."
        )


def score_yes_or_no(scores: Tensor) -> Tensor:
    """Return (c, 2) of scores (c,), positive for yes."""
    import torch

    return torch.stack([-scores, scores], 1)
