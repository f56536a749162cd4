"""Split data without a published split: a hash chooses about a fifth of the images or people for the test split."""

from __future__ import annotations

import hashlib


def sha256_as_int(content: bytes) -> int:
    """Return the SHA-256 of these bytes, read as a big-endian number."""
    return int.from_bytes(hashlib.sha256(content).digest())


def is_in_test_split(content: bytes) -> bool:
    """Return whether the `sha256_as_int` of these bytes is divisible by five, which puts them in the test split.

    The answer depends on these bytes alone, so a subset of a dataset is split in the same way as the whole.
    """
    return sha256_as_int(content) % 5 == 0
