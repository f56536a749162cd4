"""The filing commit: the first on the main line that has a result, which no later change moves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from dpbench.board.history import GitHistory
from dpbench.records.packed import pack_records

FILE = "thrift-digits-0.json"


class Repository:
    """A repository with a leaderboard, at `root`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.root, self.clock = folder, folder / "leaderboard", 0
        self.board = self.root / "results" / "tiny"
        self.board.mkdir(parents=True)
        self.git("init", "-q", "-b", "main")
        self.commit("empty")

    def git(self, *words: str) -> str:
        who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
        done = subprocess.run(["git", *who, *words], cwd=self.folder, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def commit(self, message: str, *words: str) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "--allow-empty", "-m", message, *words)
        return self.git("rev-parse", "HEAD")

    def write(self, evidence: str) -> None:
        record = {"schema_version": 2, "evidence_digest": evidence}
        (self.board / FILE).write_text(json.dumps(record), encoding="utf-8")

    def filed(self, evidence: str) -> str | None:
        history = GitHistory.open(self.root)
        assert history is not None
        return history.find_filing_commit("tiny", FILE, evidence)

    def replaced(self, evidence: str) -> tuple[str, ...]:
        history = GitHistory.open(self.root)
        assert history is not None
        return history.list_replaced_evidence("tiny", FILE, evidence)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path)


def test_a_copy_under_another_name_takes_no_filing_commit_away(repository: Repository) -> None:
    repository.write("a" * 64)
    first = repository.commit("file")
    (repository.board / "zz-digits-0.json").write_bytes((repository.board / FILE).read_bytes())
    repository.commit("copy")
    assert repository.filed("a" * 64) == first


def test_it_is_the_first_commit_that_has_the_evidence_wherever_it_lies_later(repository: Repository) -> None:
    assert repository.filed("a" * 64) is None
    repository.write("a" * 64)
    first = repository.commit("file")
    pack_records(repository.board)
    repository.commit("pack")
    assert not (repository.board / FILE).exists()
    assert repository.filed("a" * 64) == first
    repository.git("rm", "-rq", "leaderboard/results")
    repository.commit("remove")
    repository.board.mkdir(parents=True)
    repository.write("a" * 64)
    repository.commit("file it once more, for other seeds")
    assert repository.filed("a" * 64) == first


def test_changed_evidence_is_filed_by_the_commit_that_changed_it(repository: Repository) -> None:
    repository.write("a" * 64)
    first = repository.commit("file")
    repository.write("b" * 64)
    assert (repository.filed("a" * 64), repository.filed("b" * 64)) == (first, None)
    assert repository.filed("b" * 64) is None
    second = repository.commit("replace")
    assert (repository.filed("a" * 64), repository.filed("b" * 64)) == (first, second)
    assert repository.replaced("b" * 64) == ("a" * 64,)
    repository.write("a" * 64)
    repository.commit("take it back, as its seeds were kinder")
    assert repository.replaced("a" * 64) == ("b" * 64,)


def test_an_amended_commit_is_another_one(repository: Repository) -> None:
    repository.write("a" * 64)
    first = repository.commit("file")
    amended = repository.commit("file, once more", "--amend")
    assert repository.filed("a" * 64) == amended != first


def test_a_submitters_own_commits_file_nothing(repository: Repository) -> None:
    repository.git("switch", "-qc", "submission")
    repository.write("a" * 64)
    own = repository.commit("a commit whose hash its author chose")
    repository.git("switch", "-q", "main")
    repository.commit("something else")
    repository.git("merge", "-q", "--no-ff", "-m", "merge", "submission")
    assert repository.filed("a" * 64) == repository.git("rev-parse", "HEAD") != own


def test_what_is_not_published_has_no_published_commit(repository: Repository, tmp_path: Path) -> None:
    repository.git("update-ref", "refs/remotes/origin/main", "HEAD")
    repository.write("a" * 64)
    commit, history = repository.commit("file"), GitHistory.open(repository.root)
    assert history is not None
    assert history.find_filing_commit("tiny", FILE, "a" * 64) == commit
    assert history.find_filing_commit("tiny", FILE, "a" * 64, published=True) is None
    assert history.has_commit(commit) and not history.has_commit("0" * 40)


def test_there_is_no_history_in_a_shallow_clone_or_without_a_repository(repository: Repository, tmp_path: Path) -> None:
    repository.write("a" * 64)
    repository.commit("file")
    other = tmp_path / "shallow"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{repository.folder}", str(other)], check=True)
    assert GitHistory.open(other / "leaderboard") is None
    assert GitHistory.open(Path("/")) is None


def test_a_blob_that_is_no_result_files_nothing(repository: Repository) -> None:
    (repository.board / FILE).write_text("{", encoding="utf-8")
    (repository.board / "records.tar.xz").write_bytes(b"no archive")
    repository.commit("rubbish")
    assert repository.filed("a" * 64) is None


def test_filings_change_with_the_commits_that_change_results_only(repository: Repository) -> None:
    def filings() -> tuple[str, ...]:
        history = GitHistory.open(repository.root)
        assert history is not None
        return history.list_filings()

    repository.write("a")
    repository.commit("file")
    before = filings()
    repository.commit("nothing of a board")
    assert filings() == before
    repository.write("b")
    repository.commit("change")
    changed = filings()
    repository.git("reset", "-q", "--soft", "HEAD~1")  # the files stay as they are
    repository.commit("another commit of the same files")
    assert len({before, changed, filings()}) == 3
