"""The leaderboard's folder: its layout, and how untrusted files in it are read.

Layout::

    boards/NAME.toml             one frozen protocol per file
    results/<board>/<id>.json    one result per file, named by `Result.file_name`
    figures/<sweep>/<id>.json    results that belong to a figure and to no board
    reruns/<board>/<id>.json     the outcome of re-running seeds of that result
    challenges/<board>/<id>.json fits of that result with challenge seeds (`dpbench leaderboard challenge`)
    audits/<board>/<id>.json     the audit of that result (`dpbench audit`)
    released/<board>/<id>.json   the attack on that result's models (`dpbench audit --released`)
    curves/<board>.json          the board's learning curve on public labels (`dpbench leaderboard exchange`)
    leaderboard.json             built from all of these except the figures by `dpbench leaderboard build`
    claims/PAPER.toml            the claims of a paper, with a source for every field (`dpbench claims`)
    claims/verdicts.json         the verdicts on these claims
    explanations/<id>.json       the output of `dpbench explain`, shown on a learner's page
    inspections/<id>.json        the output of `dpbench inspect`, read by `dpbench reproduce`
    schema.json                  the JSON Schema of `leaderboard.json` and of results

Results and their records may be packed, one archive per folder, and keep their paths then (`records/packed.py`).

A file is checked before it is parsed (kind and size) and after (depth, strings and numbers). A file that fails gives a
complaint, never a crash.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from dpbench.errors import DataError, LeaderboardComplaint, MalformedFile, SpecError
from dpbench.records.board import NAME_PATTERN, Board, list_board_files
from dpbench.records.packed import ARCHIVE, list_packed_names, read_packed_record, record_exists
from dpbench.records.schema1 import upgrade_to_current_schema
from dpbench.support.untrusted import open_regular_file
from dpbench.support.validation import first_schema_violation

RecordT = TypeVar("RecordT", bound=BaseModel)

LEADERBOARD = Path("leaderboard")
"""The leaderboard's folder that commands use by default."""
MAX_BYTES = 2_000_000  # the largest result here, with 500 trials, has 0.1 MB
MAX_DEPTH = 12
MAX_TEXT = 3_000  # characters of a string; a sketch of public images has 2,732
MAX_BITS = 1_000_000  # characters of `correct`: six million test examples
MAX_NUMBER = 1e18
MAX_SHOWN = 400
LONG_FIELDS = frozenset({"correct", "test_units"})


@dataclass(frozen=True)
class ResultFile:
    """A result file and the board under which it is filed."""

    path: Path
    file: str  # as it is named to people: relative to the leaderboard's folder where it lies in it
    board: str | None = None  # None: of a figure, or from elsewhere
    filed: bool = True  # whether it lies in the leaderboard's folder


def read_boards(root: Path) -> dict[str, Board]:
    """Return a leaderboard's boards by name; if the default folder has none, return the boards in the package.

    Raises:
        SpecError: a board cannot be read, or there are no boards.
    """
    files = sorted((root / "boards").glob("*.toml"))
    if root == LEADERBOARD and not files:  # outside a checkout: those that came with the package
        files = sorted(list_board_files().values())
    found = {file.stem: Board.read(file) for file in files}
    if not found:
        raise SpecError(
            f"Expected boards in {root / 'boards'}, found none. Use --root to name a leaderboard folder, or copy "
            "boards there from leaderboard/boards of dpbench's repository."
        )
    return found


def list_results(root: Path, boards: dict[str, Board]) -> tuple[list[ResultFile], list[LeaderboardComplaint]]:
    """Return all result files of a leaderboard in order, and complaints about other files among them.

    Raises:
        DataError: `results` or `figures` is not a folder that can be read.
    """
    stored: list[ResultFile] = []
    wrong: list[LeaderboardComplaint] = []
    for part in ("results", "figures"):
        for entry in _list_folder(root / part):
            file = f"{part}/{entry.name}"
            if not entry.is_dir(follow_symlinks=False):
                wrong.append(
                    LeaderboardComplaint(file, "file", "expected a folder of results, got something else; remove it")
                )
            elif part == "results" and entry.name not in boards:
                wrong.append(LeaderboardComplaint(file, "file", f"no board is called {entry.name!r}: see boards/"))
            elif not re.fullmatch(NAME_PATTERN, entry.name):
                wrong.append(
                    LeaderboardComplaint(file, "file", "expected lower-case letters, digits, dots, dashes in its name")
                )
            else:
                board = entry.name if part == "results" else None
                folder = Path(entry.path)
                try:
                    inside = {path.name for path in _list_folder(folder)} - {ARCHIVE} | {*list_packed_names(folder)}
                except DataError as error:
                    wrong.append(LeaderboardComplaint(f"{file}/{ARCHIVE}", "file", str(error)))
                    continue
                found = [ResultFile(folder / name, f"{file}/{name}", board) for name in sorted(inside)]
                stored += [file for file in found if file.path.suffix == ".json"]
                drawn = {f"{entry.name}.png", f"{entry.name}.svg"} if part == "figures" else set()
                others = [file for file in found if file.path.suffix != ".json" and file.path.name not in drawn]
                said = "expected results alone, files that end in .json; remove it"
                wrong += [LeaderboardComplaint(other.file, "file", said) for other in others]
    return stored, wrong


