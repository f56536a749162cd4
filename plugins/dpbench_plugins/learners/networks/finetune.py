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
    SpecError,
    Task,
    aimed,
    effective_size,
    require_setting,
    setting,
)
from dpbench_plugins.learners.coordinates import choose_settings, head_probe, train_head
from dpbench_plugins.learners.tails import (
    TAIL_RATE,
    check_tail,
    choose_answer_passes,
    choose_passes,
    count_pooled_features,
    require_tail,
    train_on_answers,
    train_on_labels,
)

if TYPE_CHECKING:
    import torch

    from dpbench_plugins.learners.networks.tail import Neck, TailGradients, TunedNetwork

Parameters = Literal["head", "bias", "film", "lora", "last", "all"]
RATES = {"adam": 0.02, "momentum": 2.0}
ENOUGH = 20_000  # private examples over sigma, from which on the rate is one of those
PROBE_SHARE = 0.02  # of the budget of the tail, for probes of its learning rate
PROBE_CLIP = 0.5  # L2 bound on the two changes of one example's loss, in nats


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
    budget; `bias` trains the biases (BitFit, Zaken et al. 2022); `film` trains them and a factor for each channel, as
    FiLM does with the factors and shifts of a normalisation (Perez et al. 2018); `lora` adds adapters of rank `rank` to
    the 1x1 convolutions and linear layers (Hu et al. 2022); `last` trains the last layer that has weights; `all` trains
    all convolutions and linear layers. Each trained tensor is measured in units of its own published size (root mean
    square), so that one clip and one learning rate suit all of them.

    `optimiser=adam` is DP-AdamBC (Tang et al. 2024), which subtracts the variance of the noise, known from sigma, from
    the second moment; `learning_rate` is then about the share of its size that a parameter moves in a step.
    `momentum` is SGD with `momentum`, on gradients in units of the clip. Predictions use the mean of the last half of
    the iterates. By default, `learning_rate` is 0.02 (2 with `momentum`), and less where the private examples are few
    compared with the noise: it is proportional to n / sigma below 20,000 (`effective_size`).

    With `probes`, the learning rate is corrected that many times, evenly spread over the steps. A probe asks for two
    noisy sums over a Poisson sample: how far each example's loss changes by the step to come, and by the opposite step.
    The two changes of an example are clipped as one vector of norm 0.5. A parabola through the answers says which
    multiple of the step reaches its minimum; the rate is multiplied by this number, within 1/2 and 2, or stays where
    the noise, whose size is known, hides both slope and curvature. All probes together cost 2% of the budget of the
    tail. This follows HyFreeDP (Liu and Bu 2025, arXiv:2503.00703), which fits the same parabola to losses instead of
    their changes, at every step, and adapts the bound on a loss.

    `start=answers` fine-tunes the network of `self-tail` instead of the published one: the probabilities of the private
    head on the public images train the tail and a new head, which costs nothing more, and the new head stays fixed. If
    the answers taught nothing, the published tail and the private head are fine-tuned as ever. `public-finetune` starts
    from the network of `public-tail`.

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
    probes: int = setting(0, added=True, ge=0, says="corrections of the tail's learning rate by private losses")
    start: Literal["published", "answers"] = setting(
        "published", added=True, says="network to start from: as published, or trained on the private head's answers"
    )

    def reads_mirrored(self) -> bool:
        """Return whether public images train the network to start from."""
        return self.start == "answers"

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
        """Plan the full-batch gradients of the head, then the sampled gradients and probes of the tail."""
        (check_tail if self.reads_mirrored() else require_tail)(task, self.name)
        head_steps = require_setting(self.head_steps)
        if self.parameters == "head":
            return [Release("head", head_steps)]
        share, probing = self.head_share / (1 - self.head_share), PROBE_SHARE if self.probes else 0.0
        noise = (head_steps * (1 - probing) / (share * self.steps)) ** 0.5 / self.sample_rate
        plan = [Release("head", head_steps, relative_noise=noise), Release("tail", self.steps, self.sample_rate)]
        if not self.probes:
            return plan
        probes = min(self.probes, self.steps)
        noise = (probes * (1 - probing) / (probing * self.steps)) ** 0.5
        return [*plan, Release("probe", probes, self.sample_rate, relative_noise=noise)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the head, then the tail with the head fixed."""
        from dpbench_plugins.learners.networks.tail import Neck, TunedNetwork, pooled_features, predictor

        task, tail = curator.task, self._make_tail(curator.task, public, generator)
        neck = Neck.from_features(pooled_features(tail, public.x), require_setting(self.k), self.name)
        network = TunedNetwork(tail, neck, self._train_head(curator, tail, neck, generator))
        if self.start == "answers":
            answers, passes = predictor(network)(public.x).softmax(1), choose_answer_passes(task)
            trained = train_on_answers(task, public, answers, self.name, passes, TAIL_RATE, generator)
            network = TunedNetwork.from_trained(trained) if trained.gained else network
        tuned = network if self.parameters == "head" else self._tune(curator, network, generator)
        return aimed(predictor(tuned), task, public)

    def _make_tail(self, task: Task, public: PublicData, generator: torch.Generator) -> torch.nn.Module:
        """Return the tail on whose pooled features the head is trained: the published one."""
        return require_tail(task, self.name)().to(task.device)

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
            direction = optimiser.step(total / (self.clip * expected))
            if step * self.probes % self.steps < self.probes:
                rate *= self._probe(curator, gradients, position, rate * direction)
            position = position - rate * direction
            if 2 * step >= self.steps - 1:
                taken += 1
                average.lerp_(position, 1 / taken)
        return gradients.network_at(average)

    def _probe(self, curator: Curator, gradients: TailGradients, position: torch.Tensor, step: torch.Tensor) -> float:
        """Return the multiple of a step at which private losses are least, as far as the noise lets it be seen."""
        rows, expected = gradients.loss_changes(position, step), self.sample_rate * curator.task.size
        changes = curator.noisy_sum(rows, release="probe", clip=PROBE_CLIP, chunk_size=self.chunk_size) / expected
        return find_step(*changes.tolist(), noise=PROBE_CLIP * curator.sigma["probe"] / expected)


def find_step(forward: float, backward: float, noise: float) -> float:
    """Return the multiple of a step, within 1/2 and 2, at which the parabola through three mean losses is least.

    `forward` and `backward` are the changes of the mean loss by the step and by the opposite step, each with noise of
    this deviation. A multiple of 1 is returned if neither slope nor curvature exceeds two deviations.
    """
    slope, curvature = (backward - forward) / 2, forward + backward
    if max(abs(slope), abs(curvature) / 2) <= 2**0.5 * noise:
        return 1.0
    return min(max(slope / max(curvature, noise, 1e-12), 0.5), 2.0)


@dataclass(frozen=True)
class PublicFineTune(DPFineTune):
    """Train the last stages of the network on public labels, then fine-tune them in private as `dp-finetune` does.

    You need an extractor with a `layer`, such as efficientnet-lite0:layer=blocks.4, and labelled public images. The
    stages behind the layer are trained on them as in `public-tail`, which costs no privacy. The rest is `dp-finetune`
    on the new network: a private head on its pooled features, then noisy steps on the parameters that `parameters`
    names. The controls are public-only:tail=true, which reads no private image, and `public-tail`, which trains a head
    alone in private.
    """

    name = "public-finetune"
    public = "labelled"

    def __post_init__(self) -> None:
        """Refuse to start from the answers of a private head."""
        if self.start != "published":
            raise SpecError(
                f"Expected start=published in learner {self.name!r}, whose network public labels train, got "
                f"start={self.start}. Leave it out, or use dp-finetune:start={self.start}."
            )

    def reads_mirrored(self) -> bool:
        """Return True: each image is seen mirrored half of the time."""
        return True

    def _make_tail(self, task: Task, public: PublicData, generator: torch.Generator) -> torch.nn.Module:
        """Return the tail that public labels trained."""
        return train_on_labels(task, public, self.name, choose_passes(task), TAIL_RATE, generator).network.tail
