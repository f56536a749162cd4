"""Train the tail, the stages of a network after the cached activations, on public examples. Reads no private row.

Training starts at the published network with a softmax regression on its frozen features. Some examples are held out:
if the trained network explains too little of their targets compared with the start, the start is kept (`train_tail`).

Guarantee: the features of a row are computed from that row and public values alone, except for rounding, which may
depend on other rows in the batch, as in `learners.networks.tail`.

The constants were chosen on 1,000 of 5,000 public images of CIFAR-10 (efficientnet-lite0 at 128 pixels): a rate of 3e-4
was 3.2 points worse, and half as many passes were 0.6 points worse. Images are mirrored with probability 1/2; examples
and targets are mixed in pairs (mixup, Zhang et al. 2018); weights are averaged exponentially.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from dpbench import PublicData

BATCH = 64  # examples of a step
WARM_UP = 50  # steps until the rate is at its peak
DECAY = 0.05  # of matrices and convolutions
MIX = 0.2  # both parameters of the Beta distribution that shares are drawn from
AVERAGE = 0.998  # longest memory of the averaged weights
REGULARISATION = 15.0  # C of the start's softmax regression, times the number of examples
HELD_SHARE, MOST_HELD = 0.1, 500  # of the public examples
AT_ONCE = 128  # examples whose features are computed at once


class PooledNetwork(nn.Module):
    """A map from activations (c, ...) to logits (c, classes): a tail that pools its output, and a linear head."""

    def __init__(self, tail: nn.Module, weight: Tensor, bias: Tensor) -> None:
        """Combine a tail with a head of this weight (classes, d) and bias (classes,)."""
        super().__init__()
        self.tail = tail.to(memory_format=torch.channels_last)
        with torch.device("meta"):
            self.head = nn.Linear(weight.shape[1], len(weight))
        self.head.load_state_dict({"weight": weight.clone(), "bias": bias.clone()}, assign=True)

    def pool(self, x: Tensor) -> Tensor:
        """Return the pooled features (c, d)."""
        found: Tensor = self.tail(x.contiguous(memory_format=torch.channels_last) if x.ndim == 4 else x)
        return found.flatten(1)

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (c, classes)."""
        logits: Tensor = self.head(self.pool(x))
        return logits


@dataclass(frozen=True)
class TrainedTail:
    """A network trained on public examples, or its start if training explains too little of the held-out targets."""

    network: PooledNetwork
    explained: float = 0.0
    """How much the trained network reduces the held-out cross-entropy, compared with predicting the mean target,
    divided by the reduction of the start; plus or minus infinity if the start reduces nothing."""
    is_trained: bool = False  # whether this is the trained network, and not its start

    @classmethod
    def from_published_tail(cls, tail: nn.Module) -> TrainedTail:
        """Return the published tail, untrained; its head is a placeholder, so only `pool` is meaningful."""
        empty = next(tail.parameters()).new_zeros(1, 1)
        return cls(PooledNetwork(tail, empty, empty[0]).requires_grad_(False).eval())

    def pool(self, x: Tensor) -> Tensor:
        """Return the pooled features (c, d) of activations, computed on a limited number of examples at once."""
        with torch.no_grad():
            return torch.cat([self.network.pool(part) for part in torch.split(x, AT_ONCE)])

    def predict(self, x: Tensor) -> Tensor:
        """Return the logits (c, classes) of activations, computed on a limited number of examples at once."""
        with torch.no_grad():
            return torch.cat([self.network(part) for part in torch.split(x, AT_ONCE)])


