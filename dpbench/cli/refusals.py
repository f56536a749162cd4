"""What the parser of flags refuses, as one sentence that says what was expected and what came."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
# Versions of typer that read flags by pydantic say the first, those that read them by click the second.
WORDS = {
    r"Input should be a valid number.*|.* is not a valid float.*": "a number",
    r"Input should be a valid integer.*|.* is not a valid integer.*": "a whole number",
    r"(Value error, )?.* is not one of (?P<values>.*)": "one of {values}",
    r"Input should be (?P<bound>(less|greater) .*)": "a number {bound}",
    r".* is not in the range (?P<bound>.*)": "in the range {bound}",
}
REFUSED = re.compile(r"Invalid value for '(?P<name>[^']+)'( / '[^']+')*: (?P<why>.*)")
EXTRA = re.compile(r"Got unexpected extra arguments?(\(s\))? \((?P<words>.*)\)")


def describe_refusal(error: Any, arguments: Sequence[str]) -> str:
    """Return the sentence for an error of the parser.

    Args:
        error: what it raised: it has a `format_message` and may have the context of a command.
        arguments: what it read.
    """
    said = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "dpbench"
    if extra := EXTRA.fullmatch(said):
        takes = any("--learner" in parameter.opts for parameter in context.command.params) if context else False
        said = f"Expected flags alone after {path}, got {extra['words']!r}" if takes else said
        said += ". Name a learner like --learner pillar" if takes else ""
    elif found := REFUSED.fullmatch(said):
        said = f"Expected {found['name']} to be {_expected(found['why'])}"
        said += _given(found["name"], arguments)
    where = f" See {path} --help." if context else ""
    return f"{said}{'' if said.endswith('?') else '.'}{where}"


def _expected(why: str) -> str:
    """Return what a value should have been; what no version is known to say is quoted."""
    for pattern, words in WORDS.items():
        if found := re.fullmatch(pattern, why):
            return words.format(**found.groupdict())
    return f"something else: {why}"


def _given(name: str, arguments: Sequence[str]) -> str:
    """Return what a flag was given, and how to write a number with a decimal comma."""
    pairs = [(*word.partition("="), after) for word, after in zip(arguments, [*arguments[1:], ""], strict=True)]
    values = [value if equals else after for flag, equals, value, after in pairs if flag == name]
    if not values:
        return ""
    point = f". Write {values[0].replace(',', '.')}" if DECIMAL_COMMA.fullmatch(values[0]) else ""
    return f", got {values[0]!r}{point}"
