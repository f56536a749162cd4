"""Extract the features of the mirror images of public images, for learners that read them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import ImageOps
from PIL.Image import Image
from torch import Tensor

from dpbench.api import Features, Images, Records, Split
from dpbench.data import cache
from dpbench.data.keys import identify_images
from dpbench.harness.split_images import SplitImages
from dpbench.support.files import canonical_digest


@dataclasses.dataclass(frozen=True)
class LazyMirrorImages:
    """The mirror images of some images, each made when it is read."""

    images: Images
    rows: Sequence[int]

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.rows)

    def __getitem__(self, index: int, /) -> Image:
        """Return the mirror image at this index."""
        return ImageOps.mirror(self.images[self.rows[index]])


def load_mirrored_features(images: SplitImages) -> Tensor | None:
    """Return the features (m, ...) of the mirror images of all public images.

    Return None if the public examples are features, not images, or if there are none. The features are cached like all
    others. Private images are neither read nor mirrored.

    Raises:
        DpbenchError: an image or the extractor fails.
    """
    source, found = images.source, []
    for split, rows, name in _list_public_parts(images):
        if isinstance(split.images, Features):
            return None
        mirrored = make_mirrored_split(split, rows)
        data = canonical_digest({"mirrored": images.other.digest, "split": name, "rows": rows})
        keys = identify_images(mirrored, data, f"mirrored {name}")
        found.append(cache.load_features(mirrored, keys, source.parts.extractor, source.device))
    return torch.cat(found).to(source.device, torch.float32) if found else None


def make_mirrored_split(split: Split, rows: Sequence[int]) -> Split:
    """Return the mirror images of some images of a split, with their labels; `split` must not hold features."""
    labels, kept = split.labels[np.asarray(rows, np.int64)], split.images
    if not isinstance(kept, Records):
        assert not isinstance(kept, Features)
        return Split(LazyMirrorImages(kept, rows), labels)
    records = dataclasses.replace(
        kept,
        places=[kept.places[row] for row in rows],
        read=partial(_read_mirrored_image, kept.read),
        keys=None if kept.keys is None else [kept.keys[row] for row in rows],
        reader=kept.reader and f"{kept.reader}, mirrored",
    )
    return Split(records, labels)


def _read_mirrored_image(read: Callable[[Any], Image], record_place: Any) -> Image:
    return ImageOps.mirror(read(record_place))


def _list_public_parts(images: SplitImages) -> list[tuple[Split, list[int], str]]:
    """Return each split that holds public images, the indices of these images, and the name of the split."""
    train = images.other.train
    own = images.public.tolist() if images.other is images.splits else list(range(len(train.labels)))
    parts = [(train, own, "train")]
    if images.provided_public is not None:
        parts.append((images.provided_public, list(range(len(images.provided_public.labels))), "public"))
    return [part for part in parts if part[1]]
