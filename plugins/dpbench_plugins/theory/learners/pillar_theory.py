"""PILLAR as in its theorem: averaged noisy gradient descent on a hinge loss in few public dimensions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import (
    Budget,
    Choice,
    Chunk,
    Curator,
    Learner,
    Predict,
    PrincipalComponents,
    PublicData,
    RankOne,
    Release,
    SpecError,
    Task,
    exact_linear,
    require_setting,
    setting,
    unit_norm,
)
from dpbench_plugins.theory.learners.common import (
    check_points_differ,
    check_public_examples,
    check_two_classes,
    make_binary_scores,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

PICK = 0.1  # share of 1 / sigma^2 that choosing among repeats costs, beside the gradients
FAITHFUL = 1000  # examples up to which n^2 steps are affordable


@dataclass(frozen=True)
class PillarTheory(Learner):
    """PILLAR, algorithms 1 and 2 (Pinto, Hu, Yang, Sanyal 2023), on two classes.

    Theorem 1. Let a unit vector w* satisfy y <w*, x> >= gamma |x| almost surely, and |A_k^T w*| >= 1 - xi, where A_k
    are the top k eigenvectors of E[x x^T], with eigengap Delta to the next. With m = O(log(2 / beta) / (gamma Delta)^2)
    unlabelled public and n = O~(sqrt(k) / (alpha epsilon zeta)) private examples, where zeta = gamma (1 - xi - gamma /
    10), the error is at most alpha with chance 1 - beta. The proof also needs n = O~(k / alpha), as for learning
    k-dimensional halfspaces.

    Rows are shrunk to norm 1 and projected on the top `k` eigenvectors of the public second moment (k = 0: no
    projection). The learner descends `repeats` = ceil(log(1 / beta)) times: it takes `steps` gradient steps, from 0 and
    within the unit ball, on the hinge loss max(0, 1 - y <w, z> / zeta) or, with `loss=ramp`, on min(1, hinge) (theorem
    3 of Hu et al.; `center` centres the PCA as they do). The mean iterate is a candidate. The exponential mechanism
    picks the candidate with the least clamped loss.

    Privacy (add or remove one). Projections read public data only. A row's gradient is clipped to rho / zeta, and
    exceeds this norm only if |z| exceeds rho; rho is 1 or, with `radius=public`, the 0.99 quantile of the public |z|.
    The ledger composes the Gaussian releases, and a choice by losses in [0, 1], under one sigma. Covered: gradients,
    the choice, and everything computed from them. Not covered: a k, margin or xi that somebody set after looking at
    private rows.

    Differs from the paper:

    - The margin that theorem 1 leaves after projecting, gamma (1 - xi), does not follow for xi > 0: its proof treats
      <A^T b, A^T w*> as 0 where only <b, w*> is 0. What follows is gamma - sqrt(xi (2 - xi)), as
      |<w*, z> - <A A^T w*, z>| <= |w* - A A^T w*|. The learner uses zeta as printed; margin and xi are settings.
    - Algorithm 2 spends epsilon on the repeats and again epsilon on the choice, 2 epsilon in all. Here one calibration
      states (epsilon, delta) for all.
    - Algorithm 2 prints noise of variance 32 L^2 n^2 log(n / delta) log(1 / delta) / epsilon; Bassily et al. divide by
      epsilon^2, as a noise multiplier must (variance in units of sensitivity squared scales as 1 / epsilon^2).
      `mode=faithful` uses the variance with the square, at (epsilon, delta) / repeats, and takes n^2 - 1 steps on
      single records. This `noise` (a multiplier computed from the budget) is far more than the plan needs; the learner
      adds the difference itself. This mode needs n <= 1000.
    - Its line 8 passes -loss to an exponential mechanism whose weight, in line 26, is exp(+loss). Here the weight
      decreases with the loss, so the least loss is the most likely choice.
    - With `mode=tight`, every step uses all examples: the sensitivity is the same, and the total noise is sqrt(steps)
      sigma, without n^2 amplified steps. Descent starts from 0 instead of a random point, and returns the mean iterate
      instead of the last.
    - Step t has length 1 / sqrt(t n^2 L^2 + k s^2) with `mode=faithful`, as printed in line 16, s^2 the variance of the
      noise; Bassily et al. have 2 / sqrt(t (n^2 L^2 + k s^2)). `mode=tight` uses the constant step that suits a mean
      iterate.

    A measured finding: noise in w changes the score of a unit row by N(0, sigma^2) in any dimension, so descent without
    projection does not pay sqrt(d) at a fixed margin. The gain of projecting is the energy that it removes.
    """

    name = "pillar-theory"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    rule_origin = "the theorem"

    k: int = setting(5, ge=0, says="public components kept; 0 keeps all features")
    margin: float = setting(0.1, gt=0, le=1, says="margin gamma of the labels")
    xi: float = setting(0.0, ge=0, lt=1, says="part of w* outside the components")
    beta: float = setting(0.24, gt=0, lt=1, says="chance of failure")
    steps: int = setting(50, ge=1, says="gradient steps of a candidate")
    radius: Literal["unit", "public"] = setting("unit", says="bound on the norm of a projected row")
    loss: Literal["hinge", "ramp"] = setting("hinge", says="loss of a row")
    center: bool = setting(False, says="whether the public mean is subtracted first")
    mode: Literal["tight", "faithful"] = setting("tight", says="steps on all examples, or as printed")
    noise: float | None = setting(None, ge=0, says="noise multiplier that is added for mode=faithful")

    def __post_init__(self) -> None:
        """Check that zeta, the margin after the projection, is positive."""
        if self.zeta <= 0:
            raise SpecError(
                f"Expected xi={self.xi} in [0, 1 - margin / 10) with margin={self.margin} in learner {self.name!r}: "
                "zeta = margin (1 - xi - margin / 10) is what is left of the margin."
            )

    @property
    def zeta(self) -> float:
        """The margin that remains after the projection."""
        return self.margin * (1 - self.xi - 0.1 * self.margin)

    @property
    def repeats(self) -> int:
        """The number of candidates."""
        return math.ceil(math.log(1 / self.beta))

    def made_for(self) -> str:
        """Return a dataset of low rank with a margin."""
        return "theory-lowrank:n=1500,m=300,test=400,d=20,k=5,tau=0.3"

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the paper's noise multiplier for one record's gradient; 0 with `mode=tight` or without privacy."""
        if self.mode == "tight" or math.isinf(budget.epsilon):
            return {"noise": 0.0}
        delta = budget.delta / self.repeats
        variance = 32 * math.log(task.size / delta) * math.log(1 / delta) * (self.repeats / budget.epsilon) ** 2
        return {"noise": float(f"{math.sqrt(variance):.6g}")}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release | Choice]:
        """Plan all gradients, and a choice at a tenth of their cost if there is more than one candidate."""
        check_two_classes(task, self.name)
        if self.public != "none":
            check_public_examples(task, self.name)
        if self.mode == "faithful" and not 2 <= task.size <= FAITHFUL:
            raise SpecError(
                f"Expected 2 to {FAITHFUL} private examples with mode=faithful in learner {self.name!r}, got "
                f"{task.size:,}: it takes n^2 steps."
            )
        total = self.repeats * self._count_steps(task)
        gradients = Release("gradient", total, 1.0 if self.mode == "tight" else 1 / task.size)
        pick = Choice("pick", max(2, self.repeats), relative_noise=round((PICK * total) ** -0.5, 6))
        return [gradients, pick] if self.repeats > 1 else [gradients]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Project the rows, descend `repeats` times, and choose a candidate privately."""
        import torch

        basis, shift = self._compute_projection(public.x.flatten(1), generator)  # (k, d), (k,)

        def project(rows: Tensor) -> Tensor:
            flat = rows.flatten(1)
            short = flat.double().square().sum(1, keepdim=True) <= 1
            return exact_linear(torch.where(short, flat, unit_norm(flat)), basis, shift)

        bound = torch.quantile(project(public.x).norm(dim=1), 0.99) if self.radius == "public" else torch.tensor(1.0)
        rho = max(1e-6, float(bound))
        mapped = curator.map(project)
        heads = torch.stack([self._descend(mapped, rho, generator) for _ in range(self.repeats)])  # (R, k)
        chosen = self._pick_head(mapped, heads, rho) if self.repeats > 1 else 0
        head = heads[chosen]
        return lambda x: make_binary_scores(project(x) @ head)

    def _count_steps(self, task: Task) -> int:
        return self.steps if self.mode == "tight" else task.size**2 - 1

    def _compute_projection(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        import torch

        check_points_differ(x, self.name)
        dimensions = x.shape[1]
        k = self.k or dimensions
        if k > dimensions:
            raise SpecError(f"Expected k={k} <= {dimensions} features in learner {self.name!r}.")
        rows = torch.where(x.double().square().sum(1, keepdim=True) <= 1, x, unit_norm(x)).double()
        mean = rows.mean(0) if self.center else torch.zeros_like(rows[0])
        if not self.k:
            return torch.eye(dimensions), -mean.float()
        found = PrincipalComponents.of(rows - mean, len(rows))
        if k > len(rows) or found.values[-k] <= 1e-12 * found.values[-1]:
            raise SpecError(
                f"Expected public examples in k={k} directions in learner {self.name!r}, got {len(x)} that span fewer. "
                "Set a lower k, or give more of them."
            )
        basis = found.leading(k).T
        return basis.float(), (-basis @ mean).float()

    def _descend(self, curator: Curator, rho: float, generator: torch.Generator) -> Tensor:
        """Return the mean iterate of one descent, (k,)."""
        import torch

        size, clip, steps = curator.task.size, rho / self.zeta, self._count_steps(curator.task)
        (k,), sigma = curator.task.example_shape, curator.sigma["gradient"]
        more = math.sqrt(max(0.0, require_setting(self.noise) ** 2 - sigma**2))
        records = 1 if self.mode == "tight" else size  # that one of a sample stands for
        noise = k * records**2 * (sigma**2 + more**2)
        length = clip * math.sqrt(size**2 + noise)  # of a noisy gradient
        rate = 2 * records / (length * math.sqrt(steps))
        head, total = torch.zeros(k), torch.zeros(k)
        for step in range(1, steps + 1):
            slope = self._ask_hinge_gradient(curator, head, clip)
            if more:
                slope = slope + more * clip * torch.randn(k, generator=generator)
            if self.mode == "faithful":
                rate = records / (clip * math.sqrt(step * size**2 + noise))
            head = head - rate * slope
            head = head / head.norm().clamp(min=1)
            total += head
        return total / steps

    def _ask_hinge_gradient(self, curator: Curator, head: Tensor, clip: float) -> Tensor:
        zeta, ramp = self.zeta, self.loss == "ramp"

        def rows(chunk: Chunk) -> RankOne:
            signs = (2 * chunk.y - 1).float().unsqueeze(1)
            won = signs * exact_linear(chunk.rows, head.unsqueeze(0))  # (c, 1)
            active = (won < zeta) & ((won >= 0) | (not ramp))
            return RankOne(-signs * active / zeta, chunk.rows)

        slope: Tensor = curator.noisy_sum(rows, release="gradient", clip=clip)  # (1, k)
        return slope[0]

    def _pick_head(self, curator: Curator, heads: Tensor, rho: float) -> int:
        zeta, most = self.zeta, 1 if self.loss == "ramp" else 1 + rho / self.zeta

        def losses(chunk: Chunk) -> Tensor:
            signs = (2 * chunk.y - 1).float().unsqueeze(1)
            return (1 - signs * exact_linear(chunk.rows, heads) / zeta).clamp(min=0) / most

        return curator.noisy_choice(losses, release="pick")


@dataclass(frozen=True)
class RandomProjectionTheory(PillarTheory):
    """The control of PILLAR's section 3.3: `pillar-theory` with a random projection in place of public components.

    Johnson and Lindenstrauss: a map with entries N(0, 1 / k), drawn without reading any data, moves <w*, x> by about 1
    / sqrt(k). A margin gamma therefore needs k of the order of 1 / gamma^2, and n of the order of sqrt(k) / (alpha
    epsilon gamma) = 1 / (alpha epsilon gamma^2) (Nguyen et al. 2020). The map removes directions, but neither their
    energy nor the noise that they bring.

    Privacy: that of `pillar-theory`, with a projection that is a function of a public seed. Covered and not covered: as
    for `pillar-theory`.
    """

    name = "jl-theory"
    public = "none"
    rule_origin = "the theorem"

    k: int = setting(40, ge=1, says="dimensions of the random projection")

    def __post_init__(self) -> None:
        """Check that no setting needs public data."""
        super().__post_init__()
        if self.center or self.radius == "public":
            raise SpecError(
                f"Expected center=false and radius=unit in learner {self.name!r}: a random "
                "projection uses no public data, so there is no public mean and no public length."
            )

    def _compute_projection(self, x: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        import torch

        return torch.randn(self.k, x.shape[1], generator=generator) / math.sqrt(self.k), torch.zeros(self.k)