def locate_result(file: Path, root: Path) -> ResultFile:
    """Return a file as a `ResultFile`; its board is None for figures and for files outside the leaderboard."""
    try:
        inside = (file.parent.resolve() / file.name).relative_to(root.resolve())
    except ValueError:
        return ResultFile(file, str(file), filed=False)
    filed = len(inside.parts) == 3 and inside.parts[0] in {"results", "figures"}
    board = inside.parts[1] if filed and inside.parts[0] == "results" else None
    return ResultFile(file, inside.as_posix(), board, filed)


def read_json_object(path: Path) -> dict[str, Any]:
    """Return the JSON object in an untrusted file.

    Raises:
        MalformedFile: no regular file, too large, not JSON, nested too deeply, or a string or number out of bounds.
    """
    text = _read_text(path)
    try:
        content = json.loads(text, parse_constant=_refuse_nan_and_infinity, object_pairs_hook=_refuse_repeated_keys)
    except RecursionError:
        raise MalformedFile("file", f"expected at most {MAX_DEPTH} levels, got hundreds") from None
    except ValueError as error:
        raise MalformedFile("file", f"expected JSON: {error}") from None
    if not isinstance(content, dict):
        raise MalformedFile("file", f"expected a JSON object, got {type(content).__name__}")
    _check_bounds(content)
    return content


def find_json_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a record's own file or in its archive; None if the record does not exist.

    Raises:
        MalformedFile: `read_json_object` refuses the file, or its archive is malformed.
    """
    try:
        there = record_exists(path)
    except DataError as error:
        raise MalformedFile("file", str(error)) from None
    return read_json_object(path) if there else None


def validate_record(kind: type[RecordT], content: dict[str, Any]) -> RecordT:
    """Validate `content` as a record of this kind and return the record.

    Raises:
        MalformedFile: names the first field that does not fit the schema.
    """
    try:
        return kind.model_validate(upgrade_to_current_schema(content, kind))
    except RecursionError:
        raise MalformedFile("file", "nested too deeply") from None
    except SpecError as error:  # of a component's text, which is read as a flag is
        raise MalformedFile("file", str(error)[:MAX_TEXT]) from None
    except ValidationError as error:
        found = first_schema_violation(error)
        raise MalformedFile(found.field[:MAX_TEXT], found.said) from None


def _list_folder(folder: Path) -> list[os.DirEntry[str]]:
    """Return the entries of a folder sorted by name, without hidden files; empty if the folder does not exist."""
    try:
        with os.scandir(folder) as found:
            return sorted((path for path in found if not path.name.startswith(".")), key=lambda path: path.name)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise DataError(f"Expected {folder} to be a folder that can be read: {error.strerror}.") from error


def _read_text(path: Path) -> str:
    try:
        with open_regular_file(path, follow=False) as file:  # a link could lead out of the folder
            raw, size = file.read(MAX_BYTES + 1), os.fstat(file.fileno()).st_size
    except DataError:
        raise MalformedFile("file", "expected a regular file, got a folder, pipe or device") from None
    except OSError as error:
        packed = None if os.path.lexists(path) else read_packed_record(path)
        if packed is None:
            said = "it is a link" if path.is_symlink() else error.strerror
            raise MalformedFile("file", f"expected a regular file that can be read: {said}") from None
        raw, size = packed, len(packed)
    if len(raw) > MAX_BYTES:
        raise MalformedFile("file", f"expected at most {MAX_BYTES:,} bytes, got {max(size, len(raw)):,}")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise MalformedFile("file", "expected UTF-8") from None


def _refuse_repeated_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise MalformedFile("file", f"expected each key once, got {twice[:80]!r} twice")
    return content


def _refuse_nan_and_infinity(constant: str) -> None:
    raise MalformedFile("file", f"expected JSON, which has no {constant}")


def _check_bounds(value: Any, name: str = "", depth: int = 0) -> None:
    """Check nesting depth, string lengths and numbers; raise an error that names the field out of bounds."""
    if isinstance(value, str):
        _check_text(value, MAX_BITS if name in LONG_FIELDS else MAX_TEXT)
    elif isinstance(value, (int, float)):
        if not -MAX_NUMBER < value < MAX_NUMBER:
            raise MalformedFile("", f"expected a number below {MAX_NUMBER:g}")
    elif value is not None:
        if depth == MAX_DEPTH:
            raise MalformedFile("", f"expected at most {MAX_DEPTH} levels")
        if isinstance(value, list) and {*map(type, value)} <= {int, float} and _are_in_bounds(value):
            return
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            try:
                if isinstance(key, str):
                    _check_text(key, MAX_TEXT)
                _check_bounds(part, str(key), depth + 1)
            except MalformedFile as error:
                shown = str(key)[:MAX_SHOWN].encode("ascii", "backslashreplace").decode()
                raise MalformedFile(f"{shown}.{error.field}".rstrip("."), error.said) from None


def _are_in_bounds(numbers: Sequence[float]) -> bool:
    return not numbers or (min(numbers) > -MAX_NUMBER and max(numbers) < MAX_NUMBER)


def _check_text(text: str, max_length: int) -> None:
    if len(text) > max_length:
        raise MalformedFile("", f"expected at most {max_length:,} characters, got {len(text):,}")
    if not text.isprintable():
        raise MalformedFile("", "expected text without control and formatting characters")
