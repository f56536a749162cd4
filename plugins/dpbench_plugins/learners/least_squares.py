"""Least squares: labels times features, and what they leave unexplained, against a public second moment."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

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
)
from dpbench_plugins.learners.thrift import spectrum

if TYPE_CHECKING:
    import torch
    from torch import Tensor

SHARE = 0.1  # of the budget that the private second moment takes where it is worth asking for
UNEXPLAINED = 0.03  # share of a fit that all rounds together leave undone


@dataclass(frozen=True)
class LeastSquares(Learner):
    """Ridge regression on centred one-hot labels from noisy sums, in few public components.

    n / sigma says how many examples there are to the noise of one release with the whole budget (`effective_size`).

    1. Coordinates: the `k` leading components (`components`) of public features as `thrift` standardises them, without
       whitening and graph: rows of norm sqrt(k), and a bias. Reads public data alone.
    2. `rounds` noisy sums of residual times row. In the first round the residual is the centred one-hot label, so that
       the sum is X^T Y, and its norm is sqrt(1 - 1 / classes) times the row's, which is the clip of all rounds, unless
       `clip` (in units of a row's norm) is smaller. The curator bounds each example's contribution and adds integers,
       so sensitivity is the clip exactly; noise is independent for every class.
    3. After each round the head moves by 1 - 0.03^(1 / rounds) times (S + ridge n I)^-1 of the noisy sum, where S is n
       times the second moment of public rows: post-processing. By default there are (n / sigma)^(1/4) - 1.5 rounds.
    4. `moment` is the share of the budget, measured in 1 / sigma^2, that goes into the private second moment, a release
       of its own whose row z z^T has norm k + 1. S is then the mean of both moments, each weighted by the inverse of
       its variance: that of m examples' moment, and that of the noise. It is asked for, with a share of 0.1, where it
       would have half of the weight or more; with few public examples that is at epsilon 3 and above.

    Sources: AdaSSP (Wang 2018, arXiv:1803.02596) is one round with a private second moment; Mehta et al. (TMLR 2023,
    arXiv:2211.13403) use it for images; rounds are the boosting of Tang et al. (2023, arXiv:2303.03451). Differs from
    them: the second moment is public or mixed, the ridge does not follow from the smallest eigenvalue, and no noise is
    shared between classes, as it is in the code of Mehta et al.
    """

    name: ClassVar[str] = "least-squares"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "k": (10, 20, 40, 80, 160, 320),
        "ridge": (0.3, 1.0, 3.0, 10.0),
        "rounds": (1, 4, 10),
    }

    k: int | None = None
    rounds: int | None = None
    ridge: float = 1.0
    moment: float | None = None
    clip: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be a projection, a number of sums, a penalty, a share or a bound."""
        for name in ("k", "rounds"):
            if getattr(self, name) is not None and getattr(self, name) < 1:
                raise SpecError(f"Expected {name}={getattr(self, name)} >= 1 in learner 'least-squares'.")
        for name in ("ridge", "clip"):
            if not 0 < getattr(self, name) < math.inf:
                raise SpecError(
                    f"Expected {name}={getattr(self, name)} of learner 'least-squares' to be positive and finite."
                )
        if self.moment is not None and not 0 <= self.moment < 1:
            raise SpecError(
                f"Expected moment={self.moment} in [0, 1) in learner 'least-squares': a share of the budget."
            )

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return as many components and rounds as the budget carries, and the share of the private second moment."""
        size, k = effective_size(task, budget), self.k or components(task, budget)
        weight = private_weight(size * SHARE**0.5, k, task.public)
        return {
            "k": k,
            "rounds": max(1, round(min(math.pow(size, 0.25) - 1.5, 15))),
            "moment": SHARE if weight >= 0.5 else 0.0,
        }

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Declare the private second moment where it is asked for, and one full-batch sum a round."""
        rounds, moment = require_setting(self.rounds), require_setting(self.moment)
        residuals = Release("residuals", steps=rounds)
        if not moment:
            return [residuals]
        return [Release("moment", relative_noise=((1 - moment) / (moment * rounds)) ** 0.5), residuals]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Ask for the second moment, if planned, then for sums of residuals, and solve after each."""
        import torch
        from torch.nn.functional import one_hot, pad

        task, k, rounds = curator.task, require_setting(self.k), require_setting(self.rounds)
        spectral = spectrum(public.x)
        most = min(spectral.examples - 1, len(spectral.centre))
        if k > most:
            raise SpecError(
                f"Expected k={k} in 1..{most} in learner 'least-squares': fewer than the {spectral.examples} public "
                f"examples, and no more than the {len(spectral.centre)} features. Add --public-fraction or "
                "--public-dataset, or set least-squares:k=..."
            )
        leading = spectral.soften(k, 0.0)

        def features(x: Tensor) -> Tensor:
            rows: Tensor = leading(x) * k**0.5
            return rows

        private = curator.map(features)
        moment = self._second_moment(private, pad(features(public.x), (0, 1), value=1.0).double())
        inverse = torch.linalg.inv(moment + self.ridge * task.size * torch.eye(k + 1, device=moment.device))
        head = torch.zeros(task.classes, k + 1, device=task.device)
        clip = min(self.clip, (1 - 1 / task.classes) ** 0.5) * (k + 1) ** 0.5
        for _ in range(rounds):
            weight, bias = head[:, :-1].contiguous(), head[:, -1].contiguous()

            def residuals(chunk: Chunk, weight: Tensor = weight, bias: Tensor = bias) -> RankOne:
                target = one_hot(chunk.y, task.classes) - 1 / task.classes
                return RankOne(target - exact_linear(chunk.rows, weight, bias), chunk.rows, bias=True)

            total = private.noisy_sum(residuals, release="residuals", clip=clip)  # (classes, k + 1)
            head = head + (1 - UNEXPLAINED ** (1 / rounds)) * (total.double() @ inverse).float()
        return lambda x: torch.addmm(head[:, -1], features(x), head[:, :-1].T)

    def _second_moment(self, private: Curator, rows: Tensor) -> Tensor:
        """Return n times the second moment (k + 1, k + 1), float64, of public rows (m, k + 1) or of both kinds."""
        import torch

        n, (m, width) = private.task.size, rows.shape
        known = rows.T @ rows * (n / m)
        if not self.moment:
            return known

        def outer(chunk: Chunk) -> RankOne:
            return RankOne(torch.nn.functional.pad(chunk.x, (0, 1), value=1.0), chunk.rows, bias=True)

        noisy = private.noisy_sum(outer, release="moment", clip=float(width)).double()
        sigma = private.sigma["moment"]
        share = private_weight(n / sigma if sigma else math.inf, width - 1, m)
        values, vectors = torch.linalg.eigh(known + share * ((noisy + noisy.T) / 2 - known))
        positive: Tensor = (vectors * values.clamp(min=0)) @ vectors.T
        return positive


def private_weight(size: float, k: int, public: int) -> float:
    """Return the private second moment's share in the mean of both, each weighted by its inverse variance.

    An entry of the public one, times n, has variance n^2 / m; the noise of the private one, made symmetric, has
    sigma^2 (k + 1)^2 / 2. `size` is n over the sigma of its release, infinite without noise.
    """
    return 1 / (1 + max(public, 1) * ((k + 1) / size) ** 2 / 2)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [LeastSquares]
