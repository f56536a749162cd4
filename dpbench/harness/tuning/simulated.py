"""A curator over public stand-ins that answers as one over the private rows would."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dpbench.api import Curator
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.map import Map


def simulated(curator: LedgerCurator, sigma: Mapping[str, float], weight: float) -> Curator:
    """Return a curator whose rows count `weight` times each: sums have the size of the real run, noise its share.

    The learner sees its real task, sigma and plan. Nothing private is behind it. A choice is made by the stand-ins'
    own losses: a share of sigma makes eps0 as much larger as totals are smaller.

    Args:
        curator: over the stand-ins, bound with the real sigma divided by `weight`: multiplied by it, its answers have
            the noise of the real run.
        sigma: the real noise multipliers.
        weight: private examples that one row stands for.
    """

    def answer(question: Question) -> Any:
        found = curator.answer(question.of_stand_ins(weight))
        if isinstance(question, Map):
            return simulated(found, sigma, weight)
        return question.weigh(found, weight)

    return Curator(curator.task, sigma, answer)
