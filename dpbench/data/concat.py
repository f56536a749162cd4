"""Concatenate the features of several extractors; each part is flattened and scaled to norm 1."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench.api import Extractor

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Concat:
    """Two or more extractors whose features are concatenated, so that their dimensions add up.

    It is not an `Extractor` and never runs: the feature cache extracts each part alone and concatenates the features.
    """

    parts: tuple[Extractor, ...]


def describe_training_data(extractor: Extractor | Concat) -> str | None:
    """Return what the weights of an extractor, or of its parts, were trained on; None if no part states it."""
    parts = extractor.parts if isinstance(extractor, Concat) else (extractor,)
    if not any(part.trained_on for part in parts):
        return None
    return ", ".join(dict.fromkeys(part.trained_on or "not stated" for part in parts))


def describe_feature_origin(extractor: Extractor | Concat) -> str | None:
    """Return the origins of parts whose features were made elsewhere; None if this machine computes all features."""
    parts = extractor.parts if isinstance(extractor, Concat) else (extractor,)
    return ", ".join(filter(None, (part.made_elsewhere for part in parts))) or None


def concatenate_features(parts: Sequence[Tensor]) -> Tensor:
    """Concatenate parts (c, ...) to rows (c, d). Each part of a row is scaled to norm 1; a part of zeros stays zero.

    Networks differ in the scale of their features: without scaling, the network with the largest features would
    dominate distances and principal components. Each row is mapped on its own, so neighbouring datasets stay
    neighbours.
    """
    import torch
    from torch.nn.functional import normalize

    return torch.cat([normalize(part.flatten(1), dim=1) for part in parts], 1)
