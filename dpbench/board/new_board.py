"""Write a board for a leaderboard of your own, from a result or from the spec of a run."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from dpbench.errors import OutputError, SpecError
from dpbench.records.board import NAME_PATTERN, Board
from dpbench.records.protocol import Component, Protocol
from dpbench.records.result import Result
from dpbench.records.search import SelectionRule
from dpbench.records.spec import Spec
from dpbench.support.files import write_atomically

SELECTION: tuple[SelectionRule, ...] = ("default", "transfer", "public-validation")
"""The selection rules that a new board ranks: those that read nothing private outside ε."""
SITE_TEXT = """title = "A leaderboard of private learners"
submission = "Send your result file to the owner of this leaderboard, who adds it with dpbench leaderboard add."
"""


def write_board(folder: Path, spec: Spec, digests: Mapping[str, str] | None, name: str | None, title: str) -> Path:
    """Write a board with the protocol of a spec into a leaderboard's folder, and `site.toml` if it is missing.

    Args:
        folder: the leaderboard.
        spec: the spec of a run, resolved; its learner and settings are not part of a board.
        digests: the digests of the data, which results must then have; None if the spec was not run.
        name: the name of the board; None builds it from data and ε.
        title: the title of the board; if empty, it is built from data, extractor and ε.

    Raises:
        SpecError: ε is infinite, or the name is invalid.
        OutputError: the board exists, or the folder cannot be written.
    """
    if math.isinf(spec.epsilon):
        raise SpecError("Expected a finite ε for a board, got inf. Use a private result; the ceiling fits every board.")
    data = _make_data_name(spec.dataset)
    chosen = name or re.sub(r"[^a-z0-9._-]+", "-", f"{data}-eps{spec.epsilon:g}".lower()).strip("-._")
    if not re.fullmatch(NAME_PATTERN, chosen):
        raise SpecError(f"Expected --name in lower-case letters, digits, dots and dashes, got {chosen[:80]!r}.")
    file = folder / "boards" / f"{chosen}.toml"
    if file.exists():
        raise OutputError(f"Expected no board {file} yet. A board with results is never edited: choose another --name.")
    board = Board(
        **{key: getattr(spec, key) for key in Protocol.model_fields}, name=chosen,
        title=title or f"{data}, {spec.extractor.names}, ε {spec.epsilon:g}", selection=SELECTION,
        data=dict(digests) if digests else None,
    )  # fmt: skip
    write_atomically(file, lambda out: out.write(render_board(board).encode()))
    if not (folder / "site.toml").exists():
        write_atomically(folder / "site.toml", lambda out: out.write(SITE_TEXT.encode()))
    return file


def read_source_result(file: Path) -> Result | None:
    """Return the result in a JSON file; None for a TOML file, which holds a spec.

    Raises:
        DataError: the file is not a result.
    """
    return None if file.suffix == ".toml" else Result.read(file)


def render_board(board: Board) -> str:
    """Return the TOML text of a board, with every key of its protocol; keys without a value are comments."""
    return "".join(f"{line}\n" for line in _list_toml_lines(board))


def _list_toml_lines(board: Board) -> Iterator[str]:
    for key in ("name", "title", "about"):
        yield f"{key} = {_format_toml_value(getattr(board, key))}"
    for key, value in board.protocol.items():
        if value is None:
            yield f"# {key} has no value here. {Protocol.model_fields[key].description}."
        else:
            yield f"{key} = {_format_toml_seeds(value) if key == 'seeds' else _format_toml_value(value)}"
    yield f"selection = {_format_toml_value(list(board.selection))}"
    if board.data:
        yield f"data = {_format_toml_value(board.data)}"


def _format_toml_seeds(seeds: tuple[int, ...]) -> str:
    return str(len(seeds) if seeds == tuple(range(len(seeds))) else list(seeds))


def _format_toml_value(value: Any) -> str:
    """Return a value in TOML; options that are None are left out, as their default is None."""
    if isinstance(value, Component):
        options = {key: part for key, part in value.options.items() if part is not None}
        return _format_toml_value({"name": value.name, "options": options} if options else value.name)
    if isinstance(value, Mapping):
        parts = [
            f"{_format_toml_key(key)} = {_format_toml_value(part)}" for key, part in value.items() if part is not None
        ]
        return f"{{{', '.join(parts)}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_format_toml_value, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _format_toml_key(key: str) -> str:
    return key if re.fullmatch("[A-Za-z0-9_-]+", key) else json.dumps(key, ensure_ascii=False)


def _make_data_name(dataset: Component) -> str:
    """Return a short name of the data: the last part of its path, or else the dataset's name."""
    path = dataset.options.get("path")
    return Path(str(path)).stem if path else dataset.name
