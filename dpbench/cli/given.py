"""The user's settings for a run, read from flags and a file and converted to the records that the run needs."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ValidationError

from dpbench.errors import SpecError
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Component
from dpbench.records.search import NO_SEARCH_HINTS, Search
from dpbench.records.setting import Setting, format_flag_name, list_record_settings
from dpbench.records.spec import AXES, Spec, add_default_extractor, make_spec
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.untrusted import read_toml
from dpbench.support.validation import describe_validation_error

if TYPE_CHECKING:
    from dpbench.registry import Registry

SWEEP_KEYS = {"fixed", "grid", "grids", "plot"}  # what a sweep file has, and a spec has not
R = TypeVar("R", bound=BaseModel)


@dataclass(frozen=True)
class CommandSettings:
    """The records whose settings a command takes, with the defaults and choices that the command overrides."""

    records: tuple[type[BaseModel], ...]
    several: tuple[str, ...] = ()  # keys of which there may be several values
    defaults: Mapping[str, Any] = field(default_factory=dict)  # by key, where they are not those of the records
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # by key, what the help tells of them

    @property
    def settings(self) -> Iterator[Setting]:
        """The settings of all records that the command takes."""
        return (setting for record in self.records for setting in list_record_settings(record))

    @property
    def spec(self) -> type[Spec]:
        """The first subclass of `Spec` among the records; `Spec` if there is none."""
        return next((record for record in self.records if issubclass(record, Spec)), Spec)


@dataclass(frozen=True)
class UserSettings:
    """The settings that flags and a file give, with the source of each setting.

    Flags take precedence over the file, and both over the defaults of the command.
    """

    command: str
    command_settings: CommandSettings
    flags: Mapping[str, Any]  # by key
    file: Path | None = None

    @cached_property
    def file_values(self) -> Mapping[str, Any]:
        """The keys and values of the file; each switch is replaced with the value that it sets.

        Raises:
            SpecError: the file cannot be read or is a sweep, or a key is unknown.
        """
        return {} if self.file is None else self._read(self.file)

    @cached_property
    def values(self) -> Mapping[str, Any]:
        """All values that the user set, by key; flags take precedence over the file."""
        return {**self.file_values, **self.flags}

    @cached_property
    def axes(self) -> Mapping[str, list[Any]]:
        """The list of values of each key that may have several values.

        Raises:
            SpecError: a value is invalid, or is given twice.
        """
        return {
            setting.key: [*_read_axis_values(setting, self.flags.get(setting.key), self.file_values.get(setting.key))]
            for setting in self.command_settings.settings
            if setting.key in self.command_settings.several
        }

    @property
    def swept_axes(self) -> Mapping[str, list[Any]]:
        """The keys with more than one value, and their values, in the order in which cells run."""
        return {key: self.axes[key] for key in AXES if len(self.axes.get(key, ())) > 1}

    @property
    def place(self) -> RunOptions:
        """The `RunOptions` record: the run's board, files and machine.

        Raises:
            SpecError: a value does not fit.
        """
        return self._build_record(RunOptions)

    @cached_property
    def keys(self) -> Mapping[str, Any]:
        """The keys and values of the spec, except axes with several values.

        Raises:
            SpecError: search settings are given without a search, or do not fit.
        """
        names = self.command_settings.spec.model_fields.keys() - {
            "search"
        }  # fixed ones too, which the spec then checks
        single = {key: values[0] for key, values in self.axes.items() if values and key not in self.swept_axes}
        said = {key: value for key, value in self.values.items() if key in names - {*self.command_settings.several}}
        search = self._build_search_keys()
        return {**said, **single, **({} if search is None else {"search": search})}

    def spec(self, plugins: Registry | None = None, changes: Mapping[str, Any] | None = None) -> Spec:
        """Build the spec of a run, under a board's protocol if the user names a board; `changes` override other values.

        Args:
            plugins: the installed plugins, if they are already loaded.
            changes: further keys of the spec, with their values.

        Raises:
            SpecError: a value does not fit, or only the board may set it.
        """
        keys = {**self.keys, **(changes or {})}
        if self.place.board is None:
            return make_spec(keys, self.origin, self.command_settings.spec)
        from dpbench.records.board import find_board
        from dpbench.registry import load
        from dpbench.registry.boards import make_entry_spec

        plugins = plugins or load()
        spec = make_entry_spec(find_board(self.place.board), keys, plugins, self.origin)
        _warn_of_uncommitted_changes(plugins.find("learner", spec.learner.name).distribution)
        return spec

    def sweep(self, plugins: Registry) -> dict[str, Any]:
        """Return the definition of a sweep over all combinations of the user's values.

        Raises:
            SpecError: the board refuses a learner, or a value that only the board may set.
        """
        from dpbench.sweep.grid import make_sweep_definition

        if self.place.board is None:
            return make_sweep_definition(self.keys, self.swept_axes, plugins)
        from dpbench.records.board import find_board

        others = {key: values[0] for key, values in self.swept_axes.items() if key != "learner"}  # the board's to fix
        for chosen in [{"learner": learner} for learner in self.axes["learner"]] or [{}]:
            self.spec(plugins, {**others, **chosen})
        return make_sweep_definition({**find_board(self.place.board).protocol, **self.keys}, self.swept_axes, plugins)

    def origin(self, *keys: str) -> str:
        """Return where the user set these keys, for messages: flags, file or both. Without keys, name every source."""
        flags = f"the flags of dpbench {self.command}"
        if self.file is None:
            return flags
        searched = {"search", *(setting.key for setting in list_record_settings(Search))}
        said = {part for key in keys for part in (searched if key == "search" else {key})}
        by_flags, by_file = said & self.flags.keys(), said & (self.file_values.keys() - self.flags.keys())
        if by_file and not by_flags:
            return str(self.file)
        return flags if keys and not by_file else f"{self.file} and flags"

    def refuse_keys(self, keys: Sequence[str], reason: str) -> None:
        """Refuse keys in the file that only other commands take; `reason` is the reason in the message.

        Raises:
            SpecError: the file has one of the keys.
        """
        for key in keys:
            if key in self.file_values:
                raise SpecError(f"Expected no {key} in {self.file}: {reason}.")

    def _read(self, file: Path) -> dict[str, Any]:
        values = read_toml(file, "spec")
        if SWEEP_KEYS & values.keys():
            raise SpecError(
                f"Expected the spec of one {_NOUNS.get(self.command, self.command)} in {file}, got a sweep. Run it "
                f"with: dpbench sweep {file}"
            )
        found = [
            setting
            for record in (self.command_settings.spec, Search, RunOptions)
            for setting in list_record_settings(record)
        ]
        switches = [setting for setting in found if setting.flag.switch]
        known = {
            *self.command_settings.spec.model_fields,
            *(setting.key for setting in found),
            *(_get_switch_key(switch) for switch in switches),
        }
        for name in values:
            if name not in known:
                raise SpecError(format_unknown_name_message("key", name, known, str(file)))
        for setting in switches:
            values = resolve_switch(setting, values, str(file))
        named = self.flags.keys() & {"extractor", "board"} or "board" in values
        return values if named else add_default_extractor(values, str(file))

    def _build_search_keys(self) -> dict[str, Any] | None:
        """Merge the search settings of defaults, file and flags into one mapping; None if there is no search."""
        table = self.file_values.get("search")
        if table is not None and not isinstance(table, Mapping):
            raise SpecError(f"Expected search as a table, like search = {{rule = 'public-validation'}}, got {table!r}.")
        by_key = {setting.key: setting for setting in list_record_settings(Search)}
        rule = next(setting for setting in by_key.values() if setting.flag.none)
        self._check_selection_rule(rule)
        off = self.values.get(rule.key) == rule.flag.none  # which drops what a file says of a search
        said = {key: value for key, value in self.flags.items() if key != rule.key} if off else self.values
        found = {setting.name: said[key] for key, setting in by_key.items() if key in said}
        first = {
            setting.name: self.command_settings.defaults[key]
            for key, setting in by_key.items()
            if key in self.command_settings.defaults
        }
        if off or not (first or table is not None or rule.name in found):
            if found:
                names = ", ".join(setting.option for setting in by_key.values() if setting.name in found)
                raise SpecError(f"Use {names} with --tune or --selection: without either, nothing is searched.")
            return None
        self._build_record(Search)
        return {**first, **(table or {}), **found}

    def _check_selection_rule(self, rule: Setting) -> None:
        value = self.values.get(rule.key)
        if value is not None and value not in rule.choices:
            hint = f" {NO_SEARCH_HINTS[value]}" if value in NO_SEARCH_HINTS else ""
            words = ", ".join(self.command_settings.choices.get(rule.key, rule.choices))
            raise SpecError(f"Expected {rule.option} {value} to be one of {words}.{hint}")

    def _build_record(self, record: type[R]) -> R:
        """Build a record from the user's values; error messages name keys as the user wrote them."""
        found = {setting.name: setting for setting in list_record_settings(record)}
        values = {**self.command_settings.defaults, **self.values}
        said = {setting.name: values[setting.key] for setting in found.values() if setting.key in values}
        try:
            return record(**said)
        except ValidationError as error:
            keys = {name: setting.key for name, setting in found.items()}
            raise SpecError(describe_validation_error(error, self.origin, {"": record}, keys)) from None


