"""The handwritten digits of scikit-learn, read from its own file. It registers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbench import Records, Split, Splits

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

PROCESSING = "its grey levels as published, times 255 / 16 and rounded"


def read_digit(levels: bytes) -> Image:
    """Return the image of 64 grey levels 0..16, a byte each."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(scale_levels(np.frombuffer(levels, np.uint8)).reshape(8, 8))


def scale_levels(levels: np.ndarray) -> np.ndarray:
    """Return grey levels 0..16 as 0..255, uint8."""
    import numpy as np

    pixels: np.ndarray = np.round(levels * (255 / 16)).astype(np.uint8)
    return pixels


def read_table() -> np.ndarray:
    """Return 64 grey levels and the digit of each image, (1797, 65) uint8, as scikit-learn's `load_digits` does.

    It reads scikit-learn's file itself, because importing scikit-learn takes a second and imports pandas.
    """
    import gzip
    from importlib.metadata import distribution
    from pathlib import Path

    import numpy as np

    file = Path(str(distribution("scikit-learn").locate_file("sklearn/datasets/data/digits.csv.gz")))
    words = gzip.decompress(file.read_bytes()).decode().replace(",", " ").split()
    return np.frombuffer(bytes(map(int, words)), np.uint8).reshape(-1, 65)


def open_digits() -> Splits:
    """Open the two splits: every fifth image is a test image."""
    import hashlib

    import numpy as np

    table = read_table()
    levels, labels = table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    digest = hashlib.sha256(scale_levels(levels).tobytes() + labels.tobytes()).hexdigest()
    test = np.arange(len(labels)) % 5 == 4
    train, held_out = (Split(_records(levels[rows]), labels[rows]) for rows in (~test, test))
    return Splits(train, held_out, digest)


def _records(levels: np.ndarray) -> Records[bytes]:
    return Records([image.tobytes() for image in levels], read_digit, PROCESSING, reader="digits-1")
