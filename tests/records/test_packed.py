"""Packed results are read as files are: by every command, and as carefully."""

from __future__ import annotations

import io
import json
import lzma
import os
import tarfile
from pathlib import Path
from typing import Any

import pytest

import dpbench
from dpbench.analysis.reader import read_results
from dpbench.board.folder import list_results, read_json_object
from dpbench.errors import DataError, OutputError
from dpbench.records import packed
from dpbench.records.result import Result
from tests.helpers.commands import call


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("made")
    for learner in ("class-means", "non-private:regularisation=1"):
        dpbench.run(learner, dataset="digits", seeds=1, unit="image", out=folder)
    return {file.name: file.read_bytes() for file in folder.glob("*.json")}


@pytest.fixture
def folder(made: dict[str, bytes], tmp_path: Path) -> Path:
    for name, content in made.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def archive_of(*members: tuple[str, bytes]) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        for name, content in members:
            facts = tarfile.TarInfo(name)
            facts.size = len(content)
            tar.addfile(facts, io.BytesIO(content))
    return lzma.compress(whole.getvalue())


def linking() -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as tar:
        facts = tarfile.TarInfo("a.json")
        facts.type, facts.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(facts)
    return lzma.compress(whole.getvalue())


def test_packing_replaces_files_and_every_reader_finds_the_same_results(
    folder: Path, made: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    before = [result.result for result in read_results([folder])[0]]
    assert call("results", "pack", str(folder)) == 0
    assert "2 records" in capsys.readouterr().out
    assert [file.name for file in folder.iterdir()] == [packed.ARCHIVE]
    filed, damaged = read_results([folder])
    assert ([stored.result for stored in filed], damaged) == (before, [])
    assert {stored.file.name: packed.read_record(stored.file) for stored in filed} == made
    assert call("results", "show", str(filed[0].file)) == 0
    assert call("compare", *(str(stored.file) for stored in filed)) == 0


def test_a_file_supersedes_what_is_packed_until_the_folder_is_packed_again(folder: Path) -> None:
    packed.pack_records(folder)
    (file, other) = (result.file for result in read_results([folder])[0])
    mended = Result.read(file).model_copy(update={"status": "disputed"}).with_evidence_digest()
    mended.write(folder)
    assert Result.read(file) == mended != Result.read(other)
    assert packed.pack_records(folder) == 2
    assert Result.read(file) == mended
    assert [file.name for file in folder.iterdir()] == [packed.ARCHIVE]


def test_the_names_in_an_archive_are_those_of_its_last_version(folder: Path) -> None:
    packed.pack_records(folder)
    first, second = packed.list_packed_names(folder)
    packed.remove_record(folder / first)
    assert packed.list_packed_names(folder) == [second]


def test_the_same_results_give_the_same_bytes(folder: Path, made: dict[str, bytes], tmp_path: Path) -> None:
    packed.pack_records(folder)
    again = tmp_path / "again"
    again.mkdir()
    for name, content in reversed(made.items()):
        (again / name).write_bytes(content)
        os.utime(again / name, (0, 0))
    packed.pack_records(again)
    assert (again / packed.ARCHIVE).read_bytes() == (folder / packed.ARCHIVE).read_bytes()


def test_a_leaderboard_takes_packed_figures(folder: Path, made: dict[str, bytes], tmp_path: Path) -> None:
    root = tmp_path / "root"
    place = root / "figures" / "a-figure"
    place.mkdir(parents=True)
    for name in made:
        (folder / name).rename(place / name)
    packed.pack_records(place)
    stored, wrong = list_results(root, {})
    assert ([file.file for file in stored], wrong) == ([f"figures/a-figure/{name}" for name in sorted(made)], [])
    assert [read_json_object(file.path) for file in stored] == [json.loads(made[name]) for name in sorted(made)]


def sparse() -> bytes:
    """Return an archive with a file of ten bytes' content, which claims to be of five million."""
    holes = b"1\n5000000\n0\n".ljust(512, b"\0")
    member = tarfile.TarInfo("a.json")
    member.size = len(holes)
    member.pax_headers = {
        "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.name": "a.json", "GNU.sparse.realsize": "5000000"
    }  # fmt: skip
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(member, io.BytesIO(holes))
    return lzma.compress(out.getvalue())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"not xz at all, but text", "compressed by xz"),
        (lzma.compress(b"not tar" * 1000), "tar archive"),
        (archive_of(("a.json", b"{}"))[:-20], "one xz stream"),
        (archive_of(("a.json", b"{}")) + b"more", "one xz stream"),
        (archive_of(("../a.json", b"{}")), r"each once, got '\.\./a\.json'"),
        (archive_of(("a.json", b"{}"), ("a.json", b"{}")), "each once"),
        (archive_of(("a.txt", b"{}")), "hold JSON files"),
        (linking(), "hold JSON files"),
        (sparse(), "hold JSON files"),
    ],
    ids=["not xz", "not tar", "cut", "longer", "outside", "twice", "no JSON", "link", "sparse"],
)
def test_a_broken_archive_is_refused_in_a_sentence(tmp_path: Path, content: bytes, said: str) -> None:
    place = tmp_path / "figures" / "a-figure"
    place.mkdir(parents=True)
    (place / packed.ARCHIVE).write_bytes(content)
    with pytest.raises(DataError, match=said):
        read_results([place])
    stored, wrong = list_results(tmp_path, {})
    assert (stored, [complaint.file for complaint in wrong]) == ([], [f"figures/a-figure/{packed.ARCHIVE}"])
    assert call("results", "show", str(place / "a.json")) == 1


