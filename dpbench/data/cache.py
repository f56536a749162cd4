"""The feature cache: extract once, share by memory map, never trust a file that fails its checksum.

Layout below `cache_folder()`::

    features/<key>/features.npy    (n, *example_shape) float32, or float16 where an extractor gives that
    features/<key>/manifest.json   what the key was made of, and the checksum of features.npy
    features/<key>.partial/        shards of an extraction under way
    features/<key>.lock            held by the one process that extracts

The key is a digest of the data, the split, the extractor, its version, weights, and options that are not at their
default: an extractor that gains an option keeps what is cached. Features that are put together of several extractors'
are an entry of their own, made of the parts' entries.
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
from dpbench.data.concat import Concat, concatenate
from dpbench.errors import DamagedFile, OutputError
from dpbench.records.protocol import CONCAT
from dpbench.support.code import code_of
from dpbench.support.fields import changed_fields
from dpbench.support.files import canonical_digest, sha256, write_json
from dpbench.support.paths import cache_folder
from dpbench.support.plugin_calls import call_plugin

CHANGED = (
    "The code of extractor {name!r} has changed since its features were extracted. If that changes features, extract "
    "them again: dpbench cache clear {entry}"
)


@dataclasses.dataclass(frozen=True)
class FeatureSource:
    """What a set of features is made of; its digest is the cache key."""

    data: str  # digest of the dataset's bytes
    split: str
    rows: int
    extractor: str
    version: str
    options: dict[str, object]
    weights: str

    @property
    def key(self) -> str:
        """The name of the cache folder."""
        return canonical_digest(dataclasses.asdict(self))[:32]


def load_features(split: Split, source: FeatureSource, extractor: Extractor | Concat, device: torch.device) -> Tensor:
    """Return (n, *example_shape) float32 or float16, memory-mapped; extract first if this machine never did.

    Two processes asking at once extract once. A damaged file is named on stderr and rebuilt. Features of several
    extractors are put together of what is cached for each (`concatenate`).
    """
    folder, code = cache_folder() / "features" / source.key, code_of(type(extractor))
    options = _options(extractor)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if folder.exists():
                try:
                    return _open(folder, code, options)
                except DamagedFile as error:
                    print(f"dpbench: {error} It is extracted again.", file=sys.stderr)
                    shutil.rmtree(folder)
            _build(folder, split, source, extractor, device)
            return _open(folder, code, options)
    except (OSError, OutputError) as error:  # the second, of one file, comes from the first
        reason = error.__cause__ if isinstance(error, OutputError) else error
        raise OutputError(
            f"Cannot use the feature cache in {folder.parent}: {getattr(reason, 'strerror', None) or reason}. "
            "Free some space, or name another folder in DPBENCH_CACHE."
        ) from reason


def source_of(data: str, split: str, rows: int, extractor: Extractor | Concat) -> FeatureSource:
    """Describe the features that `extractor` makes of one split; those of a concat by the sources of its parts."""
    if isinstance(extractor, Concat):
        made_of = [dataclasses.asdict(source_of(data, split, rows, part)) for part in extractor.parts]
        return FeatureSource(data, split, rows, CONCAT, "2", {"parts": made_of}, "")
    weights = call_plugin(f"The digest of the weights of extractor {extractor.name!r}", extractor.weights)
    return FeatureSource(data, split, rows, extractor.name, extractor.version, changed_fields(extractor), weights)


def _options(extractor: Extractor | Concat) -> dict[str, Any]:
    """Return every option, as JSON has it; the parts of a concat have entries of their own."""
    if isinstance(extractor, Concat):
        return {}
    options = {field.name: getattr(extractor, field.name) for field in dataclasses.fields(extractor)}  # type: ignore[arg-type]
    found: dict[str, Any] = json.loads(json.dumps(options, default=str))
    return found


def _open(folder: Path, code: str | None, options: dict[str, Any]) -> Tensor:
    file = folder / "features.npy"
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        if manifest["sha256"] != sha256(file):
            raise DamagedFile(f"The cache file {file} fails its checksum.")
        before = manifest.get("all_options", {})
        if any(before.get(name, value) != value for name, value in options.items()):
            raise DamagedFile(f"The features in {folder} were extracted with another default of an option.")
        if manifest.get("code", code) != code:
            print(f"dpbench: {CHANGED.format(name=manifest['extractor'], entry=folder.name[:12])}", file=sys.stderr)
        # Copy-on-write: pages are shared between processes, and no one can change the file through the tensor.
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"The cache folder {folder} cannot be read ({error}).") from error


def _build(
    folder: Path, split: Split, source: FeatureSource, extractor: Extractor | Concat, device: torch.device
) -> None:
    partial = folder.with_suffix(".partial")
    partial.mkdir(exist_ok=True)
    if isinstance(extractor, Concat):
        sources = [source_of(source.data, source.split, source.rows, part) for part in extractor.parts]
        blocks = _blocks([load_features(split, *each, device) for each in zip(sources, extractor.parts, strict=True)])
    else:
        blocks = extraction.extract(split.images, extractor, partial, device)
    file = partial / "features.npy"
    _write(blocks, source.rows, file)
    made = {"sha256": sha256(file), "code": code_of(type(extractor)), "all_options": _options(extractor)}
    write_json(partial / "manifest.json", {**dataclasses.asdict(source), **made})
    for left in partial.iterdir():
        if left.name not in {"features.npy", "manifest.json"}:  # shards, and what killed processes left half-written
            left.unlink()
    partial.rename(folder)


def _blocks(parts: list[Tensor]) -> Iterator[np.ndarray]:
    for start in range(0, len(parts[0]), extraction.SHARD):
        yield concatenate([part[start : start + extraction.SHARD] for part in parts]).numpy()


def _write(blocks: Iterator[np.ndarray], rows: int, file: Path) -> None:
    # Not through a memory map: where the disk is full, the system would kill the process instead of raising.
    with file.open("wb") as stream:
        for place, block in enumerate(blocks):
            if place == 0:
                stream.write(extraction.header((rows, *block.shape[1:]), block.dtype))
            stream.write(block.data)
        stream.flush()
        os.fsync(stream.fileno())
