"""Extraction that reads each image once, for tests that count how often images are read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def compute_alone(opened: Any, batch: Sequence[int], once: Any) -> Any:
    """Compute the features of a batch as the first one's are, without images of other batches."""
    return opened.features(batch, None) if batch else type(once)(once.features[:0])
