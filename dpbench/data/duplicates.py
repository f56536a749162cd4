"""Images that stand in two roles at once: a public split that repeats the test set is the oldest cheat.

Two images are the same if they decode to the same pixels, as RGB at their own size, which is what extractors see: mode,
palette and transparency hide no copy. They are near the same if their thumbnails, 16 x 16 grey and
freed of brightness and contrast, correlate by at least `NEAR`: that finds copies that were resized, compressed again or
tinted, not crops or mirror images. Where all images are alike (digits, garments on black), so are thumbnails of
different ones: there the count is of look-alikes. On flat images a correlation says nothing; those are compared
exactly alone.
"""

from __future__ import annotations

import base64
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock
from PIL.Image import Image, Resampling, fromarray
from torch import Tensor

from dpbench.api import Features, Images, Split
from dpbench.errors import DataError, OutputError
from dpbench.records.overlap import Overlap
from dpbench.support import progress
from dpbench.support.files import canonical_digest, write_atomically, write_json
from dpbench.support.paths import cache_folder

NEAR = 0.98  # of CIFAR-10's test images 40 have such a training image, all copies by eye; at 0.95 it is 160, not all
SIDE = 16
FLAT = 2.0  # grey levels of 255: thumbnails that vary less show nothing
BLOCK = 4096
PIXELS = "rgb"  # what `_hashed` hashes: another word whenever it changes, as hashes are kept
SKETCH = 256  # images that a sketch holds


@dataclass(frozen=True)
class Hashes:
    """What is kept of a split's images: 264 bytes each."""

    exact: np.ndarray  # (n,) uint64: of size and pixels
    thumbnails: np.ndarray  # (n, 256) uint8

    def __len__(self) -> int:
        return len(self.exact)

    def take(self, rows: np.ndarray | Tensor) -> Hashes:
        """Return those of some rows."""
        index = np.asarray(rows)
        return Hashes(self.exact[index], self.thumbnails[index])

    def join(self, others: Hashes) -> Hashes:
        """Return these and others."""
        exact = np.concatenate([self.exact, others.exact])
        return Hashes(exact, np.concatenate([self.thumbnails, others.thumbnails]))

    @property
    def digest(self) -> str:
        """What names these very images."""
        return hashlib.sha256(self.exact.tobytes() + self.thumbnails.tobytes()).hexdigest()

    @property
    def sketch(self) -> str:
        """The least hashes, base64: a random sample of the images by which others can look for them.

        Whoever has an image can tell whether it is among them: never make one of private images.
        """
        return base64.b64encode(np.unique(self.exact)[:SKETCH].astype("<u8").tobytes()).decode()

    def share_of(self, sketch: str) -> float:
        """Return which share of a sketch's images stand here.

        Raises:
            ValueError: it is no sketch.
        """
        sought = np.frombuffer(base64.b64decode(sketch, validate=True), "<u8")
        return float(np.isin(sought, self.exact).mean()) if len(sought) else 0.0

    @cached_property
    def directions(self) -> Tensor:
        """Thumbnails as vectors of mean 0 and norm 1, (n, 256) float32; zero where they are flat."""
        grey = torch.from_numpy(self.thumbnails).float()
        grey -= grey.mean(1, keepdim=True)
        norms = grey.norm(dim=1, keepdim=True)
        return torch.where(norms >= FLAT * SIDE, grey / norms.clamp(min=1e-6), 0)


