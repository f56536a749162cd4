"""Chest X-rays of Kermany et al. 2018, read where they lie: from the zip as downloaded, or from its unpacked folder."""

from __future__ import annotations

import hashlib
import io
import os
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dpbench import DataError, DataMissing, Dataset, Split, Splits, data_folders, hookimpl

if TYPE_CHECKING:
    from PIL.Image import Image

Counts = tuple[tuple[int, int], tuple[int, int]]
"""(normal, pneumonia) of the training split, then of the test split."""

KINDS = ("NORMAL", "PNEUMONIA")
FOLDER = "chest_xray"
ARCHIVES = ("chest_xray.zip", "chest-xray-pneumonia.zip", "ChestXRay2017.zip")  # the plain name, Kaggle's, Mendeley's
LAYOUT = re.compile(
    rf"(?P<root>(?:[^/]+/)*{FOLDER}/)(?P<split>train|val|test)/(?P<kind>NORMAL|PNEUMONIA)/(?P<file>[^/]+\.(?i:jpe?g))"
)
HIDDEN = re.compile(r"(?:^|/)(?:\.|__MACOSX/)")  # resource forks and the like
PAGE = "https://doi.org/10.17632/rscbjbr9sj.2"
KAGGLE = "https://www.kaggle.com/datasets/paultimothymooney/chest-xray-pneumonia"
LARGEST = 100_000_000  # bytes of one image; the published ones stay far below, a zip bomb does not


@dataclass(frozen=True, order=True)
class Radiograph:
    """One image file: what identifies and sorts it, then where its bytes lie.

    No handle is kept open, so threads and forked processes may read at once.
    """

    split: str
    kind: str
    file: str
    size: int  # bytes
    crc: int  # CRC-32 of the bytes, as a zip lists it
    path: Path = field(compare=False)
    packed: zipfile.ZipInfo | None = field(compare=False)  # None: `path` is the image itself

    def read(self) -> bytes:
        """Return the bytes of the image file.

        Raises:
            DataError: they cannot be read, or are not those that were listed.
        """
        try:
            content = self.path.read_bytes() if self.packed is None else _unpack(self.path, self.packed)
        except (OSError, struct.error, zlib.error) as error:
            raise self.broken(str(error)) from error
        if zlib.crc32(content) != self.crc:
            raise self.broken("its bytes do not match their checksum")
        return content

    def broken(self, why: str) -> DataError:
        """Return the error that names this image."""
        name = f"{self.split} image {self.kind}/{self.file}"
        return DataError(f"Expected a readable {name} in {self.path}: {why}. Download the data again from {PAGE}.")


@dataclass(frozen=True)
class Radiographs:
    """The images of one split, decoded one at a time, grey or RGB as they are stored."""

    files: tuple[Radiograph, ...]

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, index: int, /) -> Image:
        from PIL import Image

        file = self.files[index]
        content = file.read()
        try:
            image = Image.open(io.BytesIO(content))
            image.load()
        except Exception as error:  # whatever a decoder raises
            raise file.broken(f"its {len(content):,} bytes do not decode as an image") from error
        return image


@dataclass(frozen=True)
class Pneumonia(Dataset):
    """Chest X-rays of children, normal or pneumonia: 5,232 training and 624 test images of many sizes, grey or RGB.

    Looked for in every folder of `DPBENCH_DATA`: `chest_xray.zip` (or `chest-xray-pneumonia.zip`, `ChestXRay2017.zip`),
    else an unpacked folder `chest_xray`; inside, chest_xray/{train,val,test}/{NORMAL,PNEUMONIA}/*.jpeg. Nothing is
    unpacked. Kaggle moved 16 of the published training images to `val`: they are training images here, so that the
    splits are the published ones.

    A copy without the 26 training images that repeat another one is accepted too (5,206 left; the test split keeps its
    6 repeats). The digest tells copies apart, resized ones included: it covers split, class, file name, size and CRC-32
    of every image, and is the same from a zip and from its folder, which is read in full for it. A CRC-32 guards
    against accidents, not against forgery.

    Neighbouring datasets differ by one image, so the guarantee is per image, not per patient, of whom there may be
    several images. By the published file names (person1_virus_6, IM-0001-0001) the 5,206 are of 3,669 patients: 2,179
    of them share their patient with another, one patient has 30, and no patient is in both splits.
    """

    name: ClassVar[str] = "pneumonia"
    classes: ClassVar[tuple[str, ...]] = ("normal", "pneumonia")
    licence: ClassVar[str] = "CC BY 4.0"
    citation: ClassVar[str] = (
        "Kermany et al., Identifying Medical Diagnoses and Treatable Diseases by Image-Based Deep Learning, Cell 2018; "
        "doi:10.17632/rscbjbr9sj.2"
    )
    accepted: ClassVar[tuple[Counts, ...]] = (((1349, 3883), (234, 390)), ((1348, 3858), (234, 390)))

    def load(self) -> Splits:
        """Open the two splits, sorted by class and file name.

        Raises:
            DataError: not the published images, by their counts per class; or a damaged archive.
        """
        path = _found()
        files = sorted(_unpacked(path) if path.is_dir() else _zipped(path))
        _check_counts(files, path, self.accepted)
        listed = "".join(f"{f.split}/{f.kind}/{f.file}\0{f.size}\0{f.crc:08x}\n" for f in files)
        return Splits(_split(files, "train"), _split(files, "test"), hashlib.sha256(listed.encode()).hexdigest())


