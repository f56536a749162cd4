"""Read untrusted files: regular files of limited size, valid JSON, and text that is safe on a terminal."""

from __future__ import annotations

import json
import os
import re
import stat
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

from pydantic import AfterValidator

from dpbench.errors import DataError, SpecError

MAX_BYTES = 10_000_000  # bytes of one file; the largest result here has 0.1 MB
MAX_TOML_BYTES = 1_000_000  # bytes of a file that somebody writes by hand
MAX_DOTS = 1_000  # in a line: the time for a key of many parts grows with their square
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and newline, characters that change the direction of text, and surrogates."""


@contextmanager
def open_regular_file(path: Path, *, follow: bool = True) -> Iterator[BinaryIO]:
    """Open a regular file; refuse pipes and devices, which may block or never end.

    Links are followed only if `follow` is true.

    Raises:
        FileNotFoundError, OSError: there is no such file, it is a link that is not followed, or it cannot be read.
        DataError: the path is a folder, pipe or device.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | (0 if follow else os.O_NOFOLLOW))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise DataError(f"Expected {path} to be a regular file, got a folder, pipe or device.")
    with open(handle, "rb") as file:  # noqa: PTH123
        yield file


def read_regular_file(path: Path, max_bytes: int = MAX_BYTES) -> bytes:
    """Return the content of a regular file.

    Raises:
        OSError: see `open_regular_file`.
        DataError: the path is a folder, pipe or device, or the file is larger than `max_bytes` bytes.
    """
    with open_regular_file(path) as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise DataError(f"Expected {path} to have at most {max_bytes:,} bytes.")
    return content


def parse_json(content: bytes, source: object) -> Any:
    """Parse JSON and check its values; `source` names the JSON in messages.

    Raises:
        DataError: the content is not JSON, is nested too deeply, or holds a value that `check_texts_and_integers`
            refuses.
    """
    try:
        found = json.loads(content.decode())
        check_texts_and_integers(found, source)
    except RecursionError:
        raise DataError(f"{source} is nested too deeply.") from None
    except ValueError as error:
        raise DataError(f"{source} is not JSON: {error}.") from None
    return found


def read_toml(path: Path, description: str, parse_float: Callable[[str], Any] = float) -> dict[str, Any]:
    """Return the content of a TOML file; messages call the file `description`.

    Raises:
        SpecError: the file cannot be read, is not TOML, is nested too deeply, or holds a value that
            `check_texts_and_integers` refuses.
    """
    try:
        text = read_regular_file(path, MAX_TOML_BYTES).decode("utf-8-sig")  # some editors begin a file with a mark
        if any(line.count(".") > MAX_DOTS for line in text.splitlines()):
            raise SpecError(f"Cannot read the {description} {path}: a line has more than {MAX_DOTS:,} dots.")
        found = tomllib.loads(text, parse_float=parse_float)
        check_texts_and_integers(found, path)
    except RecursionError:
        raise SpecError(f"Cannot read the {description} {path}: it is nested too deeply.") from None
    except (OSError, ValueError) as error:
        raise SpecError(f"Cannot read the {description} {path}: {error}.") from error
    except DataError as error:
        raise SpecError(f"Cannot read the {description} {path}: {error}") from None
    return found


def check_texts_and_integers(value: Any, source: object) -> None:
    """Check that all texts, including keys, are safe on a terminal and that no integer has more than 64 bits.

    Raises:
        DataError: a text has control characters, or an integer is too large.
    """
    waiting = [value]
    while waiting:
        thing = waiting.pop()
        if isinstance(thing, str):
            if _UNPRINTABLE.search(thing):
                raise DataError(f"{source} has text with control characters: {thing[:60]!a}.")
        elif isinstance(thing, int):
            if not -(2**64) < thing < 2**64:
                raise DataError(f"{source} has a number of more than 64 bits.")
        elif isinstance(thing, dict):
            waiting += [*thing, *thing.values()]
        elif isinstance(thing, list):
            waiting += thing


def make_printable(text: str) -> str:
    r"""Replace each character that is unsafe on a terminal with a question mark.

    >>> make_printable("fine, \x1b]0;title\x07")
    'fine, ?]0;title?'
    """
    return _UNPRINTABLE.sub("?", text)


PrintableText = Annotated[str, AfterValidator(make_printable)]
"""Text from a plugin or a folder. Unsafe characters are replaced, because `parse_json` refuses a record with them."""
