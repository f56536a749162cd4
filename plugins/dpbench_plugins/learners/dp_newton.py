"""DP-Newton: private logistic regression with noisy gradients, preconditioned by a noisy second moment."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
    exact_linear,
    folded,
    hookimpl,
    require_setting,
    residuals,
    setting,
)
from dpbench_plugins.learners.coordinates import CLIP, Coordinates, choose_settings
from dpbench_plugins.learners.gradient_rows import make_gradient_rows
from dpbench_plugins.learners.second_moments import ask_second_moment

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MOST = 100  # components: the second moment has as many numbers as their square
FLOOR = 4.0  # over the distance that the head of `thrift` travels


@dataclass(frozen=True)
class DPNewton(Learner):
    """Newton's method on a linear head, with a noisy gradient and a curvature matrix that is noisy or public.

    Rows have at most 100 of the public components of `thrift`, without its graph. Each of `steps` steps asks for the
    noisy sum of clipped gradients and multiplies it by the inverse of a curvature matrix, whose eigenvalues are first
    raised to at least `floor`. All classes share one matrix, the mean of u z z^T over rows z. Here u is the curvature
    of the softmax loss, averaged over directions: (1 - |p|^2) / (classes - 1) for probabilities p, which is 1 / classes
    at the zero head. `curvature` selects the data that the matrix is computed from:

    - `hessian`: private rows at the current head, a noisy sum at every step. This is the Newton step of Ganesh et al.
      (NeurIPS 2023, arXiv:2305.13209), with noise in the gradient and in the curvature.
    - `moment`: private rows at the zero head, one noisy sum. This is the preconditioner of DP-FC (Mehta et al., TMLR
      2023, arXiv:2211.13403), which does not depend on the head.
    - `public`: public rows at the current head, without noise.

    The curvature sums get the share `share` of the budget, measured in 1 / sigma^2. Along directions whose curvature is
    below `floor`, the learner is gradient descent. By default, `floor` is 4 divided by the distance that the head of
    `thrift` travels for this budget (learning rate times steps), so that the noise in both heads is about the same.

    Sensitivity: both sums are clipped row by row. A row adds at most `clip` to the gradient sum. It adds at most |z|^2
    to the curvature sum, because its weight u * classes is at most 1.

    Differences from the papers: Ganesh et al. add their second noise to the step itself, in proportion to the noisy
    gradient (algorithm 3). A noisy sum over rows cannot do this: here the second noise is in the matrix, and everything
    after it is post-processing. Ganesh et al. have two classes. The reference code of DP-FC adds the same noise for all
    classes; here each class has its own. If the protocol compares balanced accuracy, logits are adjusted as in
    `thrift`.

    `floor`, `steps` and `learning_rate` were chosen on training images of the digits, some of them held out, at epsilon
    0.5, 1 and 4. There, the learner is as accurate as `thrift` without its graph, for every `curvature`.
    """

    name = "dp-newton"
    public = "unlabelled"
    rule_origin = "training images of the digits; components: those of `thrift`"
    logits = True
    search_space = {
        "curvature": ("hessian", "moment", "public"),
        "steps": (4, 8, 20),
        "share": (0.1, 0.3),
    }

    curvature: Literal["hessian", "moment", "public"] = setting("moment", says="what the curvature is estimated from")
    k: int | None = setting(None, ge=1, says="public components kept")
    steps: int = setting(8, ge=1, says="Newton steps")
    learning_rate: float = setting(0.6, gt=0, lt=math.inf, says="share of a Newton step that is taken")
    share: float = setting(0.2, gt=0, lt=1, says="share of the budget for a private curvature")
    floor: float | None = setting(None, gt=0, lt=math.inf, says="least eigenvalue of the curvature of an example")
    clip: float = setting(CLIP, gt=0, lt=math.inf, says="L2 bound on a gradient, in units of the norm of a row")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return `k`, that of `thrift` but at most 100, and `floor`, 4 divided by the travel of `thrift`."""
        settled = choose_settings(task, budget, None)
        travel = settled["learning_rate"] * settled["steps"]
        return {"k": min(MOST, settled["k"]), "floor": float(f"{FLOOR / travel:.2g}")}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan a noisy gradient per step and, unless the curvature is public, one noisy curvature or one per step.

        `moment` needs one curvature, `hessian` one per step.
        """
        gradient = Release("gradient", self.steps)
        if self.curvature == "public":
            return [gradient]
        times = self.steps if self.curvature == "hessian" else 1
        noise = (times * (1 - self.share) / (self.share * self.steps)) ** 0.5
        return [Release("curvature", times, relative_noise=noise), gradient]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Take Newton steps from the zero head."""
        import torch

        task, k = curator.task, require_setting(self.k)
        features = Coordinates(self.name, k, 0.0).features(public.x, generator)
        private, known = curator.map(features), features(public.x)
        head = torch.zeros(task.classes, k + 1, device=task.device)
        inverse: Tensor | None = None
        for _ in range(self.steps):
            if inverse is None or self.curvature != "moment":
                inverse = self._invert_curvature(self._estimate_curvature(private, known, head))
            gradient = private.noisy_sum(make_gradient_rows(head), release="gradient", clip=self.clip * (k + 1) ** 0.5)
            head = head - self.learning_rate * ((gradient.double() / task.size) @ inverse).float()
        return aimed(lambda x: torch.addmm(head[:, -1], features(x), head[:, :-1].T), task, public)

    def _estimate_curvature(self, private: Curator, known: Tensor, head: Tensor) -> Tensor:
        """Return the mean curvature (k + 1, k + 1) of an example at a head, float64."""
        import torch

        weigh = make_curvature_weights(head)
        if self.curvature != "public":
            total = ask_second_moment(private, "curvature", lambda chunk: weigh(chunk.rows))
            return total / private.task.size / len(head)
        rows = torch.nn.functional.pad(known, (0, 1), value=1.0).double()
        return (rows * weigh(known).double().unsqueeze(1)).T @ rows / len(rows) / len(head)

    def _invert_curvature(self, curvature: Tensor) -> Tensor:
        import torch

        values, vectors = torch.linalg.eigh(curvature)
        inverse: Tensor = (vectors / values.clamp(min=require_setting(self.floor))) @ vectors.T
        return inverse


def make_curvature_weights(head: Tensor) -> Callable[[Any], Tensor]:
    """Return a function from rows (c, k) to the curvature u (c,) of their loss at a head, times the number of classes.

    Its values are in [0, 1]. See `DPNewton` for u.
    """
    import torch

    weight, bias = head[:, :-1].contiguous(), head[:, -1].contiguous()

    def compute_row_weights(rows: Any) -> Tensor:
        logits = exact_linear(rows, weight, bias)
        first = torch.zeros(len(logits), dtype=torch.int64, device=logits.device)
        chances = residuals(logits, first) + torch.eye(len(weight), device=logits.device)[0]
        spread: Tensor = (1 - folded(chances.square(), 1)) * (len(weight) / (len(weight) - 1))
        return spread.clamp(0, 1)

    return compute_row_weights


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learner of this module."""
    return [DPNewton]
