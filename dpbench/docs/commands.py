"""The root command -> the reference of the command line as Markdown: each command's help, arguments and flags."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_type_hints

Command = Any  # typer's, whose classes have moved between its versions
Parameter = Any
_SAID = re.compile(r"\s*\\?\[default: ([^]]*)\]")  # in the help of a flag whose default is worked out later
TAKES: Mapping[type, str] = {Path: "PATH", int: "INTEGER", float: "NUMBER", str: "TEXT"}


def commands(root: Command) -> str:
    """Return a section for each command, in the order of `dpbench --help`."""
    lines = ["# The command line", "", "What `dpbench COMMAND --help` says, of every command.", ""]
    for path, command in _walk(root, ("dpbench",)):
        lines += [f"## {' '.join(path)}", "", _plain(command.help), "", *_parameters(path, command)]
    return "\n".join(lines)


def _walk(command: Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Command]]:
    """Yield every command that does something, with the words that call it."""
    known = getattr(command, "commands", None)
    if known is None:
        yield path, command
        return
    for name, one in known.items():
        yield from _walk(one, (*path, name))


def _parameters(path: tuple[str, ...], command: Command) -> Iterator[str]:
    """Yield how the command is written, and a table of its arguments and flags."""
    shown = [one for one in command.params if one.name != "help" and not getattr(one, "hidden", False)]
    arguments = [_argument(one) for one in shown if one.param_type_name == "argument"]
    flags = ["[FLAGS]"] if len(arguments) < len(shown) else []
    yield from ("```text", " ".join([*path, *arguments, *flags]), "```", "")
    if shown:
        hints = get_type_hints(command.callback)
        yield from ("| | | default |", "|---|---|---|", *(_row(one, hints[one.name]) for one in shown), "")


def _argument(one: Parameter) -> str:
    name = one.name.upper() + ("..." if one.nargs == -1 else "")
    return name if one.required else f"[{name}]"


def _row(one: Parameter, hint: Any) -> str:
    option = one.param_type_name == "option"
    called = " / ".join([*one.opts, *one.secondary_opts]) + _takes(hint) if option else _argument(one)
    return f"| `{called}` | {_plain(one.help)} | {_default(one)} |"


def _takes(hint: Any) -> str:
    """Return what follows a flag: nothing after a switch."""
    inner = [one for one in get_args(hint) if one is not type(None)]
    if inner:
        return _takes(inner[0])
    if isinstance(hint, type) and issubclass(hint, Enum):
        return " " + "\\|".join(str(one.value) for one in hint)
    return f" {TAKES[hint]}" if hint in TAKES else ""


def _default(one: Parameter) -> str:
    if one.required:
        return "required"
    if said := _SAID.search(one.help or ""):
        return said[1]
    value = one.default.value if isinstance(one.default, Enum) else one.default
    return "" if value in (None, False, "") or not isinstance(value, (str, int, float, Path)) else f"`{value}`"


def _plain(text: str | None) -> str:
    """Return help as Markdown: without the marks that a terminal reads, one line a paragraph."""
    paragraphs = _SAID.sub("", inspect.cleandoc(text or "")).replace("\\[", "[").split("\n\n")
    return "<br>".join(" ".join(one.split()) for one in paragraphs).replace("|", "\\|").replace("*", "\\*")
