"""Cache features: extract them once, share them by memory map, and reject files that fail their checksum.

Layout below `cache_folder()`::

    features/<key>/features.npy    (n, *example_shape) float32, or float16 if the extractor returns that
    features/<key>/keys.bin        the keys of the n images, if they have keys; other entries look up rows by them
    features/<key>/manifest.json   the inputs of the key, and the checksums of the other files
    features/<key>.partial/        shards of an unfinished extraction
    features/<key>.lock            held by the one process that extracts

The key is a digest of the images in their order (`keys`), the extractor, its version, its weights, and the options that
differ from their defaults, so cached features stay valid when an extractor gains an option. What leaves images
unchanged is not in the key: labels, units, options of the dataset, the split, the command.

A new entry copies the rows of images that other entries hold (`reuse`); only the remaining images are extracted. Rows
are copied, not referred to: every entry is one file that can be mapped, checked and deleted by itself. Concatenated
features of several extractors have an entry of their own, built from the entries of the parts.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from dpbench.api import Extractor, Split
from dpbench.data import extraction
from dpbench.data.concat import Concat, concatenate_features
from dpbench.data.engine import InferenceEngine, choose_inference_engine
from dpbench.data.keys import ImageKeys, digest_pixels
from dpbench.data.outlook import check_disk_space
from dpbench.data.reading import ImageMapper
from dpbench.data.reuse import KEYS_FILE, ReusableFeatureRows, find_reusable_rows
from dpbench.errors import DamagedFile, DataError, OutputError
from dpbench.records.protocol import CONCAT
from dpbench.support import progress
from dpbench.support.code import code_digest
from dpbench.support.fields import list_changed_fields
from dpbench.support.files import canonical_digest, file_sha256, write_atomically, write_json
from dpbench.support.paths import cache_folder
from dpbench.support.plugin_calls import call_plugin

CODE_CHANGED_WARNING = (
    "The code of extractor {name!r} has changed since its features were extracted. If that changes features, extract "
    "them again: dpbench cache clear {entry}"
)


@dataclasses.dataclass(frozen=True)
class FeatureSource:
    """The inputs that determine a set of features; its digest is the cache key."""

    images: str  # `ImageKeys.digest`
    reader: str
    extractor: str
    version: str
    options: dict[str, object]
    weights: str

    @property
    def key(self) -> str:
        """The name of the cache folder of these features."""
        return canonical_digest(dataclasses.asdict(self))[:32]


def load_features(split: Split, images: ImageKeys, extractor: Extractor | Concat, device: torch.device) -> Tensor:
    """Return memory-mapped features (n, *example_shape), float32 or float16; extract them if they are not cached.

    If two processes load the same features at once, only one extracts them. A damaged file is named on stderr and
    rebuilt. Features of several extractors are concatenated from the cached features of each (`concatenate`).

    Args:
        split: the images.
        images: the keys of the images.
        extractor: makes the features.
        device: where the extractor computes.

    Raises:
        DataError: a feature is not finite, an image cannot be decoded, or images do not stack.
        OutputError: the features do not fit on the disk, or the cache cannot be used.
    """
    source = make_feature_source(images, extractor)
    folder, code, options = (
        cache_folder() / "features" / source.key,
        code_digest(type(extractor)),
        _list_extractor_options(extractor),
    )
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if folder.exists():
                try:
                    features = torch.from_numpy(_open_cache_entry(folder, code, options))
                    if progress.is_verbose():
                        engine = find_recorded_engine(images, extractor) or "an earlier version of dpbench"
                        progress.print_progress_line(f"The cache has {images.split} features that {engine} computed.")
                    return features
                except DamagedFile as error:
                    print(f"dpbench: {error} It is extracted again.", file=sys.stderr)
                    shutil.rmtree(folder)
            _build_cache_entry(folder, split, images, extractor, device)
            return torch.from_numpy(_open_cache_entry(folder, code, options))
    except (OSError, OutputError) as error:  # the second, of one file, comes from the first
        reason = error.__cause__ if isinstance(error, OutputError) else error
        if reason is None:
            raise
        raise OutputError(
            f"Cannot use the feature cache in {folder.parent}: {getattr(reason, 'strerror', None) or reason}. "
            "Free some space, or name another folder in DPBENCH_CACHE."
        ) from reason


def find_recorded_engine(images: ImageKeys, extractor: Extractor | Concat) -> str | None:
    """Return the engine that computed the cached features, as a result states it; None if it is unknown."""
    manifest = cache_folder() / "features" / make_feature_source(images, extractor).key / "manifest.json"
    try:
        engine: str | None = json.loads(manifest.read_text(encoding="utf-8")).get("engine")
    except (OSError, ValueError):
        return None
    return engine


def make_feature_source(images: ImageKeys, extractor: Extractor | Concat) -> FeatureSource:
    """Return the `FeatureSource` of an extractor on these images; for a concat, it lists the sources of the parts."""
    if isinstance(extractor, Concat):
        made_of = [dataclasses.asdict(make_feature_source(images, part)) for part in extractor.parts]
        return FeatureSource(images.digest, images.reader, CONCAT, "2", {"parts": made_of}, "")
    weights = call_plugin(f"The digest of the weights of extractor {extractor.name!r}", extractor.weights)
    options = list_changed_fields(extractor)
    return FeatureSource(images.digest, images.reader, extractor.name, extractor.version, options, weights)


def _list_extractor_options(extractor: Extractor | Concat) -> dict[str, Any]:
    """Return an extractor's options as JSON; empty for a concat, because each of its parts is cached on its own."""
    if isinstance(extractor, Concat):
        return {}
    fields = [field for field in dataclasses.fields(extractor) if field.init]  # type: ignore[arg-type]
    options = {field.name: getattr(extractor, field.name) for field in fields}
    found: dict[str, Any] = json.loads(json.dumps(options, default=str))
    return found


