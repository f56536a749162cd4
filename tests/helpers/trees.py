"""Small trees of images, in a folder or in a zip."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path

from PIL import Image

from dpbench import Images, Splits

Tree = dict[str, bytes]


def picture(level: int, mode: str = "RGB", form: str = "JPEG") -> bytes:
    content = io.BytesIO()
    Image.new("RGB", (12, 8), tuple(level.to_bytes(4)[1:])).convert(mode).save(content, form)
    return content.getvalue()


def planted(folders: Iterable[str], count: int, suffix: str = "jpg") -> Tree:
    """Return `count` images in each folder, coloured by their names."""
    names = [f"{folder}/{number:03d}.{suffix}" for folder in folders for number in range(count)]
    return {name: picture(zlib.crc32(name.encode())) for name in names}


def pack(file: Path, files: Tree, method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return file


def lay_out(folder: Path, files: Tree) -> Path:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder


def pixels(images: Images) -> list[bytes]:
    return [images[index].tobytes() for index in range(len(images))]


def read(splits: Splits) -> tuple[str, list[list[int]], list[list[bytes]]]:
    """Return all that makes two copies the same data: digest, labels and pixels."""
    both = (splits.train, splits.test)
    return splits.digest, [split.labels.tolist() for split in both], [pixels(split.images) for split in both]
