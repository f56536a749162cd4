"""Extract features from lazily decoded images, shard by shard."""

from __future__ import annotations

import dataclasses
import hashlib
import io
import itertools
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TypeVar

import numpy as np
import PIL
import torch
from torch import Tensor

from dpbench.api import Extractor, Images
from dpbench.data.engine import BATCH, InferenceEngine, Network, are_features_close, choose_inference_engine
from dpbench.data.outlook import ExtractionEstimate
from dpbench.data.reading import INDEPENDENCE_RULE, find_reached_objects, make_image_preparer
from dpbench.data.resizing.memory import stack_prepared_images, use_batch_memory
from dpbench.errors import DataError, NotPure
from dpbench.privacy.purity.reach import Reach, ReachState
from dpbench.support import progress
from dpbench.support.files import write_atomically
from dpbench.support.plugin_calls import call_plugin

T = TypeVar("T")
RECHECKED_IMAGES = 4  # images of each shard that are read, prepared and embedded again
SHARD = 32 * BATCH - RECHECKED_IMAGES  # images that an interrupted extraction loses at most; the last batch has room
WORKERS = 16  # threads at most that have a batch each: its images and what a network makes of them take memory
SHARD_FORMAT = "3"  # of a shard; raise it when shards come out otherwise, and no earlier one is taken for whole


def extract_features(
    images: Images,
    extractor: Extractor,
    folder: Path,
    engine: InferenceEngine,
    rows: Sequence[int] | None = None,
    keys: np.ndarray | None = None,
) -> Iterator[np.ndarray]:
    """Yield the features of images in order, one shard (up to 1024, *example_shape) at a time.

    Features are float32, or float16 if the extractor returns float16. Finished shards are kept in `folder`, so a second
    call after an interruption continues after the last finished shard.

    Args:
        images: the images of a split.
        extractor: makes the features.
        folder: where shards are kept.
        engine: computes the network.
        rows: the images to extract; None extracts all images.
        keys: (n, 32) uint8, of all images; a stored shard is used only for the images that it was made of.

    Raises:
        DataError: a feature is not finite, or images do not stack.
        ComponentFailed: the extractor raised.
        OutputError: the features do not fit on the disk; raised after the first batch.
    """
    shape: tuple[int, ...] | None = None
    rows = range(len(images)) if rows is None else rows
    folder.mkdir(parents=True, exist_ok=True)
    with progress.show_progress_bar(f"Extracting {extractor.name}", len(rows)) as advance, _thread_pool() as pool:
        outlook, left = ExtractionEstimate(extractor, engine.device, folder, len(images)), len(rows)
        shards = _read_or_submit_shards(images, extractor, folder, engine, rows, keys, pool)
        for shard in _prefetch_next(shards):  # threads compute while a shard is written
            features = shard.stored
            if features is None:
                assert shard.opened is not None
                parts, unwritten = [], left
                for part in _collect_batch_features(shard.opened, shard.batches):
                    parts.append(part)
                    advance(len(part))
                    left -= len(part)
                    outlook.update(part, shard.opened.side, left, unwritten)
                features = _concatenate_feature_parts(parts, extractor)
                _write_shard(shard.file, features, shard.made_of)
            else:
                advance(len(features))
                left -= len(features)
            shape = shape or features.shape[1:]
            check_equal_shapes({shape, features.shape[1:]}, extractor)
            yield features


@dataclasses.dataclass(frozen=True)
class _FeatureShard:
    """A shard of features: read from disk, or still being computed batch by batch."""

    file: Path
    made_of: bytes  # the environment and the images of its features
    stored: np.ndarray | None
    opened: LoadedExtractor | None = None
    batches: Sequence[Future[_ComputedBatch]] = ()


def _read_or_submit_shards(
    images: Images, extractor: Extractor, folder: Path, engine: InferenceEngine, rows: Sequence[int],
    keys: np.ndarray | None,
    pool: Executor,
) -> Iterator[_FeatureShard]:  # fmt: skip
    """Yield each shard, either read from the disk or submitted to the pool batch by batch."""
    made, opened = describe_environment(engine).encode(), None
    for start in range(0, len(rows), SHARD):
        part, file = rows[start : start + SHARD], folder / f"shard-{start:09d}.npy"
        made_of = made + (b"" if keys is None else keys[np.asarray(part)].tobytes())
        stored = _read_shard(file, len(part), made_of)
        if stored is None:
            opened = opened or LoadedExtractor(images, extractor, engine)
            yield _FeatureShard(file, made_of, None, opened, _submit_batches(opened, part, pool))
        else:
            yield _FeatureShard(file, made_of, stored)


