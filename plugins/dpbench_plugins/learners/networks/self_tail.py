"""Self-tail: train the network further on a private head's answers to public images, at no cost in privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    Curator,
    Learner,
    Predict,
    PublicData,
    Release,
    Task,
    aimed,
    effective_size,
    require_setting,
    setting,
)
from dpbench_plugins.learners.coordinates import Coordinates, choose_settings, make_head_probe, train_head
from dpbench_plugins.learners.tails import (
    TAIL_RATE,
    choose_answer_passes,
    get_trainable_tail_loader,
    limit_k_to_pooled_features,
    train_tail_on_answers,
)

if TYPE_CHECKING:
    import torch

TWO_HEADS = 500.0  # n / sigma per class from which on half of the budget buys a head as good


@dataclass(frozen=True)
class SelfTail(Learner):
    """Train the last stages of the network on unlabelled public images, with a private head's answers as targets.

    You need an extractor with a `layer`, such as efficientnet-lite0:layer=blocks.4. `thrift` trains a private head on
    the pooled features. The stages after the layer, plus a new head, are trained on this head's probabilities for the
    public images (`tail_training`). This is post-processing, so it costs no more privacy. The new network predicts,
    because it is more flexible than a head. If the new network explains less than half as much of held-out answers as a
    head on the published features does, the private head predicts instead. If the protocol compares balanced accuracy,
    the answers are adjusted as in `thrift`, and so are the predictions of the network that was trained on them.

    With `two_heads`, half of the budget trains a second private head on the new features, and the probabilities of the
    network and of this head are averaged geometrically. By default, `two_heads` is set if n / sigma is at least 500 per
    class, because the first head then loses almost nothing with half of the budget.
    """

    name = "self-tail"
    public = "unlabelled"
    rule_origin = "those of `thrift`; tail: public images of CIFAR-10"
    logits = True
    search_space = {"two_heads": (False, True), "passes": (2, 4, 8)}

    k: int | None = setting(None, ge=1, says="public components that a private head reads")
    graph: float | None = setting(None, ge=0, le=1, says="share of a row that its neighbours in the public graph have")
    steps: int | None = setting(None, ge=1, says="full-batch gradient steps of a private head")
    learning_rate: float | None = setting(None, gt=0, says="step size of a private head")
    two_heads: bool | None = setting(None, says="whether half of the budget is kept for a head on the new features")
    passes: int | None = setting(None, ge=1, says="passes over the public examples that train the tail")
    tail_rate: float = setting(TAIL_RATE, gt=0, lt=math.inf, says="peak learning rate of the tail")

    def reads_mirrored(self) -> bool:
        """Return True: training mirrors each public image half of the time."""
        return True

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return `two_heads`, the settings that `thrift` chooses for the budget of each head, and `passes` (2 to 8)."""
        two = self.two_heads
        if two is None:
            two = effective_size(task, budget) >= TWO_HEADS * task.classes
        half = Budget(budget.epsilon * 0.5**0.5, budget.delta, budget.adjacency) if two else budget
        settled = limit_k_to_pooled_features(choose_settings(task, half, self.steps), task)
        return {**settled, "two_heads": two, "passes": choose_answer_passes(task)}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one full-batch gradient per step of each head; training the tail is post-processing."""
        get_trainable_tail_loader(task, self.name)
        return [Release("gradient", require_setting(self.steps) * (2 if self.two_heads else 1))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train a private head, then the tail on its answers, then another head on the new features, if planned."""
        from dpbench_plugins.learners.tail_training import TrainedTail

        published = TrainedTail.from_published_tail(get_trainable_tail_loader(curator.task, self.name)())
        frozen = PublicData(published.pool(public.x), None)
        first = self._train_head(curator.map(published.pool), frozen, generator)
        answers = first(frozen.x).softmax(1)
        trained = train_tail_on_answers(
            curator.task, public, answers, self.name, require_setting(self.passes), self.tail_rate, generator
        )
        own = trained.predict if trained.is_trained else lambda x: first(published.pool(x))
        if not self.two_heads:
            return own
        second = self._train_head(curator.map(trained.pool), PublicData(trained.pool(public.x), None), generator)
        return lambda x: (second(trained.pool(x)).log_softmax(1) + own(x).log_softmax(1)) / 2

    def _train_head(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train a private head on pooled features, as `thrift` does."""
        k = require_setting(self.k)
        features = Coordinates(self.name, k, self.graph).features(public.x, generator)
        probe = make_head_probe(k, require_setting(self.steps), require_setting(self.learning_rate))
        head = train_head(curator, probe, features, generator)
        return aimed(lambda x: probe.logits(head, features(x)), curator.task, public)
