"""The closed table of all mechanisms, with the questions and the audit of each.

To add a question, write a module (or package) in this folder; to add a form, a module in `core.forms`. List both here,
in `PLANS` and in `mechanisms`. Nothing in `core` names a particular question: accountants, ledger and records use its
`Planned` class, `LedgerCurator` uses its `Question` class, and sums use its form. Classes that are not in the table are
refused (`core.closed`), and a test compares the table with all definitions.

This module imports no torch, because records read `PLANS`, which determines the format of stored results.
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
    from dpbench.privacy.mechanisms.replay import ReleasedSum, ReplaySetup, RowInfluence

PLANS: tuple[type[Planned], ...] = (Release, Choice)
"""The types of planned use. No two have the same fields, because records identify the type by its fields."""


@dataclass(frozen=True)
class AuditReplay:
    """How an audit replays a mechanism's questions and reads their answers; sums are audited by `audit.sensitivity`."""

    replay: Callable[[Any, ReplaySetup], RowInfluence]
    is_costly: bool = False  # to ask again, whatever rows are
    probe: Callable[[ReplaySetup], RowInfluence] | None = None  # a question of the audit's own
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
    """One mechanism: its module, its type of planned use, its questions and forms, its audit and its claims."""

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
    from dpbench.privacy.core.map import MapQuestion
    from dpbench.privacy.core.sum import Sum
    from dpbench.privacy.mechanisms import votes
    from dpbench.privacy.mechanisms.choice import cells, parts, question, replay

    return (
        Mechanism("core.sum", Release, (Sum,), (Rows, Joined, RankOne, Scaled)),
        Mechanism("core.map", None, (MapQuestion,)),
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
            (question.LeastLossChoice, question.MajorityChoiceByPart, parts.LeastLossChoiceByPart),
            (cells.CellContribution, parts.PartLosses),
            AuditReplay(replay.replay_choice, probe=replay.replay_test_choice, laws=replay.draw_test_choices),
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
            audit=AuditReplay(votes.replay_votes, is_costly=True, released=votes.list_released_counts),
            claims=(TestedClaim("one example moves at most one vote a query", ("test_votes",)),),
        ),
    )


def find_question_audit(question: type[Question]) -> AuditReplay | None:
    """Return the audit replay of the mechanism to which this type of question belongs; None for sums and maps."""
    return next(mechanism.audit for mechanism in mechanisms() if question in mechanism.questions)


def find_plan_audits(planned: type[Planned]) -> tuple[AuditReplay, ...]:
    """Return the audit replays of all mechanisms whose uses are planned as this type."""
    return tuple(
        mechanism.audit for mechanism in mechanisms() if mechanism.planned is planned and mechanism.audit is not None
    )
