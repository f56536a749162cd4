"""Phase I of DP-RandP: images from random processes, pre-training on them, and the resulting extractor."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench import Extractor, hookimpl
from dpbench_plugins.extractors.randp.extractor import RandPDeepWRN, RandPResNet9, RandPWRN

__all__ = ["RandPDeepWRN", "RandPResNet9", "RandPWRN", "dpbench_extractors"]


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this package."""
    return [RandPWRN, RandPDeepWRN, RandPResNet9]
