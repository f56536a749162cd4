"""The handwritten digits of scikit-learn, read from scikit-learn's data file. It registers nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpbench import Records, Split, Splits

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

PROCESSING = "its grey levels as published, times 255 / 16 and rounded"


def decode_digit(levels: bytes) -> Image:
    """Return an 8x8 image from 64 grey levels 0..16, one byte each."""
    import numpy as np
    from PIL import Image

    return Image.fromarray(scale_grey_levels(np.frombuffer(levels, np.uint8)).reshape(8, 8))


def scale_grey_levels(levels: np.ndarray) -> np.ndarray:
    """Scale grey levels from 0..16 to 0..255, uint8."""
    import numpy as np

    pixels: np.ndarray = np.round(levels * (255 / 16)).astype(np.uint8)
    return pixels


def read_digits_table() -> np.ndarray:
    """Return each image's 64 grey levels and its digit, (1797, 65) uint8: the data of scikit-learn's `load_digits`.

    The file is read directly, because importing scikit-learn takes a second and imports pandas.
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

    table = read_digits_table()
    levels, labels = table[:, :-1].reshape(-1, 8, 8), table[:, -1].astype(np.int64)
    digest = hashlib.sha256(scale_grey_levels(levels).tobytes() + labels.tobytes()).hexdigest()
    test = np.arange(len(labels)) % 5 == 4
    train, held_out = (Split(_make_records(levels[rows]), labels[rows]) for rows in (~test, test))
    return Splits(train, held_out, digest)


def _make_records(levels: np.ndarray) -> Records[bytes]:
    return Records([image.tobytes() for image in levels], decode_digit, PROCESSING, reader="digits-1")
