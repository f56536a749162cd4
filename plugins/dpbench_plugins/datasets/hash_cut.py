"""Split data that has no published split: a hash of each image or person sends a fifth of them to the test split."""

from __future__ import annotations

import hashlib


def hash_number(content: bytes) -> int:
    """Return the SHA-256 of these bytes, read as a big-endian number."""
    return int.from_bytes(hashlib.sha256(content).digest())


def is_in_test_split(content: bytes) -> bool:
    """Return whether the `hash_number` of these bytes is divisible by five, which puts them in the test split.

    The answer depends on these bytes alone, so a subset of a dataset is split in the same way as the whole.
    """
    return hash_number(content) % 5 == 0
