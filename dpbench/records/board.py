"""A board: a frozen protocol in a TOML file. Only results of the same board are ranked together.

A board with results is never edited; a changed protocol becomes a new board. A board's file states every key, so that
no default of dpbench can change the protocol later.
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
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.paths import PACKAGE
from dpbench.support.untrusted import read_toml
from dpbench.support.validation import UserRecord, describe_validation_error

PLACE_OPTIONS = ("path", "table", "units")
"""Dataset options that name files on one machine; the digests of the data cover the content of these files."""
NAME_PATTERN = r"^[a-z0-9][a-z0-9._-]{0,79}$"


class ReportedFigure(UserRecord):
    """A score that a paper reports for this board's task, shown apart from measured results."""

    learner: str
    value: float = Field(ge=0, le=1)
    source: str
    differs: str = ""  # from this board's protocol


def _list_required_keys() -> list[str]:
    """Return the protocol keys that a board must state, although a protocol has defaults for them."""
    return [key for key, field in Protocol.model_fields.items() if field.default is not None and key != "metric"]


def _mark_keys_as_required(schema: dict[str, Any]) -> None:
    """Mark every key of a board as required in the JSON Schema."""
    for key in _list_required_keys():
        schema["properties"][key].pop("default")
    schema["required"] += _list_required_keys()


class Board(Protocol):
    """A frozen protocol with a name, all keys stated, and rules for ranking entries."""

    model_config = ConfigDict(json_schema_extra=_mark_keys_as_required)

    name: str = Field(pattern=NAME_PATTERN)
    title: str
    about: str = ""
    metric: RankMetric
    selection: tuple[SelectionRule, ...] = Field(min_length=1)  # the rules that are ranked; others are shown, unranked
    published: tuple[ReportedFigure, ...] = ()
    # Digests of the data by split, as results state them: then paths on the machine of each submitter may differ.
    data: dict[str, str] | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _check_completeness(self) -> Self:
        missing = [key for key in _list_required_keys() if key not in self.model_fields_set]
        if missing:
            raise ValueError(f"every key of a protocol is spelled out, and {missing[0]!r} is not")
        return self

    @field_validator("selection")
    @classmethod
    def _check_selection_rules(cls, rules: tuple[SelectionRule, ...]) -> tuple[SelectionRule, ...]:
        for rule in rules:
            if rule in UNRANKED:
                raise ValueError(f"{rule} is never ranked, as its search is outside epsilon or reads the test split")
        return rules

    @classmethod
    def read(cls, file: Path) -> Self:
        """Read a board and check it.

        Raises:
            SpecError: a key does not fit, or the name is not that of the file; the message names the file and the first
                wrong key.
        """
        try:
            board = cls(**read_toml(file, "spec"))
        except ValidationError as error:
            raise SpecError(describe_validation_error(error, f"board {file}", TABLES)) from None
        if board.name != file.stem:
            raise SpecError(f"Expected board {file} to be named as its file, {file.stem!r}, got {board.name!r}.")
        return board

    @property
    def digest(self) -> str:
        """SHA-256 of everything that decides entries and their order; the descriptive texts are not included."""
        return canonical_digest(self.model_dump(mode="json", exclude={"title", "about", "published"}))

    @property
    def family(self) -> str:
        """A key for everything that decides results and ranks except epsilon; it is equal within a family of boards."""
        return self.model_dump_json(exclude={"name", "title", "about", "published", "epsilon"})

    @property
    def protocol(self) -> dict[str, Any]:
        """The keys of a spec that this board fixes, with their values."""
        return {key: getattr(self, key) for key in Protocol.model_fields}


TABLES: Mapping[str, type[BaseModel]] = {"": Board, "published": ReportedFigure, **dict.fromkeys(COMPONENTS, Component)}


def is_expected_dataset(board: Board, dataset: Component | None, expected: Component | None) -> bool:
    """Return whether a dataset is the expected dataset of a board; if the board states digests, paths may differ.

    None means that there is no dataset, and equals only None.
    """
    if board.data is None or dataset is None or expected is None:
        return dataset == expected
    return drop_local_paths(dataset) == drop_local_paths(expected)


def drop_local_paths(dataset: Component) -> Component:
    """Return a dataset without the options that name files on one machine."""
    rule = not str(dataset.options.get("units", "")).endswith(".csv")  # no file, and no digest covers it
    kept = {
        key: value
        for key, value in dataset.options.items()
        if key not in PLACE_OPTIONS or (key == "units" and rule and value)
    }
    return dataset.model_copy(update={"options": kept})


def find_board(name: str) -> Board:
    """Return the board with this name or in this file; `FOLDER/NAME` is a board of the leaderboard `FOLDER`.

    Boards are read from `boards/` and `leaderboard/boards/` in the current folder, and from the package.

    Raises:
        SpecError: there is no such board. The message lists the existing boards.
    """
    if name.endswith(".toml") or os.sep in name:
        place = Path(name)
        file = place if name.endswith(".toml") else place.parent / "boards" / f"{place.name}.toml"
        if not file.exists():
            raise SpecError(f"Expected a board in {file}, which does not exist. dpbench list boards shows the others.")
        return Board.read(file)
    files = list_board_files()
    if name not in files:
        raise SpecError(format_unknown_name_message("board", name, files))
    return Board.read(files[name])


def list_board_files() -> dict[str, Path]:
    """Return the files of all boards by name; boards in the current folder take precedence over those of dpbench."""
    repository, here = PACKAGE.parent, Path()
    roots = (PACKAGE, repository / "leaderboard", here / "leaderboard", here)
    return {file.stem: file for root in roots for file in sorted((root / "boards").glob("*.toml"))}
