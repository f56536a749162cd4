"""Public only: a control that trains on public labels alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import (
    Budget,
    Curator,
    Learner,
    Predict,
    PublicData,
    Release,
    Task,
    aimed,
    hookimpl,
    setting,
    standardisation,
)
from dpbench_plugins.learners.public_labels import require_public_labels
from dpbench_plugins.learners.tails import TAIL_RATE, choose_passes, get_trainable_tail_loader, train_tail_on_labels

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class PublicOnly(Learner):
    """Logistic regression on the public labels only; it reads no private data, so epsilon is 0.

    If a protocol lets learners or tuning read public labels, compare with this learner: it shows what the public labels
    are worth without any private example. It runs scikit-learn's L-BFGS on standardised features. `regularisation` is
    the inverse strength C times the number of examples, so the same value works for datasets of other sizes. The
    default is the best value in five-fold cross-validation on the public tenth of CIFAR-10 (efficientnet-lite0).

    With `tail`, the stages of the network after the cached activations, plus a head, are trained on the public labels
    as in `public-tail`, and this network predicts. With this option, the learner is the control for `public-tail` and
    `self-tail`, and needs an extractor with a `layer`.
    """

    name = "public-only"
    public = "labelled"
    rule_origin = "public images of CIFAR-10"
    logits = True
    search_space = {"regularisation": (1.0, 5.0, 15.0, 50.0, 150.0)}

    regularisation: float = setting(15.0, gt=0, says="inverse strength C of the penalty, times the number of examples")
    tail: bool = setting(False, added=True, says="whether the network behind cached activations is trained too")

    def reads_mirrored(self) -> bool:
        """Return whether mirrored public images are read: only to train the tail."""
        return self.tail

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan nothing, because this learner reads no private data."""
        if self.tail:
            get_trainable_tail_loader(task, self.name)
        return []

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Fit on public features and labels; a class without a public label is never predicted."""
        import torch
        from sklearn.linear_model import LogisticRegression

        y = require_public_labels(public, self.name)
        if self.tail:
            task = curator.task
            trained = train_tail_on_labels(task, public, self.name, choose_passes(task), TAIL_RATE, generator)
            return aimed(trained.predict, task, public, y.bincount(minlength=task.classes).double())
        standardise = standardisation(public.x)
        model = LogisticRegression(C=self.regularisation / len(public.x), max_iter=2000, random_state=0)
        model.fit(standardise(public.x).cpu().numpy(), y.cpu().numpy())
        two = len(model.coef_) == 1  # one row of weights, of the second class
        weight, shift = (torch.from_numpy(part).double() for part in (model.coef_, model.intercept_))
        weight, shift = (torch.cat([0 * part, part]) if two else part for part in (weight, shift))
        never = torch.full((curator.task.classes,), -1e4)
        place = torch.zeros(len(weight), len(never))
        place[torch.arange(len(weight)), torch.from_numpy(model.classes_)] = 1
        never, place = never * (1 - place.sum(0)), place.double()

        def predict(x: Tensor) -> Tensor:
            known = (standardise(x).cpu().double() @ weight.T + shift).log_softmax(1).clamp(min=-1e3)
            return (known @ place).float() + never

        return aimed(predict, curator.task, public, y.bincount(minlength=len(never)).double())


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [PublicOnly]
