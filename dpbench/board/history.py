"""The history of a leaderboard's repository: which commit filed a result.

The filing commit of a result is the first commit of the main line (first parents only) whose tree has the result's
current evidence under its path, as a file or packed. A merged or squashed submission is filed by the commit of the
merge. The submitter's own commits file nothing, because the submitter could amend them until their hash is convenient.
A result that is removed and added again keeps its first filing commit.

Without history (no git, no repository, a shallow clone) nothing is looked up: `History.open` returns None.
"""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dpbench.errors import DataError
from dpbench.records.packed import ARCHIVE, unpack_archive

PUBLISHED = ("refs/remotes/origin/HEAD", "refs/remotes/origin/main")
"""References to the published main line; without them, the checked-out commit is used."""


@dataclass(frozen=True)
class GitHistory:
    """The complete git history of the repository that a folder is in."""

    folder: Path
    head: str  # the commit that is checked out
    main: str  # the newest commit of the published main line

    @classmethod
    def open(cls, folder: Path) -> GitHistory | None:
        """Return the history of a folder; None without git or a repository, or if the clone is shallow."""
        try:
            shallow, head = _run_git(folder, "rev-parse", "--is-shallow-repository", "HEAD").decode().split()
            refs = (
                _run_git(folder, "for-each-ref", "--format=%(refname) %(objectname)", *PUBLISHED).decode().splitlines()
            )
        except (OSError, subprocess.SubprocessError):
            return None
        known = dict(ref.split() for ref in refs)
        main = next((known[ref] for ref in PUBLISHED if ref in known), head)
        return cls(folder, head, main) if shallow == "false" else None

    def list_filings(self) -> tuple[str, ...]:
        """Return two logs of the commits that changed results: of the local main line, and of the published one.

        A log has one commit hash per line, the newest first.
        """
        log = ("log", "--first-parent", "--format=%H")
        return tuple(_run_git(self.folder, *log, tip, "--", "results/").decode() for tip in (self.head, self.main))

    def has_commit(self, commit: str) -> bool:
        """Return whether the repository has a commit with this hash."""
        try:
            _run_git(self.folder, "cat-file", "-e", f"{commit}^{{commit}}")
        except subprocess.CalledProcessError:
            return False
        return True

    def find_filing_commit(self, board: str, name: str, evidence: str, *, published: bool = False) -> str | None:
        """Return the commit that filed a result with this evidence; None if there is none.

        The main line of the checked-out commit is searched, or with `published` the published main line.
        """
        tip = self.main if published else self.head
        return _map_filing_commits(self.folder, board, tip).get((name, evidence))

    def list_replaced_evidence(
        self, board: str, name: str, evidence: str, *, published: bool = False
    ) -> tuple[str, ...]:
        """Return the digests of all evidence other than `evidence` that was at a result's path, in commit order."""
        filings = _map_filing_commits(self.folder, board, self.main if published else self.head)
        return tuple(other for file, other in filings if file == name and other != evidence)


@functools.lru_cache(maxsize=128)
def _map_filing_commits(folder: Path, board: str, tip: str) -> Mapping[tuple[str, str], str]:
    """Map each result that a board has or had, by file name and evidence digest, to the commit that filed it."""
    place = f"results/{board}/"
    log = _run_git(folder, "log", "--first-parent", "--reverse", "--format=%H", tip, "--", place).decode().split()
    trees = {commit: dict(_list_git_blobs(folder, commit, place)) for commit in log}
    blobs = {blob: name for tree in trees.values() for name, blob in tree.items()}
    evidence = {blob: list(_read_evidence_digests(blobs[blob], raw)) for blob, raw in _read_blobs(folder, blobs)}
    found: dict[tuple[str, str], str] = {}
    for commit in log:
        for file, blob in trees[commit].items():
            for name, digest in evidence[blob]:
                found.setdefault((name if file == ARCHIVE else file, digest), commit)
    return found


def _list_git_blobs(folder: Path, commit: str, prefix: str) -> Iterator[tuple[str, str]]:
    for line in _run_git(folder, "ls-tree", "-z", commit, prefix).decode().split("\0"):
        facts, _, path = line.partition("\t")
        if facts.split()[1:2] == ["blob"]:
            yield path.rpartition("/")[2], facts.split()[2]


def _read_blobs(folder: Path, blobs: Iterable[str]) -> Iterator[tuple[str, bytes]]:
    raw = _run_git(folder, "cat-file", "--batch", given="\n".join(blobs).encode())
    start = 0
    while start < len(raw):
        head, _, _ = raw[start : start + 200].partition(b"\n")
        blob, _, size = head.decode().split()
        start += len(head) + 1
        yield blob, raw[start : start + int(size)]
        start += int(size) + 1


def _read_evidence_digests(name: str, raw: bytes) -> Iterator[tuple[str, str]]:
    """Yield the name and evidence digest of each result in a blob; skip results that this version cannot read."""
    records: Mapping[str, bytes] = {name: raw}
    if name == ARCHIVE:
        try:
            records = unpack_archive(raw, Path(name))
        except DataError:
            return
    for record, content in records.items():
        with suppress(ValueError, TypeError, KeyError, RecursionError):
            yield record, str(json.loads(content)["evidence_digest"])


def _run_git(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, input=given, capture_output=True, check=True, timeout=300).stdout
