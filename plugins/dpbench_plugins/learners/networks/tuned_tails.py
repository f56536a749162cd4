"""Learners that train the network further on public images, which costs no privacy, beside heads that are private."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    Curator,
    Predict,
    PublicData,
    Release,
    SpecError,
    Task,
    effective_size,
    require_setting,
    setting,
)
from dpbench_plugins.learners.public_labels import require_labels
from dpbench_plugins.learners.public_prior import PublicPrior
from dpbench_plugins.learners.thrift import Thrift

if TYPE_CHECKING:
    import torch

    from dpbench_plugins.learners.networks.tail_training import TrainedTail

LEAST = 128  # public examples, two batches
TAIL_RATE = 0.001
LABELS_EXPLAINED = 0.95  # of what a head on the published features explains: mixup makes a network less sure
ANSWERS_EXPLAINED = 0.5  # the same, of a private head's answers, whose errors a head on those features repeats
TWO_HEADS = 500.0  # n / sigma per class from which on half of the budget buys a head as good


@dataclass(frozen=True)
class PublicTail(PublicPrior):
    """Train the last stages of the network on public labels, then `public-prior` on the features that come out.

    You need an extractor with a `layer`, such as efficientnet-lite0:layer=blocks.4, and labelled public images. The
    stages behind the layer and a head are trained on them (`tail_training`): the private images are not read, so this
    costs no privacy. Then `public-prior` trains on the pooled features of the new network. The control is
    public-only:tail=true, which stops before that.
    """

    name = "public-tail"

    passes: int | None = setting(None, ge=1, says="passes over the public examples that train the tail")
    tail_rate: float = setting(TAIL_RATE, gt=0, lt=math.inf, says="peak learning rate of the tail")

    def reads_mirrored(self) -> bool:
        """Return True: each image is seen mirrored half of the time."""
        return True

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the settings of `public-prior` on pooled features, and 12 passes or fewer."""
        return {**_settle_pooled(super().auto(task, budget), task), "passes": choose_passes(task)}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan as `public-prior` does."""
        check_tail(task, self.name)
        return super().plan(task, budget)

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the tail on the public labels, then a correction of the public head on private data."""
        trained = train_on_labels(
            curator.task, public, self.name, require_setting(self.passes), self.tail_rate, generator
        )
        predict = super().fit(curator.map(trained.pool), PublicData(trained.pool(public.x), public.y), generator)
        return lambda x: predict(trained.pool(x))


@dataclass(frozen=True)
class SelfTail(Thrift):
    """Train the last stages of the network on the answers of a private head to public images, which have no labels.

    You need an extractor with a `layer`, such as efficientnet-lite0:layer=blocks.4. `thrift` trains a private head on
    the pooled features. Its probabilities on the public images are targets on which the stages behind the layer and a
    new head are trained (`tail_training`). What follows from a private answer and public images costs nothing more, and
    the network has more freedom than a head: it predicts. If it explains less than half of what a head on the published
    features explains of held-out answers, it learned nothing, and the private head predicts.

    With `two_heads`, a second private head gets half of the budget and stands on the new features; the probabilities of
    both are averaged geometrically. By default this is so from n / sigma = 500 per class on, where half of the budget
    costs the first head nearly nothing.
    """

    name = "self-tail"

    two_heads: bool | None = setting(None, says="whether half of the budget is kept for a head on the new features")
    passes: int | None = setting(None, ge=1, says="passes over the public examples that train the tail")
    tail_rate: float = setting(TAIL_RATE, gt=0, lt=math.inf, says="peak learning rate of the tail")

    def reads_mirrored(self) -> bool:
        """Return True: each image is seen mirrored half of the time."""
        return True

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the number of heads, the settings of `thrift` for the budget of each, and 8 passes or fewer."""
        two = self.two_heads
        if two is None:
            two = effective_size(task, budget) >= TWO_HEADS * task.classes
        half = Budget(budget.epsilon * 0.5**0.5, budget.delta, budget.adjacency) if two else budget
        passes = max(2, round(2 / 3 * choose_passes(task)))
        return {**_settle_pooled(super().auto(task, half), task), "two_heads": two, "passes": passes}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one full-batch gradient per step of each head; training the tail is post-processing."""
        check_tail(task, self.name)
        return [Release("gradient", require_setting(self.steps) * (2 if self.two_heads else 1))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train a private head, then the tail on its answers, then another head on the new features, if planned."""
        from dpbench_plugins.learners.networks.tail_training import TrainedTail, train_tail

        published = TrainedTail.as_published(check_tail(curator.task, self.name)())
        frozen = PublicData(published.pool(public.x), None)
        first = super().fit(curator.map(published.pool), frozen, generator)
        answers = first(frozen.x).softmax(1)
        tail = check_tail(curator.task, self.name)().to(curator.task.device)
        passes = require_setting(self.passes)
        trained = train_tail(tail, public, answers, passes, self.tail_rate, generator, least=ANSWERS_EXPLAINED)
        if not self.two_heads:
            return trained.predict if trained.gained else lambda x: first(published.pool(x))
        features = PublicData(trained.pool(public.x), None)
        second = super().fit(curator.map(trained.pool), features, generator)
        return lambda x: (second(trained.pool(x)).log_softmax(1) + trained.predict(x).log_softmax(1)) / 2


def check_tail(task: Task, who: str) -> Any:
    """Return the loader of the network behind cached activations.

    Raises:
        SpecError: there is none, or there are too few public examples to train it.
    """
    if task.tail is None:
        raise SpecError(
            f"Learner {who!r} trains the network behind cached activations, but examples of shape "
            f"{task.example_shape} have no such network. Use an extractor with a layer, such as --extractor "
            "efficientnet-lite0:layer=blocks.4 (dpbench list extractors)."
        )
    if task.public < LEAST:
        raise SpecError(
            f"Expected at least {LEAST} public examples for learner {who!r}, which trains a network on them, got "
            f"{task.public}. Add --public-fraction or --public-dataset."
        )
    return task.tail


def train_on_labels(
    task: Task, public: PublicData, who: str, passes: int, rate: float, generator: torch.Generator
) -> TrainedTail:
    """Return the network behind cached activations, trained on public labels.

    Raises:
        SpecError: there is no such network, or there are too few public examples or labels.
    """
    from torch.nn.functional import one_hot

    from dpbench_plugins.learners.networks.tail_training import train_tail

    targets = one_hot(require_labels(public, who), task.classes).float()
    tail = check_tail(task, who)().to(task.device)
    return train_tail(tail, public, targets, passes, rate, generator, least=LABELS_EXPLAINED)


def _settle_pooled(settled: Mapping[str, Any], task: Task) -> dict[str, Any]:
    """Return the settings with no more components than the tail has pooled features."""
    from dpbench_plugins.learners.networks.finetune import count_pooled_features

    if task.tail is None:
        return dict(settled)
    return {**settled, "k": min(settled["k"], count_pooled_features(task.tail(), task.example_shape))}


def choose_passes(task: Task) -> int:
    """Return the passes over public examples with labels: 12 for 1,000 or fewer, 6 for 5,000, and at least 2."""
    return max(2, round(12 * min(1.0, math.pow(1000 / max(task.public, 1), 0.43))))
