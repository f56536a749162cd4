"""The ceiling: what the private split is worth to a learner without privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import (
    Blocks,
    Budget,
    Chunk,
    Curator,
    Learner,
    Predict,
    PublicData,
    RankOne,
    Release,
    SpecError,
    Standardise,
    Task,
    hookimpl,
    residuals,
)

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import Tensor

CLIP = 1e9  # the largest that a curator takes: nothing is clipped
QUESTIONS, LINE_SEARCH = 2000, 20  # of the whole optimisation, and of one line search at most
NEVER = -1e4  # the logit of a class without a private example


@dataclass(frozen=True)
class NonPrivate(Learner):
    """Logistic regression on the private rows: a reference without any guarantee, at epsilon = inf only.

    It asks the curator as every learner does; at epsilon = inf nothing is added to the answers. L-BFGS to convergence
    on features standardised by the rows it learns from, minimising mean cross-entropy + |weights|^2 / (2
    regularisation), the bias left out; two classes have one weight vector between them, as scikit-learn counts it. A
    board shows it as a line, not as an entry.
    """

    name: ClassVar[str] = "non-private"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"
    reference: ClassVar[bool] = True
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {"regularisation": (1.0, 5.0, 15.0, 50.0, 150.0)}

    regularisation: float = 15.0

    def __post_init__(self) -> None:
        """Refuse a strength that is none."""
        if not self.regularisation > 0:
            raise SpecError(f"Expected regularisation={self.regularisation} > 0 in learner 'non-private'.")

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Ask for more than any finite epsilon would leave useful, and make no plan for one."""
        if budget.epsilon < math.inf:
            raise SpecError(
                f"Learner 'non-private' has no guarantee; it runs at epsilon=inf, not at {budget.epsilon:g}. "
                "Add --epsilon inf."
            )
        return [Release("moments", steps=2), Release("loss", steps=QUESTIONS)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Fit on everything; a class without a private example is never predicted."""
        import torch
        from scipy.optimize import minimize

        standardise, present = _moments(curator)
        mask = torch.where(present, 0.0, NEVER)  # (k,)
        penalty = (2 if int(present.sum()) == 2 else 1) / self.regularisation
        objective = _Objective(curator.map(standardise), mask, penalty)
        options = {"maxfun": QUESTIONS - LINE_SEARCH, "maxiter": QUESTIONS, "maxls": LINE_SEARCH, "gtol": 1e-5}
        options |= {"ftol": 0.0}
        found = minimize(objective, objective.start, jac=True, method="L-BFGS-B", options=options)
        head = objective.head(found.x)
        return lambda x: torch.addmm(head[:, -1] + mask, standardise(x), head[:, :-1].T)


class _Objective:
    """The penalised mean cross-entropy of a head (k, d + 1), and its gradient, as the curator answers."""

    def __init__(self, curator: Curator, mask: Tensor, penalty: float) -> None:
        self._curator, self._mask, self._penalty = curator, mask, penalty
        self._level = 0.0  # the last mean loss: answers are float32, and what lies above it is small

    @property
    def start(self) -> np.ndarray:
        """All zeros."""
        import numpy as np

        return np.zeros(len(self._mask) * (math.prod(self._curator.task.example_shape) + 1))

    def head(self, flat: np.ndarray) -> Tensor:
        """Return the head (k, d + 1) of a flat vector of float64."""
        import torch

        return torch.from_numpy(flat).float().reshape(len(self._mask), -1).to(self._mask.device)

    def __call__(self, flat: np.ndarray) -> tuple[float, np.ndarray]:
        """Ask for both at once."""
        from torch.nn.functional import cross_entropy

        head, mask, level, size = self.head(flat), self._mask, self._level, self._curator.task.size

        def rows(chunk: Chunk) -> Blocks:
            logits = chunk.x @ head[:, :-1].T + (head[:, -1] + mask)  # (c, k)
            losses = cross_entropy(logits.double(), chunk.y, reduction="none") - level
            return Blocks((RankOne(residuals(logits, chunk.y), chunk.x, bias=True), losses.unsqueeze(1)))

        gradient, above = self._curator.noisy_sum(rows, release="loss", clip=(CLIP, CLIP))
        self._level = level + float(above) / size
        weights = head.double()
        weights[:, -1] = 0
        total = gradient.double() / size + self._penalty * weights
        return self._level + self._penalty / 2 * float(weights.square().sum()), total.flatten().cpu().numpy()


def _moments(curator: Curator) -> tuple[Standardise, Tensor]:
    """Return the map that standardises by the private rows, and which classes they have, (k,) bool."""
    import torch
    from torch.nn.functional import one_hot

    size, classes = curator.task.size, curator.task.classes

    def first(chunk: Chunk) -> Blocks:
        return Blocks((chunk.x.flatten(1).double(), one_hot(chunk.y, classes).double()))

    sums, counts = curator.noisy_sum(first, release="moments", clip=(CLIP, CLIP))
    mean = sums / size
    second = lambda chunk: (chunk.x.flatten(1).double() - mean).square()
    deviation = (curator.noisy_sum(second, release="moments", clip=CLIP) / size).clamp(min=0).sqrt()
    scale = torch.where(deviation > 1e-6 * deviation.max(), 1 / deviation, 1.0)
    return Standardise(-mean * scale, scale), counts > 0.5


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [NonPrivate]
