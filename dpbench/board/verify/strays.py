"""Find orphan records on a leaderboard: audits, attacks, re-runs and challenge records that belong to no result."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from dpbench.board.folder import ResultFile
from dpbench.board.verify.audits import audit_path
from dpbench.board.verify.challenge_record import challenge_path
from dpbench.board.verify.released_record import released_path
from dpbench.board.verify.rerun_record import rerun_path
from dpbench.errors import DataError, LeaderboardComplaint
from dpbench.records.packed import ARCHIVE, list_packed_names
from dpbench.records.released import FOLDER as RELEASED

RECORD_PATHS = (audit_path, released_path, rerun_path, challenge_path)
RECORD_FOLDERS = ("audits", RELEASED, "reruns", "challenges")


def find_orphan_records(stored: Iterable[ResultFile], root: Path) -> list[LeaderboardComplaint]:
    """Return complaints about records without a result, and about archives that cannot be read."""
    known = {path(entry, root) for entry in stored for path in RECORD_PATHS}
    found, wrong = {file for folder in RECORD_FOLDERS for file in (root / folder).glob("*/*")}, []
    for archive in [path for path in found if path.name == ARCHIVE]:
        found.remove(archive)
        try:
            found.update(archive.parent / name for name in list_packed_names(archive.parent))
        except DataError as error:
            wrong.append(LeaderboardComplaint(archive.relative_to(root).as_posix(), "file", str(error)))
    said = "there is no such result on this board: remove it"
    return wrong + [
        LeaderboardComplaint(path.relative_to(root).as_posix(), "file", said) for path in sorted(found - known)
    ]
