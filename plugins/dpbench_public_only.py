"""The control that every comparison needs: what the public labels alone are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, SpecError, Task, hookimpl, standardisation

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class PublicOnly(Learner):
    """Logistic regression on the public labels, no private data at all: epsilon 0.

    Wherever a protocol lets learners or tuning read public labels, this line says what those labels are worth without
    any private example. scikit-learn's L-BFGS on standardised features; `regularisation` is the inverse strength C
    times the number of examples, so that it carries over to other sizes; its default is the best of five-fold
    cross-validation on the public tenth of CIFAR-10 (efficientnet-lite0).
    """

    name: ClassVar[str] = "public-only"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "labelled"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {"regularisation": (1.0, 5.0, 15.0, 50.0, 150.0)}

    regularisation: float = 15.0

    def __post_init__(self) -> None:
        """Refuse a strength that scikit-learn would."""
        if not self.regularisation > 0:
            raise SpecError(f"Expected regularisation={self.regularisation} > 0 in learner 'public-only'.")

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Nothing private is read."""
        return []

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Fit on public features and labels; a class without a public label is never predicted."""
        import numpy as np
        import torch
        from sklearn.linear_model import LogisticRegression

        if public.y is None or len(torch.unique(public.y)) < 2:
            raise SpecError("Learner 'public-only' needs public labels of two classes or more. Add --public-labels.")
        standardise = standardisation(public.x)
        model = LogisticRegression(C=self.regularisation / len(public.x), max_iter=2000, random_state=0)
        model.fit(standardise(public.x).cpu().numpy(), public.y.cpu().numpy())
        present, classes = torch.from_numpy(model.classes_), curator.task.classes

        def predict(x: Tensor) -> Tensor:
            with np.errstate(divide="ignore"):  # a probability may round to zero
                known = torch.from_numpy(model.predict_log_proba(standardise(x).cpu().numpy())).float()
            scores = torch.full((len(x), classes), -1e4)
            scores[:, present] = known.clamp(min=-1e3)
            return scores

        return predict


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [PublicOnly]
