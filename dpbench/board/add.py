"""A result from elsewhere: checked whole, then filed as `submitted` under every board whose protocol it follows."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbench.board.folder import ResultFile, find_content, results_of, validate_content
from dpbench.board.verify.audits import audit_file
from dpbench.board.verify.checks import CheckedFile, fill_new_options, find_departures
from dpbench.board.verify.expectations import Expectations
from dpbench.board.verify.rerun_record import record_of
from dpbench.board.verify.review import hold_against, review_of
from dpbench.errors import ChecksFailed, Complaint, MalformedFile
from dpbench.privacy import MECHANISM
from dpbench.records.packed import is_record, remove
from dpbench.records.provenance import HARNESS
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.registry.components import kind_of
from dpbench.support.files import write_json


@dataclass(frozen=True)
class Filing:
    """Where a result went."""

    source: Path
    file: str  # relative to the leaderboard's folder
    new: bool  # False: it was there already
    replaces: bool = False  # another result of the same spec
    removed: tuple[Path, ...] = ()  # audit and re-run of what it replaces


def add(files: Sequence[Path], root: Path, plugins: Registry, *, replace: bool = False) -> list[Filing]:
    """File results under the boards that they match: the ceiling under those of every epsilon.

    With `replace`, one takes the place of another result of the same spec, whose audit and re-run are removed: they
    say nothing of this one.

    Raises:
        ChecksFailed: a file fails a check, matches no board, or its place is held by another result of the same spec.
        OutputError: the leaderboard cannot be written.
    """
    submissions = Submissions(root, Expectations.read(root, plugins))
    wrong: list[Complaint] = []
    wanted: list[tuple[Filing, dict[str, Any]]] = []
    places: dict[str, tuple[Path, dict[str, Any]]] = {}  # of this call: two files may be results of one spec
    for file in files:
        checked, boards = submissions.match(file)
        wrong += checked.complaints
        if checked.ok and checked.result is not None:
            content = _submitted(checked.result)
            held = find_taken_places(checked.result, boards, root)
            for board in boards:
                target = _target(board, checked.result)
                other, given = places.setdefault(target, (file, content))
                if given != content:
                    said = f"it and {other} are different results with the same spec. Add one of them"
                    wrong.append(Complaint(str(file), "digest", said))
                new = target in held or not is_record(root / target)
                removed = _records(root, board, target) if target in held else ()
                wanted.append((Filing(file, target, new, target in held, removed), content))
            if not replace:
                wrong += [Complaint(str(file), "digest", describe_occupant(target)) for target in held]
    if wrong:
        raise ChecksFailed("Nothing is added", wrong)
    for filed, content in wanted:
        if filed.new:
            write_json(root / filed.file, content)
            for record in filed.removed:
                remove(record)
    return [filed for filed, _ in wanted]


def find_taken_places(result: Result, boards: Sequence[str], root: Path) -> list[str]:
    """Return the places of a checked result on its boards that hold another result of the same spec."""
    content, places = _submitted(result), [_target(board, result) for board in boards]
    return [place for place in places if _content_there(root / place) not in (None, content)]


def describe_occupant(target: str) -> str:
    """Say what holds a place."""
    return f"{target} already holds another result with the same spec. Use --replace to overwrite it"


def find_untraceable_plugins(result: Result) -> list[str]:
    """Say of which plugins nobody can look up the code: those of no repository that the result names."""
    sources = result.provenance.get("sources", {})
    strangers = {(one.distribution, one.version, one.plugin) for one in result.components.values()}
    return [
        f"the code of plugin {plugin!r} ({distribution} {version}) cannot be found, unless a package "
        "index has it: its repository is not on record. Install it with pip install git+URL, and run again."
        for distribution, version, plugin in sorted(strangers)
        if distribution != HARNESS and distribution not in sources
    ]


def _target(board: str, result: Result) -> str:
    return f"results/{board}/{result.file_name}"


def _records(root: Path, board: str, target: str) -> tuple[Path, ...]:
    stored = ResultFile(root / target, target, board)
    return tuple(file for file in (audit_file(stored, root), record_of(stored, root)) if is_record(file))


def _submitted(result: Result) -> dict[str, Any]:
    return {**json.loads(result.model_dump_json()), "status": "submitted"}


@dataclass
class Submissions:
    """Files from elsewhere, checked one after another: each beside what its boards hold, and beside those before it."""

    root: Path
    known: Expectations
    _held: dict[str, list[CheckedFile]] = field(default_factory=dict)  # by board

    def match(self, file: Path) -> tuple[CheckedFile, list[str]]:
        """Check a file on its own, then beside the results of each board that it matches; return also those boards."""
        (alone,) = review_of([ResultFile(file, str(file), filed=False)], self.known).results
        if not alone.ok or alone.result is None:
            return alone, []
        if unrepeatable := list(_find_unrepeatable(alone.result, self.known)):
            return alone.with_complaints(iter(unrepeatable)), []
        spec = fill_new_options(alone.result.spec, self.known)
        matches = [name for name, board in self.known.boards.items() if not find_departures(board, spec)]
        if not matches:
            return alone.with_complaints(_nearest(alone.result, self.known)), []
        after: dict[str, list[CheckedFile]] = {}
        for board in matches:
            others = [one for one in self._on(board) if one.stored.path.name != file.name]
            (placed,) = review_of([ResultFile(file, str(file), board, filed=False)], self.known).results
            if not (placed := hold_against(placed, others)).ok:
                return placed, []
            after[board] = [*others, placed]
        self._held |= after
        return alone, matches

    def _on(self, board: str) -> list[CheckedFile]:
        """Return the checked results of a board and what was matched to it."""
        if board not in self._held:
            there, _ = results_of(self.root, dict(self.known.boards))
            self._held[board] = [*review_of([one for one in there if one.board == board], self.known).results]
        return self._held[board]


def _find_unrepeatable(result: Result, known: Expectations) -> Iterator[tuple[str, str]]:
    """Yield why this code cannot run a result again: nobody could check its plan and its scores."""
    if not result.privacy.repeatable:
        yield (
            "privacy.mechanism",
            f"expected {MECHANISM}, or nobody can re-run the result: run its spec with this version",
        )
    for role, origin in result.components.items():
        here = known.installed.get((kind_of(role), result.spec.roles[role].name))
        if origin.distribution == HARNESS and here is not None and origin.version != here.version:
            yield f"components.{role}.version", f"expected {here.version}, which can be run again, got {origin.version}"


def _nearest(result: Result, known: Expectations) -> Iterator[tuple[str, str]]:
    """Say what misses on the board that a result comes closest to."""
    spec = fill_new_options(result.spec, known)
    found = {name: find_departures(board, spec) for name, board in known.boards.items()}
    name = min(found, key=lambda one: (len(found[one]), _times(known.boards[one].epsilon, spec.epsilon), one))
    for key, expected, got in found[name]:
        yield (
            f"spec.{key}",
            (
                f"expected {expected}, as on the nearest board, {name}, got {got}: it matches no board. Run it with "
                f"--board {name}"
            ),
        )


def _times(one: float, other: float) -> float:
    """Return how many times the larger of two epsilons is the other; both may be infinite."""
    return 1.0 if one == other else max(one, other) / min(one, other)


def _content_there(file: Path) -> dict[str, Any] | None:
    try:
        content = find_content(file)
        return None if content is None else _submitted(validate_content(Result, content))
    except MalformedFile as error:
        return {"unfit": str(error)}
