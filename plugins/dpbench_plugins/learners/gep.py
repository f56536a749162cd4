"""GEP: release gradients as an embedding in a public subspace and a residual, each with its own clip."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING, Any, Self

from dpbench import (
    AnchorBasis,
    Blocks,
    Budget,
    Chunk,
    Curator,
    DenseBasis,
    Learner,
    Predict,
    PublicData,
    RankOne,
    Release,
    Residual,
    SpecError,
    Task,
    aimed,
    exact_linear,
    hookimpl,
    pace,
    quantise,
    require_setting,
    residuals,
    setting,
    standardisation,
    subspace_iteration,
    travel,
)
from dpbench_plugins.learners.published_grids import PUBLIC_SHARES

if TYPE_CHECKING:
    import torch
    from torch import Tensor

HELD = 2**18  # inner products with anchors that a chunk makes: few enough for the processor's cache


@dataclass(frozen=True)
class GEP(Learner):
    """Gradient embedding perturbation on a linear head (Yu, Zhang, Chen, Liu, ICLR 2021, arXiv:2102.12677).

    Every `refresh` steps, the learner computes gradients of `anchors` public examples with random labels (by default
    200, or all if there are fewer). Power iteration finds `k` orthonormal directions of the subspace that these
    gradients span. Each private gradient is released in two parts: its embedding in the subspace, clipped to `clip`,
    and the residual, clipped to `residual_ratio` times `clip` (PILLAR's ratio). `residual=false` drops the residual,
    which is B-GEP. Both parts come from the same sample and are accounted as one release. By default, the number of
    steps and the learning rate are computed from the budget (`travel`), and `k` is 120, or the number of anchors if
    that is smaller.

    `gep:paper` is a setting of `paper_space`, the grid of PILLAR's comparison (appendix B.5): 3,528 settings, as
    appendix C counts. Its public shares, 0.1% and 0.01% of the data, leave 50 and 5 examples of CIFAR-10, fewer than
    most values of k in the grid: k is then reduced to the number of examples. The paper gives no momentum; 0.9 is from
    the authors' code, whose weight decay of 2e-4 and decreasing learning rate are left out.

    Differences from the authors' code: Poisson samples; the two parts are one Gaussian mechanism, where the authors
    double the Renyi divergence of one part, which is valid only without sampling; bases must be orthonormal to 1e-4,
    where the authors' Gram-Schmidt divides by zero when the gradients have too low a rank; a basis is public, so it is
    kept for several steps; a linear head is one parameter group.
    """

    name = "gep"
    public = "unlabelled"
    rule_origin = "training images of CIFAR-10; residual ratio: PILLAR"
    logits = True
    search_space = {
        "k": (10, 40, 120),
        "learning_rate": (0.03, 0.1, 0.3, 1.0),
    }
    paper_space = {
        "k": (40, 120, 200, 280, 512, 1024, 1580),
        "clip": (1.0, 0.1, 0.01),
        "learning_rate": (0.01, 0.05, 0.1, 1.0),
        "steps": (500, 1000, 2500, 3000, 5000, 6000, 20000),
        "batch": (64, 512, 1024),
        "public_share": PUBLIC_SHARES,
        "momentum": (0.9,),
    }
    paper = {"k": 120, "batch": 1024, "steps": 1000, "learning_rate": 0.1, "public_share": PUBLIC_SHARES[0]}

    k: int | None = setting(None, ge=1, says="directions of the public subspace")
    anchors: int | None = setting(None, ge=1, says="public examples whose gradients span the subspace")
    power_iterations: int = setting(1, ge=1, says="power iterations that find the directions")
    refresh: int = setting(10, ge=1, says="steps between subspaces")
    residual: bool = setting(True, says="whether the part of a gradient outside the subspace is released too")
    steps: int | None = setting(None, ge=1, says="noisy gradient steps")
    sample_rate: float = setting(1.0, gt=0, le=1, says="chance per example of being in a step, not a batch size")
    learning_rate: float | None = setting(None, gt=0, le=1e9, says="step size of the descent")
    momentum: float = setting(0.9, ge=0, lt=1, says="momentum of the noisy gradients")
    clip: float = setting(1.0, gt=0, lt=math.inf, says="L2 bound on the embedding of one gradient")
    residual_ratio: float = setting(0.2, gt=0, says="L2 bound on the residual, in units of the clip")
    batch: int | None = setting(
        None, ge=1, says="expected batch size, in place of sample_rate", added=True, kw_only=True
    )
    public_share: float = setting(
        1.0, gt=0, le=1, says="public examples used, as a share of all training examples", added=True, kw_only=True
    )

    def __post_init__(self) -> None:
        """Raise SpecError if `k` exceeds `anchors`."""
        if self.k is not None and self.anchors is not None and self.k > self.anchors:
            raise SpecError(
                f"Expected k={self.k} in 1..anchors={self.anchors} in learner 'gep': that many public gradients "
                "span no more directions. Set gep:k=... or anchors=..."
            )

    def resolve_batch(self, task: Task) -> Self:
        """Return the learner with `batch` converted to a sample rate; unchanged if `batch` is None."""
        return replace(self, batch=None, sample_rate=min(1.0, self.batch / task.size)) if self.batch else self

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return steps, learning rate and `k`: 120, or fewer if there are fewer anchors or parameters."""
        return self._choose_settings(task, travel(task, budget))

    def earlier_auto(self, task: Task, budget: Budget) -> Mapping[str, Mapping[str, Any]]:
        """Return the settings that version 0.2.0 chose; its `travel` did not depend on the number of features."""
        return {"0.2.0": self._choose_settings(task, travel(task, budget, "version 0.2"))}

    def _choose_settings(self, task: Task, distance: float) -> Mapping[str, Any]:
        k = min(120, self.anchors or task.public, task.classes * (prod(task.example_shape) + 1))
        paced = pace(distance, steps=self.steps, sample_rate=self.sample_rate, momentum=self.momentum, clip=self.clip)
        return {"k": k, **paced}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one release: the curator answers the embedding and the residual of each step's sample together."""
        return [Release("gradient", steps=require_setting(self.steps), sample_rate=self.sample_rate)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train a linear head on standardised features from noisy embeddings and residuals."""
        import torch

        standardise = standardisation(public.x)
        private = curator.map(standardise)
        chosen = self._choose_anchors(standardise(public.x), curator.task, generator)  # (s, d)
        head = torch.zeros(curator.task.classes, chosen.shape[1] + 1, device=curator.task.device)  # (m, d + 1)
        velocity = torch.zeros_like(head)
        expected = self.sample_rate * curator.task.size
        for step in range(require_setting(self.steps)):
            if step % self.refresh == 0:
                anchors = compute_anchor_gradients(head, chosen, generator)
                basis = compute_leading_subspace(
                    anchors, self._count_directions(len(chosen)), self.power_iterations, generator
                )
            noisy_gradient = self._ask(private, head, basis)
            velocity.mul_(self.momentum).add_(noisy_gradient, alpha=1 / expected)
            head.add_(velocity, alpha=-require_setting(self.learning_rate))
        return aimed(lambda x: logits(head, standardise(x)), curator.task, public)

    def _choose_anchors(self, features: Tensor, task: Task, generator: torch.Generator) -> Tensor:
        import torch

        examples, parameters = len(features), task.classes * (features.shape[1] + 1)
        if self.public_share < 1:
            examples = min(examples, max(1, round(self.public_share * (task.size + examples))))
        anchors = min(200, examples, parameters) if self.anchors is None else self.anchors
        k = self._count_directions(anchors)
        if not k <= anchors <= min(examples, parameters):
            raise SpecError(
                f"Expected k={k} <= anchors={anchors} <= {min(examples, parameters)} in learner 'gep': there are "
                f"{examples} public examples and {parameters} parameters. Set gep:k=...,anchors=..."
            )
        return features[torch.randperm(len(features), generator=generator)[:anchors].to(features.device)]

    def _count_directions(self, anchors: int) -> int:
        """Return `k`; if `public_share` is below 1, at most the number of anchors."""
        k = require_setting(self.k)
        return min(k, anchors) if self.public_share < 1 else k

    def _ask(self, curator: Curator, head: Tensor, basis: AnchorBasis | DenseBasis) -> Tensor:
        def rows(chunk: Chunk) -> Tensor | Blocks:
            scores = exact_linear(chunk.rows, head[:, :-1], head[:, -1])  # (c, m)
            gradient = RankOne(residuals(scores, chunk.y), chunk.rows, bias=True)
            if not self.residual:
                return basis.embed(gradient)
            rest = Residual(gradient, basis)
            return Blocks((rest.embedding, rest))

        clips = (self.clip, self.residual_ratio * self.clip) if self.residual else self.clip
        chunk_size = max(2048, HELD // max(basis.k, self.anchors or 200))
        answer = curator.noisy_sum(rows, release="gradient", clip=clips, chunk_size=chunk_size)
        noisy_embedding, noisy_rest = answer if self.residual else (answer, 0)
        total: Tensor = basis.expand(noisy_embedding) + noisy_rest
        return total.float()


def logits(head: Tensor, features: Tensor) -> Tensor:
    """Return (c, m) logits of (c, d) features under a (m, d + 1) head."""
    import torch

    return torch.addmm(head[:, -1], features, head[:, :-1].T)


def compute_anchor_gradients(head: Tensor, features: Tensor, generator: torch.Generator) -> RankOne:
    """Return the gradients at `head` of public features (s, d) with random labels, as in the authors' code."""
    import torch

    labels = torch.randint(len(head), (len(features),), generator=generator).to(head.device)
    gradients = residuals(logits(head, features), labels)
    return RankOne(gradients, quantise(features), bias=True)


def compute_leading_subspace(
    anchors: RankOne, k: int, iterations: int, generator: torch.Generator
) -> AnchorBasis | DenseBasis:
    """Return an orthonormal basis of (at most) `k` leading directions of the anchors, by power iteration.

    Let A be the (s, p) matrix of anchors. A^T A is applied `iterations` times to random combinations A^T N(0, 1) of the
    anchors. The results stay in the span of the anchors, so they are computed in the s x s Gram space. Directions below
    a thousandth of the largest are dropped, so there may be fewer than k. Of the two forms of a basis, the function
    returns the one that embeds faster.
    """
    import torch

    left, right = anchors.left.double(), anchors.right_with_bias().double()
    gram = (left @ left.T) * (right @ right.T)  # (s, s)
    start = torch.randn(len(gram), k, generator=generator, dtype=torch.float64).to(gram.device)
    basis = subspace_iteration(lambda vectors: gram @ vectors, start, iterations)
    values, vectors = torch.linalg.eigh(basis.T @ gram @ basis)
    kept = values > 1e-6 * values[-1]
    mixing = (basis @ vectors[:, kept] / values[kept].sqrt()).float()  # (s, k)
    (count, outputs), features = anchors.left.shape, anchors.right.shape[1] + 1
    if count * (outputs + features + mixing.shape[1]) < outputs * features * mixing.shape[1]:
        return AnchorBasis(anchors, mixing)
    whole = torch.stack([(anchors.right_with_bias() * output.unsqueeze(1)).T @ mixing for output in anchors.left.T])
    orthonormal = torch.linalg.qr(whole.flatten(0, 1)).Q.reshape(whole.shape)  # (m, d + 1, k)
    return DenseBasis(orthonormal)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [GEP]
