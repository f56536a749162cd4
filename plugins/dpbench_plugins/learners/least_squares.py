"""Least squares: ridge regression from noisy sums of residuals, with a public second moment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    Chunk,
    Curator,
    Learner,
    Predict,
    PublicData,
    RankOne,
    Release,
    SpecError,
    Task,
    components,
    effective_size,
    exact_linear,
    hookimpl,
    require_setting,
    setting,
)
from dpbench_plugins.learners.second_moments import ask_second_moment
from dpbench_plugins.learners.spectrum import compute_spectrum

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SHARE = 0.1  # of the budget that the private second moment takes where it is worth asking for
UNEXPLAINED = 0.03  # share of a fit that all rounds together leave undone


@dataclass(frozen=True)
class LeastSquares(Learner):
    """Ridge regression on centred one-hot labels in a few public components, fitted from noisy sums.

    The ratio n / sigma compares the number of private examples with the noise of one release that spends the whole
    budget (`effective_size`).

    1. Coordinates. Public features are standardised as in `thrift` and projected on their `k` leading principal
       components (`components`), without whitening and without a graph. Rows have norm sqrt(k), and a bias of 1 is
       appended. This step reads public data only.
    2. Noisy sums. In each of `rounds` rounds, every example contributes the outer product of its residual and its row.
       In the first round the residual is the centred one-hot label, so the sum is X^T Y, and the norm of a contribution
       is sqrt(1 - 1 / classes) times the norm of the row. All rounds clip at this norm, or at `clip` times the norm of
       a row if that is smaller. The curator bounds the contribution of each example and adds integers, so the
       sensitivity is exactly the clip. The noise is independent for each class.
    3. Solving. After each round, the head moves by 1 - 0.03^(1 / rounds) times (S + ridge n I)^-1 times the noisy sum.
       S is n times the second moment of the public rows. This step is post-processing. By default, the number of rounds
       is (n / sigma)^(1/4) - 1.5, rounded, at least 1 and at most 15.
    4. Private second moment. `moment` is the share of the budget, measured in 1 / sigma^2, that is spent on estimating
       the second moment from private data. This is a separate release, in which each example contributes z z^T, of norm
       k + 1, where z is its row. S is then the mean of the public and the private estimate, each weighted by the
       inverse of its variance: the sampling variance of m public examples, and the variance of the noise. By default,
       the share is 0.1 if the private estimate would get at least half of the weight, and 0 otherwise. With few public
       examples, it is 0.1 at epsilon 3 and above.

    Sources: AdaSSP (Wang 2018, arXiv:1803.02596) uses one round and a private second moment; Mehta et al. (TMLR 2023,
    arXiv:2211.13403) apply it to images; the rounds are the boosting of Tang et al. (2023, arXiv:2303.03451). This
    learner differs from them: the second moment is public or mixed, the ridge does not depend on the smallest
    eigenvalue, and classes do not share noise, as they do in the code of Mehta et al.
    """

    name = "least-squares"
    public = "unlabelled"
    rule_origin = "training images of CIFAR-10 and the digits"
    search_space = {
        "k": (10, 20, 40, 80, 160, 320),
        "ridge": (0.3, 1.0, 3.0, 10.0),
        "rounds": (1, 4, 10),
    }

    k: int | None = setting(None, ge=1, says="public components kept")
    rounds: int | None = setting(None, ge=1, says="noisy sums of residuals")
    ridge: float = setting(1.0, gt=0, lt=math.inf, says="ridge penalty per example")
    moment: float | None = setting(None, ge=0, lt=1, says="share of the budget for a private second moment")
    clip: float = setting(1.0, gt=0, lt=math.inf, says="L2 bound on a residual, in units of the norm of a row")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the number of components and of rounds for the budget, and the share of the private second moment."""
        size, k = effective_size(task, budget), self.k or components(task, budget)
        weight = compute_private_moment_weight(size * SHARE**0.5, k, task.public)
        return {
            "k": k,
            "rounds": max(1, round(min(math.pow(size, 0.25) - 1.5, 15))),
            "moment": SHARE if weight >= 0.5 else 0.0,
        }

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan the private second moment, if it is used, and one full-batch sum per round."""
        rounds, moment = require_setting(self.rounds), require_setting(self.moment)
        residuals = Release("residuals", steps=rounds)
        if not moment:
            return [residuals]
        return [Release("moment", relative_noise=((1 - moment) / (moment * rounds)) ** 0.5), residuals]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Ask for the second moment if it is planned, then for sums of residuals, and solve after each sum."""
        import torch
        from torch.nn.functional import one_hot, pad

        task, k, rounds = curator.task, require_setting(self.k), require_setting(self.rounds)
        spectral = compute_spectrum(public.x)
        most = min(spectral.examples - 1, len(spectral.centre))
        if k > most:
            raise SpecError(
                f"Expected k={k} in 1..{most} in learner 'least-squares': fewer than the {spectral.examples} public "
                f"examples, and no more than the {len(spectral.centre)} features. Add --public-fraction or "
                "--public-dataset, or set least-squares:k=..."
            )
        leading = spectral.make_whitening_map(k, 0.0)

        def features(x: Tensor) -> Tensor:
            rows: Tensor = leading(x) * k**0.5
            return rows

        private = curator.map(features)
        moment = self._estimate_second_moment(private, pad(features(public.x), (0, 1), value=1.0).double())
        inverse = torch.linalg.inv(moment + self.ridge * task.size * torch.eye(k + 1, device=moment.device))
        head = torch.zeros(task.classes, k + 1, device=task.device)
        clip = min(self.clip, (1 - 1 / task.classes) ** 0.5) * (k + 1) ** 0.5
        for _ in range(rounds):
            weight, bias = head[:, :-1].contiguous(), head[:, -1].contiguous()

            def residual_rows(chunk: Chunk, weight: Tensor = weight, bias: Tensor = bias) -> RankOne:
                target = one_hot(chunk.y, task.classes) - 1 / task.classes
                return RankOne(target - exact_linear(chunk.rows, weight, bias), chunk.rows, bias=True)

            total = private.noisy_sum(residual_rows, release="residuals", clip=clip)  # (classes, k + 1)
            head = head + (1 - UNEXPLAINED ** (1 / rounds)) * (total.double() @ inverse).float()
        return lambda x: torch.addmm(head[:, -1], features(x), head[:, :-1].T)

    def _estimate_second_moment(self, curator: Curator, rows: Tensor) -> Tensor:
        """Return n times the second moment (k + 1, k + 1), float64.

        If `moment` is 0, this is the second moment of the public `rows` (m, k + 1). Otherwise it is the weighted mean
        of this and the noisy second moment of the private rows.
        """
        import torch

        n, (m, width) = curator.task.size, rows.shape
        known = rows.T @ rows * (n / m)
        if not self.moment:
            return known

        noisy = ask_second_moment(curator, "moment")
        sigma = curator.sigma["moment"]
        share = compute_private_moment_weight(n / sigma if sigma else math.inf, width - 1, m)
        values, vectors = torch.linalg.eigh(known + share * (noisy - known))
        positive: Tensor = (vectors * values.clamp(min=0)) @ vectors.T
        return positive


def compute_private_moment_weight(size: float, k: int, public: int) -> float:
    """Return the weight of the private second moment in its inverse-variance weighted mean with the public one.

    An entry of the public moment, times n, has variance n^2 / m. The noise in an entry of the private moment, after it
    is made symmetric, has variance sigma^2 (k + 1)^2 / 2. `size` is n divided by the sigma of the moment's release,
    infinite without noise.
    """
    return 1 / (1 + max(public, 1) * ((k + 1) / size) ** 2 / 2)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [LeastSquares]
