"""List the images in a folder or a zip without reading them, and check the sizes that a zip claims."""

from __future__ import annotations

import hashlib
import os
import re
import struct
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from dpbench import DataError

ANYWHERE = r"(?P<root>(?:[^/]+/)*)"
"""Start of a layout's pattern if the tree may be at any depth."""
FILE = r"(?P<file>[^/]+\.(?i:jpe?g|png|bmp|gif|p[bgp]m|tiff?|webp))"
"""End of a layout's pattern if images may have any common format."""
HIDDEN = re.compile(r"(?:^|/)(?:\.|__MACOSX/)")  # resource forks and the like
MAX_BYTES = 100_000_000  # bytes of one image: far above any published one, far below a zip bomb


@dataclass(frozen=True)
class Layout:
    """How a dataset names its image files, in a folder or zip."""

    pattern: re.Pattern[str]  # of the full name; groups: root, kind (the class folder), file, and what `split` reads
    split: Callable[[re.Match[str]], str]  # the split that an image belongs to
    advice: str  # one sentence: what to do about data that is damaged or incomplete
    top: str = ""  # prefix of names in the zip that is missing below the unpacked folder


class ImageFile(NamedTuple):
    """An image file: the fields that sort and identify it, then the location of its bytes.

    No handle stays open, so threads and forked processes can read in parallel.
    """

    split: str
    kind: str
    file: str
    size: int  # bytes
    crc: int | None  # CRC-32 of the bytes, known for a zip; None in a folder until computed
    below: str  # the folders between `tree` and the file
    tree: Path  # a zip, or a folder
    packed: zipfile.ZipInfo | None  # None: in a folder
    sha256: str = ""  # hexadecimal, of the bytes; known where a folder was read in full

    @property
    def path(self) -> Path:
        """The file on disk that holds the bytes."""
        return self.tree if self.packed else self.tree / self.below / self.file

    def read(self) -> bytes:
        """Return the bytes; for a packed image, at most as many as the zip lists."""
        return _unpack_member(self.path, self.packed) if self.packed else self.path.read_bytes()


def list_images(path: Path, layout: Layout) -> list[ImageFile]:
    """Return the images of a folder or a zip, sorted by split, class and file name.

    Hidden files, names outside the layout, and pipes, sockets and devices are ignored. Of nested trees only the
    outermost counts: Kaggle's archive of chest X-rays contains the same tree again inside itself.

    Raises:
        DataError: not a zip, an unsupported compression, or an image that is far too large.
    """
    files = _list_folder(path, layout) if path.is_dir() else _list_zip(path, layout)
    for file in files:
        size = max(file.size, file.packed.compress_size) if file.packed else file.size
        if size > MAX_BYTES:
            raise DataError(
                f"Expected at most {MAX_BYTES:,} bytes in image {file.below}{file.file} of {path}, got {size:,}. "
                f"No image of this data is that large. {layout.advice}"
            )
    return sorted(files)


def list_ignored_files(path: Path, files: Sequence[ImageFile]) -> list[str]:
    """Return the names of the files in a folder or zip that are not in `files`; a hidden folder on disk counts as one.

    Raises:
        DataError: a folder cannot be read.
    """
    return sorted(_list_file_names(path) - {file.below + file.file for file in files})


def _list_file_names(path: Path) -> set[str]:
    if not path.is_dir():
        with zipfile.ZipFile(path) as archive:
            return {info.filename for info in archive.infolist() if not info.is_dir()}
    try:
        return {
            _format_entry_path(below, entry) for below, entry in _walk_files(str(path), "", frozenset(), hidden=True)
        }
    except OSError as error:
        raise _make_unreadable_error(error) from error


def _format_entry_path(below: str, entry: os.DirEntry[str]) -> str:
    """Return an entry's path below the tree; the path of a pipe, a socket or a device ends in a slash."""
    return f"{below}{entry.name}{'' if entry.is_file() or entry.is_dir() else '/'}"


def list_class_folders(path: Path) -> tuple[str, ...]:
    """Return the sorted names of the visible folders in a folder.

    Raises:
        DataError: the folder cannot be read.
    """
    try:
        return tuple(entry.name for entry in _list_visible_entries(str(path)) if entry.is_dir())
    except OSError as error:
        raise _make_unreadable_error(error) from error


def add_checksums(files: Sequence[ImageFile]) -> list[ImageFile]:
    """Return the images with their CRC-32; unpacked files are read in full, which also gives their SHA-256.

    Raises:
        DataError: a file cannot be read.
    """
    return sorted(file if file.packed else _add_file_checksums(file) for file in files)


