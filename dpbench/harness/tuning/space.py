"""List the settings that a search tries."""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from dpbench.api import Learner
from dpbench.support.plugin_calls import call_plugin

Setting = dict[str, Any]
Space = Mapping[str, Sequence[Any]]


def list_settings(space: Space, tries: int, seed: int) -> tuple[list[Setting], Literal["grid", "random"]]:
    """Return the whole grid or, if it has more than `tries` settings, `tries` of them, drawn at random.

    The second value says which. Settings are in the order of the grid: the values of the alphabetically last name vary
    fastest. The order is fixed because noise is derived from the position of a setting, and because stored results sort
    the names of settings.

    >>> list_settings({"k": (10, 40), "steps": (30, 60)}, 10, 0)[0][1]
    {'k': 10, 'steps': 60}
    """
    space = {name: space[name] for name in sorted(space)}
    total = count_settings(space)
    if total <= tries:
        return [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())], "grid"
    chance, numbers = random.Random(seed), set[int]()
    while len(numbers) < tries:
        numbers.add(chance.randrange(total))
    return [_get_setting_at(space, number) for number in sorted(numbers)], "random"


def count_settings(space: Space) -> int:
    """Return the number of settings in a space."""
    return math.prod(len(values) for values in space.values())


def apply_setting(learner: Learner, setting: Setting) -> Learner:
    """Return the learner with the values of this setting.

    Raises:
        DpbenchError: the learner refuses the setting.
    """
    return call_plugin(f"setting {setting} of {learner.name!r}", lambda: dataclasses.replace(learner, **setting))  # type: ignore[type-var]


def _get_setting_at(space: Space, index: int) -> Setting:
    setting = {}
    for name in reversed(list(space)):
        index, digit = divmod(index, len(space[name]))
        setting[name] = space[name][digit]
    return {name: setting[name] for name in space}
