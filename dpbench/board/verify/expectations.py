"""The boards and the installed components that results are checked against."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from dpbench.board.folder import read_boards
from dpbench.records.board import Board
from dpbench.registry import Registration, Registry
from dpbench.registry.boards import fill_in_board_defaults
from dpbench.registry.components import make_component_record
from dpbench.support.fields import list_free_text_fields

FieldComplaints = Iterator[tuple[str, str]]
"""Complaints of a check: pairs of a field and what is wrong with it."""


@dataclass(frozen=True)
class InstalledComponent:
    """An installed component that results may use: its plugin, version, defaults and search space."""

    plugin: str
    distribution: str
    version: str
    defaults: Mapping[str, Any]  # of its options, as JSON has them
    space: Mapping[str, Any]  # a learner's own, as JSON has it
    reference: bool = False  # a learner without privacy: the ceiling
    public: str = "none"  # what a learner reads of the public data
    texts: frozenset[str] = frozenset()  # options that take any text
    earlier: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # former defaults by option and version

    def list_defaults(self, version: str, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the defaults, with a former one of the version in place of today's where the options have it."""
        former = {name: values[version] for name, values in self.earlier.items() if version in values}
        return {**self.defaults, **{name: value for name, value in former.items() if options.get(name) == value}}


@dataclass(frozen=True)
class ReviewContext:
    """The boards and components that results are checked against; it can be sent to a process."""

    boards: Mapping[str, Board]  # every option of their components spelled out
    installed: Mapping[tuple[str, str], InstalledComponent]  # by kind and name
    plugins: Registry | None = None  # whose learners are asked for their plans

    @classmethod
    def read(cls, root: Path, plugins: Registry) -> ReviewContext:
        """Read the boards of the leaderboard `root` and list the components on this machine.

        Raises:
            SpecError: a board cannot be read, or requires a component that is not installed.
        """
        whole = {name: fill_in_board_defaults(board, plugins) for name, board in read_boards(root).items()}
        boards = {name: Board.model_validate_json(board.model_dump_json()) for name, board in whole.items()}
        items = [(kind, item) for kind, found in plugins.components.items() for item in found.values()]
        installed: dict[tuple[str, str], InstalledComponent] = {
            (kind, item.cls.name): _describe_installed_component(item) for kind, item in items
        }
        return cls(boards, installed, plugins)


def _describe_installed_component(registration: Registration) -> InstalledComponent:
    try:
        defaults = make_component_record(registration.cls()).model_dump(mode="json")["options"]
    except Exception:  # an option without a default, or a stranger's own check: nothing to compare with
        defaults = {}
    reference = bool(getattr(registration.cls, "reference", False))
    space = {name: list(values) for name, values in getattr(registration.cls, "search_space", {}).items()}
    public = str(getattr(registration.cls, "public", "none"))
    texts = list_free_text_fields(registration.cls)
    earlier = {
        found.name: found.metadata["earlier"] for found in fields(registration.cls) if found.metadata.get("earlier")
    }
    return InstalledComponent(
        registration.plugin,
        registration.distribution,
        registration.version,
        defaults,
        space,
        reference,
        public,
        texts,
        earlier,
    )
