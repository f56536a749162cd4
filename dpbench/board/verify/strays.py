"""Audits and re-runs of a leaderboard that belong to none of its results."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dpbench.board.folder import ResultFile
from dpbench.board.verify.audits import audit_file
from dpbench.board.verify.rerun_record import record_of
from dpbench.errors import Complaint, DataError
from dpbench.records.packed import ARCHIVE, names_in


def find_strays(stored: Iterable[ResultFile], root: Path) -> list[Complaint]:
    """Return the audits and re-runs that no result belongs to, and the archives of them that nobody can read."""
    known = {file for one in stored for file in (audit_file(one, root), record_of(one, root))}
    found, wrong = {*(root / "audits").glob("*/*"), *(root / "reruns").glob("*/*")}, []
    for archive in [one for one in found if one.name == ARCHIVE]:
        found.remove(archive)
        try:
            found.update(archive.parent / name for name in names_in(archive.parent))
        except DataError as error:
            wrong.append(Complaint(archive.relative_to(root).as_posix(), "file", str(error)))
    said = "there is no such result on this board: remove it"
    return wrong + [Complaint(one.relative_to(root).as_posix(), "file", said) for one in sorted(found - known)]
