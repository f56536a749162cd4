"""The selection of a run's hyperparameters: the user's request, and the record of the search. No torch here."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from dpbench.records.setting import FlagFacts, SwitchFlag
from dpbench.support.untrusted import PrintableText
from dpbench.support.validation import Record, UserRecord

SelectionRule = Literal[
    "default", "by-hand", "transfer", "public-validation", "private-accounted", "private-unaccounted", "oracle"
]
CLEANEST_FIRST: tuple[SelectionRule, ...] = (
    "default", "public-validation", "transfer", "by-hand", "private-accounted", "private-unaccounted", "oracle"
)  # fmt: skip
UNRANKED: frozenset[SelectionRule] = frozenset({"private-unaccounted", "oracle"})


def choose_least_clean_rule(*rules: SelectionRule) -> SelectionRule:
    """Return the least clean of these rules: the rule to state for settings that several rules helped to choose.

    >>> choose_least_clean_rule("transfer", "private-unaccounted", "default")
    'private-unaccounted'
    """
    return max(rules, key=CLEANEST_FIRST.index)


def list_settings_chosen_by_hand(
    options: Mapping[str, Any], defaults: Mapping[str, Any], space: Mapping[str, Sequence[Any]], texts: Container[str]
) -> list[str]:
    """List the settings that the user chose: those that differ from the default and that no search chose.

    A search over a single value chooses nothing. A search over free text, such as file names, does not count either: it
    compares files, but how each file was made is not on record.

    Args:
        options: the learner's settings, by name.
        defaults: the default of each setting.
        space: the values that a search may try, by setting; empty without a search.
        texts: the names of settings that accept any text.

    >>> list_settings_chosen_by_hand({"k": 9, "steps": 30}, {"k": None, "steps": 30}, {}, ())
    ['k']
    >>> list_settings_chosen_by_hand({"k": None, "clip": 1}, {"k": None, "clip": 1}, {"k": (9, 12), "clip": (2,)}, ())
    ['clip']
    """
    searched = {name for name, values in space.items() if name not in texts and any(v != values[0] for v in values)}
    asked = {**{name: (value,) for name, value in options.items()}, **space}
    return sorted(
        name
        for name, values in asked.items()
        if name not in searched and any(value != defaults.get(name, ...) for value in values)
    )


TUNE_SWITCH = SwitchFlag(
    "tune", "public-validation", "Choose settings with public labels, like --selection public-validation."
)


NO_SEARCH_HINTS = {
    "transfer": "For settings found elsewhere, use --settings FILE.",
    "oracle": "Settings are never chosen on the test split.",
}
"""For each selection rule that has no search: what the user can do instead."""


def _parse_space(space: object) -> object:
    """Parse a search space from texts like `k=3,4` in flags and files; keep the single word `own` or `paper`."""
    space = [space] if isinstance(space, str) else space
    if not isinstance(space, list) or not all(isinstance(text, str) for text in space):
        return space
    if space in (["own"], ["paper"]):
        return space[0]
    read: dict[str, tuple[str, ...]] = {}
    for text in space:
        name, equals, values = text.partition("=")
        if not equals or not values or name.strip() in read:
            raise ValueError(f"expected own, paper or setting=value,value, once per setting; got {text!r}")
        read[name.strip()] = tuple(value.strip() for value in values.split(","))
    return read


class Search(UserRecord):
    """A search over a learner's settings, as part of a spec.

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

    rule: Annotated[
        Literal["public-validation", "private-accounted", "private-unaccounted"],
        FlagFacts(key="selection", none="default", switch=TUNE_SWITCH),
    ] = Field("public-validation", description="How to choose settings")
    space: Annotated[dict[str, tuple[Any, ...]] | Literal["own", "paper"], BeforeValidator(_parse_space)] = Field(
        "own",
        description="Search space: own (the learner's), paper, or setting=value,value (repeat for several)",
    )
    tries: int = Field(500, ge=1, description="Maximum number of settings to try; larger grids are sampled")
    repeats: float = Field(10.0, gt=1, description="Mean number of runs per seed, for private-accounted")
    shape: Annotated[float, FlagFacts(key="repeats_shape")] = Field(
        1.0, ge=0, le=10,
        description="Distribution of the number of runs, for private-accounted: 1 is geometric, 0 logarithmic",
    )  # fmt: skip
    seed: Annotated[int, FlagFacts(key="search_seed")] = Field(
        0, ge=0, description="Seed of the search, for sampled settings and folds"
    )
    folds: int = Field(5, ge=2, le=20, description="Number of parts of the public split; one at a time is held out")


_UNUSED_HINTS = {"tries": ", since the number of runs is random. Use repeats", "repeats": ". Use tries", "shape": ""}
"""What the message adds about a key that the rule does not use."""


def list_ignored_search_keys(search: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each key of the user's search that its rule ignores, with an explanation."""
    rule = search.get("rule", Search.model_fields["rule"].default)
    for name in ("tries",) if rule == "private-accounted" else ("repeats", "shape"):
        if name in search:
            yield name, f"{rule} does not use it{_UNUSED_HINTS[name]}"


class ResolvedSearch(Search):
    """A search with an explicit space: the learner's settings, each with values of the right type."""

    space: dict[str, tuple[Any, ...]]


class Trial(Record):
    """A tried combination of settings, with its accuracy on all validation labels or the error that it caused."""

    setting: dict[str, Any]
    accuracy: float | None = Field(ge=0, le=1)
    error: PrintableText | None = None
    # By the metric that the protocol compares by, where that is not accuracy.
    score: float | None = Field(default=None, ge=0, le=1, exclude_if=lambda value: value is None)

    @property
    def value(self) -> float | None:
        """The score that settings are compared by: the protocol's metric or, if it is missing, accuracy."""
        return self.accuracy if self.score is None else self.score


class SettingsSource(Record):
    """The run or tuning that settings were copied from; `selection` is the least clean rule in the chain of sources."""

    digest: str
    dataset: str
    extractor: str
    epsilon: float | Literal["Infinity"]
    selection: SelectionRule


class Selection(Record):
    """The record of how a result's settings were chosen."""

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