_NOUNS = {"tune": "search"}
"""The noun for what a command makes, if it differs from the command's name."""


def resolve_switch(setting: Setting, values: Mapping[str, Any], file: str = "") -> dict[str, Any]:
    """Return `values` with the setting's switch replaced by the value that the switch sets.

    `file` names the source of the values in messages; it is empty if they come from flags.

    Raises:
        SpecError: the switch is given together with a value of its setting, or is neither true nor false.
    """
    switch, values = setting.flag.switch, dict(values)
    if switch is None or (on := values.pop(switch.key, None)) is None:
        return values
    if not isinstance(on, bool):
        raise SpecError(f"{switch.key}={on!r} in {file} does not fit: expected true or false.")
    if on and values.get(setting.key) is not None:
        name, other = (switch.key, setting.key) if file else (format_flag_name(switch.key), setting.option)
        raise SpecError(f"{name} means {other} {switch.value}: use only one of them.")
    return {**values, setting.key: switch.value} if on else values


def _get_switch_key(setting: Setting) -> str:
    return setting.flag.switch.key if setting.flag.switch else ""


def _warn_of_uncommitted_changes(distribution: str) -> None:
    """Warn of uncommitted changes before a long run, because `dpbench leaderboard add` would refuse the result."""
    from dpbench.records.provenance import HARNESS, find_git_source, read_git_state

    own = distribution == HARNESS
    dirty = read_git_state()[1] if own else (find_git_source(distribution) or {}).get("dirty")
    if dirty:
        whose = "dpbench's tree" if own else f"The tree of {distribution}"
        print(f"dpbench: {whose} has uncommitted changes, so no board will accept the result.", file=sys.stderr)


