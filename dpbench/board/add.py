"""A result from elsewhere: checked whole, then filed as `submitted` under every board whose protocol it follows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.board.build import NotBuilt
from dpbench.board.folder import Complaint, ResultFile, Unfit, content_of, results_of
from dpbench.board.verify.checks import Checked, departures, today
from dpbench.board.verify.known import Known
from dpbench.board.verify.review import review_of
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.support.files import write_json


@dataclass(frozen=True)
class Filed:
    """Where a result went."""

    source: Path
    file: str  # relative to the leaderboard's folder
    new: bool  # False: it was there already
    replaces: bool = False  # another result of the same spec


class NotAdded(NotBuilt):
    """Files that do not pass, and why; none of those given was filed."""

    what = "Nothing is added"


def add(files: Sequence[Path], root: Path, plugins: Registry, *, replace: bool = False) -> list[Filed]:
    """File results under the boards that they match: the ceiling under those of every epsilon.

    With `replace`, one takes the place of another result of the same spec.

    Raises:
        NotAdded: a file fails a check, matches no board, or its place is held by another result of the same spec.
        OutputError: the leaderboard cannot be written.
    """
    known = Known.here(root, plugins)
    wrong: list[Complaint] = []
    wanted: list[tuple[Filed, dict[str, Any]]] = []
    for file in files:
        checked, boards = matched(file, root, known)
        wrong += checked.complaints
        if checked.ok and checked.result is not None:
            content = {**content_of(file), "status": "submitted"}
            for board in boards:
                target = f"results/{board}/{checked.result.file_name}"
                there = _content_there(root / target)
                other = there is not None and {**there, "status": "submitted"} != content
                wanted.append((Filed(file, target, there is None or (other and replace), other and replace), content))
                if other and not replace:
                    said = f"{target} holds another result of the same spec: --replace puts this one in its place"
                    wrong.append(Complaint(str(file), "digest", said))
    if wrong:
        raise NotAdded(wrong)
    for filed, content in wanted:
        if filed.new:
            write_json(root / filed.file, content)
    return [filed for filed, _ in wanted]


def matched(file: Path, root: Path, known: Known) -> tuple[Checked, list[str]]:
    """Check a file on its own, then beside the results of each board that it matches; return also those boards."""
    (alone,) = review_of([ResultFile(file, str(file), filed=False)], known).results
    if not alone.ok or alone.result is None:
        return alone, []
    spec = today(alone.result.spec, known)
    matches = [name for name, board in known.boards.items() if not departures(board, spec)]
    if not matches:
        return alone.but(_nearest(alone.result, known)), []
    there, _ = results_of(root, dict(known.boards))
    for board in matches:
        beside = [one for one in there if one.board == board and one.path.name != file.name]
        *_, last = review_of([*beside, ResultFile(file, str(file), board, filed=False)], known).results
        if not last.ok:
            return last, []
    return alone, matches


def _nearest(result: Result, known: Known) -> Iterator[tuple[str, str]]:
    """Say what misses on the board that a result comes closest to."""
    spec = today(result.spec, known)
    found = {name: departures(board, spec) for name, board in known.boards.items()}
    name = min(found, key=lambda one: (len(found[one]), one))
    for key, expected, got in found[name]:
        yield f"spec.{key}", f"expected {expected}, as the nearest board {name} has it, got {got}: it matches none"


def _content_there(file: Path) -> dict[str, Any] | None:
    if not file.exists():
        return None
    try:
        return content_of(file)
    except Unfit as error:
        return {"unfit": str(error)}
