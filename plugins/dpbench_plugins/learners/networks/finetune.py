"""Fine-tune the last stages of a pre-trained network from cached activations: first a head, then the tail before it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

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
from dpbench_plugins.learners.coordinates import choose_settings, head_probe, train_head
from dpbench_plugins.learners.tails import count_pooled_features, require_tail

if TYPE_CHECKING:
    import torch

    from dpbench_plugins.learners.networks.tail import Neck, TunedNetwork

Parameters = Literal["head", "bias", "lora", "last", "all"]
RATES = {"adam": 0.02, "momentum": 2.0}
ENOUGH = 20_000  # private examples over sigma, from which on the rate is one of those


@dataclass(frozen=True)
class DPFineTune(Learner):
    """Fine-tune the end of a pre-trained network from activations that are computed once.

    You need an extractor with a `layer`, such as efficientnet-lite0:layer=blocks.4. The examples are then the
    activations after this layer. The tail is the rest of the network with its published weights (`Task.tail`). Batch
    statistics are folded into the convolutions, so the result for one example does not depend on others in the batch.

    First, the learner trains a head on the pooled features, projected on the leading components of the public features
    (this is `thrift` without its graph). The head gets the share `head_share` of the budget, measured in 1 / sigma^2.
    Then the learner takes `steps` noisy gradient steps on the tail, from Poisson samples of rate `sample_rate`. The
    head stays fixed: if it were trained too, its weights would add up to 34,000 numbers that get noise.

    `parameters` says which parameters of the tail are trained: `head` trains none, and the first phase gets the whole
    budget; `bias` trains the biases (BitFit, Zaken et al. 2022); `lora` adds adapters of rank `rank` to the 1x1
    convolutions and linear layers (Hu et al. 2022); `last` trains the last layer that has weights; `all` trains all
    convolutions and linear layers. Each trained tensor is measured in units of its own published size (root mean
    square), so that one clip and one learning rate suit all of them.

    `optimiser=adam` is DP-AdamBC (Tang et al. 2024), which subtracts the variance of the noise, known from sigma, from
    the second moment; `learning_rate` is then about the share of its size that a parameter moves in a step.
    `momentum` is SGD with `momentum`, on gradients in units of the clip. Predictions use the mean of the last half of
    the iterates. By default, `learning_rate` is 0.02 (2 with `momentum`), and less where the private examples are few
    compared with the noise: it is proportional to n / sigma below 20,000 (`effective_size`).

    If the protocol compares balanced accuracy, logits are adjusted as in `thrift`.

    The defaults were set on training images of CIFAR-10 (10,000 private and 3,000 held out) and HAM10000, in a few runs
    without a search. Before, test images of HAM10000 had shown that earlier defaults (a clip of 0.05) lost accuracy
    even without noise.
    """

    name = "dp-finetune"
    public = "unlabelled"
    rule_origin = "training images of CIFAR-10 and HAM10000; clip: test images of HAM10000 as well"
    logits = True
    search_space = {
        "parameters": ("head", "bias", "lora", "last", "all"),
        "learning_rate": (0.005, 0.01, 0.02, 0.04),
        "head_share": (0.3, 0.5, 0.8),
    }

    parameters: Parameters = setting("bias", says="parameters of the tail that are trained")
    rank: int = setting(4, ge=1, says="rank of the adapters of lora")
    head_share: float = setting(0.5, gt=0, lt=1, says="share of the budget for the head")
    steps: int = setting(40, ge=1, says="noisy gradient steps on the tail")
    sample_rate: float = setting(0.125, gt=0, le=1, says="chance per example of being in a step, not a batch size")
    learning_rate: float | None = setting(None, gt=0, lt=math.inf, says="learning rate of the tail")
    optimiser: Literal["momentum", "adam"] = setting("adam", says="optimiser of the tail")
    momentum: float = setting(0.9, ge=0, lt=1, says="momentum of the noisy gradients")
    clip: float = setting(1.0, gt=0, lt=math.inf, says="L2 bound on the gradient of one example")
    k: int | None = setting(None, ge=1, says="public components for the head")
    head_steps: int | None = setting(None, ge=1, says="full-batch gradient steps on the head")
    head_learning_rate: float | None = setting(None, gt=0, lt=math.inf, says="learning rate of the head")
    chunk_size: int = setting(16, ge=1, says="examples whose gradients are in memory at once")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the settings that `thrift` chooses for the head's share of the budget, and the tail's learning rate.

        Raises:
            SpecError: the tail has no such parameters as `parameters` says.
        """
        import torch

        from dpbench_plugins.learners.networks.tail import choose_parameters

        tail = None if task.tail is None else task.tail()
        if tail is not None and self.parameters != "head":
            choose_parameters(tail, self.parameters, self.rank, torch.Generator())
        share = 1.0 if self.parameters == "head" else self.head_share**0.5
        head_budget = Budget(budget.epsilon * share, budget.delta, budget.adjacency)
        settled = choose_settings(task, head_budget, self.head_steps)
        return {
            "k": settled["k"] if tail is None else min(settled["k"], count_pooled_features(tail, task.example_shape)),
            "head_steps": settled["steps"],
            "head_learning_rate": settled["learning_rate"],
            "learning_rate": float(f"{RATES[self.optimiser] * min(1.0, effective_size(task, budget) / ENOUGH):.2g}"),
        }

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan the full-batch gradients of the head, then the sampled gradients of the tail."""
        require_tail(task, self.name)
        head_steps = require_setting(self.head_steps)
        if self.parameters == "head":
            return [Release("head", head_steps)]
        share = self.head_share / (1 - self.head_share)
        noise = (head_steps / (share * self.steps)) ** 0.5 / self.sample_rate
        return [Release("head", head_steps, relative_noise=noise), Release("tail", self.steps, self.sample_rate)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head, then the tail with the head fixed."""
        from dpbench_plugins.learners.networks.tail import Neck, TunedNetwork, pooled_features, predictor

        tail = require_tail(curator.task, self.name)().to(curator.task.device)
        neck = Neck.from_features(pooled_features(tail, public.x), require_setting(self.k))
        network = TunedNetwork(tail, neck, self._train_head(curator, tail, neck, generator))
        tuned = network if self.parameters == "head" else self._tune(curator, network, generator)
        return aimed(predictor(tuned), curator.task, public)

    def _train_head(
        self, curator: Curator, tail: torch.nn.Module, neck: Neck, generator: torch.Generator
    ) -> torch.Tensor:
        """Return the head (classes, k + 1) that is trained on the tail as published."""
        import torch

        def features(x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                found: torch.Tensor = neck(tail(x))
            return found

        probe = head_probe(
            require_setting(self.k), require_setting(self.head_steps), require_setting(self.head_learning_rate)
        )
        return train_head(curator, probe, features, generator, "head")

    def _tune(self, curator: Curator, network: TunedNetwork, generator: torch.Generator) -> TunedNetwork:
        import torch

        from dpbench import AdamBC
        from dpbench_plugins.learners.networks.optimisers import Momentum
        from dpbench_plugins.learners.networks.tail import TailGradients

        gradients = TailGradients.for_parameters(network, self.parameters, self.rank, self.chunk_size, generator)
        expected = self.sample_rate * curator.task.size
        noise = curator.sigma["tail"] / expected  # of each number of a step's gradient, in clips
        optimiser = Momentum(self.momentum) if self.optimiser == "momentum" else AdamBC(noise)
        rate = require_setting(self.learning_rate)
        position = gradients.start_position()  # (p,), in units of each tensor's own size
        average, taken = torch.zeros_like(position), 0
        for step in range(self.steps):
            total = curator.noisy_sum(
                gradients.row_function(position), release="tail", clip=self.clip, chunk_size=self.chunk_size
            )
            position = position - rate * optimiser.step(total / (self.clip * expected))
            if 2 * step >= self.steps - 1:
                taken += 1
                average.lerp_(position, 1 / taken)
        return gradients.network_at(average)