def test_what_unpacks_to_too_much_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "MAX_BYTES", 10_000)
    (tmp_path / packed.ARCHIVE).write_bytes(archive_of(("a.json", bytes(20_000))))
    with pytest.raises(DataError, match="unpack to at most 10,000 bytes"):
        packed.list_packed_names(tmp_path)


@pytest.mark.parametrize("limit", ["MAX_BYTES", "MAX_PACKED_BYTES"])
def test_what_could_not_be_read_again_is_not_packed(folder: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    monkeypatch.setattr(packed, limit, 1000)
    with pytest.raises(OutputError, match="Pack fewer of them"):
        packed.pack_records(folder)
    assert {file.name: file.read_bytes() for file in folder.iterdir()} == before


def test_a_file_that_is_rewritten_while_it_is_packed_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *_ = sorted(folder.glob("*.json"))
    write = packed.write_archive

    def rewrites(place: Path, records: Any) -> None:
        write(place, records)
        first.write_bytes(b"{}")

    monkeypatch.setattr(packed, "write_archive", rewrites)
    packed.pack_records(folder)
    assert first.read_bytes() == b"{}"
    assert [file.name for file in folder.glob("*.json")] == [first.name]


def test_json_of_others_stays_where_it_is(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, content in (("package.json", '{"mine": 1}'), ("list.json", "[1]"), ("damaged.json", "{")):
        (folder / name).write_text(content)
    call("results", "pack", str(folder))
    assert f"Left in {folder}: damaged.json, list.json, package.json" in capsys.readouterr().out
    assert sorted(file.name for file in folder.glob("*.json")) == ["damaged.json", "list.json", "package.json"]


def test_a_link_to_nothing_is_named_and_the_rest_is_read(folder: Path, made: dict[str, bytes]) -> None:
    (folder / "gone.json").symlink_to(folder / "nowhere.json")
    results, damaged = read_results([folder])
    assert len(results) == len(made)
    assert damaged == [f"Cannot read {folder / 'gone.json'}: No such file or directory."]


def test_an_archive_that_is_a_link_is_not_followed(folder: Path, tmp_path: Path) -> None:
    packed.pack_records(folder)
    other = tmp_path / "other"
    other.mkdir()
    (other / packed.ARCHIVE).symlink_to(folder / packed.ARCHIVE)
    with pytest.raises(DataError, match="it is a link"):
        packed.list_packed_names(other)


def test_an_odd_name_is_not_packed_and_nothing_is_removed(folder: Path) -> None:
    (folder / "my notes.json").write_text('{"schema_version": 1}')
    with pytest.raises(DataError, match="Expected the name of a record"):
        packed.pack_records(folder)
    assert len(list(folder.glob("*.json"))) == 3
