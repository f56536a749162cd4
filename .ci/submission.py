"""Check what a pull request changes of the leaderboard: `python .ci/submission.py BASE`.

A submission brings new results, and new boards for them. Everything else in `leaderboard/` is made by the project:
audits and records of re-runs above all, as they say what the project has seen. Code comes in a pull request of its own,
so that no submission is checked by code that it brings. `leaderboard.json` and its schema follow from results and are
checked by `dpbench leaderboard build --check`; a pull request that changes nothing else there, or claims of the
literature, is no submission. A packed result counts as existing, because a new file of the same name would
supersede it.
"""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator, Sequence

MADE = {"leaderboard/leaderboard.json", "leaderboard/schema.json"}
RESULT = re.compile(r"leaderboard/results/[^/]+/[^/]+\.json")
BOARD = re.compile(r"leaderboard/boards/[^/]+\.toml")
RECORD = re.compile(r"leaderboard/(audits|released|reruns|challenges)/.*")
ARCHIVE = "records.tar.xz"
CLAIMS = re.compile(r"leaderboard/claims/.*")

Change = tuple[str, str]
"""A letter, A for a new file, and the path."""


def complaints(changes: Sequence[Change], read: Callable[[str], str]) -> Iterator[str]:
    """Yield what a submission may not change; nothing where the pull request is none."""
    boards = [path for _, path in changes if path.startswith("leaderboard/") and not CLAIMS.fullmatch(path)]
    if {*boards} <= MADE:
        return
    for letter, path in changes:
        if path in MADE:
            continue
        if not path.startswith("leaderboard/"):
            yield f"{path}: a submission changes leaderboard/ alone; send code in a pull request of its own"
        elif RECORD.fullmatch(path):
            yield f"{path}: audits and records of re-runs and challenge seeds are made by the project; leave them out"
        elif not (RESULT.fullmatch(path) or BOARD.fullmatch(path)):
            yield f"{path}: made by the project; a submission brings results and boards"
        elif letter != "A":
            yield f"{path}: it is there already; a submission changes and removes nothing. Ask for it in an issue"
        elif RESULT.fullmatch(path) and _status(read(path)) != "submitted":
            yield f"{path}: expected status submitted"


def _status(text: str) -> object:
    try:
        return json.loads(text)["status"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], capture_output=True, text=True, check=True).stdout


def _packed(base: str) -> set[str]:
    """Return the paths that packed results had as files in `base`, which nobody but the project has written."""
    found: set[str] = set()
    for path in _git("ls-tree", "-r", "-z", "--name-only", base, "leaderboard/results").split("\0"):
        folder, _, name = path.rpartition("/")
        if name == ARCHIVE:
            content = subprocess.run(["git", "show", f"{base}:{path}"], capture_output=True, check=True).stdout
            with tarfile.open(fileobj=io.BytesIO(content), mode="r:xz") as tar:
                found.update(f"{folder}/{member}" for member in tar.getnames())
    return found


def main(base: str) -> int:
    """Print what is wrong with the commits since `base`; return the exit code."""
    fields = _git("diff", "--name-status", "--no-renames", "-z", f"{base}...HEAD").split("\0")
    there = _packed(base)
    changes = [
        ("M" if path in there else status, path) for status, path in zip(fields[::2], fields[1::2], strict=False)
    ]
    found = list(complaints(changes, lambda path: _git("show", f"HEAD:{path}")))
    print("\n".join(found) or "ok")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