def train_tail(
    tail: nn.Module,
    public: PublicData,
    targets: Tensor,
    passes: int,
    rate: float,
    generator: torch.Generator,
    *,
    least: float,
) -> TrainedTail:
    """Train a tail and a head on public activations, with soft or one-hot targets (m, classes).

    The trained network is returned if its `TrainedTail.explained` exceeds `least`, otherwise its start. The result
    depends on the arguments and the number of threads only.
    """
    order = torch.randperm(len(public.x), generator=generator).to(public.x.device)
    held = order[: min(round(HELD_SHARE * len(order)), MOST_HELD)]
    kept = order[len(held) :]
    seen, goals = public.take(kept), targets[kept]
    features = TrainedTail.from_published_tail(tail).pool(seen.x)
    start = PooledNetwork(tail, *fit_softmax_regression(features, goals)).requires_grad_(False).eval()
    trained = _train_with_adamw(copy.deepcopy(start), seen, goals, passes, rate, generator)
    most = float(cross_entropy(goals.mean(0).clamp(min=1e-12).log().expand(len(held), -1), targets[held]))
    before, after = (
        most - float(cross_entropy(TrainedTail(network).predict(public.x[held]), targets[held]))
        for network in (start, trained)
    )
    explained = after / before if before > 0 else math.copysign(math.inf, after)
    gained = explained > least
    return TrainedTail(trained if gained else start, explained, gained)


def _train_with_adamw(
    network: PooledNetwork, public: PublicData, targets: Tensor, passes: int, rate: float, generator: torch.Generator
) -> PooledNetwork:
    """Train all weights with AdamW and a cosine learning rate; return their exponential moving average."""
    mean = copy.deepcopy(network).requires_grad_(False)
    network.requires_grad_(True)
    matrices, vectors = ([p for p in network.parameters() if (p.ndim > 1) == big] for big in (True, False))
    groups = [{"params": matrices, "weight_decay": DECAY}, {"params": vectors, "weight_decay": 0.0}]
    adam = torch.optim.AdamW(groups, lr=rate)
    draw = np.random.default_rng(int(torch.randint(2**62, (), generator=generator)))
    batches = len(public.x) // BATCH
    steps = passes * batches
    for step in range(steps):
        if step % batches == 0:
            order = torch.from_numpy(draw.permutation(len(public.x))).to(public.x.device)
        rows = order[step % batches * BATCH :][:BATCH]
        x, goals = _apply_mixup(_mirror_at_random(public, rows, draw), targets[rows], draw)
        for group in adam.param_groups:
            group["lr"] = rate * min(1, (step + 1) / WARM_UP) * 0.5 * (1 + math.cos(math.pi * step / steps))
        adam.zero_grad()
        with torch.enable_grad():
            cross_entropy(network(x), goals).backward()  # type: ignore[no-untyped-call]
        adam.step()
        share = 1 - min(AVERAGE, (step + 1) / (step + 11))
        for slow, fast in zip(mean.parameters(), network.parameters(), strict=True):
            slow.lerp_(fast.detach(), share)
    return mean


def _mirror_at_random(public: PublicData, rows: Tensor, draw: np.random.Generator) -> Tensor:
    """Return the activations of `rows`, each mirrored with probability 1/2 if `public` has mirrored activations."""
    flips = torch.from_numpy(draw.random(len(rows)) < 0.5).to(public.x.device)
    if public.mirrored is None:
        return public.x[rows]
    return torch.where(flips.view(-1, *[1] * (public.x.ndim - 1)), public.mirrored[rows], public.x[rows])


def _apply_mixup(x: Tensor, targets: Tensor, draw: np.random.Generator) -> tuple[Tensor, Tensor]:
    share, other = draw.beta(MIX, MIX), torch.from_numpy(draw.permutation(len(x))).to(x.device)
    return share * x + (1 - share) * x[other], share * targets + (1 - share) * targets[other]


def fit_softmax_regression(features: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
    """Return weight (classes, d) and bias (classes,) of a softmax regression on features (m, d), targets (m, classes).

    Features are standardised, the penalty is that of logistic regression with C = 15 / m, and the solver is L-BFGS.
    """
    mean, deviation = features.mean(0), features.std(0) + 1e-6
    rows = (features - mean) / deviation
    weight = rows.new_zeros(targets.shape[1], rows.shape[1]).requires_grad_()
    bias = rows.new_zeros(targets.shape[1]).requires_grad_()
    solver = torch.optim.LBFGS([weight, bias], max_iter=150, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        solver.zero_grad()
        with torch.enable_grad():
            total = cross_entropy(rows @ weight.T + bias, targets) + weight.square().sum() / (2 * REGULARISATION)
            total.backward()  # type: ignore[no-untyped-call]
        return total

    solver.step(loss)  # type: ignore[no-untyped-call]
    scaled = weight.detach() / deviation
    return scaled, bias.detach() - scaled @ mean
