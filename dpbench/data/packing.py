"""Write a feature pack: the features of a dataset's images, from the cache or newly extracted."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch

from dpbench.api import Dataset, Extractor, Features, Split, Splits
from dpbench.data.cache import find_recorded_engine, load_features
from dpbench.data.concat import Concat
from dpbench.data.keys import KEY_SIZE, ImageKeys, digest_pixels, identify_images
from dpbench.data.packs import FeaturePack
from dpbench.data.reading import ImageMapper
from dpbench.errors import DataError, SpecError
from dpbench.records.pack import PackCard
from dpbench.records.protocol import Component
from dpbench.records.provenance import HARNESS
from dpbench.support.fields import list_changed_fields
from dpbench.support.files import write_atomically
from dpbench.support.plugin_calls import call_plugin
from dpbench.support.progress import show_progress_bar

BATCH = 64  # images between two steps of the progress bar


@dataclass(frozen=True)
class StatedWeightsOrigin:
    """The licence and the training data that the user states for the weights; None leaves it to the extractor."""

    licence: str | None = None
    trained_on: str | None = None

    def fill_from_extractor(self, extractor: Extractor) -> tuple[str, str]:
        """Return the licence and the training data of the weights.

        Raises:
            SpecError: neither the user nor the extractor states the licence, or the training data.
        """
        licence, seen = self.licence or extractor.licence, self.trained_on or extractor.trained_on
        flags = [flag for flag, said in (("--licence", licence), ("--trained-on", seen)) if not said]
        if flags:
            raise SpecError(
                f"Expected {' and '.join(flags)} of the features, which extractor {extractor.name!r} does not state. "
                "Read the page of the weights; `none` and `nothing` are answers."
            )
        return licence, seen


def write_feature_pack(
    file: Path,
    dataset: Dataset,
    extractor: Extractor | Concat,
    weights_origin: StatedWeightsOrigin,
    device: torch.device,
) -> FeaturePack:
    """Write the features of every image of a dataset to a file, in half precision, and return the pack.

    Raises:
        SpecError: the extractor cannot be packed, or nobody states its licence or its training data.
        DataError: the dataset has no images, or a feature does not fit half precision.
        OutputError: the file cannot be written.
    """
    from safetensors.numpy import save

    if isinstance(extractor, Concat) or extractor.made_elsewhere:
        raise SpecError(
            "Expected one extractor that computes features here. Make a pack for each, and join them: pack:A+pack:B."
        )
    licence, seen = weights_origin.fill_from_extractor(extractor)
    splits: Splits = call_plugin(f"load of dataset {dataset.name!r}", dataset.load)
    named = {"train": splits.train, "test": splits.test, "public": splits.public}
    packed = {name: split for name, split in named.items() if split is not None and len(split.images)}
    if not packed or any(isinstance(split.images, Features) for split in packed.values()):
        raise DataError(f"Expected images in dataset {dataset.name!r}, and it has none to pack.")
    keys = {name: identify_images(split, splits.digest, name) for name, split in packed.items()}
    features = np.concatenate(
        [_load_half_precision_features(split, keys[name], extractor, device) for name, split in packed.items()]
    )
    digests = np.frombuffer(b"".join(itertools.chain(*map(_digest_images, packed.values()))), np.uint8)
    digests, rows = np.unique(digests.reshape(-1, KEY_SIZE), axis=0, return_index=True)  # sorted
    features = np.ascontiguousarray(features[rows])
    card = PackCard(
        network=_format_component(extractor), version=extractor.version, weights=extractor.weights(), licence=licence,
        trained_on=seen, dataset=_format_component(dataset), data_licence=dataset.licence,
        images={name: len(split.images) for name, split in packed.items()},
        made_with=f"dpbench {version(HARNESS)}, {find_recorded_engine(keys['train'], extractor)}",
        content=hashlib.sha256(features.tobytes() + digests.tobytes()).hexdigest(),
    )  # fmt: skip
    content = save({"features": features, "digests": digests}, {"card": card.model_dump_json()})
    write_atomically(file, lambda out: out.write(content))
    return FeaturePack.read(file)


def _load_half_precision_features(
    split: Split, images: ImageKeys, extractor: Extractor, device: torch.device
) -> np.ndarray:
    with np.errstate(over="ignore"):  # refused below
        features: np.ndarray = load_features(split, images, extractor, device).numpy().astype("<f2")
    wrong = np.flatnonzero(~np.isfinite(features).reshape(len(features), -1).all(1))
    if len(wrong):
        raise DataError(
            f"Extractor {extractor.name!r} gives image {wrong[0]} of the {images.split} split a feature above 65,504, "
            "the largest number in half precision, so its features cannot be packed."
        )
    return features


def _digest_images(split: Split) -> Iterator[bytes]:
    read = ImageMapper(split.images, digest_pixels, "Reading for a pack")
    with show_progress_bar("Reading images for the pack", len(split.images)) as advance:
        for start in range(0, len(split.images), BATCH):
            batch = range(start, min(start + BATCH, len(split.images)))
            yield from read(batch)
            advance(len(batch))


def _format_component(part: Dataset | Extractor) -> str:
    """Return a component as text, with its non-default options; a path on this machine is cut to its last part."""
    options = {name: _shorten_path(value) for name, value in list_changed_fields(part).items()}
    return str(Component(name=part.name, options=options))


def _shorten_path(value: Any) -> Any:
    return Path(value).name if isinstance(value, str) and Path(value).expanduser().exists() else value