def _open_cache_entry(folder: Path, code: str | None, options: dict[str, Any]) -> np.ndarray:
    file = folder / "features.npy"
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        for path, checksum in ((file, manifest["sha256"]), (folder / KEYS_FILE, manifest["keys"])):
            if checksum and checksum != file_sha256(path):
                raise DamagedFile(f"The cache file {path} fails its checksum.")
        before = manifest.get("all_options", {})
        if any(before.get(name, value) != value for name, value in options.items()):
            raise DamagedFile(f"The features in {folder} were extracted with another default of an option.")
        if manifest.get("code", code) != code:
            print(
                f"dpbench: {CODE_CHANGED_WARNING.format(name=manifest['extractor'], entry=folder.name[:12])}",
                file=sys.stderr,
            )
        # Copy-on-write: pages are shared between processes, and no one can change the file through the tensor.
        features: np.ndarray = np.load(file, mmap_mode="c", allow_pickle=False)
        return features
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"The cache folder {folder} cannot be read ({error}).") from error


def _check_image_keys(split: Split, images: ImageKeys) -> None:
    """Check that different images have different keys; images with equal keys would share their features.

    Raises:
        DataError: two images share a key; the message names them.
    """
    if images.keys is None:
        return
    _, place, counts = np.unique(images.keys, axis=0, return_inverse=True, return_counts=True)
    shared = np.flatnonzero(counts[place.reshape(-1)] > 1).tolist()
    first: dict[int, tuple[int, bytes]] = {}
    for row, pixels in zip(shared, ImageMapper(split.images, digest_pixels, "Comparing keys")(shared), strict=True):
        before, known = first.setdefault(int(place.reshape(-1)[row]), (row, pixels))
        if known != pixels:
            raise DataError(
                f"Expected keys of the {images.split} split's Records that tell images apart, and images {before} and "
                f"{row} have the same key and other pixels. A key is the SHA-256 of an image's stored bytes."
            )


