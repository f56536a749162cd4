"""The ceiling: what the private split is worth to a learner without privacy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, SpecError, Task, hookimpl, standardisation

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class NonPrivate(Learner):
    """Logistic regression on the private rows themselves: a reference without any guarantee, at epsilon = inf only.

    scikit-learn's L-BFGS on features standardised by the rows it learns from; `regularisation` is the inverse strength
    C times the number of examples. A board shows it as a line, not as an entry.
    """

    name: ClassVar[str] = "non-private"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "none"
    reference: ClassVar[bool] = True
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {"regularisation": (1.0, 5.0, 15.0, 50.0, 150.0)}

    regularisation: float = 15.0

    def __post_init__(self) -> None:
        """Refuse a strength that scikit-learn would."""
        if not self.regularisation > 0:
            raise SpecError(f"Expected regularisation={self.regularisation} > 0 in learner 'non-private'.")

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Ask for the rows themselves, which no finite epsilon allows."""
        if budget.epsilon < math.inf:
            raise SpecError(
                f"Learner 'non-private' has no guarantee; it runs at epsilon=inf, not at {budget.epsilon:g}. "
                "Add --epsilon inf."
            )
        return [Release("rows")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Fit on everything; a class without a private example is never predicted."""
        import torch
        from sklearn.linear_model import LogisticRegression

        rows, labels = curator.reveal(release="rows")
        if len(torch.unique(labels)) < 2:
            raise SpecError("Learner 'non-private' needs examples of two classes or more.")
        standardise = standardisation(rows)
        model = LogisticRegression(C=self.regularisation / len(rows), max_iter=2000)
        model.fit(standardise(rows).cpu().numpy(), labels.cpu().numpy())
        classes, device = curator.task.classes, curator.task.device
        # Two classes make one row of scikit-learn's coefficients: the score of the second over the first.
        weights = torch.from_numpy(model.coef_).float()
        shift = torch.from_numpy(model.intercept_).float()
        if len(model.classes_) == 2:
            weights, shift = torch.cat([torch.zeros_like(weights), weights]), torch.cat([torch.zeros(1), shift])
        weights, shift = weights.to(device), shift.to(device)
        present = torch.from_numpy(model.classes_).to(device)

        def predict(x: Tensor) -> Tensor:
            scores = torch.full((len(x), classes), -1e4, device=x.device)
            scores[:, present] = torch.addmm(shift, standardise(x), weights.T).clamp(min=-1e3)
            return scores

        return predict


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [NonPrivate]
