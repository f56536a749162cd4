"""Exhibits that are learners. Each runs on scikit-learn's digits, as a user would run it.

Learners that break the contract are then checked against the laws.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from dpbench.api import Dataset, Extractor, Learner
from dpbench.errors import DpbenchError
from dpbench.harness.prepare import PreparedRun
from dpbench.harness.session import open_session
from dpbench.records.result import Result
from dpbench.records.spec import Spec, make_spec
from dpbench.registry import KINDS, ComponentKind, Registration, Registry, load
from dpbench.testing.checking import check_laws
from dpbench_lab.museum.exhibit import ClaimedAndTrueEpsilon, Exhibit, Findings

EPSILON = 4.0
"""The epsilon at which exhibits run."""


def extend_registry(*added_classes: type[Dataset] | type[Extractor] | type[Learner]) -> Registry:
    """Return a registry of the installed plugins and these classes."""
    components = {kind: dict(items) for kind, items in load().components.items()}
    for cls in added_classes:
        kind: ComponentKind = next(kind for kind, base in KINDS.items() if issubclass(cls, base))
        components[kind][cls.name] = Registration(cls, "museum", "museum", "0.1")
    return Registry(components)


def make_digits_spec(learner: type[Learner], **values: Any) -> Spec:
    """Return the spec of one run of a learner on digits."""
    wanted = {"learner": learner.name, "dataset": "digits", "epsilon": EPSILON, "seeds": 1}
    return make_spec({**wanted, **values}, "the museum")


def run_learner(
    learner: type[Learner], *others: type[Dataset] | type[Extractor], for_board: bool = False, **values: Any
) -> Result:
    """Run a learner on digits, with the other components registered too.

    Raises:
        DpbenchError: the run was refused.
    """
    plugins = extend_registry(learner, *others)
    session = open_session("cpu", plugins=plugins)
    return session.run(make_digits_spec(learner, **values), sharing="board" if for_board else "none")


def prepare_learner(learner: type[Learner], *others: type[Dataset], **values: Any) -> PreparedRun:
    """Prepare the run of a learner on digits, with the other datasets registered too.

    Raises:
        DpbenchError: the run was refused.
    """
    return open_session("cpu", plugins=extend_registry(learner, *others)).prepare(make_digits_spec(learner, **values))


@dataclass(frozen=True)
class ContractViolation(Exhibit):
    """A learner that breaks the contract of learners."""

    leaks: bool = False  # a function of private rows that no noise covers: no epsilon holds

    def claimed_and_true_epsilon(self) -> ClaimedAndTrueEpsilon | None:
        """Return the claimed epsilon and infinity if private data leaks without noise, and None otherwise."""
        return ClaimedAndTrueEpsilon(EPSILON, math.inf) if self.leaks else None

    def visit(self) -> Findings:
        """Run the learner as a user would; if the run passes, check the learner against the laws."""
        try:
            run_learner(self.shown)
        except DpbenchError as error:
            return {"while running": str(error)}
        complaints = (outcome.complaint for outcome in check_laws(extend_registry(self.shown), self.shown.name))
        return {"while running": None, "dpbench check": next(filter(None, complaints), None)}


@dataclass(frozen=True)
class ImpossibleRequest(Exhibit):
    """A learner that requests something that dpbench does not offer."""

    def visit(self) -> Findings:
        """Run the learner, and return the error that stops it."""
        try:
            run_learner(self.shown)
        except DpbenchError as error:
            return {"cannot be written": str(error)}
        return {"cannot be written": None}


@dataclass(frozen=True)
class HarmlessBug(Exhibit):
    """A learner whose bug has no effect, because the harness prevents it."""

    honest: type[Learner] | None = None

    def visit(self) -> Findings:
        """Run the learner and the honest learner, and compare their predictions."""
        assert self.honest is not None
        (seed,), (other,) = run_learner(self.shown).seeds, run_learner(self.honest).seeds
        same = seed.correct == other.correct and seed.predictions == other.predictions
        return {"changes nothing": "Its predictions are those of the honest learner." if same else None}
