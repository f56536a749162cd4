"""A board: a frozen protocol, as a TOML file. Only results of the same board are ranked together.

A board that has results is never edited: a change is a new board. Every key of a protocol is spelled out in its file,
so that no default of dpbench can change it later.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from dpbench.errors import SpecError
from dpbench.records.metrics import RankMetric
from dpbench.records.protocol import Component, Protocol
from dpbench.records.search import UNRANKED, SelectionRule
from dpbench.records.spec import COMPONENTS
from dpbench.support.files import canonical_digest
from dpbench.support.messages import unknown_name
from dpbench.support.paths import PACKAGE
from dpbench.support.untrusted import read_toml
from dpbench.support.validation import WrittenRecord, misfit_sentence

NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,79}$"


class ReportedFigure(WrittenRecord):
    """A figure that a paper reports for this board's question, shown apart from measured results."""

    learner: str
    value: float = Field(ge=0, le=1)
    source: str
    differs: str = ""  # from this board's protocol


def _keys_without_default() -> list[str]:
    """Return the keys that have a default in a protocol but not in a board; the metric is a board's own key."""
    return [key for key, field in Protocol.model_fields.items() if field.default is not None and key != "metric"]


def _require_keys(schema: dict[str, Any]) -> None:
    """Mark every key of a board as required in the JSON Schema."""
    for key in _keys_without_default():
        schema["properties"][key].pop("default")
    schema["required"] += _keys_without_default()


class Board(Protocol):
    """A frozen protocol with every key spelled out, its name, and the ranking of its entries."""

    model_config = ConfigDict(json_schema_extra=_require_keys)

    name: str = Field(pattern=NAME_PATTERN)
    title: str
    about: str = ""
    metric: RankMetric
    selection: tuple[SelectionRule, ...] = Field(min_length=1)  # the rules that are ranked; others are shown, unranked
    published: tuple[ReportedFigure, ...] = ()

    @model_validator(mode="after")
    def _whole(self) -> Self:
        missing = [key for key in _keys_without_default() if key not in self.model_fields_set]
        if missing:
            raise ValueError(f"every key of a protocol is spelled out, and {missing[0]!r} is not")
        return self

    @field_validator("selection")
    @classmethod
    def _rankable(cls, rules: tuple[SelectionRule, ...]) -> tuple[SelectionRule, ...]:
        for rule in rules:
            if rule in UNRANKED:
                raise ValueError(f"{rule} is never ranked, as its search is outside epsilon or reads the test split")
        return rules

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a board and check it.

        Raises:
            SpecError: names the file and the first key that does not fit.
        """
        try:
            board = cls(**read_toml(file, "spec"))
        except ValidationError as error:
            raise SpecError(misfit_sentence(error, f"board {file}", TABLES)) from None
        if board.name != file.stem:
            raise SpecError(f"Expected board {file} to be named as its file, {file.stem!r}, got {board.name!r}.")
        return board

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides entries and their order; texts about the board may be reworded."""
        return canonical_digest(self.model_dump(mode="json", exclude={"title", "about", "published"}))

    @property
    def family(self) -> str:
        """Everything that decides results and ranks except epsilon: boards of a family differ in nothing else."""
        return self.model_dump_json(exclude={"name", "title", "about", "published", "epsilon"})

    @property
    def protocol(self) -> dict[str, Any]:
        """The keys of a spec that this board fixes."""
        return {key: getattr(self, key) for key in Protocol.model_fields}


TABLES: Mapping[str, type[BaseModel]] = {"": Board, "published": ReportedFigure, **dict.fromkeys(COMPONENTS, Component)}


def find_board(name: str) -> Board:
    """Return the board with the name `name`, or the board in the file `name`.

    Boards lie in `leaderboard/boards/` of the current folder, and with dpbench itself.

    Raises:
        SpecError: there is no such board. The message lists those that exist.
    """
    if name.endswith(".toml") or os.sep in name:
        return Board.read(Path(name))
    files = board_files()
    if name not in files:
        raise SpecError(unknown_name("board", name, files))
    return Board.read(files[name])


def board_files() -> dict[str, Path]:
    """Return the files of all boards by name; those of the current folder take precedence over those of dpbench."""
    package = PACKAGE
    folders = [package / "boards", package.parent / "leaderboard" / "boards", Path("leaderboard") / "boards"]
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.toml"))}
