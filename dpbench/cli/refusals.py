"""Describe errors of the flag parser in sentences that name the expected and the actual value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

DECIMAL_COMMA = re.compile(r"-?\d+,\d+")
# Versions of typer that read flags by pydantic say the first, those that read them by click the second.
EXPECTED_WORDS = {
    r"Input should be a valid number.*|.* is not a valid float.*": "a number",
    r"Input should be a valid integer.*|.* is not a valid integer.*": "a whole number",
    r"(Value error, )?.* is not one of (?P<values>.*)": "one of {values}",
    r"Input should be (?P<bound>(less|greater) .*)": "a number {bound}",
    r".* is not in the range (?P<bound>.*)": "in the range {bound}",
}
INVALID_VALUE = re.compile(r"Invalid value for '(?P<name>[^']+)'( / '[^']+')*: (?P<why>.*)")
EXTRA_ARGUMENTS = re.compile(r"Got unexpected extra arguments?(\(s\))? \((?P<words>.*)\)")


def describe_refusal(error: Any, arguments: Sequence[str]) -> str:
    """Return a sentence that describes an error of the parser.

    Args:
        error: the error, which has a `format_message` and may have the context of a command.
        arguments: the arguments that the parser read.
    """
    said = " ".join(error.format_message().split()).rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "dpbench"
    if extra := EXTRA_ARGUMENTS.fullmatch(said):
        takes = any("--learner" in parameter.opts for parameter in context.command.params) if context else False
        said = f"Expected flags alone after {path}, got {extra['words']!r}" if takes else said
        said += ". Name a learner like --learner pillar" if takes else ""
    elif found := INVALID_VALUE.fullmatch(said):
        said = f"Expected {found['name']} to be {_describe_expected_value(found['why'])}"
        said += _describe_given_value(found["name"], arguments)
    where = f" See {path} --help." if context else ""
    return f"{said}{'' if said.endswith('?') else '.'}{where}"


def _describe_expected_value(reason: str) -> str:
    """Describe the expected value. If the message of the parser matches no known pattern, quote the message."""
    for pattern, words in EXPECTED_WORDS.items():
        if found := re.fullmatch(pattern, reason):
            return words.format(**found.groupdict())
    return f"something else: {reason}"


def _describe_given_value(name: str, arguments: Sequence[str]) -> str:
    """Describe the value that the user gave to the flag `name`; empty if `arguments` lack the flag.

    If the value has a decimal comma, the text shows it with a point.
    """
    pairs = [(*word.partition("="), after) for word, after in zip(arguments, [*arguments[1:], ""], strict=True)]
    values = [value if equals else after for flag, equals, value, after in pairs if flag == name]
    if not values:
        return ""
    point = f". Write {values[0].replace(',', '.')}" if DECIMAL_COMMA.fullmatch(values[0]) else ""
    return f", got {values[0]!r}{point}"
