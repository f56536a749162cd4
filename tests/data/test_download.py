"""Downloads from a server that is slow, broken or hostile, and archives that are damaged or hostile."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import lzma
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from dpbench.api import Download
from dpbench.data.fetch import download
from dpbench.errors import DataError, OutputError
from tests.helpers.publisher import CONTENT, Server, publisher


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(download, "time", SimpleNamespace(sleep=lambda _: None))
    with publisher() as running:
        yield running


def wanted(server: Server, path: str = "/x.bin", content: bytes = CONTENT, size: int = len(CONTENT)) -> Download:
    return Download(server.url(path), f"md5:{hashlib.md5(content, usedforsecurity=False).hexdigest()}", size, "x")


def got(server: Server, folder: Path) -> bytes:
    (file,) = download.download([wanted(server)], folder)
    return file.read_bytes()


def refused(server: Server, folder: Path, path: str = "/x.bin") -> str:
    with pytest.raises(DataError) as caught:
        download.download([wanted(server, path)], folder)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_file_comes_whole_under_its_own_name(server: Server, tmp_path: Path) -> None:
    (file,) = download.download([wanted(server, "/x.bin?download=1#top")], tmp_path / "new/folder")
    assert file == tmp_path / "new/folder/x.bin"
    assert file.read_bytes() == CONTENT
    assert server.asked == [""]


def test_sha256_is_known_too(server: Server, tmp_path: Path) -> None:
    given = Download(server.url(), f"sha256:{hashlib.sha256(CONTENT).hexdigest()}", 1, "x")
    (file,) = download.download([given], tmp_path)
    assert download.is_published_file(file, given)


def test_of_a_part_only_the_rest_is_sent(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(CONTENT[:123_456])
    assert got(server, tmp_path) == CONTENT
    assert server.asked == ["bytes=123456-"]
    assert server.sent == len(CONTENT) - 123_456


def test_a_server_without_ranges_sends_all_again(server: Server, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "x.bin").write_bytes(CONTENT[:123_456])
    assert got(server, tmp_path) == CONTENT
    assert server.sent == len(CONTENT)


def test_a_connection_that_ends_early_is_continued(server: Server, tmp_path: Path) -> None:
    server.cuts = [100, 0, 200_000]
    assert got(server, tmp_path) == CONTENT
    assert server.asked == ["", "bytes=100-", "bytes=100-", "bytes=200100-"]
    assert server.sent == len(CONTENT)


def test_a_connection_that_always_ends_early_is_given_up_and_its_part_kept(server: Server, tmp_path: Path) -> None:
    server.cuts = [50] * download.MAX_TRIES
    said = refused(server, tmp_path)
    assert "got: the connection ended early" in said
    assert f"The partial download in {tmp_path / 'x.bin'} is kept; repeat the command to continue" in said
    assert (tmp_path / "x.bin").read_bytes() == CONTENT[: 50 * download.MAX_TRIES]
    assert got(server, tmp_path) == CONTENT


def test_a_length_that_is_not_announced_is_no_obstacle(server: Server, tmp_path: Path) -> None:
    server.announce = False
    assert got(server, tmp_path) == CONTENT


def test_an_answer_in_chunks_that_ends_early_is_continued(server: Server, tmp_path: Path) -> None:
    server.announce, server.cuts = False, [1000]
    assert got(server, tmp_path) == CONTENT
    assert len(server.asked) == 2


@pytest.mark.parametrize("status", [403, 404, 410])
def test_a_refusal_is_said_at_once(server: Server, tmp_path: Path, status: int) -> None:
    server.refusals = [status]
    assert f"Expected {server.url()} to answer, got: status {status} " in refused(server, tmp_path)
    assert len(server.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_busy_server_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.refusals = [503, 429]
    assert got(server, tmp_path) == CONTENT
    server.refusals = [503] * download.MAX_TRIES
    (tmp_path / "x.bin").unlink()
    assert "got: status 503 Service Unavailable. Try again later" in refused(server, tmp_path)


def test_another_file_is_deleted(server: Server, tmp_path: Path) -> None:
    server.content = CONTENT[::-1]
    assert "got another file, now deleted" in refused(server, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_another_file_is_deleted_and_the_next_try_succeeds(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin").write_bytes(b"another" * 100)
    refused(server, tmp_path)
    assert got(server, tmp_path) == CONTENT


@pytest.mark.parametrize("extra", [0, 7])
def test_a_part_that_is_as_long_or_longer_but_another_file_is_deleted(
    server: Server, tmp_path: Path, extra: int
) -> None:
    (tmp_path / "x.bin").write_bytes(bytes(len(CONTENT) + extra))
    assert "now deleted" in refused(server, tmp_path)  # the server says 416
    assert server.asked == [f"bytes={len(CONTENT) + extra}-"]
    assert got(server, tmp_path) == CONTENT


def test_a_whole_file_is_not_asked_for_again(server: Server, tmp_path: Path) -> None:
    assert got(server, tmp_path) == got(server, tmp_path)
    assert len(server.asked) == 1


def test_of_several_files_those_that_came_stay(server: Server, tmp_path: Path) -> None:
    both = [wanted(server), wanted(server, "/gone.bin")]
    with pytest.raises(DataError, match="404"):
        download.download(both, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == CONTENT
    with pytest.raises(DataError, match="404"):
        download.download(both, tmp_path)
    assert server.asked == ["", "", ""]


def test_a_redirect_is_followed(server: Server, tmp_path: Path) -> None:
    (file,) = download.download([wanted(server, f"/to/{server.url()}")], tmp_path)
    assert file.read_bytes() == CONTENT


def test_a_redirect_to_a_local_file_is_refused(server: Server, tmp_path: Path) -> None:
    refused(server, tmp_path / "new", path="/to/file:///etc/hostname")
    assert list((tmp_path / "new").iterdir()) == []


def test_a_redirect_to_another_protocol_is_refused(server: Server, tmp_path: Path) -> None:
    said = refused(server, tmp_path, path="/to/ftp://127.0.0.1/x.bin")
    assert "got: status 302 redirect to ftp://127.0.0.1/x.bin, which is no http or https address. Try again" in said
    assert len(server.asked) == 1


@pytest.mark.parametrize("address", ["http://[::1/x.bin", "http://127.0.0.1:port/x.bin"])
def test_a_redirect_to_what_is_no_address_is_one_sentence(server: Server, tmp_path: Path, address: str) -> None:
    assert f"Expected {server.url(f'/to/{address}')} to answer, got: " in refused(server, tmp_path, f"/to/{address}")


def test_an_address_of_a_plugin_that_is_none_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="an address that cannot be read"):
        download.download([Download("http://[::1/x.bin", "md5:0", 1, "x")], tmp_path)


def test_an_answer_without_a_byte_ends_no_download(server: Server, tmp_path: Path) -> None:
    server.empty = True
    assert "got another file, now deleted" in refused(server, tmp_path)
    (tmp_path / "x.bin").write_bytes(CONTENT[:100])
    assert f"The partial download in {tmp_path / 'x.bin'} is kept" in refused(server, tmp_path)
    server.empty = False
    assert got(server, tmp_path) == CONTENT
    assert server.asked[-1] == "bytes=100-"


@pytest.mark.parametrize("announce", [True, False])
@pytest.mark.parametrize("part", [0, 200_000])
def test_a_server_that_sends_far_more_than_the_file_has_is_stopped(
    server: Server, tmp_path: Path, announce: bool, part: int
) -> None:
    server.announce, server.flood = announce, 20_000_000
    (tmp_path / "x.bin").write_bytes(CONTENT[:part])
    said = refused(server, tmp_path)
    assert f"Expected 1 MB from {server.url()}, but the server sends" in said
    assert "The partial download was deleted." in said
    assert len(server.asked) == 1
    assert list(tmp_path.iterdir()) == []


def test_a_stated_size_may_be_rounded(server: Server, tmp_path: Path) -> None:
    server.content = bytes(31 << 20)
    given = wanted(server, content=server.content, size=30 << 20)
    (file,) = download.download([given], tmp_path)
    assert file.stat().st_size == 31 << 20


def test_a_server_that_announces_less_than_it_has_is_asked_again(server: Server, tmp_path: Path) -> None:
    server.extra = -1000
    assert "got another file, now deleted" in refused(server, tmp_path)
    server.extra = 0
    assert got(server, tmp_path) == CONTENT


def test_a_server_that_announces_more_than_it_sends_is_asked_for_the_rest_and_then_given_up(
    server: Server, tmp_path: Path
) -> None:
    server.extra = 1000
    assert got(server, tmp_path) == CONTENT  # nothing is left, says the server
    assert server.asked == ["", f"bytes={len(CONTENT)}-"]


def test_a_redirect_in_circles_ends(server: Server, tmp_path: Path) -> None:
    assert "status 302" in refused(server, tmp_path, path="/circle")


@pytest.mark.parametrize("url", ["file:///etc/hostname", "ftp://127.0.0.1/x", "/etc/hostname"])
def test_only_http_is_spoken(tmp_path: Path, url: str) -> None:
    with pytest.raises(DataError, match="Expected an http or https address"):
        download.download([Download(url, "md5:0", 1, "x")], tmp_path)


def test_a_server_that_is_not_there_is_said(server: Server, tmp_path: Path) -> None:
    server.server_close()
    with pytest.raises(DataError, match=r"to answer, got: .*refused.* Try again later"):
        download.download([wanted(server)], tmp_path)


def test_too_little_space_is_said_before_anything_is_asked(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=2_000_000))
    with pytest.raises(OutputError, match=r"Expected 3 MB free in .*, got 2 MB\."):
        download.download([wanted(server, size=3_000_000)], tmp_path)
    assert server.asked == []


def test_what_is_there_already_needs_no_space(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.bin").write_bytes(CONTENT[:-100])
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=100))
    assert got(server, tmp_path) == CONTENT


@pytest.mark.parametrize("size", [100, 300_000])
def test_a_full_disk_is_one_sentence_and_asked_once(server: Server, tmp_path: Path, size: int) -> None:
    server.content = CONTENT[:size]
    (tmp_path / "x.bin").symlink_to("/dev/full")
    file, given = tmp_path / "x.bin", wanted(server)
    with pytest.raises(
        OutputError, match=f"Cannot write {file}: No space left on device. The partial download is kept"
    ):
        download._resume_download(given, file, lambda _: None, lambda _: None)
    assert len(server.asked) == 1


def test_a_place_that_cannot_be_written_is_said(server: Server, tmp_path: Path) -> None:
    (tmp_path / "x.bin").mkdir()
    with pytest.raises(OutputError, match=r"Cannot write .*: Is a directory"):
        download._receive_remaining_bytes(wanted(server), tmp_path / "x.bin", lambda _: None, lambda _: None)


def test_an_interruption_keeps_the_part(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(download, "BLOCK", 1000)
    append, appended = download._append_block, []

    def interrupted(*arguments: object) -> None:
        append(*arguments)  # type: ignore[arg-type]
        appended.append(arguments)
        if len(appended) == 42:
            raise KeyboardInterrupt

    monkeypatch.setattr(download, "_append_block", interrupted)
    with pytest.raises(KeyboardInterrupt):
        got(server, tmp_path)
    assert (tmp_path / "x.bin").read_bytes() == CONTENT[:41_000]  # the first call empties the file
    assert got(server, tmp_path) == CONTENT
    assert server.asked[-1] == "bytes=41000-"


Pack = Callable[[Path, dict[str, bytes]], Path]


def as_zip(file: Path, files: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def as_tar(file: Path, files: dict[str, bytes]) -> Path:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, given in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(given)
            archive.addfile(member, io.BytesIO(given))
    packed: dict[str, Callable[[bytes], bytes]] = {
        ".tgz": gzip.compress,
        ".gz": gzip.compress,
        ".bz2": bz2.compress,
        ".xz": lzma.compress,
    }
    file.write_bytes(packed.get(file.suffix, bytes)(content.getvalue()))
    return file


def unpacked(file: Path, root: Path, path: str = "x", unpack: bool = True) -> dict[str, bytes]:
    download.unpack(file, Download("", "", 0, path, unpack), root)
    return {str(file.relative_to(root)): file.read_bytes() for file in root.rglob("*") if file.is_file()}


def spoiled(file: Path, tmp_path: Path) -> str:
    with pytest.raises(DataError) as caught:
        unpacked(file, tmp_path / "root")
    assert str(caught.value).startswith(f"Expected an archive in {file}: ")
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("name", "pack"),
    [
        ("a.zip", as_zip),
        ("a.tar", as_tar),
        ("a.tgz", as_tar),
        ("a.tar.gz", as_tar),
        ("a.bz2", as_tar),
        ("a.xz", as_tar),
    ],
)
def test_archives_are_unpacked_into_their_folder(tmp_path: Path, name: str, pack: Pack) -> None:
    file = pack(tmp_path / name, {"one.txt": b"1", "in/two.txt": CONTENT})
    assert unpacked(file, tmp_path / "root", "a/b") == {"a/b/one.txt": b"1", "a/b/in/two.txt": CONTENT}


def test_two_archives_share_a_folder(tmp_path: Path) -> None:
    unpacked(as_zip(tmp_path / "a.zip", {"in/one": b"1"}), tmp_path / "root")
    found = unpacked(as_tar(tmp_path / "b.tgz", {"in/two": b"2"}), tmp_path / "root")
    assert found == {"x/in/one": b"1", "x/in/two": b"2"}


def test_a_gz_becomes_its_file_and_other_files_are_copied(tmp_path: Path) -> None:
    (tmp_path / "a.h5.gz").write_bytes(gzip.compress(CONTENT))
    assert unpacked(tmp_path / "a.h5.gz", tmp_path / "root", "in/a.h5") == {"in/a.h5": CONTENT}
    kept = unpacked(tmp_path / "a.h5.gz", tmp_path / "other", "in/a.gz", unpack=False)
    assert kept == {"in/a.gz": (tmp_path / "a.h5.gz").read_bytes()}


@pytest.mark.parametrize("name", ["../out.txt", "in/../../out.txt"])
def test_a_tar_with_a_path_outside_is_refused(tmp_path: Path, name: str) -> None:
    spoiled(as_tar(tmp_path / "a.tar", {name: b"1"}), tmp_path)
    assert not list(tmp_path.rglob("out.txt"))


def test_an_absolute_path_in_a_tar_stays_inside_or_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "out.txt"
    unpacked(as_tar(tmp_path / "a.tar", {str(outside): b"1"}), tmp_path / "root")
    assert not outside.exists()


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
@pytest.mark.parametrize("to", ["../../secret.txt", "/etc/hostname"])
def test_a_link_out_of_a_tar_is_refused(tmp_path: Path, kind: bytes, to: str) -> None:
    (tmp_path / "secret.txt").write_text("secret")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("link")
        member.type, member.linkname = kind, to
        archive.addfile(member)
    spoiled(tmp_path / "a.tar", tmp_path)
    assert not list((tmp_path / "root").rglob("link"))


@pytest.mark.parametrize("name", ["../out.txt", "/../../out.txt", "in/../../../out.txt"])
def test_a_path_out_of_a_zip_stays_inside(tmp_path: Path, name: str) -> None:
    found = unpacked(as_zip(tmp_path / "a.zip", {name: b"1"}), tmp_path / "root")
    assert list(found.values()) == [b"1"]
    assert all(place.startswith("x/") for place in found)
    assert len(list(tmp_path.rglob("out.txt"))) == 1


@pytest.mark.parametrize(
    "content",
    [
        b"<html>Not found</html>", gzip.compress(CONTENT)[:-20], gzip.compress(CONTENT)[:-8] + bytes(8),
        gzip.compress(CONTENT)[:100] + b"\xff" * 100 + gzip.compress(CONTENT)[200:], lzma.compress(CONTENT)[:-20],
    ],
)  # fmt: skip
def test_what_is_no_archive_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.zip").write_bytes(content)
    assert "Delete it and fetch it again." in spoiled(tmp_path / "a.zip", tmp_path)


@pytest.mark.parametrize(
    ("name", "pack", "damage"),
    [
        ("a.zip", as_zip, "cut"), ("a.tar", as_tar, "cut"), ("a.tgz", as_tar, "cut"), ("a.xz", as_tar, "cut"),
        ("a.bz2", as_tar, "cut"), ("a.zip", as_zip, "noise"), ("a.xz", as_tar, "noise"), ("a.bz2", as_tar, "noise"),
    ],
)  # fmt: skip
def test_a_damaged_archive_is_one_sentence(tmp_path: Path, name: str, pack: Pack, damage: str) -> None:
    content = bytearray(pack(tmp_path / name, {"one": CONTENT, "two": CONTENT[::-1]}).read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[5000:6000] = CONTENT[:1000]
    (tmp_path / name).write_bytes(content)
    spoiled(tmp_path / name, tmp_path)


def test_a_zip_with_a_password_is_one_sentence(tmp_path: Path) -> None:
    content = bytearray(as_zip(tmp_path / "a.zip", {"one": b"1"}).read_bytes())
    for header, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.index(header) + at] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    assert "encrypted" in spoiled(tmp_path / "a.zip", tmp_path)


def test_only_a_file_with_the_published_checksum_matches(tmp_path: Path) -> None:
    given = Download("", f"md5:{hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()}", 0, "x")
    assert not download.is_published_file(tmp_path / "gone", given)
    assert not download.is_published_file(tmp_path, given)
    (tmp_path / "x").write_bytes(CONTENT)
    assert download.is_published_file(tmp_path / "x", given)
    os.truncate(tmp_path / "x", 10)
    assert not download.is_published_file(tmp_path / "x", given)
