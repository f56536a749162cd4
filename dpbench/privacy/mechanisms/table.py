"""The closed table of all mechanisms, with the questions and the audit of each.

A new question is a module (or package) beside this one, a new form a module in `core.forms`, and each has a line here,
in `PLANS` and in `mechanisms`. Nothing in `core` names a question: accountants, ledger and records ask its `Planned`,
`LedgerCurator` its `Question`, sums its form. Anything that no line names is refused wherever it counts
(`core.closed`), and a test compares this table with all definitions.

Importing it brings in no torch, because records read `PLANS`: the form of stored results follows from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from dpbench.privacy.core.ledger_curator import Question
from dpbench.privacy.core.plan import Planned, Release, Task
from dpbench.privacy.mechanisms.choice.choice_plan import Choice

if TYPE_CHECKING:
    import numpy as np

    from dpbench.privacy.core.forms.contributions import Contribution
    from dpbench.privacy.mechanisms.choice.replay import ChoiceCounts
    from dpbench.privacy.mechanisms.replay import Neighbours, ReleasedSum, RowInfluence

PLANS: tuple[type[Planned], ...] = (Release, Choice)
"""What a plan may hold. No two have the same fields: records of a plan are told apart by them."""


@dataclass(frozen=True)
class AuditReplay:
    """How an audit replays a mechanism's questions and reads the answers; not for sums (`audit.sensitivity`)."""

    replay: Callable[[Any, Neighbours], RowInfluence]
    costly: bool = False  # to ask again, whatever rows are
    probe: Callable[[Neighbours], RowInfluence] | None = None  # a question of the audit's own
    laws: Callable[[float, Task, np.random.Generator], Iterator[ChoiceCounts]] | None = None
    released: Callable[[Any, Any], Sequence[ReleasedSum]] = lambda question, answer: ()
    """The noisy sums that an answer reveals, in order."""


@dataclass(frozen=True)
class TestedClaim:
    """A claim about a mechanism, and the tests that try to break it."""

    text: str
    tests: tuple[str, ...]
    module: str = ""  # of a package, the one that keeps it


@dataclass(frozen=True)
class Mechanism:
    """One mechanism: its module, its type in a plan, its questions and forms, its audit and its claims."""

    module: str  # or package, below dpbench.privacy
    planned: type[Planned] | None  # how its uses are planned; None where it costs nothing
    questions: tuple[type[Question], ...] = ()
    forms: tuple[type[Contribution], ...] = ()  # what rows may contribute to them
    audit: AuditReplay | None = None
    claims: tuple[TestedClaim, ...] = ()  # beside those of core, which `dpbench.privacy` lists


@cache
def mechanisms() -> tuple[Mechanism, ...]:
    """Return the table of all mechanisms."""
    from dpbench.privacy.core.forms.contributions import Joined, RankOne, Rows, Scaled
    from dpbench.privacy.core.forms.residual.form import Residual
    from dpbench.privacy.core.map import Map
    from dpbench.privacy.core.sum import Sum
    from dpbench.privacy.mechanisms import votes
    from dpbench.privacy.mechanisms.choice import cells, parts, question, replay

    return (
        Mechanism("core.sum", Release, (Sum,), (Rows, Joined, RankOne, Scaled)),
        Mechanism("core.map", None, (Map,)),
        Mechanism(
            "core.forms.residual",
            Release,
            forms=(Residual,),
            claims=(
                TestedClaim("a basis that is not orthonormal is refused", ("test_bases",), "bases"),
                TestedClaim("a residual is no longer than its bound", ("test_bases", "test_residual_guards"), "form"),
                TestedClaim("how a sample is cut into chunks moves no residual", ("test_sums",), "total"),
            ),
        ),
        Mechanism(
            "mechanisms.choice",
            Choice,
            (question.LeastLoss, question.Majorities, parts.LeastLosses),
            (cells.Cells, parts.PartLosses),
            AuditReplay(replay.replay, probe=replay.probe, laws=replay.draw_from_laws),
            claims=(
                TestedClaim(
                    "one example moves each loss by 0 to 1, the law by eps0", ("test_choice", "test_units"), "steps"
                ),
                TestedClaim("a row counts in one cell, once, or for its share of a unit", ("test_units",), "cells"),
                TestedClaim("candidates are chosen with the chances of the law", ("test_choice",), "question"),
                TestedClaim("parts cost one choice, however a unit's rows are spread", ("test_part_losses",), "parts"),
                TestedClaim("no choice of one eps0 loses more than one pair of laws", ("test_choice",), "choice_plan"),
                TestedClaim("many choices cost what the best strategy gains", ("test_bounded_range",), "bounded_range"),
                TestedClaim("a choice is put again, and drawn as its law has it", ("test_choice",), "replay"),
            ),
        ),
        Mechanism(
            "mechanisms.votes",
            Release,
            (votes.TeacherVotes,),
            audit=AuditReplay(votes.replay, costly=True, released=votes.released_counts),
            claims=(TestedClaim("one example moves at most one vote a query", ("test_votes",)),),
        ),
    )


def find_audit(question: type[Question]) -> AuditReplay | None:
    """Return the audit's replay for questions of this type; None for sums."""
    return next(mechanism.audit for mechanism in mechanisms() if question in mechanism.questions)


def find_audits(planned: type[Planned]) -> tuple[AuditReplay, ...]:
    """Return the audit's replay for each type of question that is planned as this type."""
    return tuple(
        mechanism.audit for mechanism in mechanisms() if mechanism.planned is planned and mechanism.audit is not None
    )
