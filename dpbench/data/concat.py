"""Several extractors at once: the features of each, flattened and of norm 1, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.api import Extractor

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Concat:
    """Two or more extractors, d the sum of theirs.

    It is no `Extractor` and never runs: the feature cache extracts each part alone and puts their features together.
    """

    parts: tuple[Extractor, ...]


def concatenate(parts: Sequence[Tensor]) -> Tensor:
    """Return rows (c, d) of the parts' rows (c, ...), each part's divided by its norm; a row of zeros stays.

    Networks differ in the scale of their features: as they are, the one of largest scale would decide distances and
    principal components alone. It is a map of each row on its own, so neighbouring datasets stay neighbouring.
    """
    import torch
    from torch.nn.functional import normalize

    return torch.cat([normalize(part.flatten(1), dim=1) for part in parts], 1)
