"""The closed table: every mechanism there is, what is asked by it, and what an audit does about it.

A new question is one module (or package) beside this one, a new form one in `core.forms`, and each has a line here, in
`PLANS` and in `mechanisms`. Nothing in `core` names a question: accountants, ledger and records ask its `Planned`,
`LedgerCurator` its `Question`, sums its form. What no line names is refused wherever it counts (`core.closed`), and a
test holds this table to all that is defined.

Importing it brings in no torch, for records read `PLANS`: how results are read and written follows from them.
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
    """How an audit puts a mechanism's questions again and reads its answers; not for sums (`audit.sensitivity`)."""

    replay: Callable[[Any, Neighbours], RowInfluence]
    costly: bool = False  # to ask again, whatever rows are
    probe: Callable[[Neighbours], RowInfluence] | None = None  # a question of the audit's own
    laws: Callable[[float, Task, np.random.Generator], Iterator[ChoiceCounts]] | None = None
    released: Callable[[Any, Any], Sequence[ReleasedSum]] = lambda question, answer: ()
    """The noisy sums that an answer reveals, in order."""


@dataclass(frozen=True)
class TestedClaim:
    """What holds of a mechanism, and who tries to break it."""

    text: str
    tests: tuple[str, ...]
    module: str = ""  # of a package, the one that keeps it


@dataclass(frozen=True)
class Mechanism:
    """One mechanism."""

    module: str  # or package, below dpbench.privacy
    planned: type[Planned] | None  # how its uses are planned; None where it costs nothing
    questions: tuple[type[Question], ...] = ()
    forms: tuple[type[Contribution], ...] = ()  # what rows may contribute to them
    audit: AuditReplay | None = None
    claims: tuple[TestedClaim, ...] = ()  # beside those of core, which `dpbench.privacy` lists


@cache
def mechanisms() -> tuple[Mechanism, ...]:
    """Return the table."""
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
            AuditReplay(replay.replay, probe=replay.probe, laws=replay.laws),
            claims=(
                TestedClaim(
                    "one example moves each loss by 0 to 1, the law by eps0", ("test_choice", "test_units"), "steps"
                ),
                TestedClaim("a row counts in one cell, once, or for its share of a unit", ("test_units",), "cells"),
                TestedClaim("candidates are chosen with the chances of the law", ("test_choice",), "question"),
                TestedClaim("parts cost one choice, however a unit's rows are spread", ("test_part_losses",), "parts"),
                TestedClaim("no choice of one eps0 loses more than one pair of laws", ("test_choice",), "choice_plan"),
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


def audit_of(question: type[Question]) -> AuditReplay | None:
    """Return how questions of this type are put again; None of sums."""
    return next(one.audit for one in mechanisms() if question in one.questions)


def audits_of(planned: type[Planned]) -> tuple[AuditReplay, ...]:
    """Return how an audit puts questions again that are planned so."""
    return tuple(one.audit for one in mechanisms() if one.planned is planned and one.audit is not None)
