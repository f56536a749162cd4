"""Private training of whole networks, and the baseline that starts from random weights: De et al.'s recipe."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, SpecError, Task, setting
from dpbench_plugins.learners.networks.optimisers import OptimiserName

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from dpbench_plugins.learners.networks.training import Phase

NetworkName = Literal["wrn-16-4", "wrn-40-4", "wrn-10-1", "resnet-9", "tiny"]


@dataclass(frozen=True)
class NetworkLearner(Learner):
    """Base class of learners that train a network: the settings of the network, its augmented views and the steps.

    `augmult` is the number of views whose gradients are averaged before clipping (0 uses the image itself). Each view
    is a crop of the image after `padding` pixels are reflected at its borders; with `flip`, half of the views are
    mirrored at random. `chunk_size` is the number of examples whose gradients are in memory at once (None: as many as
    fit). It affects only memory use.
    """

    logits = True

    network: NetworkName = setting("wrn-16-4", says="architecture")
    sample_rate: float = setting(0.08192, gt=0, le=1, says="chance per example of being in a step, not a batch size")
    momentum: float = setting(0.0, ge=0, lt=1, says="momentum of the noisy gradients")
    clip: float = setting(1.0, gt=0, lt=math.inf, says="L2 bound on the gradient of one example")
    augmult: int = setting(
        16, ge=0, says="augmented views of an image whose gradients are averaged; 0 uses the image itself"
    )
    padding: int = setting(4, ge=0, says="pixels by which a view is moved at most")
    flip: bool = setting(True, says="whether half of the views are mirrored")
    ema: float = setting(0.9999, ge=0, lt=1, says="decay of the moving average of the weights")
    chunk_size: int | None = setting(
        None, ge=1, says="examples whose gradients are in memory at once; auto: as many as fit"
    )

    def check_task(self, task: Task) -> None:
        """Check that the network can read the examples, before any of them is read.

        Raises:
            SpecError: the examples are not images, or they are too small for the network or its views.
        """
        from dpbench_plugins.networks.models import build_network

        if len(task.example_shape) != 3:
            raise SpecError(
                f"Learner {self.name!r} trains a network on images (channels, height, width), got examples of shape "
                f"{task.example_shape}. Use --extractor pixels:flat=false."
            )
        build_network(self.network, task.example_shape, task.classes)
        smallest = min(task.example_shape[1:])
        if self.augmult and self.padding >= smallest:
            raise SpecError(
                f"Expected padding={self.padding} below the images' {smallest} pixels in learner {self.name!r}, "
                "because padding reflects pixels of the image. Set padding=1, or augmult=0."
            )

    def train(
        self,
        curator: Curator,
        phases: Sequence[Phase],
        weights: str | None,
        generator: torch.Generator,
        optimiser: OptimiserName = "momentum",
    ) -> Predict:
        """Train through all phases from the checkpoint `weights`, or from random weights if None; return the predictor.

        Raises:
            DpbenchError: the checkpoint is missing or does not match, or there is too little memory.
        """
        from dpbench_plugins.learners.networks.gradients import ParameterLayout, PerExampleGradients
        from dpbench_plugins.learners.networks.training import NetworkTrainer, make_predictor
        from dpbench_plugins.networks.models import build_network, draw_parameters
        from dpbench_plugins.networks.network_checkpoint import Checkpoint, find_checkpoint
        from dpbench_plugins.networks.views import Augmentation

        task = curator.task
        network = build_network(self.network, task.example_shape, task.classes)
        start: dict[str, Tensor] = draw_parameters(network, generator)
        if weights is not None:
            start = Checkpoint.load(find_checkpoint(weights)).apply_to_parameters(start, self.network)
        layout = ParameterLayout(network)
        gradients = PerExampleGradients(layout, Augmentation(self.augmult, self.padding, self.flip))
        training = NetworkTrainer(gradients, self.momentum, self.clip, self.ema, self.chunk_size, optimiser)
        average = training.run(curator, layout.flatten_parameters(start).to(task.device), phases)
        return make_predictor(network, layout.views(average))


@dataclass(frozen=True)
class DPSGDNet(NetworkLearner):
    """DP-SGD on a whole network from random weights (De et al. 2022, section 3 and appendix C).

    The recipe uses weight standardisation, GroupNorm, large batches, augmentation multiplicity, averaged weights and no
    momentum. The defaults are those for CIFAR-10 at epsilon 1: 875 steps with batches of 4,096 from 50,000. You need
    --extractor pixels:flat=false.

    `optimiser=momentum` is SGD with `momentum`. `adam` is DP-AdamBC (Tang et al. 2024, arXiv:2312.14334), which
    subtracts the variance of the noise, known from sigma, from the second moment; each weight then moves by about
    `learning_rate` a step, so use a learning rate of about 0.01. `disk` is DiSK (Zhang et al. 2024, arXiv:2410.03883),
    which filters gradients at a lookahead point. All three post-process the same release.

    Differences from the authors' code: sigma is calibrated and not rounded up to 10 (whose epsilon is 0.90); images are
    normalised by constants and not by statistics of the private set; the last averaged weights are scored.
    """

    name = "dp-sgd-net"
    rule_origin = "the paper"
    search_space = {
        "learning_rate": (0.5, 1.0, 2.0, 4.0),
        "steps": (250, 875, 2468),
    }

    steps: int = setting(875, ge=1, says="noisy gradient steps")
    learning_rate: float = setting(2.0, gt=0, says="step size of the descent")
    optimiser: OptimiserName = setting("momentum", added=True, says="post-processing of the noisy gradients")

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one release: the noisy gradient of every step."""
        self.check_task(task)
        return [Release("gradient", self.steps, self.sample_rate)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train all parameters."""
        from dpbench_plugins.learners.networks.training import Phase

        releases = [Release("gradient", self.steps, self.sample_rate)]
        return self.train(curator, [Phase("all", self.learning_rate, releases)], None, generator, self.optimiser)
