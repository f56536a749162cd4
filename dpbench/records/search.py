"""How a run's hyperparameters were chosen: what is asked for, and what is put on record. No torch here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field

from dpbench.support.untrusted import Shown
from dpbench.support.validation import Record, WrittenRecord

SelectionRule = Literal[
    "default", "by-hand", "transfer", "public-validation", "private-accounted", "private-unaccounted", "oracle"
]
CLEANEST_FIRST: tuple[SelectionRule, ...] = (
    "default", "public-validation", "transfer", "by-hand", "private-accounted", "private-unaccounted", "oracle"
)  # fmt: skip
UNRANKED: frozenset[SelectionRule] = frozenset({"private-unaccounted", "oracle"})


def least_clean(*rules: SelectionRule) -> SelectionRule:
    """Return the least clean of some rules: what a setting counts as that each of them had a part in.

    >>> least_clean("transfer", "private-unaccounted", "default")
    'private-unaccounted'
    """
    return max(rules, key=CLEANEST_FIRST.index)


class Search(WrittenRecord):
    """A search over a learner's settings, as a part of a spec.

    ====================== ================================================= =====================================
    rule                   every setting is trained on                       and scored on the labels of
    ====================== ================================================= =====================================
    `public-validation`    the rest of the public split, noise as in the     each fifth of the public split
                           real run: no private record is touched
    `private-unaccounted`  the private split, each at the full epsilon, as   the public split; never ranked, as the
                           papers do                                         search itself is outside epsilon
    `private-accounted`    the private split, a random number of times;      the public split; epsilon is that of
                           the best run is the result                        the whole search
    ====================== ================================================= =====================================
    """

    rule: Literal["public-validation", "private-accounted", "private-unaccounted"] = "public-validation"
    space: dict[str, tuple[Any, ...]] | Literal["own", "paper"] = "own"
    tries: int = Field(500, ge=1)  # at most so many settings; a larger grid is drawn from at random
    repeats: float = Field(10.0, gt=1)  # private-accounted: how many runs on average
    shape: float = Field(1.0, ge=0, le=10)  # private-accounted: 1 geometric, 0 logarithmic
    seed: int = Field(0, ge=0)
    folds: int = Field(5, ge=2, le=20)


def unused_settings(search: Mapping[str, Any]) -> list[str]:
    """Return which keys of a search, as someone wrote it, its rule would ignore."""
    accounted = search.get("rule") == "private-accounted"
    return [name for name in (("tries",) if accounted else ("repeats", "shape")) if name in search]


class ResolvedSearch(Search):
    """A search whose space is written out: settings of the learner, each with values of its type."""

    space: dict[str, tuple[Any, ...]]


class Trial(Record):
    """One setting and its accuracy on all validation labels, or why it has none."""

    setting: dict[str, Any]
    accuracy: float | None = Field(ge=0, le=1)
    error: Shown | None = None
    # By the metric that the protocol compares by, where that is not accuracy.
    score: float | None = Field(default=None, ge=0, le=1, exclude_if=lambda value: value is None)

    @property
    def value(self) -> float | None:
        """What settings are chosen by."""
        return self.accuracy if self.score is None else self.score


class SettingsSource(Record):
    """The run or tuning that a setting was taken from; `selection` is the least clean rule of all before it."""

    digest: str
    dataset: str
    extractor: str
    epsilon: float | Literal["Infinity"]
    selection: SelectionRule


class Selection(Record):
    """How the setting of a result was chosen."""

    rule: SelectionRule
    space: dict[str, tuple[Any, ...]]
    possible: int  # settings in the space
    tried: int | None  # None where how many were tried must stay secret
    draw: Literal["grid", "random", "none"]
    seed: int
    private_touched: bool  # whether a private record had a part in choosing
    public_labels: int  # how many public labels were read for choosing
    chosen: dict[str, Any] | None  # None where each seed chose its own
    trials: tuple[Trial, ...] = ()
    source: SettingsSource | None = None
