"""The tail, the stages of a network after cached activations: its loader and its public training. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dpbench import PublicData, SpecError, Task
from dpbench_plugins.learners.public_labels import require_public_labels

if TYPE_CHECKING:
    import torch
    from torch import nn

    from dpbench_plugins.learners.tail_training import TrainedTail

LEAST = 128  # public examples, two batches
TAIL_RATE = 0.001  # peak learning rate
LABELS_EXPLAINED = 0.95  # of what a head on the published features explains: mixup makes a network less sure
ANSWERS_EXPLAINED = 0.5  # the same for the answers of a private head, whose errors such a head repeats


def get_tail_loader(task: Task, learner: str) -> Callable[[], nn.Module]:
    """Return the loader of the tail.

    Raises:
        SpecError: the examples have no tail, because the extractor has no `layer`.
    """
    if task.tail is None:
        raise SpecError(
            f"Learner {learner!r} trains the network behind cached activations, but examples of shape "
            f"{task.example_shape} have no such network. Use an extractor with a layer, such as --extractor "
            "efficientnet-lite0:layer=blocks.4 (dpbench list extractors)."
        )
    return task.tail


def get_trainable_tail_loader(task: Task, learner: str) -> Callable[[], nn.Module]:
    """Return the loader of the tail, for training on public examples.

    Raises:
        SpecError: there is no tail, or there are too few public examples.
    """
    tail = get_tail_loader(task, learner)
    if task.public < LEAST:
        raise SpecError(
            f"Expected at least {LEAST} public examples for learner {learner!r}, which trains a network on them, got "
            f"{task.public}. Add --public-fraction or --public-dataset."
        )
    return tail


def train_tail_on_labels(
    task: Task, public: PublicData, learner: str, passes: int, rate: float, generator: torch.Generator
) -> TrainedTail:
    """Return the tail with a head, trained on public labels.

    Raises:
        SpecError: there is no tail, or there are too few public examples or labels.
    """
    from torch.nn.functional import one_hot

    from dpbench_plugins.learners.tail_training import train_tail

    targets = one_hot(require_public_labels(public, learner), task.classes).float()
    tail = get_trainable_tail_loader(task, learner)().to(task.device)
    return train_tail(tail, public, targets, passes, rate, generator, least=LABELS_EXPLAINED)


def train_tail_on_answers(
    task: Task,
    public: PublicData,
    answers: torch.Tensor,
    learner: str,
    passes: int,
    rate: float,
    generator: torch.Generator,
) -> TrainedTail:
    """Return the tail with a new head, trained on a private head's probabilities (m, classes) for public examples.

    Raises:
        SpecError: there is no tail, or there are too few public examples.
    """
    from dpbench_plugins.learners.tail_training import train_tail

    tail = get_trainable_tail_loader(task, learner)().to(task.device)
    return train_tail(tail, public, answers, passes, rate, generator, least=ANSWERS_EXPLAINED)


def limit_k_to_pooled_features(settings: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the settings with `k` limited to the number of pooled features; unchanged without a tail."""
    if task.tail is None:
        return dict(settings)
    return {**settings, "k": min(settings["k"], count_pooled_features(task.tail(), task.example_shape))}


def choose_passes(task: Task) -> int:
    """Return the number of passes over labelled public examples: 12 for 1,000 or fewer, 6 for 5,000, and at least 2."""
    return max(2, round(12 * min(1.0, math.pow(1000 / max(task.public, 1), 0.43))))


def choose_answer_passes(task: Task) -> int:
    """Return the number of passes over public examples with a head's answers: 8 for 1,000 or fewer, at least 2."""
    return max(2, round(2 / 3 * choose_passes(task)))


def count_pooled_features(tail: torch.nn.Module, shape: Sequence[int]) -> int:
    """Return the number of features that the tail returns for an input of this shape, found by calling it on zeros."""
    import torch

    with torch.no_grad():
        found: int = tail(torch.zeros(1, *shape)).shape[1]
    return found
