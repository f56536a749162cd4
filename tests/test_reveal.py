"""Private rows leave the curator for a declared reference at epsilon = inf, for nobody else and at no other epsilon."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from dpbench_non_private import NonPrivate
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from torch import Tensor

from dpbench import Budget, Curator, Learner, Predict, PublicData, Release, SpecError, Task, registry
from dpbench.errors import LawBroken, NotPlanned, Refused
from dpbench.harness.run import run
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.rows import PrivateRows
from dpbench.records.result import Result
from dpbench.records.spec import make_spec
from dpbench.registry import Registered, Registry
from dpbench.testing import LearnerLaws, ReferenceLaws
from tests.test_cli import Output, called, refusal, run_arguments
from tests.worlds import curator_over, private_rows

COMPONENTS = registry.load().components
PRIVATE = [name for name, entry in COMPONENTS["learner"].items() if not entry.cls.reference]


def _revealing(rows: PrivateRows, classes: int = 3, steps: int = 1) -> LedgerCurator:
    curator = curator_over(rows, [Release("rows", steps)], classes=classes)
    return dataclasses.replace(curator, revealing=True)


def test_a_curator_reveals_nothing_unless_it_was_made_to() -> None:
    curator = curator_over(private_rows(), [Release("rows")])
    for asked in (curator, curator.door(), curator.door().map(lambda x: x)):
        with pytest.raises(Refused, match="at epsilon=inf alone"):
            asked.reveal(release="rows")


def test_what_is_revealed_are_the_rows_with_their_labels() -> None:
    every, index = private_rows(n=40), torch.tensor([1, 5, 39])
    rows = PrivateRows(every.x, every.y[index], index)  # some rows of a larger array
    x, y = _revealing(rows).door().reveal(release="rows")
    assert torch.equal(x, every.x[index])
    assert torch.equal(y, every.y[index])
    doubled, _ = _revealing(rows).door().map(lambda x: 2 * x).reveal(release="rows")
    assert torch.equal(doubled, 2 * every.x[index])


def test_revealing_spends_the_plan() -> None:
    curator = _revealing(private_rows(), steps=2)
    door = curator.door()
    door.reveal(release="rows")
    door.map(lambda x: x).reveal(release="rows")
    assert curator.ledger.spent == {"rows": 2}
    with pytest.raises(NotPlanned, match="are spent"):
        door.reveal(release="rows")
    with pytest.raises(NotPlanned, match="not in the plan"):
        door.reveal(release="other")


def test_writing_to_what_was_revealed_changes_nothing() -> None:
    rows = private_rows()
    before = rows.x.clone(), rows.y.clone()
    for part in _revealing(rows).door().reveal(release="rows"):
        part.zero_()
    assert torch.equal(rows.x, before[0])
    assert torch.equal(rows.y, before[1])


@dataclasses.dataclass(frozen=True)
class Peeks(Learner):
    """Asks for the rows at every epsilon."""

    name: ClassVar[str] = "peeks"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("rows")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        x, y = curator.reveal(release="rows")
        means = torch.stack([x[y == label].mean(0) for label in range(curator.task.classes)])
        return lambda test: -torch.cdist(test, means)


class PeeksOpenly(Peeks):
    reference: ClassVar[bool] = True


def _ran(learner: type[Learner], **values: Any) -> Result:
    brought = {**COMPONENTS["learner"], learner.name: Registered(learner, "tiny-plugin", "tiny-wheel", "0.1")}
    spec = make_spec({"learner": learner.name, "seeds": 1, "accountant": "rdp", **values}, "the test")
    return run(spec, device="cpu", plugins=Registry({**COMPONENTS, "learner": brought}))


@pytest.mark.parametrize(
    ("learner", "epsilon"), [(Peeks, 1.0), (Peeks, math.inf), (PeeksOpenly, 1.0), (PeeksOpenly, 50.0)]
)
def test_a_run_reveals_rows_to_references_at_infinite_epsilon_alone(learner: type[Learner], epsilon: float) -> None:
    with pytest.raises(Refused, match="declares `reference = True`"):
        _ran(learner, epsilon=epsilon)


def test_a_reference_at_infinite_epsilon_is_shown_the_rows_and_says_that_it_spent_them() -> None:
    result = _ran(PeeksOpenly, epsilon=math.inf)
    assert result.privacy.epsilon == math.inf
    assert result.seeds[0].spent == {"rows": 1}
    assert result.metrics["accuracy"].mean > 0.8


@pytest.mark.parametrize("name", PRIVATE)
def test_no_private_learner_is_shown_a_row(name: str) -> None:
    honest = COMPONENTS["learner"][name].cls

    def fit(self: Learner, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        release = next(iter(curator.sigma), "any")
        curator.reveal(release=release)
        raise AssertionError

    with pytest.raises(Refused, match="Ask noisy_sum instead"):
        # Coloured images, as networks want them; 243 numbers, as the groups of scatternet do.
        shown = {"extractor": "pixels:flat=false,mode=RGB,size=9", "public_labels": True}
        _ran(type(honest.__name__, (honest,), {"fit": fit}), epsilon=math.inf, **shown)


@pytest.mark.parametrize("epsilon", ["1", "1e6"])
def test_the_command_line_refuses_a_reference_at_finite_epsilon(capsys: Output, tmp_path: Path, epsilon: str) -> None:
    said = refusal(capsys, *run_arguments(tmp_path, "--learner", "non-private", "--epsilon", epsilon))
    assert "'non-private' has no guarantee; it runs at epsilon=inf, not at 1" in said
    assert "Add --epsilon inf" in said
    assert not list((tmp_path / "results").glob("*"))


def _by_command(capsys: Output, folder: Path, learner: str) -> Result:
    assert called(*run_arguments(folder, "--learner", learner, "--epsilon", "inf", "--json")) == 0
    return Result.model_validate_json(capsys.readouterr().out)


def test_at_infinite_epsilon_the_reference_runs_and_beats_dp_sgd(capsys: Output, tmp_path: Path) -> None:
    ceiling = _by_command(capsys, tmp_path, "non-private")
    assert (ceiling.privacy.epsilon, ceiling.privacy.sigma) == (math.inf, 0.0)
    assert ceiling.metrics["accuracy"].mean > _by_command(capsys, tmp_path, "dp-sgd").metrics["accuracy"].mean


def _fitted(learner: Learner, rows: PrivateRows, classes: int) -> Predict:
    nothing = PublicData(rows.x[:0], None)
    return learner.fit(_revealing(rows, classes).door(), nothing, torch.Generator())


def _digits(relabelled: Any) -> PrivateRows:
    digits = load_digits()
    labels = torch.as_tensor(relabelled(digits.target))
    return PrivateRows(torch.as_tensor(digits.data).float() / 16, labels, torch.arange(len(labels)))


def _by_sklearn(rows: PrivateRows, strength: float) -> Tensor:
    deviation = rows.x.std(0, correction=0)
    scaled = ((rows.x - rows.x.mean(0)) / torch.where(deviation > 0, deviation, 1)).numpy()
    return torch.as_tensor(LogisticRegression(C=strength, max_iter=2000).fit(scaled, rows.y.numpy()).predict(scaled))


@pytest.mark.parametrize(
    ("relabelled", "classes"),
    [(lambda y: y % 2, 2), (lambda y: 2 * (y % 2), 3), (lambda y: y % 3, 3), (lambda y: 2 + y % 3, 6)],
    ids=["two classes", "two of three", "three classes", "three of six"],
)
def test_non_private_predicts_what_logistic_regression_does(relabelled: Any, classes: int) -> None:
    """A class without an example is never predicted."""
    rows = _digits(relabelled)
    scores = _fitted(NonPrivate(0.01 * len(rows)), rows, classes)(rows.x)
    assert scores.shape == (len(rows), classes)
    assert float((scores.argmax(1) == _by_sklearn(rows, 0.01)).double().mean()) > 0.999  # both in float32
    assert set(scores.argmax(1).tolist()) == set(rows.y.tolist())


def test_non_private_refuses_a_single_class() -> None:
    rows = private_rows(classes=1)
    with pytest.raises(SpecError, match="two classes or more"):
        _fitted(NonPrivate(), rows, 3)


@pytest.mark.parametrize("strength", [0.0, -1.0, math.nan])
def test_non_private_refuses_a_strength_that_is_none(strength: float) -> None:
    with pytest.raises(SpecError, match="regularisation"):
        NonPrivate(strength)


class Unlabelled(NonPrivate):
    """Reads rows, and does not say so."""

    reference: ClassVar[bool] = False


class PlansForAnyBudget(NonPrivate):
    """Plans as if it had a guarantee."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("rows")]


class PlansForLargeBudgets(NonPrivate):
    """Takes a large epsilon for none at all."""

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        return [Release("rows")] if budget.epsilon > 1e3 else super().plan(task, budget)


@pytest.mark.parametrize(
    ("broken", "suite", "law", "said"),
    [
        (Unlabelled, ReferenceLaws, "it_says_that_it_is_a_reference", "reference = True"),
        (PlansForAnyBudget, ReferenceLaws, "every_finite_budget_is_refused", r"epsilon 0\.1"),
        (PlansForLargeBudgets, ReferenceLaws, "every_finite_budget_is_refused", r"epsilon 1e\+06"),
        (Peeks, LearnerLaws, "no_release_outside_the_plan", "Rows are revealed at epsilon=inf alone"),
    ],
)
def test_each_fault_breaks_its_law(broken: type[Learner], suite: type[Any], law: str, said: str) -> None:
    with pytest.raises(LawBroken, match=said):
        getattr(type("Suite", (suite,), {"learner": broken()})(), f"test_{law}")()


def test_check_holds_the_reference_against_its_own_laws(capsys: Output) -> None:
    assert called("check", "non-private") == 0
    shown = capsys.readouterr().out
    assert "every finite budget is refused" in shown
    assert "broken" not in shown
