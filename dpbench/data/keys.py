"""Identify images by keys: digests of their stored bytes, together with the reader that decodes them.

Features and hashes are cached under these keys. Labels, units, class folders, the name of the split, options of the
dataset and the command do not change an image, so they are not part of its key. Cached features are therefore found
again by `dpbench advise`, after a patient table is added to a folder, and for the old images of a folder that has
grown. If only the dataset's digest is known (rows of HDF5 files, columns of the hub, a million files that nobody reads
in full), the images are identified as a whole by digest, split and number of rows.

A key is a SHA-256. The CRC-32 that a zip lists cannot be a key: two images can have the same CRC-32.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench.api import Records, Split
from dpbench.errors import DataError
from dpbench.support.files import canonical_digest

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

KEY_SIZE = 32  # bytes of a key


@dataclass(frozen=True)
class ImageKeys:
    """The keys and the digest that identify a split's images, in order."""

    split: str  # its name, to describe what is kept
    rows: int
    digest: str  # equal for equal images, read alike, in the same order
    reader: str  # how stored bytes become pixels; empty where images have no keys
    keys: np.ndarray | None  # (n, 32) uint8; None: the images are known as a whole only


def identify_images(split: Split, data: str, name: str) -> ImageKeys:
    """Return the keys of a split's images; `data` is the digest of the dataset, `name` the name of the split.

    Raises:
        DataError: a key is no SHA-256, or an image whose bytes are needed cannot be read.
    """
    rows, images = len(split.labels), split.images
    keys = _image_keys(images, name) if isinstance(images, Records) and images.reader else None
    if keys is None or not isinstance(images, Records):
        whole = canonical_digest({"data": data, "split": name, "rows": rows})
        return ImageKeys(name, rows, whole, "", None)
    digest = canonical_digest({"images": hashlib.sha256(keys.tobytes()).hexdigest(), "reader": images.reader})
    return ImageKeys(name, rows, digest, images.reader, keys)


def _image_keys(images: Records[Any], name: str) -> np.ndarray | None:
    import numpy as np

    keys = images.stored_digests
    if keys is None:
        return None
    for place, key in enumerate(keys):
        if not isinstance(key, bytes) or len(key) != KEY_SIZE:
            raise DataError(
                f"Expected the SHA-256 of stored bytes ({KEY_SIZE} bytes) as keys of the {name} split's Records, got "
                f"{key!r:.80} for image {place}."
            )
    return np.frombuffer(b"".join(keys), np.uint8).reshape(-1, KEY_SIZE)


def digest_pixels(image: Image) -> bytes:
    """Return the SHA-256 of a decoded image: its mode, its size and its pixels, without a palette."""
    if image.mode in {"P", "PA"}:  # places in a palette are no pixels
        image = image.convert("RGBA")
    return hashlib.sha256(f"{image.mode} {image.size}".encode() + image.tobytes()).digest()
