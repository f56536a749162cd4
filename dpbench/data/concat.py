"""Several extractors at once: the features of each, flattened, side by side."""

from __future__ import annotations

from dataclasses import dataclass

from dpbench.api import Extractor


@dataclass(frozen=True)
class Concat:
    """Two or more extractors, d the sum of theirs.

    It is no `Extractor` and never runs: the feature cache extracts each part alone and puts their features together.
    """

    parts: tuple[Extractor, ...]
