"""A board: one frozen protocol, as a TOML file. Only results of one board are ranked together.

A board that has results is never edited: a change is a new board. Every key of a protocol is spelled out in its file,
so that no default of dpbench can change it later.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, field_validator

import dpbench
from dpbench.api import Adjacency
from dpbench.errors import SpecError
from dpbench.privacy.accounting.accountant import AccountantName
from dpbench.records.search import UNRANKED, SelectionRule
from dpbench.records.spec import Component, Named, Spec, first_seeds, make_spec, read_toml
from dpbench.registry import Registry
from dpbench.registry.components import written
from dpbench.support.files import canonical_digest
from dpbench.support.messages import unknown

METRICS = ("accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "auroc")
NAME = r"^[a-z0-9][a-z0-9._-]{0,79}$"
FREE = frozenset({"learner", "search", "secure_rng"})
"""What an entry chooses for itself; every other key of a spec is the board's."""


class Published(BaseModel):
    """A figure that a paper reports for this board's question: shown apart from what was measured."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learner: str
    value: float = Field(ge=0, le=1)
    source: str
    differs: str = ""  # from this board's protocol


class Board(BaseModel):
    """One frozen protocol."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    name: str = Field(pattern=NAME)
    title: str
    about: str = ""
    dataset: Named
    extractor: Named
    epsilon: float = Field(gt=0)
    delta: float = Field(gt=0, lt=1)
    accountant: AccountantName
    adjacency: Adjacency
    public_fraction: float = Field(ge=0, lt=1)
    public_dataset: Named | None = None
    public_labels: bool
    train_fraction: float = Field(gt=0, le=1)
    split_seed: int = Field(ge=0)
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(first_seeds)]
    metric: Literal["accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "auroc"]
    selection: tuple[SelectionRule, ...] = Field(min_length=1)  # the rules that are ranked; others are shown, unranked
    published: tuple[Published, ...] = ()

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
            board = cls(**read_toml(file))
        except ValidationError as error:
            first = min(error.errors(), key=lambda one: one["type"] != "extra_forbidden")
            key = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
                raise SpecError(unknown("key", key, cls.model_fields, f"board {file}")) from None
            message = first["msg"].removeprefix("Value error, ")
            raise SpecError(f"Board {file} does not fit at {key}: {message[0].lower()}{message[1:]}.") from None
        if board.name != file.stem:
            raise SpecError(f"Expected board {file} to be named as its file, {file.stem!r}, got {board.name!r}.")
        return board

    @property
    def digest(self) -> str:
        """SHA-256 of all that decides entries and their order: what is said about the board may be reworded."""
        return canonical_digest(self.model_dump(mode="json", exclude={"title", "about", "published"}))

    @property
    def protocol(self) -> dict[str, Any]:
        """The keys of a spec that this board fixes."""
        return {key: getattr(self, key) for key in Spec.model_fields if key not in FREE}

    def spelled_out(self, plugins: Registry) -> Board:
        """Return the board with every option of its components as their defaults are.

        Raises:
            SpecError: a component that is not installed, or an option that does not fit.
        """
        kinds: Mapping[str, Literal["dataset", "extractor"]]
        kinds = {"dataset": "dataset", "public_dataset": "dataset", "extractor": "extractor"}
        whole = {}
        for role, kind in kinds.items():
            part: Component | None = getattr(self, role)
            whole[role] = part and written(plugins.build(kind, part.name, part.options))
        return self.model_copy(update=whole)

    def spec(self, values: Mapping[str, Any], plugins: Registry, origin: str) -> Spec:
        """Return the spec of an entry: the learner and how it is tuned from `values`, all else from this board.

        A reference learner (the ceiling) runs without privacy.

        Raises:
            SpecError: a key that is the board's, or a rule of selection that no board ranks.
        """
        taken = sorted(values.keys() - FREE)
        if taken:
            raise SpecError(
                f"Expected no {', '.join(taken)} in {origin}: board {self.name!r} fixes them. Drop them, or the board."
            )
        spec = make_spec({**self.protocol, **values}, origin)
        if plugins.find("learner", spec.learner.name).cls.reference:
            return spec.model_copy(update={"epsilon": math.inf})
        rule = spec.search.rule if spec.search else "default"
        if rule not in self.selection:
            raise SpecError(
                f"Expected a selection that board {self.name!r} ranks ({', '.join(self.selection)}), got {rule}. "
                "Run it without --board."
            )
        return spec


def find_board(name: str) -> Board:
    """Return the board called `name`, or that of the file `name`.

    Boards lie in `leaderboard/boards/` of the current folder, and with dpbench itself.

    Raises:
        SpecError: there is none; lists those there are.
    """
    if name.endswith(".toml") or os.sep in name:
        return Board.read(Path(name))
    files = board_files()
    if name not in files:
        raise SpecError(unknown("board", name, files))
    return Board.read(files[name])


def board_files() -> dict[str, Path]:
    """Return the files of all boards that can be named; those of the current folder go before those of dpbench."""
    package = Path(dpbench.__file__).parent
    folders = [package / "boards", package.parent / "leaderboard" / "boards", Path("leaderboard") / "boards"]
    return {file.stem: file for folder in folders for file in sorted(folder.glob("*.toml"))}
