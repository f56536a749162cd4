"""Archives: many records in a compressed file, for folders that nobody edits by hand. No torch here.

A packed record keeps the path that it had as a file, `FOLDER/NAME.json`, and is read through `read_record`. A loose
file with the same name takes precedence: a new record replaces the packed record until the folder is packed again, so
adding a record changes no byte of the others.
"""

from __future__ import annotations

import functools
import hashlib
import io
import json
import lzma
import os
import re
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from dpbench.errors import DataError, OutputError
from dpbench.support.files import file_sha256, write_atomically
from dpbench.support.untrusted import MAX_BYTES as LARGEST
from dpbench.support.untrusted import open_regular_file, read_regular_file

ARCHIVE = "records.tar.xz"
MAX_PACKED_BYTES = 50_000_000  # bytes of an archive
MAX_BYTES = 50_000_000  # bytes of what is in it
MAX_RECORDS = 10_000  # records in it
MAX_MEMORY = 150_000_000  # bytes that unpacking may take; the strongest preset takes 65 MB
_NAME_PATTERN = re.compile(r"[A-Za-z0-9][\w.,=@+-]*\.json", re.ASCII)
PRESET = 9 | lzma.PRESET_EXTREME


def list_records(folder: Path) -> list[Path]:
    """Return the paths of all records below a folder, packed or not, sorted by name.

    Raises:
        DataError: an archive is malformed.
    """
    found = set(folder.rglob("*.json"))
    for archive in folder.rglob(ARCHIVE):
        found.update(archive.parent / name for name in _read_archived_records(archive))
    return sorted(found)


def list_packed_names(folder: Path) -> list[str]:
    """Return the sorted names of the records in a folder's archive.

    Raises:
        DataError: the archive is malformed.
    """
    archive = folder / ARCHIVE
    return list(_list_names(archive, *_identify_version(archive))) if os.path.lexists(archive) else []


def read_record(file: Path) -> bytes:
    """Return the content of a record, packed or not.

    Raises:
        FileNotFoundError, OSError: there is no such record, or it cannot be read.
        DataError: the archive is malformed.
    """
    try:
        return read_regular_file(file)
    except FileNotFoundError:
        packed = read_packed_record(file)
        if packed is None:
            raise
        return packed


def read_packed_record(file: Path) -> bytes | None:
    """Return the content of a packed record; None if it is not in the archive.

    Raises:
        DataError: the archive is malformed.
    """
    archive = file.parent / ARCHIVE
    return _read_archived_records(archive).get(file.name) if os.path.lexists(archive) else None


def record_exists(file: Path) -> bool:
    """Return whether a record exists, packed or not; a link counts as existing even if its target is missing.

    Raises:
        DataError: the archive is malformed.
    """
    return os.path.lexists(file) or read_packed_record(file) is not None


def hash_record(file: Path) -> str:
    """Return the SHA-256 of a record, packed or not, or of any other file.

    Raises:
        FileNotFoundError, OSError: there is no such file, or it cannot be read.
        DataError: the archive is malformed.
    """
    content = None if os.path.lexists(file) else read_packed_record(file)
    return file_sha256(file) if content is None else hashlib.sha256(content).hexdigest()


def get_modification_time(file: Path) -> int:
    """Return the time of the last change of a record or, if it is packed, of its archive, in nanoseconds."""
    return (file if file.exists() else file.parent / ARCHIVE).stat().st_mtime_ns


def read_archive(folder: Path) -> Mapping[str, bytes]:
    """Return the records in a folder's archive by name.

    Raises:
        DataError: the archive is malformed.
    """
    return _read_archived_records(folder / ARCHIVE)


def write_archive(folder: Path, records: Mapping[str, bytes]) -> None:
    """Write a folder's archive atomically; if there are no records, delete the archive.

    Raises:
        OutputError: the archive cannot be written, or would be too large.
    """
    archive = folder / ARCHIVE
    if not records:
        archive.unlink()
        return
    whole = _make_tar(records)
    content = lzma.compress(whole, preset=PRESET)
    if len(whole) > MAX_BYTES or len(content) > MAX_PACKED_BYTES:
        raise OutputError(
            f"Expected the records in {folder} to take at most {MAX_BYTES:,} bytes and {MAX_PACKED_BYTES:,} packed, "
            f"got {len(whole):,} and {len(content):,}. Pack fewer of them in a folder."
        )
    write_atomically(archive, lambda file: file.write(content))


