"""Spell out the options of a board's components, and build the spec of an entry."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dpbench.errors import SpecError
from dpbench.records.board import Board, is_expected_dataset
from dpbench.records.protocol import Component, Protocol
from dpbench.records.spec import Spec, make_spec
from dpbench.registry import Registry
from dpbench.registry.components import build, component_kind_of_role, make_component_record
from dpbench.support.validation import Origin, name_source_of_keys


def fill_in_board_defaults(board: Board, plugins: Registry) -> Board:
    """Return a copy of the board with every option of its components written out, including defaults.

    Raises:
        SpecError: a component is not installed, or an option does not fit.
    """
    whole = {}
    for role in ("dataset", "public_dataset", "extractor"):
        part: Component | None = getattr(board, role)
        whole[role] = part and make_component_record(build(plugins, component_kind_of_role(role), part))
    return board.model_copy(update=whole)


def _fill_in_dataset_defaults(given: Any, plugins: Registry) -> Component:
    dataset = Component.parse(given) if isinstance(given, str) else Component.model_validate(given)
    return make_component_record(build(plugins, "dataset", dataset))


def make_entry_spec(board: Board, values: Mapping[str, Any], plugins: Registry, origin: Origin) -> Spec:
    """Build the spec of an entry: `values` give the learner and its tuning, the board gives all other keys.

    A reference learner (the ceiling) runs without privacy. If the board states digests of its data, `values` may give
    the dataset too, with other file paths.

    Raises:
        SpecError: `values` set a key that the board fixes or that no board allows, the settings are selected by a rule
            that the board does not rank, or a private search has no `secure_rng`.
    """
    given = values.get("dataset") if board.data else None
    both = [] if given is None else [_fill_in_dataset_defaults(dataset, plugins) for dataset in (given, board.dataset)]
    moved = {"dataset"} if both and is_expected_dataset(board, *both) else set()
    taken = sorted((values.keys() - moved) & Protocol.model_fields.keys())
    if taken:
        who = name_source_of_keys(origin, *taken)
        raise SpecError(
            f"Expected no {', '.join(taken)} in {who}: board {board.name!r} fixes them. Drop them, or the board."
        )
    spec = make_spec({**board.protocol, **values}, origin)
    if spec.allow_overlap:
        who = name_source_of_keys(origin, "allow_overlap")
        raise SpecError(
            f"Expected no allow_overlap in {who}: no board allows public images that are also private. Run it "
            "without --board."
        )
    if plugins.find("learner", spec.learner.name).cls.reference:
        return spec.model_copy(update={"epsilon": math.inf})
    rule = spec.search.rule if spec.search else "default"
    if rule not in board.selection:
        raise SpecError(
            f"Expected a selection that board {board.name!r} ranks ({', '.join(board.selection)}), got {rule}. "
            "Run it without --board."
        )
    if rule == "private-accounted" and not spec.secure_rng:
        raise SpecError(
            "Expected secure_rng with selection private-accounted on a board: a published seed reveals how many runs "
            "the best one beat. Add --secure-rng."
        )
    return spec
