"""Semi-private learning of a class of finite VC dimension: public points give candidates, private labels choose one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal

from dpbench import Budget, Choice, Chunk, Curator, Learner, Predict, PublicData, SpecError, Task, setting
from dpbench_plugins.theory.learners.classes import (
    CellCandidates,
    HypothesisClass,
    RowCandidates,
    find_hypothesis_class,
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

MOST = 2**22  # candidates

PROVING: Mapping[str, str] = {
    "thresholds": "theory-thresholds:n=1500,m=300,test=400,middle=0.1",
    "intervals": "theory-thresholds:n=1500,m=300,test=400,middle=0.1",
    "stumps": "theory-thresholds:n=1500,m=300,test=400,middle=0.1",
    "rectangles": "theory-rectangles:n=1500,m=300,test=400",
    "halfplanes": "theory-halfspace2d:n=1500,m=300,test=400",
}


@dataclass(frozen=True)
class SemiPrivateLearner(Learner):
    """A_SSPP (Alon, Bassily, Moran 2019, algorithm 1): the exponential mechanism over patterns on public points.

    Each labelling of the distinct public points by the class has one representative; the learner chooses the one with
    the fewest private errors, with noise. Theorem 3.1: let v be the VC dimension. For an error of at most alpha above
    the best, with probability 1 - beta, m = O((v log(1 / alpha) + log(1 / beta)) / alpha) unlabelled public examples
    and n = O((v log(1 / alpha) + log(1 / beta)) max(1 / alpha^2, 1 / (epsilon alpha))) private examples are enough. In
    the realisable case, the maximum is 1 / (epsilon alpha). Theorem 4.1: thresholds on the line, which no private
    learner can learn without public data, need m = Omega(1 / alpha).

    Privacy (add or remove one): epsilon-DP. Representatives are a function of public points (lemma 3.2), and the loss
    of each on a row is 0 or 1. Covered: the choice and its predictions. Not covered: a class that somebody chose after
    looking at private rows.

    Differs from the paper: the score's factor 1 / 2 is for replacing a row, and is not needed here. Any representative
    of a pattern would do; here, cuts lie halfway between public points. `rectangles` uses the first 20 public points
    and `halfplanes` the first 60, for m^4 / 24 and m^2 patterns. `stumps` (one feature above or below a threshold) have
    some patterns twice, which doubles the weight of these patterns.
    """

    name = "sspp"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    rule_origin = "the theorem"
    shorthand = "hypotheses"

    hypotheses: Literal["thresholds", "stumps", "intervals", "rectangles", "halfplanes"] = setting(
        "stumps", says="hypothesis class"
    )

    def made_for(self) -> str:
        """Return a dataset that suits the hypothesis class."""
        return PROVING[self.hypotheses]

    def plan(self, task: Task, budget: Budget) -> Sequence[Choice]:
        """Plan one choice among all representatives."""
        check_two_classes(task, self.name)
        check_public_examples(task, self.name)
        features = math.prod(task.example_shape)
        hypotheses = find_hypothesis_class(self.hypotheses, features, self.name)
        count = hypotheses.max_representatives(min(task.public, hypotheses.points), features)
        if count > MOST:
            raise SpecError(
                f"Expected at most {MOST:,} candidates for hypotheses={self.hypotheses} in learner {self.name!r}, got "
                f"up to {count:,} for {task.public:,} public examples of {features:,} features. Give fewer of them."
            )
        return [Choice("hypothesis", candidates=count)]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Choose a representative privately, and predict with it."""
        points = public.x.flatten(1)
        hypotheses = find_hypothesis_class(self.hypotheses, points.shape[1], self.name)
        check_points_differ(points, self.name)
        found = self.candidates(hypotheses.representatives(_select_distinct_points(points, hypotheses)), public)
        chosen = _choose_candidate(curator, found)
        return lambda x: make_binary_scores(found.answer(x.flatten(1), chosen).float() - 0.5)

    def candidates(self, found: CellCandidates | RowCandidates, public: PublicData) -> CellCandidates | RowCandidates:
        """Return the representatives that private examples choose among: all of them."""
        return found


@dataclass(frozen=True)
class LabelledSemiPrivateLearner(SemiPrivateLearner):
    """`sspp` with labelled public examples: it chooses among the representatives with the fewest public errors.

    Remark 1 of the paper: m = Omega(1 / alpha) public points are needed for thresholds even if they have labels. In a
    realisable case, the labels leave one pattern, so nothing is left to choose and private examples add nothing.

    Privacy: that of `sspp`; the representatives are a function of public examples with their labels. Covered and not
    covered: as for `sspp`.
    """

    name = "sspp-labelled"
    public = "labelled"
    rule_origin = "the theorem"

    def candidates(self, found: CellCandidates | RowCandidates, public: PublicData) -> CellCandidates | RowCandidates:
        """Return the representatives with the fewest public errors."""
        import torch

        if public.y is None:
            raise SpecError(f"Learner {self.name!r} needs public labels. Add --public-labels.")
        points = public.x.flatten(1)
        says = found.yes[found.cell(points)] if isinstance(found, CellCandidates) else found.answers(points)  # (m, N)
        errors = (says != public.y.bool().unsqueeze(1)).sum(0)
        return found.keep(torch.nonzero(errors == errors.min()).flatten())


def _select_distinct_points(points: Tensor, hypotheses: HypothesisClass) -> Tensor:
    import torch

    distinct: Tensor = torch.unique(points[: hypotheses.points], dim=0)
    return distinct


def _choose_candidate(curator: Curator, found: CellCandidates | RowCandidates) -> int:
    """Run the exponential mechanism, with the number of errors as the loss, and return the chosen candidate's index."""
    import torch

    if isinstance(found, CellCandidates):
        wrong = torch.stack([found.yes, ~found.yes], 1).flatten(0, 1)  # (2 cells, N): yes is wrong where the label is 0

        def cells(chunk: Chunk) -> Tensor:
            return 2 * found.cell(chunk.x.flatten(1)) + chunk.y

        return curator.noisy_choice(cells, release="hypothesis", project=wrong)

    def losses(chunk: Chunk) -> Tensor:
        return (found.answers(chunk.x.flatten(1)) != chunk.y.bool().unsqueeze(1)).float()

    return curator.noisy_choice(losses, release="hypothesis")
