"""The settings that a search walks."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dpbench.api import Learner
from dpbench.errors import SpecError
from dpbench.records.search import Search
from dpbench.registry import fields_from
from dpbench.support.guard import guarded

Setting = dict[str, Any]
Space = Mapping[str, Sequence[Any]]


def spelled_out(search: Search, learner: Learner, fixed: Mapping[str, Any]) -> Search:
    """Return the search with its space written out: fields that somebody set are not searched.

    Raises:
        SpecError: a field that the learner does not have, a value that does not fit, or nothing to search.
    """
    space: Space
    if isinstance(search.space, dict):
        space = search.space
    else:
        named = learner.search_space if search.space == "own" else learner.paper_space
        space = {name: values for name, values in named.items() if name not in fixed}
    if not space:
        raise SpecError(
            f"Learner {learner.name!r} has nothing to search beyond what is set already: its space "
            f"{search.space!r} is empty. Name fields and values, like --space steps=30,60."
        )
    typed = {
        name: tuple(dict.fromkeys(_typed(learner, name, value) for value in values)) for name, values in space.items()
    }
    for name, values in typed.items():
        if not values:
            raise SpecError(f"Expected values for {name!r} in the search space of learner {learner.name!r}, got none.")
    return search.model_copy(update={"space": typed})


def settings(space: Space, tries: int, seed: int) -> tuple[list[Setting], Literal["grid", "random"]]:
    """Return the whole grid, or `tries` different settings of it drawn at random, in the grid's order.

    >>> settings({"k": (10, 40), "steps": (30, 60)}, 10, 0)[0][1]
    {'k': 10, 'steps': 60}
    """
    total = size(space)
    if total <= tries:
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())], "grid"
    chance, numbers = random.Random(seed), set[int]()
    while len(numbers) < tries:
        numbers.add(chance.randrange(total))
    return [_numbered(space, number) for number in sorted(numbers)], "random"


def size(space: Space) -> int:
    """Return how many settings a space has."""
    return math.prod(len(values) for values in space.values())


def candidate(learner: Learner, setting: Setting) -> Learner:
    """Return the learner with some fields set otherwise.

    Raises:
        DpbenchError: the learner refuses the setting.
    """
    return guarded(f"setting {setting} of {learner.name!r}", lambda: dataclasses.replace(learner, **setting))  # type: ignore[type-var]


def _numbered(space: Space, number: int) -> Setting:
    setting = {}
    for name in reversed(list(space)):
        number, digit = divmod(number, len(space[name]))
        setting[name] = space[name][digit]
    return {name: setting[name] for name in space}


def _typed(learner: Learner, name: str, value: object) -> Any:
    return fields_from(type(learner), {name: value}, f"learner {learner.name!r}, in the search space")[name]
