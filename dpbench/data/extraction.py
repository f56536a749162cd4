"""From lazily decoded images to an array of features, shard by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from dpbench import progress
from dpbench.api import Extractor, Images
from dpbench.errors import ComponentFailed, DataError
from dpbench.files import write_atomically

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
    with progress.meter(f"Extracting {extractor.name}", len(images)) as advance:
        network: Callable[[Tensor], Tensor] | None = None
        for start in starts:
            rows = range(start, min(start + SHARD, len(images)))
            shard = folder / f"shard-{start:09d}.npy"
            features = _kept(shard, len(rows))
            if features is None:
                network = network or extractor.open(device)
                features = _shard(images, rows, extractor, network)
                write_atomically(shard, partial(np.save, arr=features, allow_pickle=False))
            advance(len(rows))
            yield features


def _kept(shard: Path, rows: int) -> np.ndarray | None:
    try:
        features: np.ndarray = np.load(shard, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return features if len(features) == rows else None


def _shard(images: Images, rows: range, extractor: Extractor, network: Callable[[Tensor], Tensor]) -> np.ndarray:
    batches = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    parts = []
    with ThreadPoolExecutor(1) as pool:  # decodes the next batch while the network works on this one
        ahead = pool.submit(_prepare, images, batches[0], extractor)
        for batch, following in zip(batches, [*batches[1:], None], strict=True):
            ready: Future[Tensor] = ahead
            prepared = ready.result()
            if following is not None:
                ahead = pool.submit(_prepare, images, following, extractor)
            parts.append(_embed(network, prepared, batch, extractor.name))
    return np.concatenate(parts)


def _prepare(images: Images, batch: range, extractor: Extractor) -> Tensor:
    prepared = [extractor.prepare(images[index]) for index in batch]
    shapes = {tuple(image.shape) for image in prepared}
    if len(shapes) > 1:
        raise DataError(
            f"Expected images of one shape from extractor {extractor.name!r}, got {sorted(shapes)}. "
            "Use an extractor that resizes, such as pixels:size=32."
        )
    return torch.stack(prepared)


def _embed(network: Callable[[Tensor], Tensor], prepared: Tensor, batch: range, name: str) -> np.ndarray:
    try:
        features = network(prepared).to("cpu", torch.float32)
    except Exception as error:  # whatever a stranger's network raises
        raise ComponentFailed(
            f"Extractor {name!r} failed on images {batch[0]} to {batch[-1]}: {type(error).__name__}: {error}"
        ) from error
    if len(features) != len(batch):
        raise DataError(f"Extractor {name!r} returned {len(features)} rows for {len(batch)} images; expected one each.")
    bad = (~features.isfinite()).flatten(1).any(1).nonzero()
    if len(bad):
        raise DataError(
            f"Extractor {name!r} gave a feature that is not finite for image {batch[int(bad[0])]}. "
            "Features are public transforms of images and must be finite; check the image and the weights."
        )
    return features.numpy()
