"""From lazily decoded images to an array of features, shard by shard."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpbench import progress
from dpbench.api import Extractor, Images
from dpbench.errors import DataError
from dpbench.files import write_atomically
from dpbench.guard import guarded

SHARD = 1024  # images: what an interrupted extraction loses at most
BATCH = 32  # images a network sees at once: larger ones are slower on a CPU, whose cache they leave


def extract(images: Images, extractor: Extractor, folder: Path, device: torch.device) -> Iterator[np.ndarray]:
    """Yield the features of all images in order, one shard (up to 1024, *example_shape) float32 at a time.

    Finished shards are kept in `folder`, so a second call after an interruption goes on where the first one stopped.

    Raises:
        DataError: a feature is not finite, or images do not stack.
        ComponentFailed: the extractor raised.
    """
    starts = range(0, len(images), SHARD)
    shape: tuple[int, ...] | None = None
    with progress.meter(f"Extracting {extractor.name}", len(images)) as advance:
        network: Callable[[Tensor], Tensor] | None = None
        for start in starts:
            rows = range(start, min(start + SHARD, len(images)))
            shard = folder / f"shard-{start:09d}.npy"
            features = _kept(shard, len(rows))
            if features is None:
                network = network or guarded(f"Opening extractor {extractor.name!r}", extractor.open, device)
                features = _shard(images, rows, extractor, network)
                _keep(shard, features)
            shape = shape or features.shape[1:]
            _check_shapes({shape, features.shape[1:]}, extractor)
            advance(len(rows))
            yield features


def _keep(shard: Path, features: np.ndarray) -> None:
    content = io.BytesIO()
    np.save(content, features, allow_pickle=False)
    digest = hashlib.sha256(content.getbuffer()).digest()
    write_atomically(shard, lambda file: file.write(content.getvalue() + digest))


def _kept(shard: Path, rows: int) -> np.ndarray | None:
    """Return a shard of an earlier extraction if it is whole: its last 32 bytes are the SHA-256 of the rest."""
    try:
        content = shard.read_bytes()
        if hashlib.sha256(content[:-32]).digest() != content[-32:]:
            return None
        features: np.ndarray = np.load(io.BytesIO(content[:-32]), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return features if len(features) == rows else None


def _shard(images: Images, rows: range, extractor: Extractor, network: Callable[[Tensor], Tensor]) -> np.ndarray:
    batches = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    parts = []
    with ThreadPoolExecutor(1) as pool:  # decodes the next batch while the network works on this one
        ahead = pool.submit(_prepare, images, batches[0], extractor)
        for batch, following in zip(batches, [*batches[1:], None], strict=True):
            prepared = ahead.result()
            if following is not None:
                ahead = pool.submit(_prepare, images, following, extractor)
            parts.append(_embed(network, prepared, batch, extractor))
    _check_shapes({part.shape[1:] for part in parts}, extractor)
    return np.concatenate(parts)


def _prepare(images: Images, batch: range, extractor: Extractor) -> Tensor:
    prepared = []
    for index in batch:
        try:
            image = images[index]
        except Exception as error:  # whatever a decoder raises
            raise DataError(f"Image {index} cannot be decoded: {error} Remove or replace it at its source.") from error
        prepared.append(guarded(f"Extractor {extractor.name!r} on image {index}", extractor.prepare, image))
    _check_shapes({tuple(image.shape) for image in prepared}, extractor)
    return torch.stack(prepared)


def _check_shapes(shapes: set[tuple[int, ...]], extractor: Extractor) -> None:
    if len(shapes) > 1:
        raise DataError(
            f"Expected images of one shape from extractor {extractor.name!r}, got {sorted(shapes)}. "
            "Use an extractor that resizes, such as pixels:size=32."
        )


def _embed(network: Callable[[Tensor], Tensor], prepared: Tensor, batch: range, extractor: Extractor) -> np.ndarray:
    what = f"Extractor {extractor.name!r} on images {batch[0]} to {batch[-1]}"
    features = guarded(what, lambda: network(prepared).to("cpu", torch.float32))
    if len(features) != len(batch):
        raise DataError(
            f"Extractor {extractor.name!r} returned {len(features)} rows for {len(batch)} images; expected one each."
        )
    bad = (~features.isfinite()).flatten(1).any(1).nonzero()
    if len(bad):
        raise DataError(
            f"Extractor {extractor.name!r} gave a feature that is not finite for image {batch[int(bad[0])]}. "
            "Features must be finite numbers; check the image and the weights."
        )
    array: np.ndarray = features.numpy()
    return array