def pack_records(folder: Path) -> int:
    """Move the records of a folder, but not of its subfolders, into its archive and return the archive's record count.

    Other JSON files are left in place.

    Raises:
        DataError: a file cannot be read, or the existing archive is malformed.
        OutputError: the archive cannot be written; no file is removed then.
    """
    archive = folder / ARCHIVE
    held = dict(_read_archived_records(archive)) if os.path.lexists(archive) else {}
    try:
        found = {file: read_regular_file(file) for file in sorted(folder.glob("*.json"))}
    except OSError as error:
        raise DataError(f"Cannot read {error.filename}: {error.strerror}.") from error
    files = [file for file, content in found.items() if _is_record_content(content)]
    whole = held | {file.name: found[file] for file in files}
    for name in whole:
        if not _NAME_PATTERN.fullmatch(name):
            raise DataError(f"Expected the name of a record, got {folder / name}. Move it elsewhere.")
    if whole != held:
        write_archive(folder, whole)
    for file in files:
        with suppress(OSError):  # gone, or unreadable: not what was packed
            if file.read_bytes() == whole[file.name]:  # not rewritten meanwhile
                file.unlink()
    return len(whole)


def _is_record_content(content: bytes) -> bool:
    """Return whether this content is a record of dpbench: every record has a schema version."""
    try:
        value = json.loads(content)
    except ValueError:
        return False
    return isinstance(value, dict) and "schema_version" in value


def remove_record(file: Path) -> None:
    """Delete a record, packed or not; an archive is deleted together with its last record.

    Raises:
        DataError: the archive is malformed.
        OutputError: the archive cannot be written.
    """
    archive = file.parent / ARCHIVE
    held = dict(_read_archived_records(archive)) if os.path.lexists(archive) else {}
    if held.pop(file.name, None) is not None:
        write_archive(file.parent, held)
    file.unlink(missing_ok=True)


def _make_tar(records: Mapping[str, bytes]) -> bytes:
    """Return a tar archive of these records, without dates or owners, so that equal records give equal bytes."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name, content in sorted(records.items()):
            facts = tarfile.TarInfo(name)
            facts.size = len(content)
            tar.addfile(facts, io.BytesIO(content))
    return whole.getvalue()


def _read_archived_records(archive: Path) -> Mapping[str, bytes]:
    """Return the records in an archive file by name."""
    return _unpack_archive(archive, *_identify_version(archive))


def _identify_version(archive: Path) -> tuple[int, tuple[int, ...]]:
    """Return the size of an archive file, and its time of change and inode."""
    with _open_archive(archive) as file:
        facts = os.fstat(file.fileno())
    return facts.st_size, (facts.st_mtime_ns, facts.st_ino)


@functools.lru_cache(maxsize=1024)  # a name takes little memory, and a leaderboard's are listed several times
def _list_names(archive: Path, size: int, version: tuple[int, ...]) -> tuple[str, ...]:
    return tuple(sorted(_unpack_archive(archive, size, version)))


@contextmanager
def _open_archive(archive: Path) -> Iterator[BinaryIO]:
    try:
        with open_regular_file(archive, follow=False) as file:  # a link could lead out of the folder
            yield file
    except OSError as error:
        said = "it is a link" if archive.is_symlink() else error.strerror
        raise DataError(f"Cannot read {archive}: {said}.") from error


@functools.lru_cache(maxsize=8)
def _unpack_archive(archive: Path, size: int, version: tuple[int, ...]) -> Mapping[str, bytes]:
    if size > MAX_PACKED_BYTES:
        raise DataError(f"Expected {archive} to have at most {MAX_PACKED_BYTES:,} bytes, got {size:,}.")
    with _open_archive(archive) as file:
        return unpack_archive(file.read(MAX_PACKED_BYTES + 1), archive)


def unpack_archive(packed: bytes, archive: Path) -> Mapping[str, bytes]:
    """Return the records in the bytes of an archive by name; `archive` names it in messages.

    Raises:
        DataError: the archive is malformed.
    """
    try:
        unpack = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_MEMORY)
        content = unpack.decompress(packed, MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DataError(f"Expected {archive} to unpack to at most {MAX_BYTES:,} bytes.")
        if not unpack.eof or unpack.unused_data:
            raise DataError(f"Expected {archive} to be one xz stream, got a part of one, or more behind it.")
        return dict(_list_members(archive, content))
    except (lzma.LZMAError, tarfile.TarError, EOFError, ValueError, OverflowError, RecursionError) as error:
        raise DataError(f"Expected {archive} to be a tar archive, compressed by xz: {error}.") from error


def _list_members(archive: Path, content: bytes) -> Iterator[tuple[str, bytes]]:
    seen: set[str] = set()
    with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isreg() and not member.issparse() else None
            if file is None or not _NAME_PATTERN.fullmatch(member.name) or member.name in seen:
                raise DataError(f"Expected {archive} to hold JSON files, each once, got {member.name[:80]!r}.")
            if member.size > LARGEST or len(seen) == MAX_RECORDS:
                raise DataError(
                    f"Expected {archive} to hold at most {MAX_RECORDS:,} records of {LARGEST:,} bytes each."
                )
            seen.add(member.name)
            yield member.name, file.read()
