"""What the flags of `dpbench run` ask for: the values of a spec, which of them are several, and where to run."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench.errors import SpecError
from dpbench.records.spec import make_spec
from dpbench.sweep.grid import AXES, definition

if TYPE_CHECKING:
    from dpbench.records.spec import Spec
    from dpbench.registry import Registry


@dataclass(frozen=True)
class RunRequest:
    """Which runs the user asked for, and where to run them."""

    values: Mapping[str, Any]  # of a spec, one each
    several: Mapping[str, Sequence[Any]]  # of flags with more than one: every combination is a run
    origin: str  # for messages: who gave the values
    board: str | None
    settings: Path | None
    device: str
    out: Path
    threads: int | None

    def spec(self, plugins: Registry) -> Spec:
        """Return the spec of the one run, on a board where one is named.

        Raises:
            SpecError: the values do not fit, or are the board's to set.
        """
        return self._spec(self.values, plugins)

    def sweep(self, plugins: Registry) -> dict[str, Any]:
        """Return the definition of a sweep over every combination.

        Raises:
            SpecError: a board does not take one of several learners, or values that are the board's to set.
        """
        if self.board is None:
            return definition(self.values, self.several, plugins)
        from dpbench.records.board import find_board

        others = {key: ones[0] for key, ones in self.several.items() if key != "learner"}  # the board's to fix
        for learner in self.several.get("learner") or [self.values.get("learner")]:
            self._spec({**self.values, **others, "learner": learner}, plugins)
        return definition({**find_board(self.board).protocol, **self.values}, self.several, plugins)

    def _spec(self, values: Mapping[str, Any], plugins: Registry) -> Spec:
        if self.board is None:
            return make_spec(dict(values), self.origin)
        from dpbench.records.board import find_board
        from dpbench.registry.boards import entry_spec

        spec = entry_spec(find_board(self.board), values, plugins, self.origin)
        _warn_of_changes(plugins.find("learner", spec.learner.name).distribution)
        return spec


def _warn_of_changes(distribution: str) -> None:
    """Say before a run of hours what `dpbench leaderboard add` would refuse after it."""
    from dpbench.records.provenance import HARNESS, read_tree, source_of

    own = distribution == HARNESS
    dirty = read_tree()[1] if own else (source_of(distribution) or {}).get("dirty")
    if dirty:
        whose = "dpbench's tree" if own else f"The tree of {distribution}"
        print(f"dpbench: {whose} has uncommitted changes, so no board will accept the result.", file=sys.stderr)


def split_components(texts: Sequence[str] | None, flag: str) -> list[str]:
    """Return the components that flags name, each of which may hold several, separated by commas.

    A part with `key=value` alone is one more option of the component before it.

    >>> split_components(["pillar:k=40,steps=30,dp-sgd", "jl"], "--learner")
    ['pillar:k=40,steps=30', 'dp-sgd', 'jl']

    Raises:
        SpecError: nothing stands between two commas, or a folder where the name of a dataset belongs.
    """
    found: list[str] = []
    for text in texts or ():
        name, _, path = text.partition(":")
        if "," in path and Path(path).exists():
            raise SpecError(
                f"The comma in {path} separates components in {flag}. Rename it, or name it in a spec file, as "
                f'{flag[2:]} = {{name = "{name}", options = {{path = "{path}"}}}}.'
            )
        for place, part in enumerate(text.split(",")):
            if not part.strip():
                raise SpecError(f"Expected {flag} to be a name, or several, like A,B; got {text!r}.")
            if flag == "--dataset" and "/" in part and Path(part).is_dir():
                raise SpecError(f"Expected {flag} to be a name, got the folder {part}. Write imagefolder:{part}.")
            option = place > 0 and "=" in part.partition(":")[0]
            if option:
                found[-1] += f",{part}"
            else:
                found.append(part.strip())
    return found


def split_numbers(texts: Sequence[str] | None, flag: str) -> list[float]:
    """Return the numbers that flags hold, separated by commas.

    Raises:
        SpecError: one is no number, or a decimal comma makes two of one.
    """
    for text in texts or ():
        if re.fullmatch(r"0,\d+", text):  # none of these flags takes 0, and 1,5 may well be two values
            decimal = text.replace(",", ".")
            raise SpecError(
                f"Expected {flag} above 0: {text} is two values, 0 and {float(text[2:]):g}; write {decimal}."
            )
    try:
        return [float(part) for text in texts or () for part in text.split(",")]
    except ValueError:
        said = ", ".join(texts or ())
        raise SpecError(f"Expected {flag} to be a number, or several, like 0.1,1; got {said!r}.") from None


def with_several(given: Mapping[str, list[Any]]) -> dict[str, list[Any]]:
    """Return the flags with several values.

    Raises:
        SpecError: a value stands twice.
    """
    several = {name: given[name] for name in AXES if len(given.get(name) or ()) > 1}
    for name, values in several.items():
        for value in values:
            if values.count(value) > 1:
                raise SpecError(f"Expected each value of --{name.replace('_', '-')} once, got {value} twice.")
    return several


def list_values(name: str, written: Mapping[str, Any]) -> list[Any]:
    """Return the values that a file gives for a flag; one or several."""
    value = written.get(name)
    return [] if value is None else list(value) if isinstance(value, list) else [value]