def read_unpacked(file: ImageFile) -> bytes:
    """Return the bytes of an image, unpacked if it is in a zip.

    Raises:
        DataError: the image cannot be read.
    """
    try:
        return file.read()
    except OSError as error:
        raise _make_unreadable_error(error) from error
    except (struct.error, zlib.error) as error:
        raise DataError(f"Expected a readable {file.below}{file.file} in {file.path}: {error}.") from error


def _add_file_checksums(file: ImageFile) -> ImageFile:
    content = read_unpacked(file)
    return file._replace(size=len(content), crc=zlib.crc32(content), sha256=hashlib.sha256(content).hexdigest())


def _list_zip(path: Path, layout: Layout) -> list[ImageFile]:
    if not path.is_file():
        raise DataError(f"Expected a folder or a zip archive in {path}, which is neither. {layout.advice}")
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"Expected a zip archive in {path}: {error}. {layout.advice}") from error
    trees: dict[str, list[ImageFile]] = {}
    for name, info in members.items():
        found = None if HIDDEN.search(name) else layout.pattern.fullmatch(name)
        if found:
            kind, file, below = found["kind"], found["file"], name[: found.start("file")]
            found_file = ImageFile(layout.split(found), kind, file, info.file_size, info.CRC, below, path, info)
            trees.setdefault(found["root"], []).append(found_file)
    files = _choose_outermost_tree(trees)
    for file in files:
        _check_zip_compression(members[file.below + file.file], path, layout.advice)
    return files


def _check_zip_compression(info: zipfile.ZipInfo, path: Path, advice: str) -> None:
    if info.flag_bits & 1 or info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise DataError(
            f"Expected {info.filename} in {path} stored or deflated, got it encrypted or compressed by method "
            f"{info.compress_type}. {advice}"
        )


def _list_folder(path: Path, layout: Layout) -> list[ImageFile]:
    trees: dict[str, list[ImageFile]] = {}
    try:
        for below, entry in _walk_files(str(path), "", frozenset()):
            name = f"{below}{entry.name}"
            found = layout.pattern.fullmatch(layout.top + name)
            if found and entry.is_file():  # a pipe would never end, and a device may not
                # One string shared by all images of a class: there may be a million.
                kind, above = sys.intern(found["kind"]), sys.intern(name.removesuffix(found["file"]))
                size = entry.stat().st_size
                found_file = ImageFile(layout.split(found), kind, found["file"], size, None, above, path, None)
                trees.setdefault(found["root"], []).append(found_file)
    except OSError as error:
        raise _make_unreadable_error(error) from error
    return _choose_outermost_tree(trees)


def _list_visible_entries(folder: str) -> list[os.DirEntry[str]]:
    return [entry for entry in _list_entries(folder) if not _is_hidden(entry)]


def _list_entries(folder: str) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(entries, key=lambda entry: entry.name)


def _is_hidden(entry: os.DirEntry[str]) -> bool:
    return HIDDEN.match(f"{entry.name}/") is not None


def _walk_files(
    folder: str, prefix: str, parent_folders: frozenset[str], *, hidden: bool = False
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield every visible file of a folder and its subfolders, by name; with `hidden`, hidden files and folders too.

    Links are followed unless they lead back to a parent folder.
    """
    parent_folders |= {os.path.realpath(folder)}
    for entry in _list_entries(folder) if hidden else _list_visible_entries(folder):
        if not entry.is_dir() or _is_hidden(entry):
            _check_link_target(entry)
            yield prefix, entry
        elif os.path.realpath(entry.path) not in parent_folders:
            yield from _walk_files(entry.path, f"{prefix}{entry.name}/", parent_folders, hidden=hidden)


def _check_link_target(entry: os.DirEntry[str]) -> None:
    if entry.is_symlink() and not _is_hidden(entry) and not Path(entry.path).exists():
        raise DataError(
            f"Expected a file or folder behind the link {entry.path}, which points to nothing. Correct or remove it."
        )


def _choose_outermost_tree(trees: Mapping[str, list[ImageFile]]) -> list[ImageFile]:
    root = min(trees, key=lambda root: (root.count("/"), root), default="")
    return trees.get(root, [])


def _make_unreadable_error(error: OSError) -> DataError:
    return DataError(f"Expected a readable {error.filename}: {error.strerror}. Check its permissions.")


def _unpack_member(path: Path, info: zipfile.ZipInfo) -> bytes:
    """Read a member of a zip, at most as many bytes as the zip lists.

    No `ZipFile` is kept open, because forked processes would share its position in the file.
    """
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name, extra = struct.unpack("<26x2H", file.read(30))  # lengths of the fields after the local header
        file.seek(name + extra, os.SEEK_CUR)
        packed = file.read(info.compress_size)
    if info.compress_type == zipfile.ZIP_STORED:
        return packed
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, max(info.file_size, 1))
