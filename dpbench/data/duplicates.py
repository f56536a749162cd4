"""Images that stand in two roles at once: a public split that repeats the test set is the oldest cheat.

Two images are the same if they decode to the same pixels. They are near the same if their thumbnails, 16 x 16 grey and
freed of brightness and contrast, correlate by at least `NEAR`: that finds copies that were resized, compressed again or
tinted, not crops or mirror images. On flat images a correlation says nothing; those are compared exactly alone.
"""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from PIL.Image import Image, Resampling
from torch import Tensor

from dpbench import progress
from dpbench.api import Images, Split
from dpbench.data.overlap import Overlap
from dpbench.errors import DataError, OutputError
from dpbench.files import canonical_digest, write_atomically, write_json
from dpbench.paths import cache_folder

NEAR = 0.98  # of CIFAR-10's test images 40 have such a training image, all copies by eye; at 0.95 it is 160, not all
SIDE = 16
FLAT = 2.0  # grey levels of 255: thumbnails that vary less show nothing
BLOCK = 4096


@dataclass(frozen=True)
class Hashes:
    """What is kept of a split's images: 264 bytes each."""

    exact: np.ndarray  # (n,) uint64: of mode, size and pixels
    thumbnails: np.ndarray  # (n, 256) uint8

    def __len__(self) -> int:
        return len(self.exact)

    def take(self, rows: np.ndarray | Tensor) -> Hashes:
        """Return those of some rows."""
        index = np.asarray(rows)
        return Hashes(self.exact[index], self.thumbnails[index])

    @property
    def digest(self) -> str:
        """What names these very images."""
        return hashlib.sha256(self.exact.tobytes() + self.thumbnails.tobytes()).hexdigest()

    @cached_property
    def directions(self) -> Tensor:
        """Thumbnails as vectors of mean 0 and norm 1, (n, 256) float32; zero where they are flat."""
        grey = torch.from_numpy(self.thumbnails).float()
        grey -= grey.mean(1, keepdim=True)
        norms = grey.norm(dim=1, keepdim=True)
        return torch.where(norms >= FLAT * SIDE, grey / norms.clamp(min=1e-6), 0)


def repeats(of: Hashes, among: Hashes) -> Overlap:
    """Count the images of `of` that are the same, or near the same, as one of `among`; once on this machine."""
    file = cache_folder() / "hashes" / f"{canonical_digest([NEAR, of.digest, among.digest])[:32]}.json"
    try:
        return Overlap(**json.loads(file.read_text()))
    except (OSError, ValueError, TypeError):
        counted = _repeats(of, among)
        write_json(file, counted.model_dump())
        return counted


def _repeats(of: Hashes, among: Hashes) -> Overlap:
    exact = np.isin(of.exact, among.exact)
    near = torch.from_numpy(exact.copy())
    for start in range(0, len(of), BLOCK):
        mine = of.directions[start : start + BLOCK]
        for other in range(0, len(among), BLOCK):
            best = (mine @ among.directions[other : other + BLOCK].T).amax(1)
            near[start : start + BLOCK] |= best >= NEAR
    return Overlap(exact=int(exact.sum()), near=int(near.sum()), among=len(of))


def repeats_within(hashes: Hashes) -> Overlap:
    """Count the images that are the same, or near the same, as another one of their own split."""
    _, places, counts = np.unique(hashes.exact, return_inverse=True, return_counts=True)
    exact = counts[places] > 1
    near = torch.from_numpy(exact.copy())
    for start in range(0, len(hashes), BLOCK):
        mine = hashes.directions[start : start + BLOCK]
        for other in range(0, len(hashes), BLOCK):
            products = mine @ hashes.directions[other : other + BLOCK].T
            if other == start:
                products.fill_diagonal_(-1)  # an image is no repeat of itself
            near[start : start + BLOCK] |= products.amax(1) >= NEAR
    return Overlap(exact=int(exact.sum()), near=int(near.sum()), among=len(hashes))


def hashes(split: Split, data: str, name: str) -> Hashes:
    """Return the hashes of a split, computed once on this machine; `data` is the digest of the dataset's bytes.

    Raises:
        DataError: an image cannot be decoded.
    """
    key = canonical_digest({"data": data, "split": name, "rows": len(split.labels), "side": SIDE})[:32]
    file = cache_folder() / "hashes" / f"{key}.npy"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            kept = _kept(file, len(split.labels))
            if kept is None:
                kept = _computed(split.images, name)
                packed = np.hstack([kept.exact[:, None].view(np.uint8), kept.thumbnails])
                write_atomically(file, lambda out: np.save(out, packed, allow_pickle=False))
            return kept
    except OSError as error:
        raise OutputError(
            f"Cannot use the cache in {file.parent}: {error.strerror or error}. "
            "Free some space, or name another folder in DPBENCH_CACHE."
        ) from error


def _kept(file: Path, rows: int) -> Hashes | None:
    try:
        packed = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        return None
    if packed.dtype != np.uint8 or packed.shape != (rows, 8 + SIDE * SIDE):
        return None
    return Hashes(np.ascontiguousarray(packed[:, :8]).view(np.uint64)[:, 0], packed[:, 8:])


def _computed(images: Images, name: str) -> Hashes:
    exact, thumbnails = np.zeros(len(images), np.uint64), np.zeros((len(images), SIDE * SIDE), np.uint8)

    def one(index: int) -> None:
        try:
            image = images[index]
            exact[index], thumbnails[index] = _exact(image), _thumbnail(image)
        except DataError:
            raise
        except Exception as error:  # whatever a decoder raises
            raise DataError(f"Image {index} of the {name} split cannot be decoded: {error}") from error

    with progress.meter(f"Comparing {name} images", len(images)) as advance, ThreadPoolExecutor() as pool:
        for _ in pool.map(one, range(len(images))):
            advance(1)
    return Hashes(exact, thumbnails)


def _exact(image: Image) -> int:
    content = hashlib.blake2b(f"{image.mode} {image.size}".encode(), digest_size=8)
    content.update(image.tobytes())
    return int.from_bytes(content.digest())


def _thumbnail(image: Image) -> np.ndarray:
    grey = image.convert("RGB").convert("L") if image.mode == "P" else image.convert("L")
    small = grey.resize((SIDE, SIDE), Resampling.BOX)
    return np.asarray(small).reshape(-1)
