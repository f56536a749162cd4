"""The feature cache: extract once, share by memory map, never trust a file that fails its checksum.

Layout below `cache_folder()`::

    features/<key>/features.npy    (n, *example_shape) float32
    features/<key>/manifest.json   what the key was made of, and the checksum of features.npy
    features/<key>.partial/        shards of an extraction under way
    features/<key>.lock            held by the one process that extracts

The key is a digest of the data, the split, the extractor, its version, options and weights.
"""

from __future__ import annotations

import dataclasses
import json
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from torch import Tensor

from dpbench.api import Extractor, Split
from dpbench.data.extraction import extract
from dpbench.errors import DamagedFile, OutputError
from dpbench.files import canonical_digest, sha256, write_json
from dpbench.guard import guarded
from dpbench.paths import cache_folder


@dataclasses.dataclass(frozen=True)
class Source:
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


def features(split: Split, source: Source, extractor: Extractor, device: torch.device) -> Tensor:
    """Return (n, *example_shape) float32, memory-mapped; extract first if this machine never did.

    Two processes asking at once extract once. A damaged file is named on stderr and rebuilt.
    """
    folder = cache_folder() / "features" / source.key
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_suffix(".lock")):
            if folder.exists():
                try:
                    return _open(folder)
                except DamagedFile as error:
                    print(f"dpbench: {error} It is extracted again.", file=sys.stderr)
                    shutil.rmtree(folder)
            _build(folder, split, source, extractor, device)
            return _open(folder)
    except OSError as error:
        raise OutputError(
            f"Cannot use the feature cache in {folder.parent}: {error.strerror or error}. "
            "Free some space, or name another folder in DPBENCH_CACHE."
        ) from error


def source_of(data: str, split: str, rows: int, extractor: Extractor) -> Source:
    """Describe the features that `extractor` makes of one split."""
    options = {field.name: getattr(extractor, field.name) for field in dataclasses.fields(extractor)}  # type: ignore[arg-type]
    weights = guarded(f"The digest of the weights of extractor {extractor.name!r}", extractor.weights)
    return Source(data, split, rows, extractor.name, extractor.version, options, weights)


def _open(folder: Path) -> Tensor:
    file = folder / "features.npy"
    try:
        manifest = json.loads((folder / "manifest.json").read_text())
        if manifest["sha256"] != sha256(file):
            raise DamagedFile(f"The cache file {file} fails its checksum.")
        # Copy-on-write: pages are shared between processes, and no one can change the file through the tensor.
        return torch.from_numpy(np.load(file, mmap_mode="c", allow_pickle=False))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DamagedFile(f"The cache folder {folder} cannot be read ({error}).") from error


def _build(folder: Path, split: Split, source: Source, extractor: Extractor, device: torch.device) -> None:
    partial = folder.with_suffix(".partial")
    partial.mkdir(exist_ok=True)
    shards = extract(split.images, extractor, partial, device)
    file = partial / "features.npy"
    _concatenate(shards, source.rows, file)
    write_json(partial / "manifest.json", {**dataclasses.asdict(source), "sha256": sha256(file)})
    for shard in partial.glob("shard-*.npy"):
        shard.unlink()
    partial.rename(folder)


def _concatenate(shards: Iterator[np.ndarray], rows: int, file: Path) -> None:
    whole: np.memmap | None = None
    done = 0
    for shard in shards:
        if whole is None:
            whole = np.lib.format.open_memmap(file, "w+", np.dtype(np.float32), (rows, *shard.shape[1:]))
        whole[done : done + len(shard)] = shard
        done += len(shard)
    if whole is not None:
        whole.flush()
