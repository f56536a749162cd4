"""A leaderboard whose results, audits and re-runs are packed is held to what one of loose files is held to."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dpbench.board import build
from dpbench.board.folder import locate_result
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.rerun_record import rerun_path, rerun_seeds, write_rerun
from dpbench.records import packed
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.site import build_site
from dpbench.site.publishing import _collect_repository_files
from tests.helpers import boards
from tests.helpers.commands import call
from tests.helpers.readme import LEADERBOARD
from tests.helpers.sessions import session

LEARNER = "class-means"
pytestmark = pytest.mark.usefixtures("clean_commit")
KINDS = ("results", "audits", "reruns")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, plugins: Registry, clean_commit: None) -> Path:
    """A leaderboard two of whose entries were reproduced and audited, in loose files."""
    root = boards.proven(tmp_path_factory)
    build.write_index(build.build_index(root, plugins), root)
    return root


@pytest.fixture
def loose(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "loose"))


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    """The same leaderboard, packed."""
    copy = Path(shutil.copytree(world, tmp_path / "packed"))
    assert call("results", "pack", *(copy / kind / "tiny" for kind in KINDS)) == 0
    assert [file.name for kind in KINDS for file in (copy / kind / "tiny").iterdir()] == [packed.ARCHIVE] * 3
    return copy


def complaints(root: Path, plugins: Registry) -> list[tuple[str, str]]:
    found = build.verify_leaderboard(root, ReviewContext.read(root, plugins)).complaints
    return [(complaint.file, str(complaint)) for complaint in found]


def records_in(folder: Path) -> dict[str, bytes]:
    return {file.name: packed.read_record(file) for file in packed.list_records(folder)}


def change(folder: Path, name: str, content: bytes | None) -> None:
    """Have one record of a folder say something else, or be gone, in the archive if there is one."""
    there = folder / packed.ARCHIVE
    records = records_in(folder) | ({} if content is None else {name: content})
    if content is None:
        del records[name]
    if there.exists():
        packed.write_archive(folder, records)
    elif content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)


@pytest.mark.slow
def test_packing_changes_neither_the_lines_of_verify_nor_the_index(
    loose: Path, root: Path, plugins: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("leaderboard", "verify", "--root", loose) == 0
    before = capsys.readouterr().out
    assert call("leaderboard", "verify", "--root", root) == 0
    assert capsys.readouterr().out == before
    assert call("leaderboard", "build", "--check", "--root", root) == 0
    shown = {entry.learner: entry for entry in build.build_index(root, plugins).standings[0].entries}[LEARNER]
    assert shown.audit is not None and shown.reproduced


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "edit",
    [
        lambda content: {**content, "spec": None},
        lambda content: {**content, "seal" if "seal" in content else "evidence_digest": "0" * 64},
        lambda content: {**content, "unheard": 1},
        lambda content: [content],
        None,
    ],
    ids=["spec", "seal", "field", "list", "gone"],
)
def test_a_packed_record_that_was_changed_is_found_as_a_changed_file_is(
    loose: Path, root: Path, plugins: Registry, kind: str, edit: Callable[[object], object] | None
) -> None:
    name = boards.file_of(loose, LEARNER).name
    content = json.loads((loose / kind / "tiny" / name).read_bytes())
    for place in (loose, root):
        change(place / kind / "tiny", name, None if edit is None else json.dumps(edit(content)).encode())
    found = complaints(root, plugins)
    assert found == complaints(loose, plugins)
    assert bool(found) == (edit is not None or kind == "results")  # an entry may lack an audit or a re-run


@pytest.mark.parametrize("kind", KINDS)
def test_an_archive_that_nobody_can_read_is_a_complaint(root: Path, plugins: Registry, kind: str) -> None:
    archive = root / kind / "tiny" / packed.ARCHIVE
    archive.write_bytes(archive.read_bytes()[:-20])
    assert any("to be one xz stream" in said for _, said in complaints(root, plugins))


def test_a_packed_audit_of_no_result_is_a_complaint(root: Path, plugins: Registry) -> None:
    content = records_in(root / "audits" / "tiny")[boards.file_of(root, LEARNER).name]
    change(root / "audits" / "tiny", "nothing.json", content)
    assert [file for file, _ in complaints(root, plugins)] == ["audits/tiny/nothing.json"]


@pytest.mark.slow
def test_a_new_record_leaves_archives_as_they_are_and_supersedes_what_is_in_them(root: Path, plugins: Registry) -> None:
    archives = {file: file.read_bytes() for file in root.rglob(packed.ARCHIVE)}
    stored = locate_result(boards.file_of(root, LEARNER), root)
    result = Result.read(stored.path)
    record = rerun_seeds(result, None, session(plugins), by="Another Maintainer")
    write_rerun(record, stored, root)
    assert call("audit", f"tiny/{stored.path.stem}", "--root", root, "--canaries", 1000, "--device", "cpu") == 0
    assert {file: file.read_bytes() for file in root.rglob(packed.ARCHIVE)} == archives
    assert b"Another Maintainer" in packed.read_record(rerun_path(stored, root))
    assert complaints(root, plugins) == []


def test_a_packed_result_is_there_already_and_is_replaced_with_its_records(
    loose: Path, root: Path, plugins: Registry, capsys: pytest.CaptureFixture[str]
) -> None:
    file = boards.file_of(loose, LEARNER)
    before, others = {file: file.read_bytes() for file in root.rglob("*.*")}, records_in(root / "audits" / "tiny")
    assert call("leaderboard", "add", file, "--root", root) == 0
    assert "already filed as" in capsys.readouterr().out
    assert {file: file.read_bytes() for file in root.rglob("*.*")} == before
    content = json.loads(file.read_bytes())
    file.write_text(json.dumps(boards.resealed(boards.edited(content, "seconds.fit", 0.125))), encoding="utf-8")
    assert call("leaderboard", "add", file, "--root", root) == 1
    assert "already holds another result with the same spec" in capsys.readouterr().err
    assert call("leaderboard", "add", "--replace", file, "--root", root) == 0
    assert Result.read(root / "results" / "tiny" / file.name).seconds["fit"] == 0.125
    del others[file.name]
    assert records_in(root / "audits" / "tiny") == others
    assert file.name not in records_in(root / "reruns" / "tiny")
    assert complaints(root, plugins) == []


def test_an_archive_goes_with_its_last_record(root: Path) -> None:
    for file in packed.list_records(root / "reruns"):
        packed.remove_record(file)
    assert list((root / "reruns" / "tiny").iterdir()) == []


def test_pages_and_what_is_published_show_packed_records_as_files(
    loose: Path, root: Path, plugins: Registry, tmp_path: Path
) -> None:
    index = build.build_index(root, plugins)
    published = _collect_repository_files(index, root)
    assert published == _collect_repository_files(index, loose)
    build_site(index, root, tmp_path / "site", plugins)
    for name, content in records_in(loose / "results" / "tiny").items():
        assert (tmp_path / "site" / "results" / "tiny" / name).read_bytes() == content
        assert published[f"results/tiny/{name}"] == content


def test_commands_take_the_path_of_a_packed_result(root: Path, tmp_path: Path) -> None:
    file, other = boards.file_of(root, LEARNER), boards.file_of(root, "pillar")
    assert not file.exists()
    for words in (
        ("leaderboard", "verify", "--root", root, file),
        ("verify", "--submission", "--root", root, file),
        ("results", file.parent),
        ("results", "show", file),
        ("compare", file, other),
        ("receipt", "from", file, "--out", tmp_path / "receipt.json"),
        ("verify", tmp_path / "receipt.json"),
    ):
        assert call(*words) == 0, words


def test_the_committed_leaderboard_takes_less_than_29_megabytes_of_disk() -> None:
    """As `du` counts blocks of 4 KiB: then a checkout takes less than 45 MB. What is not packed adds up."""
    files = (file for file in LEADERBOARD.rglob("*") if "site" not in file.parts and file.is_file())
    assert sum(-(-file.stat().st_size // 4096) * 4096 for file in files) < 29_000_000
