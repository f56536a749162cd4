"""Store the unit of each test image, such as its lesion or patient, as text in a result. No torch here."""

from __future__ import annotations

import base64
import binascii

import numpy as np

TYPE = np.dtype("<u4")


def encode_units(units: np.ndarray) -> str:
    """Encode the units (n,) of test images as base64, renumbered 0, 1, 2 ... in order of first appearance.

    >>> encode_units(np.array([7, 7, 3])) == encode_units(np.array([0, 0, 9]))
    True
    """
    _, first, places = np.unique(units, return_index=True, return_inverse=True)
    return base64.b64encode(np.argsort(np.argsort(first))[places].astype(TYPE).tobytes()).decode()


def decode_units(text: str, test: int) -> np.ndarray:
    """Decode the units (n,) of n = `test` test images.

    Raises:
        ValueError: the text is not base64, has the wrong length, or its units are not numbered by first appearance.

    >>> decode_units(encode_units(np.array([7, 7, 3])), 3).tolist()
    [0, 0, 1]
    """
    try:
        raw = base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"expected base64: {error}") from None
    if len(raw) != TYPE.itemsize * test:
        size = TYPE.itemsize * test
        raise ValueError(f"expected {size:,} bytes, a number for each of {test:,} images, got {len(raw):,}")
    units = np.frombuffer(raw, TYPE).astype(np.int64)
    if encode_units(units) != text:
        raise ValueError("expected units that are numbered 0, 1, 2 ... by their first image")
    return units
