"""Phase I of DP-RandP: images from random processes, pre-training on them, and the resulting extractor."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Extractor, hookimpl
from dpbench_plugins.extractors.randp.extractor import RandPWRN

__all__ = ["RandPWRN", "dpbench_extractors"]


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractor of this package."""
    return [RandPWRN]
