"""Reuse rows of features from other entries of the cache, so that only new images are extracted.

A row depends only on the image, its reader and the extractor. It is therefore the same row in every entry, whichever
dataset, split or command made it. Its last bits may also depend on the versions of torch and Pillow and on the device,
so dpbench copies only rows that were made in the environment of this process (`extraction.describe_environment`).
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from dpbench.api import Extractor
from dpbench.data.extraction import SHARD, check_equal_shapes
from dpbench.data.keys import KEY_SIZE
from dpbench.errors import DamagedFile

KEYS_FILE = "keys.bin"  # in an entry: those of its images in order, 32 bytes each
ReadFeatures = Callable[[Path], np.ndarray]
"""Returns the features in an entry's folder, or raises DamagedFile."""


@dataclass(frozen=True)
class CachedFeatures:
    """A cache entry with the features of images that have keys."""

    folder: Path
    made_with: str

    @cached_property
    def rows_by_key(self) -> dict[bytes, int]:
        """The row of each image, by its key; empty if the key file cannot be read."""
        try:
            content = (self.folder / KEYS_FILE).read_bytes()
        except OSError:
            return {}
        return {content[start : start + KEY_SIZE]: start // KEY_SIZE for start in range(0, len(content), KEY_SIZE)}


@dataclass(frozen=True)
class ReusableFeatureRows:
    """The requested rows that other cache entries hold, with their locations."""

    features: Sequence[np.ndarray]  # of the entries, memory-mapped
    entry: np.ndarray  # (n,) int64: the place in `features` that has a row; -1: none has it
    row: np.ndarray  # (n,) int64: the row there

    @cached_property
    def missing(self) -> list[int]:
        """The indices of the rows that no cache entry holds."""
        found: list[int] = np.flatnonzero(self.entry < 0).tolist()
        return found

    def merge(self, extracted: Iterator[np.ndarray], extractor: Extractor) -> Iterator[np.ndarray]:
        """Yield all rows in order, in blocks; rows that no cache entry holds are taken from `extracted`.

        Raises:
            DataError: images differ in the shape of their features.
        """
        if not self.features:
            yield from extracted
            return
        shapes = {features.shape[1:] for features in self.features}
        fresh = np.empty((0, *self.features[0].shape[1:]), self.features[0].dtype)
        for start in range(0, len(self.entry), SHARD):
            entry, row = self.entry[start : start + SHARD], self.row[start : start + SHARD]
            while len(fresh) < (wanted := int((entry < 0).sum())):
                shard = next(extracted)
                check_equal_shapes(shapes | {shard.shape[1:]}, extractor)
                fresh = np.concatenate([fresh, shard])
            check_equal_shapes(shapes, extractor)
            block = np.empty((len(entry), *fresh.shape[1:]), fresh.dtype)
            block[entry < 0], fresh = fresh[:wanted], fresh[wanted:]
            for place, features in enumerate(self.features):
                block[entry == place] = features[row[entry == place]]
            yield block


def find_reusable_rows(
    folder: Path, made_of: Mapping[str, Any], keys: np.ndarray, made_with: str, read: ReadFeatures
) -> ReusableFeatureRows:
    """Look up images by their keys (n, 32) in the cache entries whose manifests match all of `made_of`.

    A damaged entry is reported on stderr and left as it is; it is rebuilt when its features are loaded.
    """
    wanted = [key.tobytes() for key in keys]
    manifests = (file for file in sorted(folder.glob("*/manifest.json")) if file.parent.suffix != ".partial")
    entries = [entry for manifest in manifests if (entry := _read_entry(manifest, made_of))]
    return _collect_rows([entry for entry in entries if entry.made_with == made_with], wanted, read)


def _read_entry(file: Path, made_of: Mapping[str, Any]) -> CachedFeatures | None:
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
        same = all(manifest[name] == value for name, value in made_of.items())
        return CachedFeatures(file.parent, manifest["made_with"]) if same else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _collect_rows(
    entries: list[CachedFeatures], image_keys: Sequence[bytes], read: ReadFeatures
) -> ReusableFeatureRows:
    """Look up images in cache entries, starting with the largest; damaged entries are skipped."""
    place, row = np.full(len(image_keys), -1), np.zeros(len(image_keys), np.int64)
    features: list[np.ndarray] = []
    for entry in sorted(entries, key=lambda entry: -len(entry.rows_by_key)):
        left = np.flatnonzero(place < 0).tolist()
        rows = {at: entry.rows_by_key[image_keys[at]] for at in left if image_keys[at] in entry.rows_by_key}
        if not rows:
            continue
        try:
            features.append(read(entry.folder))
        except DamagedFile as error:
            print(f"dpbench: {error} Nothing of it is used.", file=sys.stderr)
            continue
        at = list(rows)
        place[at], row[at] = len(features) - 1, list(rows.values())
    return ReusableFeatureRows(features, place, row)