def _prefetch_next(items: Iterator[T]) -> Iterator[T]:
    """Fetch the next item before yielding each one, so that the pool computes the next shard meanwhile."""
    waiting = [*itertools.islice(items, 1)]
    for item in items:
        waiting.append(item)
        yield waiting.pop(0)
    yield from waiting


def embed_images(images: Images, extractor: Extractor, device: torch.device) -> Tensor:
    """Return the features (n, *example_shape) float32 of one or more images, without storing them.

    Raises:
        DataError: a feature is not finite, an image cannot be decoded, or images do not stack.
        ComponentFailed: the extractor raised.
    """
    with progress.show_progress_bar(f"Extracting {extractor.name}", len(images)) as advance, _thread_pool() as pool:
        parts = []
        engine = choose_inference_engine(extractor, device, len(images))
        opened = LoadedExtractor(images, extractor, engine)
        for part in _collect_batch_features(opened, _submit_batches(opened, range(len(images)), pool)):
            parts.append(part)
            advance(len(part))
    return torch.from_numpy(_concatenate_feature_parts(parts, extractor)).float()


def _concatenate_feature_parts(parts: Sequence[np.ndarray], extractor: Extractor) -> np.ndarray:
    check_equal_shapes({part.shape[1:] for part in parts}, extractor)
    return np.ascontiguousarray(np.concatenate(parts))


def make_npy_header(shape: tuple[int, ...], dtype: np.dtype) -> bytes:
    """Return the header of a NumPy file, which `numpy.load` expects before the numbers."""
    content = io.BytesIO()
    np.lib.format.write_array_header_1_0(content, {"descr": dtype.str, "fortran_order": False, "shape": shape})
    return content.getvalue()


def describe_environment(engine: InferenceEngine) -> str:
    """Describe the software and device that a feature's bits depend on; rows of two environments are never mixed."""
    return f"{SHARD_FORMAT} {engine.name}, Pillow {PIL.__version__}, {engine.device.type}, {BATCH}"


def _write_shard(shard: Path, features: np.ndarray, made_of: bytes) -> None:
    content = (make_npy_header(features.shape, features.dtype), features.data)
    digest = _shard_digest(content, made_of)
    write_atomically(shard, lambda file: file.writelines((*content, digest)))


