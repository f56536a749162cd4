"""Make a command's flags from the records whose settings it takes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from annotated_types import Ge, Le
from pydantic import BaseModel

from dpbench.cli.given import CommandSettings, UserSettings, resolve_switch
from dpbench.records.place import RunOptions
from dpbench.records.search import Search
from dpbench.records.setting import Setting, format_flag_name, join_with_or, list_record_settings
from dpbench.records.spec import Spec

CommandFunction = Callable[..., None]
GIVEN_PARAMETER = "given"  # the parameter of a command for what its flags say
FILE_PARAMETER = "spec"
PANELS: Mapping[type[BaseModel], str] = {
    Spec: "The protocol", Search: "How settings are chosen", RunOptions: "Files and machine",
}  # fmt: skip
"""The headings of `--help` for the settings of each record."""
FILE_HELP = "TOML file with the same keys as these flags; flags take precedence."


def add_setting_flags(
    *records: type[BaseModel],
    several: tuple[str, ...] = (),
    only: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
    defaults: Mapping[str, Any] | None = None,
    choices: Mapping[str, tuple[str, ...]] | None = None,
    file: bool = False,
    first: tuple[str, ...] = (),
) -> Callable[[CommandFunction], CommandFunction]:
    """Return a decorator that adds a flag for each field of the records and passes the values as `given`.

    The help lists the flags at the position of `given` among the parameters of the command.

    Args:
        records: records whose fields become flags if they have a description.
        several: keys that may have several values.
        only: the keys that the command takes; by default all.
        without: keys that the command does not take.
        defaults: by key, defaults that replace those of the records; for keys of a spec, they change only the help.
        choices: by key, the choices that the help lists, if the command accepts fewer of them than the record.
        file: whether the command also reads a TOML file, by `--spec`.
        first: the keys that the help shows first; the other keys follow under the headings of `PANELS`. By default
            there are no headings.
    """
    taken = CommandSettings(records, several, defaults or {}, choices or {})
    found = [setting for setting in taken.settings if setting.key not in without and (not only or setting.key in only)]
    panels = {
        setting.key: PANELS[record]
        for record in (records if first else ())
        for setting in list_record_settings(record)
        if setting.key not in first
    }

    def decorate(command: CommandFunction) -> CommandFunction:
        own = inspect.signature(command, eval_str=True).parameters
        flags = [
            parameter
            for setting in found
            for parameter in _make_setting_parameters(setting, taken, panels.get(setting.key), first)
        ]
        if file:
            option = typer.Option(help=FILE_HELP, rich_help_panel=PANELS[RunOptions] if first else None)
            flags.append(_make_flag_parameter(FILE_PARAMETER, Path, option))
        parameters: list[inspect.Parameter] = []
        for name, parameter in own.items():
            parameters += flags if name == GIVEN_PARAMETER else [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)]

        @functools.wraps(command)
        def call_with_settings(**words: Any) -> None:
            said = {flag.name: value for flag in flags if (value := words.pop(flag.name)) not in (None, [])}
            read = said.pop(FILE_PARAMETER, None)
            for setting in found:
                said = resolve_switch(setting, said)
            command(**words, given=UserSettings(command.__name__, taken, said, read))

        call_with_settings.__dict__["__signature__"] = inspect.Signature(parameters)
        call_with_settings.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return call_with_settings

    return decorate


def _make_setting_parameters(
    setting: Setting, taken: CommandSettings, panel: str | None, first: tuple[str, ...]
) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a setting: its switch, if it has one, and its flag, under the heading `panel`."""
    if switch := setting.flag.switch:
        heading = None if switch.key in first else panel
        option = typer.Option(format_flag_name(switch.key), help=switch.says, rich_help_panel=heading)
        yield _make_flag_parameter(switch.key, bool, option)
    bounds = {type(extra): extra for extra in setting.field.metadata if setting.kind is int}
    low, high = bounds.get(Ge), bounds.get(Le)
    info = typer.Option(
        setting.option, help=_make_help_text(setting, taken),
        min=low.ge if low else None, max=high.le if high else None,
        rich_help_panel=panel,
    )  # fmt: skip
    listed = setting.key in taken.several or setting.is_repeated
    yield _make_flag_parameter(setting.key, list[str] if listed else setting.kind, info)


def _make_help_text(setting: Setting, taken: CommandSettings) -> str:
    choices = taken.choices.get(setting.key, setting.choices)
    says = f"{setting.field.description}{': ' * bool(choices)}{join_with_or(choices)}."
    says += f" Several: {setting.flag.several}." * (setting.key in taken.several)
    default = taken.defaults.get(setting.key, setting.default)
    says += f" [default: {default}]" * bool(default)
    return says.replace("[", "\\[")


def _make_flag_parameter(name: str, kind: Any, info: Any) -> inspect.Parameter:
    """Return a parameter whose default is None, so that an unset flag can be recognised."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind | None, info]
    )
