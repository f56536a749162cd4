"""Base class for noisy steps on the tail of a pre-trained network, with probes that correct the learning rate."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpbench import Budget, Curator, Learner, Release, Task, effective_size, require_setting, setting

if TYPE_CHECKING:
    import torch

    from dpbench_plugins.learners.networks.tail import TailGradients, TunedNetwork

Parameters = Literal["head", "bias", "film", "lora", "last", "all"]
RATES = {"adam": 0.02, "momentum": 2.0}
ENOUGH = 20_000  # private examples over sigma, from which on the rate is one of those
ENOUGH_FOR_LARGE_CLIP = 2_000  # private examples over sigma
PROBE_SHARE = 0.02  # of the budget of the tail, for probes of its learning rate
PROBE_CLIP = 0.5  # L2 bound on the two changes of one example's loss, in nats


@dataclass(frozen=True)
class TailTuningLearner(Learner):
    """Base class of learners that fine-tune the last stages of a network (the tail) by noisy steps on Poisson samples.

    The head stays fixed. Each trained tensor is measured in units of the root mean square of its entries before the
    first noisy step. `dp-finetune` explains the settings.
    """

    logits = True

    parameters: Parameters = setting("bias", says="parameters of the tail that are trained")
    rank: int = setting(4, ge=1, says="rank of the adapters of lora")
    steps: int = setting(40, ge=1, says="noisy gradient steps on the tail")
    sample_rate: float = setting(0.125, gt=0, le=1, says="chance per example of being in a step, not a batch size")
    learning_rate: float | None = setting(None, gt=0, lt=math.inf, says="learning rate of the tail")
    optimiser: Literal["momentum", "adam"] = setting("adam", says="optimiser of the tail")
    momentum: float = setting(0.9, ge=0, lt=1, says="momentum of the noisy gradients")
    clip: float | None = setting(
        None, earlier={"0.2.0": 1.0}, gt=0, lt=math.inf, says="L2 bound on the gradient of one example"
    )
    chunk_size: int = setting(16, ge=1, says="examples whose gradients are in memory at once")
    probes: int = setting(0, added=True, ge=0, says="corrections of the tail's learning rate by private losses")

    def choose_learning_rate(self, task: Task, budget: Budget) -> float:
        """Return the learning rate of the tail, after a check that the tail has parameters of the kind `parameters`.

        Raises:
            SpecError: the tail has no such parameters.
        """
        import torch

        from dpbench_plugins.learners.networks.tail import choose_trained_parameters

        if task.tail is not None and self.parameters != "head":
            choose_trained_parameters(task.tail(), self.parameters, self.rank, torch.Generator())
        return float(f"{RATES[self.optimiser] * min(1.0, effective_size(task, budget) / ENOUGH):.2g}")

    def choose_clip(self, task: Task, budget: Budget) -> float:
        """Return the clip: 4 if noise leaves enough of the larger gradients, else 1."""
        return 4.0 if effective_size(task, budget) >= ENOUGH_FOR_LARGE_CLIP else 1.0

    @property
    def probe_share(self) -> float:
        """The share of the tail's budget that probes take; 0 without probes."""
        return PROBE_SHARE if self.probes else 0.0

    def plan_tail_releases(self) -> Sequence[Release]:
        """Return the releases of the tail: sampled gradients, whose relative noise is 1, and any probes."""
        gradients = Release("tail", self.steps, self.sample_rate)
        if not self.probes:
            return [gradients]
        probes = min(self.probes, self.steps)
        noise = (probes * (1 - self.probe_share) / (self.probe_share * self.steps)) ** 0.5
        return [gradients, Release("probe", probes, self.sample_rate, relative_noise=noise)]

    def tune(self, curator: Curator, network: TunedNetwork, generator: torch.Generator) -> TunedNetwork:
        """Return the network at the mean of the last half of the noisy iterates; its head does not change."""
        import torch

        from dpbench import AdamBC
        from dpbench_plugins.learners.networks.optimisers import MomentumSGD
        from dpbench_plugins.learners.networks.tail import TailGradients

        gradients = TailGradients.for_parameters(network, self.parameters, self.rank, self.chunk_size, generator)
        expected = self.sample_rate * curator.task.size
        noise = curator.sigma["tail"] / expected  # of each number of a step's gradient, in clips
        optimiser = MomentumSGD(self.momentum) if self.optimiser == "momentum" else AdamBC(noise)
        rate, clip = require_setting(self.learning_rate), require_setting(self.clip)
        position = gradients.start_position()  # (p,), in units of each tensor's own size
        average, taken = torch.zeros_like(position), 0
        for step in range(self.steps):
            total = curator.noisy_sum(
                gradients.row_function(position), release="tail", clip=clip, chunk_size=self.chunk_size
            )
            direction = optimiser.step(total / (clip * expected))
            if step * self.probes % self.steps < self.probes:
                rate *= self._probe(curator, gradients, position, rate * direction)
            position = position - rate * direction
            if 2 * step >= self.steps - 1:
                taken += 1
                average.lerp_(position, 1 / taken)
        return gradients.build_network_at(average)

    def _probe(self, curator: Curator, gradients: TailGradients, position: torch.Tensor, step: torch.Tensor) -> float:
        """Return the multiple of a step that minimises the private loss, estimated from noisy changes of the loss."""
        rows, expected = gradients.loss_change_function(position, step), self.sample_rate * curator.task.size
        changes = curator.noisy_sum(rows, release="probe", clip=PROBE_CLIP, chunk_size=self.chunk_size) / expected
        return find_step_multiple(float(changes[0]), float(changes[1]), PROBE_CLIP * curator.sigma["probe"] / expected)


def find_step_multiple(forward: float, backward: float, noise: float) -> float:
    """Return the multiple of a step, between 1/2 and 2, that minimises the parabola through three mean losses.

    `forward` and `backward` are the changes of the mean loss with the step and with the opposite step, each with noise
    of standard deviation `noise`. The multiple is 1 if neither slope nor curvature exceeds two standard deviations.
    """
    slope, curvature = (backward - forward) / 2, forward + backward
    if max(abs(slope), abs(curvature) / 2) <= 2**0.5 * noise:
        return 1.0
    return min(max(slope / max(curvature, noise, 1e-12), 0.5), 2.0)
