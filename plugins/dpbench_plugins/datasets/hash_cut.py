"""A cut for data without a published split: a hash of each image or person alone sends a fifth to the test split."""

from __future__ import annotations

import hashlib


def hash_number(content: bytes) -> int:
    """Return the SHA-256 of these bytes, read as a big-endian number."""
    return int.from_bytes(hashlib.sha256(content).digest())


def is_in_test_split(content: bytes) -> bool:
    """Return whether these bytes belong to the test split: their `hash_number` is divisible by five.

    The answer depends on these bytes alone, so a subset of a dataset is split in the same way as the whole.
    """
    return hash_number(content) % 5 == 0