def _build_cache_entry(
    folder: Path, split: Split, images: ImageKeys, extractor: Extractor | Concat, device: torch.device
) -> None:
    _check_image_keys(split, images)
    source, partial, made_with = make_feature_source(images, extractor), folder.with_suffix(".partial"), ""
    computed_by: str | None = None
    partial.mkdir(exist_ok=True)
    if isinstance(extractor, Concat):
        blocks = _concatenate_blocks([load_features(split, images, part, device) for part in extractor.parts])
        engines = [find_recorded_engine(images, part) for part in extractor.parts]
        computed_by = None if None in engines else " and ".join(sorted({*map(str, engines)}))
    else:
        engine = choose_inference_engine(extractor, device, images.rows)
        made_with, computed_by = extraction.describe_environment(engine), engine.name
        found = _find_cached_rows(folder.parent, source, images, extractor, made_with)
        blocks = _iterate_feature_blocks(found, split, images, extractor, partial, engine)
    file = partial / "features.npy"
    _write_features(blocks, images, file)
    made = {
        "sha256": file_sha256(file),
        "keys": "" if isinstance(extractor, Concat) else _write_keys(images, partial / KEYS_FILE),
        "code": code_digest(type(extractor)),
        "all_options": _list_extractor_options(extractor),
        "made_with": made_with,
        "engine": computed_by,
        "split": images.split,
        "rows": images.rows,
    }
    write_json(partial / "manifest.json", {**dataclasses.asdict(source), **made})
    for left in partial.iterdir():
        if left.name not in {
            "features.npy",
            "manifest.json",
            KEYS_FILE,
        }:  # shards, and what killed processes half-wrote
            left.unlink()
    partial.rename(folder)


def _find_cached_rows(
    folder: Path, source: FeatureSource, images: ImageKeys, extractor: Extractor, made_with: str
) -> ReusableFeatureRows:
    """Find the features of these images in other cache entries."""
    code, options = code_digest(type(extractor)), _list_extractor_options(extractor)
    if images.keys is None:
        none = np.full(images.rows, -1)
        return ReusableFeatureRows((), none, none)
    # Rows of code that has been edited since are not mixed with new ones, even if its version is the same.
    made_of = json.loads(json.dumps({**dataclasses.asdict(source), "code": code, "all_options": options}))
    del made_of["images"]
    return find_reusable_rows(
        folder, made_of, images.keys, made_with, lambda entry: _open_cache_entry(entry, code, options)
    )


def _iterate_feature_blocks(
    reusable: ReusableFeatureRows,
    split: Split,
    images: ImageKeys,
    extractor: Extractor,
    partial: Path,
    engine: InferenceEngine,
) -> Iterator[np.ndarray]:
    """Yield the features of all images in blocks; extract the images that the cache does not have."""
    copied = images.rows - len(reusable.missing)
    if copied and progress.is_verbose():
        progress.print_progress_line(
            f"{copied:,} of {images.rows:,} {images.split} images have features by {extractor.name} in the cache."
        )
    fresh = extraction.extract_features(split.images, extractor, partial, engine, reusable.missing, images.keys)
    return reusable.merge(fresh if reusable.missing else iter(()), extractor)


def _concatenate_blocks(parts: list[Tensor]) -> Iterator[np.ndarray]:
    for start in range(0, len(parts[0]), extraction.SHARD):
        yield concatenate_features([part[start : start + extraction.SHARD] for part in parts]).numpy()


def _write_features(blocks: Iterator[np.ndarray], images: ImageKeys, file: Path) -> None:
    # Not through a memory map: where the disk is full, the system would kill the process instead of raising.
    with file.open("wb") as stream:
        for place, block in enumerate(blocks):
            if place == 0:
                what = f"the features of {images.rows:,} images"
                check_disk_space(file.parent, images.rows * block[0].nbytes, what)
                stream.write(extraction.make_npy_header((images.rows, *block.shape[1:]), block.dtype))
            stream.write(block.data)
        stream.flush()
        os.fsync(stream.fileno())


def _write_keys(images: ImageKeys, file: Path) -> str:
    """Write the images' keys and return the file's checksum; without keys, write no file and return an empty text."""
    if images.keys is None:
        return ""
    content = images.keys.tobytes()
    write_atomically(file, lambda out: out.write(content))
    return file_sha256(file)
