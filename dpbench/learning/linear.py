"""Private softmax regression on features: the part that most learners on frozen representations share.

The per-example gradient of a linear head is the outer product of its residual and its features (algorithm 1 of Abadi
et al. 2016 on a rank-one gradient), so no per-example gradient is ever materialised. Private features are mapped once
and kept in 8 bits. From there to the sum, every number is an integer or a float of one row only (`privacy.exact`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpbench.api import Curator, Predict, Release
from dpbench.errors import SpecError
from dpbench.learning.defaults import check_training_settings
from dpbench.learning.optimisers import AdamBC
from dpbench.privacy.core.exact.elementwise import folded, residuals_

if TYPE_CHECKING:
    import torch
    from torch import Tensor

OptimiserName = Literal["momentum", "adam"]
Transform = Callable[["Tensor"], "Tensor"]


@dataclass(frozen=True)
class GaussianPrior:
    """A Gaussian prior on a head's weights, with a mean and a precision from public data.

    Training starts at the mean. Each training step ends with the prior's proximal step, which divides the difference
    between head and mean by 1 + step * precision. This is stable for any precision and reads no private row.
    """

    mean: Tensor  # (k, d + 1) as the head, or (k, d) without bias
    precision: Tensor  # (d + 1,) or (d,): in examples, 1 / variance where an example's loss has curvature 1; inf: fixed

    def pull(self, head: Tensor, step: float) -> None:
        """Take the proximal step after a gradient step of size `step` on the summed losses; overwrite the head."""
        import torch

        head.copy_(torch.lerp(self.mean, head, 1 / (1 + step * self.precision)))


@dataclass(frozen=True)
class LinearProbe:
    """DP-SGD on a linear head of shape (k, d + 1), whose last column is the bias, or (k, d) without bias.

    Each step subtracts `learning_rate` times the velocity, where velocity = momentum * velocity + noisy sum of clipped
    gradients / (sample_rate * n). The expected batch size is public; the actual size of a sample is not. With
    `optimiser=adam`, the direction is that of `AdamBC` instead of the velocity, and `momentum` has no effect.
    """

    steps: int
    sample_rate: float
    learning_rate: float
    momentum: float
    clip: float
    init: Literal["zero", "uniform"] = "zero"
    bias: bool = True
    optimiser: OptimiserName = "momentum"

    def __post_init__(self) -> None:
        """Raise `SpecError` if a head cannot be trained with these settings."""
        check_training_settings(self.momentum, self.clip, self.learning_rate)

    def release(self, name: str = "gradient") -> Release:
        """Return the release to plan for `train`."""
        return Release(name, steps=self.steps, sample_rate=self.sample_rate)

    def train(
        self,
        curator: Curator,
        transform: Transform,
        generator: torch.Generator,
        release: str = "gradient",
        scale: Callable[[Tensor, int], Tensor] | None = None,
    ) -> Predict:
        """Train a head on rows mapped by `transform`, a public map to (c, d) features, and return the predictor.

        If `scale` is given, it maps the head and the step's number to a public preconditioner of the head's shape.
        Every gradient is divided by the preconditioner before clipping.
        """
        head = self.descend(curator.map(transform), generator, release, scale)
        return lambda x: self.logits(head, transform(x))

    def descend(
        self,
        curator: Curator,
        generator: torch.Generator,
        release: str = "gradient",
        scale: Callable[[Tensor, int], Tensor] | None = None,
        prior: GaussianPrior | None = None,
    ) -> Tensor:
        """Train a head (k, d + 1), or (k, d) without bias, on the features (c, d) that `curator` holds, and return it.

        `scale` is as in `train`. With a `prior`, training starts at its mean, and every step ends with a pull towards
        the mean (post-processing).
        """
        from dpbench.privacy.core.head import HeadGradient
        from dpbench.privacy.core.sum import Sum

        task = curator.task
        head = prior.mean.clone() if prior else self.head(task.classes, task.example_shape[0], generator)
        head = head.to(task.device)

        question = Sum(HeadGradient(head, self.bias), release, self.clip)  # the head is updated in place

        def answer_noisy_gradients(heads: Sequence[Tensor], active: Sequence[int], step: int) -> Sequence[Tensor]:
            if scale is None:
                return (curator.answer(question),)
            return (curator.answer(Sum(HeadGradient(head, self.bias, scale(head, step)), release, self.clip)),)

        return train_heads([self], [head], task.size, answer_noisy_gradients, prior, [curator.sigma[release]])[0]

    def head_noise(self, sigma: float, size: int) -> float:
        """Return an upper bound on the variance of the noise in each number of a head trained with momentum.

        The noise of a step stays in the velocity: with j steps left, it enters the head (1 - momentum^j) /
        (1 - momentum) times. The bound ignores that later steps may undo some of this noise.

        Args:
            sigma: the noise multiplier of the release.
            size: number of private examples.
        """
        step = self.learning_rate * sigma * self.clip / (self.sample_rate * size)
        stays = [(1 - self.momentum**left) / (1 - self.momentum) for left in range(1, self.steps + 1)]
        return step**2 * sum(stay**2 for stay in stays)

    def logits(self, head: Tensor, features: Tensor) -> Tensor:
        """Return the logits (c, k) of public features (c, d) under a head (k, d + 1), or (k, d) without bias."""
        import torch

        return torch.addmm(head[:, -1], features, head[:, :-1].T) if self.bias else features @ head.T

    def head(self, classes: int, features: int, generator: torch.Generator) -> Tensor:
        """Return the initial head (k, d + 1), or (k, d) without bias; `generator` draws it unless it is zero."""
        import torch

        if self.init == "zero":
            return torch.zeros(classes, features + self.bias)
        bound = features**-0.5  # the default of torch.nn.Linear
        return torch.empty(classes, features + self.bias).uniform_(-bound, bound, generator=generator)


def train_heads(
    probes: Sequence[LinearProbe],
    heads: Sequence[Tensor],
    size: int,
    gradients: Callable[[Sequence[Tensor], Sequence[int], int], Sequence[Tensor] | Tensor],
    prior: GaussianPrior | None = None,
    sigmas: Sequence[float] | None = None,
) -> list[Tensor]:
    """Train the head of each probe in place for all its steps, and return the heads.

    Args:
        probes: share one sample rate; probes with fewer steps stop while the others go on.
        heads: the initial head of each probe, (k, d + 1), or (k, d) without bias.
        size: number of private examples.
        gradients: returns the noisy gradients, given all heads, the indices of the probes still training, and the step.
        prior: if given, pulls every head towards its mean after every step.
        sigmas: each probe's noise multiplier, for optimisers that subtract the variance of the noise.
    """
    import torch

    velocities, expected = [torch.zeros_like(head) for head in heads], probes[0].sample_rate * size
    noises = [sigma * probe.clip / expected for sigma, probe in zip(sigmas or [0.0] * len(probes), probes, strict=True)]
    adams = [AdamBC(noise) for noise in noises]
    for step in range(max(probe.steps for probe in probes)):
        going = [place for place, probe in enumerate(probes) if step < probe.steps]
        for place, gradient in zip(going, gradients(heads, going, step), strict=True):
            probe, direction = probes[place], velocities[place]
            if probe.optimiser == "adam":
                direction = adams[place].step(gradient, 1 / expected)
            else:
                direction.mul_(probe.momentum).add_(gradient, alpha=1 / expected)
            heads[place].add_(direction, alpha=-probe.learning_rate)
            if prior:
                prior.pull(heads[place], probe.learning_rate / size)
    return list(heads)


def residuals(logits: Tensor, y: Tensor) -> Tensor:
    """Return softmax minus one-hot, (c, k): the gradient of the cross-entropy of logits (c, k) with labels (c,).

    Row i has the same bits at any position in the batch: see `privacy.core.exact.elementwise`.
    """
    import torch

    return residuals_(logits.float().T.clone(memory_format=torch.contiguous_format), y).T


@dataclass(frozen=True)
class Standardise:
    """The map from rows (c, *example_shape) to rows * scale + shift, (c, d)."""

    shift: Tensor  # (d,)
    scale: Tensor  # (d,)

    def __call__(self, rows: Tensor) -> Tensor:
        """Return the mapped rows. The operations are not fused: rounding would then depend on a row's position."""
        return (rows.flatten(1) * self.scale).add_(self.shift)


def standardisation(x: Tensor) -> Standardise:
    """Return the map that standardises features: it subtracts the mean of public `x` and divides by its deviation.

    Features that hardly vary in the public data (below a millionth of the largest deviation) are only centred.

    Raises:
        SpecError: fewer than two public examples, or features that are not finite.
    """
    import torch

    if len(x) < 2:
        raise SpecError(
            f"Expected at least 2 public examples to standardise features with, got {len(x)}. Add --public-fraction or "
            "--public-dataset, or set another scaling for the learner."
        )

    flat = x.flatten(1)
    mean, deviation = flat.mean(0), flat.std(0, correction=0)
    if not bool(deviation.isfinite().all()):
        raise SpecError("Some public features are not finite, so they cannot be standardised. Check the data.")
    scale = torch.where(deviation > 1e-6 * deviation.max(), 1 / deviation, 1.0)
    return Standardise(-mean * scale, scale)


def unit_norm(x: Tensor) -> Tensor:
    """Flatten each row of (c, *example_shape) and divide it by its L2 norm; a zero row stays zero."""
    flat = x.flatten(1)
    norms = folded(flat.double().square(), 1).sqrt_().clamp_(min=1e-12).unsqueeze(1)
    return flat / norms.to(flat.dtype)
