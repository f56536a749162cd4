"""Fine-tune the last stages of a pre-trained network from cached activations; the head on top stays fixed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from dpbench import Budget, Curator, Predict, PublicData, Release, SpecError, Task, aimed, require_setting, setting
from dpbench_plugins.learners.coordinates import choose_settings, make_head_probe, train_head
from dpbench_plugins.learners.networks.tail_tuning import TailTuningLearner
from dpbench_plugins.learners.tails import (
    TAIL_RATE,
    choose_answer_passes,
    choose_passes,
    get_tail_loader,
    get_trainable_tail_loader,
    limit_k_to_pooled_features,
    train_tail_on_answers,
    train_tail_on_labels,
)

if TYPE_CHECKING:
    import torch

    from dpbench_plugins.learners.networks.tail import Neck


@dataclass(frozen=True)
class DPFineTune(TailTuningLearner):
    """Fine-tune the end of a pre-trained network from activations that are computed once.

    You need an extractor with a `layer`, such as efficientnet-lite0:layer=blocks.4. The examples are then the
    activations after this layer. The tail is the rest of the network with its published weights (`Task.tail`). Batch
    statistics are folded into the convolutions, so the result for one example does not depend on other examples in the
    batch.

    First, the learner trains a head on the pooled features, projected on the leading components of the public features
    (this is `thrift` without its graph). The head gets the share `head_share` of the budget, measured in 1 / sigma^2.
    Then the learner takes `steps` noisy gradient steps on the tail, from Poisson samples of rate `sample_rate`. The
    head stays fixed, because training it would add noise to as many as 34,000 more numbers.

    `parameters` says which parameters of the tail are trained:

    - `head`: none; the first phase gets the whole budget.
    - `bias`: the biases (BitFit, Zaken et al. 2022).
    - `film`: the biases and a factor for each channel, as FiLM does with the factors and shifts of a normalisation
      (Perez et al. 2018).
    - `lora`: adapters of rank `rank` at the 1x1 convolutions and linear layers (Hu et al. 2022).
    - `last`: the last layer that has weights.
    - `all`: all convolutions and linear layers.

    Each trained tensor is measured in units of the root mean square of its entries before the first noisy step, so that
    one clip and one learning rate suit all tensors.

    `optimiser=adam` is DP-AdamBC (Tang et al. 2024), which subtracts the variance of the noise, known from sigma, from
    the second moment; a parameter then moves by about `learning_rate` of its tensor's unit in a step.
    `optimiser=momentum` is SGD with `momentum`, on gradients divided by the clip. Predictions use the mean of the last
    half of the iterates. By default, `learning_rate` is 0.02 (2 with `optimiser=momentum`); if n / sigma is below
    20,000, it is reduced in proportion to n / sigma (`effective_size`). `clip` is 4, or 1 if n / sigma is below 2,000.

    With `probes`, the learning rate is corrected that many times, evenly spread over the steps. A probe asks for two
    noisy sums over a Poisson sample: how much each example's loss changes with the next step, and with the opposite
    step. The two changes of an example are clipped together, as one vector, to norm 0.5. A parabola through the answers
    gives the multiple of the step that minimises the loss; the rate is multiplied by this number, limited to [1/2, 2].
    The rate stays the same if the noise, whose size is known, hides both slope and curvature. All probes together cost
    2% of the budget of the tail. This follows HyFreeDP (Liu and Bu 2025, arXiv:2503.00703), which fits the same
    parabola to losses instead of their changes, at every step, and adapts the bound on a loss.

    `start=answers` fine-tunes the network of `self-tail` instead of the published one: the tail and a new head are
    first trained on the private head's probabilities for the public images, which costs no more privacy. The new head
    then stays fixed. If this training gains nothing, the published tail and the private head are used, as by default.
    `public-finetune` starts from the network of `public-tail`.

    If the protocol compares balanced accuracy, logits are adjusted as in `thrift`.

    The defaults were set on training images of CIFAR-10 (10,000 private and 3,000 held out) and HAM10000, in a few runs
    without a search. Before, test images of HAM10000 had shown that a clip of 0.05 lost accuracy even without noise.
    The clip was chosen on a held-out fifth of the private units. On HAM10000 (balanced accuracy) at epsilon 8, clips of
    0.25, 1, 4 and 16 give 36.8, 43.5, 51.1 and 44.0%, and clips of 1 and 4 with a second seed 37.5 and 43.7%. Clips of
    1 and 4 give 36.7 and 43.0% at epsilon 3, and at epsilon 1 40.2 and 33.3%, with a second seed 33.1 and 35.3%. On
    CIFAR-10 (3,200 private images), they give 75.0 and 76.4% at epsilon 8, and 68.5 and 68.4% at epsilon 1.
    """

    name = "dp-finetune"
    public = "unlabelled"
    rule_origin = "training images of CIFAR-10 and HAM10000"
    search_space = {
        "parameters": ("head", "bias", "lora", "last", "all"),
        "learning_rate": (0.005, 0.01, 0.02, 0.04),
        "head_share": (0.3, 0.5, 0.8),
    }

    head_share: float = setting(0.5, gt=0, lt=1, says="share of the budget for the head")
    k: int | None = setting(None, ge=1, says="public components for the head")
    head_steps: int | None = setting(None, ge=1, says="full-batch gradient steps on the head")
    head_learning_rate: float | None = setting(None, gt=0, lt=math.inf, says="learning rate of the head")
    start: Literal["published", "answers"] = setting(
        "published", added=True, says="network to start from: as published, or trained on the private head's answers"
    )

    def reads_mirrored(self) -> bool:
        """Return whether mirrored public images are read: only with `start=answers`."""
        return self.start == "answers"

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the settings that `thrift` chooses for the head's share of the budget, and the tail's learning rate.

        Raises:
            SpecError: the tail has no parameters of the kind `parameters`.
        """
        rate = self.choose_learning_rate(task, budget)
        share = 1.0 if self.parameters == "head" else self.head_share**0.5
        head_budget = Budget(budget.epsilon * share, budget.delta, budget.adjacency)
        settled = limit_k_to_pooled_features(choose_settings(task, head_budget, self.head_steps), task)
        return {
            "k": settled["k"],
            "head_steps": settled["steps"],
            "head_learning_rate": settled["learning_rate"],
            "learning_rate": rate,
            "clip": self.choose_clip(task, budget),
        }

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan the full-batch gradients of the head, then the sampled gradients and probes of the tail."""
        (get_trainable_tail_loader if self.reads_mirrored() else get_tail_loader)(task, self.name)
        head_steps = require_setting(self.head_steps)
        if self.parameters == "head":
            return [Release("head", head_steps)]
        share = self.head_share / (1 - self.head_share)
        noise = (head_steps * (1 - self.probe_share) / (share * self.steps)) ** 0.5 / self.sample_rate
        return [Release("head", head_steps, relative_noise=noise), *self.plan_tail_releases()]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head, then the tail with the head fixed."""
        from dpbench_plugins.learners.networks.tail import Neck, TunedNetwork, compute_pooled_features, make_predictor

        task = curator.task
        tail = get_tail_loader(task, self.name)().to(task.device)
        neck = Neck.from_features(compute_pooled_features(tail, public.x), require_setting(self.k))
        network = TunedNetwork(tail, neck, self._train_head(curator, tail, neck, generator))
        if self.start == "answers":
            answers, passes = make_predictor(network)(public.x).softmax(1), choose_answer_passes(task)
            trained = train_tail_on_answers(task, public, answers, self.name, passes, TAIL_RATE, generator)
            network = TunedNetwork.from_trained(trained) if trained.is_trained else network
        tuned = network if self.parameters == "head" else self.tune(curator, network, generator)
        return aimed(make_predictor(tuned), task, public)

    def _train_head(
        self, curator: Curator, tail: torch.nn.Module, neck: Neck, generator: torch.Generator
    ) -> torch.Tensor:
        """Train a private head (classes, k + 1) on the features of the published tail."""
        import torch

        def features(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                found: torch.Tensor = neck(tail(x))
            return found

        probe = make_head_probe(
            require_setting(self.k), require_setting(self.head_steps), require_setting(self.head_learning_rate)
        )
        return train_head(curator, probe, features, generator, "head")


@dataclass(frozen=True)
class PublicFineTune(TailTuningLearner):
    """Train the last stages of the network on public labels, then fine-tune them in private.

    You need an extractor with a `layer`, such as efficientnet-lite0:layer=blocks.4, and labelled public images. The
    stages after the layer, plus a head, are trained on the public images as in `public-tail`, which costs no privacy.
    The head then stays fixed, and the whole budget goes to noisy steps on the parameters that `parameters` names. The
    settings are those of `dp-finetune`, which trains its head on private data. The controls are public-only:tail=true,
    which skips the private steps, and `public-tail`, which trains only a head on private data. If the protocol compares
    balanced accuracy, logits are adjusted as in `thrift`.
    """

    name = "public-finetune"
    public = "labelled"
    rule_origin = "those of `dp-finetune`; tail: public images of CIFAR-10"
    search_space = {
        "parameters": ("bias", "film", "lora", "last", "all"),
        "learning_rate": (0.005, 0.01, 0.02, 0.04),
    }

    def __post_init__(self) -> None:
        """Raise SpecError for parameters=head, which leaves nothing to train on private data."""
        if self.parameters == "head":
            raise SpecError(
                f"Expected parameters of the tail in learner {self.name!r}, whose head public labels train, got "
                "parameters=head. Use public-tail, which trains a head in private."
            )

    def reads_mirrored(self) -> bool:
        """Return True: training mirrors each public image half of the time."""
        return True

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the learning rate and the clip of the tail."""
        return {"learning_rate": self.choose_learning_rate(task, budget), "clip": self.choose_clip(task, budget)}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan the sampled gradients of the tail and its probes; public labels cost nothing."""
        get_trainable_tail_loader(task, self.name)
        return self.plan_tail_releases()

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the network on the public labels, then its tail on private data."""
        from dpbench_plugins.learners.networks.tail import TunedNetwork, make_predictor

        task = curator.task
        trained = train_tail_on_labels(task, public, self.name, choose_passes(task), TAIL_RATE, generator)
        tuned = self.tune(curator, TunedNetwork.from_trained(trained), generator)
        return aimed(make_predictor(tuned), task, public)