def _read_axis_values(setting: Setting, texts: Sequence[str] | None, file_value: Any) -> Iterator[Any]:
    """Yield the values of a setting from its flags or, without flags, from the file."""
    if texts:
        split = split_components if Component in setting.types else split_numbers
        values: Sequence[Any] = split(texts, setting.option)
    else:
        values = file_value if isinstance(file_value, list) else [] if file_value is None else [file_value]
    for value in values:
        if values.count(value) > 1:
            raise SpecError(f"Expected each value of {setting.option} once, got {value} twice.")
        yield value


def split_components(texts: Sequence[str], flag: str) -> list[str]:
    """Return the components that flags name; a flag may name several, separated by commas.

    A part that is only `key=value` is a further option of the component before it.

    >>> split_components(["pillar:k=40,steps=30,dp-sgd", "jl"], "--learner")
    ['pillar:k=40,steps=30', 'dp-sgd', 'jl']

    Raises:
        SpecError: a part between commas is empty or is a folder, or the path of an existing file contains a comma.
    """
    found: list[str] = []
    for text in texts:
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
            if place > 0 and "=" in part.partition(":")[0]:
                found[-1] += f",{part}"
            else:
                found.append(part.strip())
    return found


def split_numbers(texts: Sequence[str], flag: str) -> list[float]:
    """Return the numbers in flags, separated by commas.

    Raises:
        SpecError: a part is not a number, or a decimal comma splits a number in two.
    """
    for text in texts:
        if re.fullmatch(r"0,\d+", text):  # none of these flags takes 0, and 1,5 may well be two values
            decimal = text.replace(",", ".")
            raise SpecError(
                f"Expected {flag} above 0: {text} is two values, 0 and {float(text[2:]):g}; write {decimal}."
            )
    try:
        return [float(part) for text in texts for part in text.split(",")]
    except ValueError:
        said = ", ".join(texts)
        raise SpecError(f"Expected {flag} to be a number, or several, like 0.1,1; got {said!r}.") from None