def overlap_of(of: Hashes, among: Hashes) -> Overlap:
    """Count the images of `of` that are the same, or near the same, as one of `among`; once on this machine."""
    file = cache_folder() / "hashes" / f"{canonical_digest([NEAR, of.digest, among.digest])[:32]}.json"
    try:
        return Overlap(**json.loads(file.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        counted = _counted(of, among)
        write_json(file, counted.model_dump())
        return counted


def _counted(of: Hashes, among: Hashes) -> Overlap:
    exact = np.isin(of.exact, among.exact)
    near = torch.from_numpy(exact.copy())
    for start in range(0, len(of) if of.directions.any() else 0, BLOCK):
        mine = of.directions[start : start + BLOCK]
        for other in range(0, len(among), BLOCK):
            best = (mine @ among.directions[other : other + BLOCK].T).amax(1)
            near[start : start + BLOCK] |= best >= NEAR
    return Overlap(exact=int(exact.sum()), near=int(near.sum()), among=len(of))


def overlap_within(hashes: Hashes) -> Overlap:
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


def compute_hashes(split: Split, data: str, name: str) -> Hashes:
    """Return the hashes of a split, computed once on this machine; `data` is the digest of the dataset's bytes.

    Features are the same where all their numbers are; none are near the same.

    Raises:
        DataError: an image cannot be decoded.
    """
    if isinstance(split.images, Features):
        exact = [int.from_bytes(hashlib.blake2b(row.tobytes(), digest_size=8).digest()) for row in split.images.x]
        return Hashes(np.array(exact, np.uint64), np.zeros((len(exact), SIDE * SIDE), np.uint8))
    key = canonical_digest({"data": data, "split": name, "rows": len(split.labels), "side": SIDE, "pixels": PIXELS})[
        :32
    ]
    file = cache_folder() / "hashes" / f"{key}.bin"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            kept = _kept(file, len(split.labels))
            if kept is None:
                kept = _computed(split.images, name)
                content = kept.exact.tobytes() + kept.thumbnails.tobytes()
                write_atomically(file, lambda out: out.write(content + hashlib.sha256(content).digest()))
            return kept
    except OSError as error:
        raise OutputError(
            f"Cannot use the cache in {file.parent}: {error.strerror or error}. "
            "Free some space, or name another folder in DPBENCH_CACHE."
        ) from error


def _kept(file: Path, rows: int) -> Hashes | None:
    """Return the hashes of an earlier run if they are whole: the last 32 bytes are the SHA-256 of the rest."""
    try:
        content = bytearray(file.read_bytes())  # torch takes no arrays that cannot be written
    except FileNotFoundError:
        return None
    content, digest = content[:-32], content[-32:]
    if len(content) != rows * (8 + SIDE * SIDE) or hashlib.sha256(content).digest() != digest:
        return None
    exact = np.frombuffer(content, np.uint64, rows)
    return Hashes(exact, np.frombuffer(content, np.uint8, offset=exact.nbytes).reshape(rows, SIDE * SIDE))


def _computed(images: Images, name: str) -> Hashes:
    exact, thumbnails = np.zeros(len(images), np.uint64), np.zeros((len(images), SIDE * SIDE), np.uint8)

    def one(index: int) -> None:
        try:
            image = images[index]
            exact[index], thumbnails[index] = _hashed(image)
        except DataError:
            raise
        except Exception as error:  # whatever a decoder raises
            raise DataError(f"Image {index} of the {name} split cannot be decoded: {error}") from error

    with progress.meter(f"Comparing {name} images", len(images)) as advance, ThreadPoolExecutor() as pool:
        for _ in pool.map(one, range(len(images))):
            advance(1)
    return Hashes(exact, thumbnails)


def _hashed(image: Image) -> tuple[int, np.ndarray]:
    if image.mode in {"P", "PA"}:  # places in a palette are no pixels
        image = image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
    content = hashlib.blake2b(str(image.size).encode(), digest_size=8)
    content.update(_pixels(image))
    small = _grey(image).resize((SIDE, SIDE), Resampling.BOX)
    return int.from_bytes(content.digest()), np.asarray(small).reshape(-1)


def _pixels(image: Image) -> bytes:
    """Return what two images of the same pixels have in common: bytes of RGB."""
    if image.mode == "LAB":  # which pillow does not turn into RGB
        return image.tobytes()
    if image.mode in {"La", "RGBa"}:  # colours times transparency
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[image.mode])
    return (_shallow(image) if _deep(image) else image).convert("RGB").tobytes()


def _grey(image: Image) -> Image:
    """Return 8 bits a pixel."""
    if _deep(image):
        return _shallow(image)
    return image.getchannel(0) if image.mode in {"LAB", "La"} else image.convert("L")


def _deep(image: Image) -> bool:
    return image.mode.startswith(("I", "F"))


def _shallow(image: Image) -> Image:
    """Return 8 bits of a deeper pixel: those it has where they fit, else of the range that the image uses."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    low, high = values.min(), values.max()
    if low >= 0 and high <= 255 and np.array_equal(values, np.rint(values)):
        return fromarray(values.astype(np.uint8))
    return fromarray(((values - low) * (255 / max(high - low, 1e-300))).astype(np.uint8))
