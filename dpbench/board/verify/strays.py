"""Find audits and re-runs of a leaderboard that belong to no result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dpbench.board.folder import ResultFile
from dpbench.board.verify.audits import audit_path
from dpbench.board.verify.rerun_record import rerun_path
from dpbench.errors import Complaint, DataError
from dpbench.records.packed import ARCHIVE, list_packed_names


def find_strays(stored: Iterable[ResultFile], root: Path) -> list[Complaint]:
    """Return complaints about audits and re-runs without a result, and about archives that cannot be read."""
    known = {file for entry in stored for file in (audit_path(entry, root), rerun_path(entry, root))}
    found, wrong = {*(root / "audits").glob("*/*"), *(root / "reruns").glob("*/*")}, []
    for archive in [path for path in found if path.name == ARCHIVE]:
        found.remove(archive)
        try:
            found.update(archive.parent / name for name in list_packed_names(archive.parent))
        except DataError as error:
            wrong.append(Complaint(archive.relative_to(root).as_posix(), "file", str(error)))
    said = "there is no such result on this board: remove it"
    return wrong + [Complaint(path.relative_to(root).as_posix(), "file", said) for path in sorted(found - known)]