def _read_shard(shard: Path, rows: int, made_of: bytes) -> np.ndarray | None:
    """Read a shard; return None if it is incomplete, or was made in another environment or from other images.

    The last 32 bytes of the file are its digest.
    """
    try:
        content = shard.read_bytes()
        if _shard_digest((memoryview(content)[:-32],), made_of) != content[-32:]:
            return None
        features: np.ndarray = np.load(io.BytesIO(content), allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    return features if len(features) == rows else None


def _shard_digest(content: Iterable[bytes | memoryview], made_of: bytes) -> bytes:
    digest = hashlib.sha256(made_of)
    for piece in content:
        digest.update(piece)
    return digest.digest()


@dataclasses.dataclass(frozen=True)
class _ComputedBatch:
    """The features of a batch, and what is kept of some of its images to compare it with a second computation."""

    features: np.ndarray  # (c, *example_shape)
    images: Sequence[int] = ()
    prepared: Sequence[Tensor] = ()
    embedded: np.ndarray = dataclasses.field(default_factory=lambda: np.empty(0))


class LoadedExtractor:
    """Images and a loaded extractor, with checks that an image's features depend on that image alone.

    Some images of one randomly drawn batch of each shard are computed a second time: a fresh instance of the extractor
    reads and prepares them again in another order, and the network computes them again in the shard's last batch, among
    other images. Once per extraction, a freshly loaded network computes this last batch, and one image alone. After its
    first batch, the network must not change any object that it reaches.
    """

    def __init__(self, images: Images, extractor: Extractor, engine: InferenceEngine) -> None:
        self.extractor, self._engine = extractor, engine
        self._images, self._prepare = images, make_image_preparer(images, extractor)
        self._network = engine.open(extractor)
        self._compared_fresh = False
        self._alone = threading.Lock()  # no network is loaded while all that a preparation reaches is compared
        self.settled = engine.is_stateless
        self.side = 0  # of a prepared image, in pixels; 0 where it is none any more
        self._reached: tuple[Reach, ReachState] | None = None  # by the network, after its first batch
        self.generator = np.random.default_rng()  # whoever knew when images are compared could behave just then

    def features(self, batch: Sequence[int], kept: Sequence[int] | None) -> _ComputedBatch:
        """Return the features of a batch; `kept` lists the places of images that will be computed again."""
        prepared = self._prepare_batch(batch, thorough=kept is not None)
        embedded = _embed_batch(self._network, _pad_batch(stack_prepared_images(prepared)), batch, self.extractor)
        if not self.settled:
            self._record_network_state()
        places = list(kept or ())
        images, clones = [batch[place] for place in places], [prepared[place].clone() for place in places]
        return _ComputedBatch(embedded, images, clones, embedded[places])

    def features_beside(self, batch: Sequence[int], once: _ComputedBatch) -> _ComputedBatch:
        """Return the features of a batch; compute beside it the kept images of another one, and compare them.

        Raises:
            DataError: an image is prepared otherwise, or gets other features.
        """
        fresh: Extractor = dataclasses.replace(self.extractor)  # type: ignore[type-var]
        again = make_image_preparer(self._images, fresh)(once.images)
        for index, first, second in zip(once.images, once.prepared, again, strict=True):
            _check_repeated_preparation(first, second, index, fresh)
        prepared = self._prepare_batch(batch, thorough=False) if batch else []
        network = self._network
        if not self._compared_fresh:  # loading weights takes time
            with self._alone:
                self._compared_fresh, network = True, self._engine.open(fresh)
            alone = _embed_batch(network, _pad_batch(torch.stack(again[:1])), once.images[:1], self.extractor)
            self._check_repeated_features(alone, once)
        check_equal_shapes({tuple(image.shape) for image in (*prepared, *again)}, self.extractor)
        together = _pad_batch(torch.stack([*prepared, *again]))
        embedded = _embed_batch(network, together, [*batch, *once.images], self.extractor)
        features, repeated = embedded[: len(batch)], embedded[len(batch) :]
        self._check_repeated_features(repeated, once)
        return _ComputedBatch(features)

    def _check_repeated_features(self, repeated: np.ndarray, first_batch: _ComputedBatch) -> None:
        expected = first_batch.embedded[: len(repeated)]
        if not are_features_close(torch.from_numpy(repeated), torch.from_numpy(expected)):
            raise DataError(
                f"The features that extractor {self.extractor.name!r} gives an image change with the other images that "
                "it sees: expected them to follow from that image alone. Call eval() on the network, use no batch "
                "statistics, and keep no state between images."
            )

    def check_network_unchanged(self) -> None:
        """Check that the network has not changed since its first batch.

        Raises:
            NotPure: the network has changed; the message names what changed.
        """
        if self._reached is None:
            return
        reach, reading = self._reached
        if change := reach.find_change(reading, reach.read()):
            raise NotPure(
                f"Extractor {self.extractor.name!r} changed what its network reaches: {change}. {INDEPENDENCE_RULE}"
            )

    def _record_network_state(self) -> None:
        reach, self.settled = find_reached_objects(self._network, thorough=False), True
        self._reached = None if reach is None else (reach, reach.read())

    def _prepare_batch(self, batch: Sequence[int], *, thorough: bool) -> list[Tensor]:
        with self._alone if thorough else nullcontext(), use_batch_memory(BATCH):
            prepared = self._prepare(batch, thorough=thorough)
        check_equal_shapes({tuple(image.shape) for image in prepared}, self.extractor)
        self.side = prepared[0].shape[-1] if prepared[0].ndim == 3 else 0
        return prepared


def _check_repeated_preparation(prepared: Tensor, prepared_again: Tensor, index: int, extractor: Extractor) -> None:
    same = prepared.shape == prepared_again.shape and prepared.dtype == prepared_again.dtype
    if not same or not torch.equal(prepared.nan_to_num(), prepared_again.nan_to_num()):
        raise DataError(
            f"Extractor {extractor.name!r} prepares image {index} differently when a fresh instance prepares it in "
            f"another order. {INDEPENDENCE_RULE}"
        )


def _submit_batches(opened: LoadedExtractor, rows: Sequence[int], pool: Executor) -> list[Future[_ComputedBatch]]:
    """Have the pool compute the features of images, batch by batch."""
    *batches, last = _split_into_batches(rows)
    drawn = int(opened.generator.integers(len(batches)))
    submitted: list[Future[_ComputedBatch]] = []
    for place, batch in enumerate(batches):
        kept = opened.generator.permutation(len(batch))[:RECHECKED_IMAGES].tolist() if place == drawn else None
        submitted.append(pool.submit(opened.features, batch, kept))
        if not opened.settled:  # the first batch is alone, as what the network makes there is no change
            submitted[0].result()
    once = submitted[drawn]  # which has begun before the last batch does, so the last one can wait for it
    return [*submitted, pool.submit(lambda: opened.features_beside(last, once.result()))]


def _split_into_batches(rows: Sequence[int]) -> list[Sequence[int]]:
    """Cut images into batches; the last one, which may be empty, has room for images of the others."""
    batches = [rows[first : first + BATCH] for first in range(0, len(rows), BATCH)]
    has_room = len(batches) > 1 and len(batches[-1]) <= BATCH - RECHECKED_IMAGES
    return batches if has_room else [*batches, ()]


def _collect_batch_features(opened: LoadedExtractor, batches: Sequence[Future[_ComputedBatch]]) -> Iterator[np.ndarray]:
    """Yield the features of each batch once they are computed; then check that the network has not changed."""
    for batch in batches:
        features = batch.result().features
        if len(features):
            yield features
    opened.check_network_unchanged()


@contextmanager
def _thread_pool() -> Iterator[Executor]:
    """Yield a thread pool that decodes and embeds one batch per thread; torch's threads are divided among them.

    While one thread decodes and prepares images, the others compute the network, so that no core waits for images.

    A network on few images spends much of its time waiting for its slowest thread. Several batches at once, with one
    thread per batch, are up to three times as fast, and even faster on a busy machine.
    """
    threads = torch.get_num_threads()
    workers = min(threads, WORKERS)
    pool = ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(threads // workers,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)
        torch.set_num_threads(threads)


def _pad_batch(prepared: Tensor) -> Tensor:
    """Pad a short batch with its last image, because the last bits of features can depend on the batch size."""
    if len(prepared) == BATCH:
        return prepared
    return torch.cat([prepared, prepared[-1:].expand(BATCH - len(prepared), *prepared.shape[1:])])


def check_equal_shapes(shapes: set[tuple[int, ...]], extractor: Extractor) -> None:
    """Check that all features, or all prepared images, have the same shape and can be stacked.

    Raises:
        DataError: there is more than one shape; the message says what to do.
    """
    if len(shapes) > 1:
        # (channels, height, width): grey among colour. Of flattened images nobody knows.
        channels = {len(shape) for shape in shapes} == {3} and len({shape[1:] for shape in shapes}) == 1
        advice = (
            "The channels alone differ: use an extractor that makes all images grey or RGB, such as pixels:mode=RGB."
            if channels
            else "Use an extractor that resizes, and converts where grey meets RGB, such as pixels:size=32,mode=RGB."
        )
        raise DataError(
            f"Expected images of one shape from extractor {extractor.name!r}, got {sorted(shapes)}. {advice}"
        )


def _embed_batch(network: Network, prepared: Tensor, batch: Sequence[int], extractor: Extractor) -> np.ndarray:
    """Return the features of a batch, (len(batch), *example_shape), without the features of its padding."""
    what = f"Extractor {extractor.name!r} on images {batch[0]} to {batch[-1]}"
    features = call_plugin(what, lambda: _convert_to_cpu_float(network(prepared)))
    if len(features) != len(prepared):
        raise DataError(
            f"Extractor {extractor.name!r} returned {len(features)} rows for a batch of {len(prepared)} images; "
            "expected one each."
        )
    features = features[: len(batch)]
    bad = (~features.isfinite()).flatten(1).any(1).nonzero()
    if len(bad):
        raise DataError(
            f"Extractor {extractor.name!r} gave a feature that is not finite for image {batch[int(bad[0])]}. "
            "Features must be finite numbers; check the image and the weights."
        )
    array: np.ndarray = features.numpy()
    return array


def _convert_to_cpu_float(features: Tensor) -> Tensor:
    return features.to("cpu", torch.float16 if features.dtype == torch.float16 else torch.float32)