def _found() -> Path:
    for folder in data_folders():
        for archive in ARCHIVES:
            if (folder / archive).is_file():
                return folder / archive
        if (folder / FOLDER).is_dir():
            return folder / FOLDER
    looked, names = ", ".join(map(str, data_folders())), ", ".join(ARCHIVES)
    raise DataMissing(
        f"Dataset 'pneumonia' is not on this machine (looked for {names} or a folder {FOLDER} in {looked}). "
        f"Download it from {PAGE} or {KAGGLE} (1.2 GB), keep it packed as {ARCHIVES[0]}, and name the folder that "
        "holds it in DPBENCH_DATA."
    )


def _zipped(path: Path) -> list[Radiograph]:
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}
    except (OSError, ValueError, NotImplementedError, zipfile.BadZipFile) as error:
        raise DataError(f"Expected a zip archive in {path}: {error}. Download it again from {PAGE}.") from error
    return [_listed(found, path, members[found.string]) for found in _images(members)]


def _listed(found: re.Match[str], path: Path, info: zipfile.ZipInfo) -> Radiograph:
    _check_size(max(info.file_size, info.compress_size), found.string, path)
    if info.flag_bits & 1 or info.compress_type not in {zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED}:
        raise DataError(
            f"Expected {info.filename} in {path} stored or deflated, got it encrypted or packed by method "
            f"{info.compress_type}. Download the archive again from {PAGE}."
        )
    return Radiograph(_role(found), found["kind"], found["file"], info.file_size, info.CRC, path, info)


def _unpacked(folder: Path) -> list[Radiograph]:
    files = {file.relative_to(folder.parent).as_posix(): file for file in folder.rglob("*")}
    return [_hashed(found, files[found.string]) for found in _images(files)]


def _hashed(found: re.Match[str], path: Path) -> Radiograph:
    try:
        _check_size(path.stat().st_size, path.name, path.parent)
        content = path.read_bytes()
    except OSError as error:
        raise DataError(f"Expected a readable image {path}: {error.strerror}. Check its permissions.") from error
    return Radiograph(_role(found), found["kind"], found["file"], len(content), zlib.crc32(content), path, None)


def _images(names: Iterable[str]) -> list[re.Match[str]]:
    """Return the images of the outermost tree: Kaggle's archive holds the same tree once more inside itself."""
    found = [match for match in map(LAYOUT.fullmatch, names) if match and not HIDDEN.search(match.string)]
    outermost = min((match["root"] for match in found), key=lambda root: (root.count("/"), root), default="")
    return [match for match in found if match["root"] == outermost]


def _role(found: re.Match[str]) -> str:
    return "test" if found["split"] == "test" else "train"


def _check_size(size: int, name: str, path: Path) -> None:
    if size > LARGEST:
        raise DataError(
            f"Expected at most {LARGEST:,} bytes in image {name} of {path}, got {size:,}. "
            f"That is no X-ray; download the data again from {PAGE}."
        )


def _check_counts(files: Sequence[Radiograph], path: Path, accepted: Sequence[Counts]) -> None:
    counted = Counter((file.split, file.kind) for file in files)
    train, test = (tuple(counted[split, kind] for kind in KINDS) for split in ("train", "test"))
    if (train, test) not in accepted:
        expected = "; or ".join(_said(*counts) for counts in accepted)
        raise DataError(
            f"Expected in {path}, as {FOLDER}/{{train,val,test}}/{{NORMAL,PNEUMONIA}}/*.jpeg: {expected}; got "
            f"{_said(train, test)}. Download the data again from {PAGE}, and add or remove nothing."
        )


def _said(train: Sequence[int], test: Sequence[int]) -> str:
    splits = (("training", train), ("test", test))
    return " and ".join(
        f"{normal:,} normal + {pneumonia:,} pneumonia {name} images" for name, (normal, pneumonia) in splits
    )


def _split(files: Sequence[Radiograph], name: str) -> Split:
    import numpy as np

    mine = tuple(file for file in files if file.split == name)
    return Split(Radiographs(mine), np.array([KINDS.index(file.kind) for file in mine], dtype=np.int64))


def _unpack(path: Path, info: zipfile.ZipInfo) -> bytes:
    """Return one member, at most as long as listed; a ZipFile would share one file position among forked processes."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name, extra = struct.unpack("<26x2H", file.read(30))  # bytes that follow the local header
        file.seek(name + extra, os.SEEK_CUR)
        packed = file.read(info.compress_size)
    if info.compress_type == zipfile.ZIP_STORED:
        return packed
    return zlib.decompressobj(-zlib.MAX_WBITS).decompress(packed, max(info.file_size, 1))


@hookimpl
def dpbench_datasets() -> Sequence[type[Dataset]]:
    """Register the datasets of this module."""
    return [Pneumonia]
