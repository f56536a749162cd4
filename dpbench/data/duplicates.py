"""Find images that occur in two splits: public images that are also private, test images that are also trained on.

Two images are identical if they decode to the same RGB pixels at their own size. Extractors see these pixels, so
another mode, palette or transparency does not hide a copy. Each image is stored as a grey thumbnail of 32 x 32. Two
images are near copies if one of these conditions holds:

- Their thumbnails at 16 x 16, without brightness and contrast, correlate by at least `MIN_NEAR_CORRELATION`: one image
  was resized, recompressed or tinted.
- One image is a crop of the other by up to 3/32 of a side at each edge (3 pixels of 32, 21 of 224), and both images
  have at least 32 pixels a side (`crops`).

Where all images look alike (digits, garments on black, frames of one traffic sign), near copies are look-alikes. Mirror
images, rotations, larger crops and crops of smaller images are not found; `altered` finds stronger alterations. The
correlation of flat images is meaningless; they are compared only for equality.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch
from filelock import FileLock
from PIL.Image import Image, Resampling, fromarray
from torch import Tensor

from dpbench.api import INDEPENDENT_DRAWS, Features, Images, Split
from dpbench.data import crops
from dpbench.data.altered import (
    SEARCH_VERSION,
    VIEW_COUNT,
    VIEW_FORMAT,
    VIEW_SIDE,
    ImageViews,
    find_altered_copies,
    make_image_views,
    normalise_vectors,
    shrink_images,
)
from dpbench.data.keys import identify_images
from dpbench.data.reading import ImageMapper
from dpbench.errors import OutputError
from dpbench.records.overlap import AlteredCopyCounts, CopyCounts, OverlapCounts
from dpbench.support import progress
from dpbench.support.files import canonical_digest, write_atomically, write_json
from dpbench.support.paths import cache_folder

MIN_NEAR_CORRELATION = (
    0.98  # of CIFAR-10's test images 40 have such a training image, all copies by eye; at 0.95 it is 160, not all
)
SIDE = 32  # of a thumbnail
CORRELATION_SIDE = 16  # of what is correlated
MIN_THUMBNAIL_STD = 2.0  # grey levels of 255: thumbnails that vary less show nothing
BLOCK = 4096
CHUNK = 32  # images that a thread reads at a time
PIXEL_FORMAT = "rgb"  # what `_hash_image` hashes: another word whenever it changes, as hashes are kept
SKETCH_SIZE = 256  # images that a sketch holds
LOOK_COUNT, LOOK_SIDE = 32, 8  # thumbnails that a sketch of looks holds, and their side
MIN_LOOK_CORRELATION = 0.98  # correlation of two such thumbnails
MAX_SEARCHED = 500  # images that altered copies are searched for
MIN_OTHERS = 32  # images among which they are searched; the nearest of fewer is too often the nearest by far

Counts = TypeVar("Counts", OverlapCounts, AlteredCopyCounts)


@dataclass(frozen=True)
class ImageHashes:
    """Hashes, thumbnails and views of a split's images, 1,801 bytes per image."""

    exact: np.ndarray  # (n,) uint64: of size and pixels
    thumbnails: np.ndarray  # (n, 1024) uint8
    views: np.ndarray  # (n, 3, 256) uint8, see `make_image_views`
    sides: np.ndarray  # (n,) uint8: the shorter side in pixels, 255 for more

    def __len__(self) -> int:
        return len(self.exact)

    def take(self, rows: np.ndarray | Tensor) -> ImageHashes:
        """Return the hashes of the given rows."""
        index = np.asarray(rows)
        return ImageHashes(self.exact[index], self.thumbnails[index], self.views[index], self.sides[index])

    def join(self, others: ImageHashes) -> ImageHashes:
        """Return these hashes, followed by the hashes in `others`."""
        return ImageHashes(
            np.concatenate([self.exact, others.exact]),
            np.concatenate([self.thumbnails, others.thumbnails]),
            np.concatenate([self.views, others.views]),
            np.concatenate([self.sides, others.sides]),
        )

    @property
    def distinct_hashes(self) -> ImageHashes:
        """The hashes without exact copies, in ascending order."""
        return self.take(np.unique(self.exact, return_index=True)[1])

    @property
    def image_views(self) -> ImageViews:
        """Thumbnails and views of the images."""
        return ImageViews(self.thumbnails, self.views)

    @property
    def digest(self) -> str:
        """The SHA-256 of all hashes and thumbnails; it identifies these images in this order."""
        return hashlib.sha256(self.exact.tobytes() + self.thumbnails.tobytes()).hexdigest()

    @property
    def sketch(self) -> str:
        """The smallest hashes in base64, by which a random sample of the images can be recognised elsewhere.

        Anyone who has an image can tell whether it is in the sketch, so never make a sketch of private images.
        """
        return base64.b64encode(np.unique(self.exact)[:SKETCH_SIZE].astype("<u8").tobytes()).decode()

    def compute_sketch_share(self, sketch: str) -> float:
        """Return the share of a sketch's images that are in this split; 0 for an empty sketch.

        Raises:
            ValueError: the text is not a sketch.
        """
        sought = np.frombuffer(base64.b64decode(sketch, validate=True), "<u8")
        return float(np.isin(sought, self.exact).mean()) if len(sought) else 0.0

    @property
    def looks(self) -> str:
        """The thumbnails (8 x 8) of up to 32 images in base64, to find copies of another size or compression.

        The thumbnails show the images coarsely, so never make them of private images.
        """
        chosen = np.unique(self.exact, return_index=True)[1][:LOOK_COUNT]
        small = shrink_images(self.thumbnails[chosen], LOOK_SIDE).round().clip(0, 255)
        return base64.b64encode(small.astype(np.uint8).tobytes()).decode()

    def compute_lookalike_share(self, looks: str) -> float:
        """Return the share of `looks` with a near copy among these images; 0 if no thumbnail shows any detail.

        Raises:
            ValueError: the text does not hold thumbnails.
        """
        sought = np.frombuffer(base64.b64decode(looks, validate=True), np.uint8).reshape(-1, LOOK_SIDE**2)
        mine, theirs = (
            _normalise_grey_levels(shrink_images(self.thumbnails, LOOK_SIDE)),
            _normalise_grey_levels(sought.astype(np.float32)),
        )
        theirs = theirs[theirs.any(1)]
        if not len(theirs) or not len(mine):
            return 0.0
        return float(((theirs @ mine.T).amax(1) >= MIN_LOOK_CORRELATION).float().mean())

    @cached_property
    def normalised_thumbnails(self) -> Tensor:
        """The 16 x 16 thumbnails as vectors of mean 0 and norm 1, (n, 256) float32; zero for flat thumbnails."""
        return normalise_thumbnails(self.thumbnails)


def normalise_thumbnails(thumbnails: np.ndarray) -> Tensor:
    """Return thumbnails (n, 1024) as vectors (n, 256) float32 of mean 0 and norm 1; zero for flat thumbnails."""
    return _normalise_grey_levels(shrink_images(thumbnails, CORRELATION_SIDE))


def _normalise_grey_levels(thumbnails: np.ndarray) -> Tensor:
    return normalise_vectors(torch.from_numpy(thumbnails.round()), MIN_THUMBNAIL_STD)


def count_overlap(hashes: ImageHashes, others: ImageHashes) -> OverlapCounts:
    """Count the images in `hashes` that are identical or nearly identical to one in `others`; counts are cached.

    Images are counted again if the cached counts fail their checksum or have another number of identical images.
    """
    exact = np.isin(hashes.exact, others.exact)
    known = _CountsCacheFile(
        OverlapCounts, [MIN_NEAR_CORRELATION, crops.MIN_DETAIL_CORRELATION, hashes.digest, others.digest]
    )
    found = known.read()
    if found is None or (found.exact, found.among) != (int(exact.sum()), len(hashes)):
        found = known.write(_compute_overlap(hashes, others, exact))
    return found


def count_altered_copies(public: ImageHashes, private: ImageHashes) -> AlteredCopyCounts | None:
    """Count the images of the smaller split that are altered copies of an image of the larger one, or the reverse.

    If the smaller split has more than `MAX_SEARCHED` images, only those with the smallest hashes are searched for. The
    count is cached. Return None for features, and if the larger split has fewer than `MIN_OTHERS` different images.
    """
    few, many = sorted((public.distinct_hashes, private.distinct_hashes), key=len)
    if len(many) < MIN_OTHERS or not few.thumbnails.any():
        return None
    few = few.take(np.arange(min(len(few), MAX_SEARCHED)))
    known = _CountsCacheFile(AlteredCopyCounts, ["altered", SEARCH_VERSION, VIEW_FORMAT, few.digest, many.digest])
    if (counted := known.read()) is None:
        found = find_altered_copies(few.image_views, many.image_views)
        counted = known.write(AlteredCopyCounts(found=int(found.sum()), among=len(few)))
    return counted


class _CountsCacheFile(Generic[Counts]):
    """Counts in the cache; their key holds everything that determines them."""

    def __init__(self, kind: type[Counts], key: list[object]) -> None:
        self._kind: type[Counts] = kind
        self._file = cache_folder() / "hashes" / f"{canonical_digest(key)[:32]}.json"

    def read(self) -> Counts | None:
        """Return the counts; None if the file is missing or its checksum is not that of its counts and name."""
        try:
            content = json.loads(self._file.read_text(encoding="utf-8"))
            sound = content["sha256"] == canonical_digest([self._file.name, content["counts"]])
            return self._kind(**content["counts"]) if sound else None
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, counted: Counts) -> Counts:
        """Store counts and return them."""
        counts = counted.model_dump()
        write_json(self._file, {"counts": counts, "sha256": canonical_digest([self._file.name, counts])})
        return counted


def _compute_overlap(hashes: ImageHashes, others: ImageHashes, exact: np.ndarray) -> OverlapCounts:
    near = torch.from_numpy(exact.copy())
    for start in range(0, len(hashes) if hashes.normalised_thumbnails.any() else 0, BLOCK):
        mine = hashes.normalised_thumbnails[start : start + BLOCK]
        for other in range(0, len(others), BLOCK):
            best = (mine @ others.normalised_thumbnails[other : other + BLOCK].T).amax(1)
            near[start : start + BLOCK] |= best >= MIN_NEAR_CORRELATION
    left, large = np.flatnonzero(~near.numpy() & (hashes.sides >= SIDE)), others.sides >= SIDE
    near[left] |= crops.find_cropped_copies(hashes.thumbnails[left], others.thumbnails[large])
    return OverlapCounts(exact=int(exact.sum()), near=int(near.sum()), among=len(hashes))


def count_copies_within_split(hashes: ImageHashes, owners: np.ndarray | None = None) -> CopyCounts:
    """Count the images that occur more than once in their split, and the copies of the most frequent image.

    With `owners` (n,), the units that epsilon is stated for, an owner's copies count as one image, because epsilon
    covers them together.
    """
    images = hashes.exact
    if owners is not None:
        _, first = np.unique(np.stack([images, owners.astype(np.uint64)], 1), axis=0, return_index=True)
        images = images[first]
    _, counts = np.unique(images, return_counts=True)
    return CopyCounts(images=int(counts[counts > 1].sum()), most=int(counts.max(initial=0)), among=len(hashes))


def count_repeated_images(hashes: ImageHashes) -> OverlapCounts:
    """Count the images that are identical or near-identical to another image of their own split."""
    _, places, counts = np.unique(hashes.exact, return_inverse=True, return_counts=True)
    exact = counts[places] > 1
    near = torch.from_numpy(exact.copy())
    for start in range(0, len(hashes), BLOCK):
        mine = hashes.normalised_thumbnails[start : start + BLOCK]
        for other in range(start, len(hashes), BLOCK):  # two images are as near to each other either way
            products = mine @ hashes.normalised_thumbnails[other : other + BLOCK].T
            if other == start:
                products.fill_diagonal_(-1)  # an image is no repeat of itself
            near[start : start + BLOCK] |= products.amax(1) >= MIN_NEAR_CORRELATION
            near[other : other + BLOCK] |= products.amax(0) >= MIN_NEAR_CORRELATION
    return OverlapCounts(exact=int(exact.sum()), near=int(near.sum()), among=len(hashes))


def compute_hashes(split: Split, data: str, name: str) -> ImageHashes:
    """Return the hashes of a split; they are computed once and cached for these images in this order.

    `data` is the digest of the dataset's bytes, which identifies images without keys (`data.keys`).

    Rows of features are identical if all their numbers are equal. If each row was drawn at random, equal rows are a
    coincidence and get different hashes. Features have no near copies.

    Raises:
        DataError: an image cannot be decoded.
    """
    if isinstance(split.images, Features):
        drawn, x = split.images.processing == INDEPENDENT_DRAWS, split.images.x
        rows = [f"{data} {name} {place}".encode() if drawn else row.tobytes() for place, row in enumerate(x)]
        exact = [int.from_bytes(hashlib.blake2b(row, digest_size=8).digest()) for row in rows]
        return dataclasses.replace(_make_empty_hashes(len(exact)), exact=np.array(exact, np.uint64))
    images = identify_images(split, data, name)
    key = canonical_digest({"images": images.digest, "side": SIDE, "pixels": PIXEL_FORMAT, "views": VIEW_FORMAT})[:32]
    file = cache_folder() / "hashes" / f"{key}.bin"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(file.with_suffix(".lock")):
            kept = _read_hashes(file, len(split.labels))
            if kept is None:
                kept = hash_images(split.images, name)
                content = b"".join(part.tobytes() for part in (kept.exact, kept.thumbnails, kept.views, kept.sides))
                write_atomically(file, lambda out: out.write(content + hashlib.sha256(content).digest()))
            return kept
    except OSError as error:
        raise OutputError(
            f"Cannot use the cache in {file.parent}: {error.strerror or error}. "
            "Free some space, or name another folder in DPBENCH_CACHE."
        ) from error


def _read_hashes(file: Path, rows: int) -> ImageHashes | None:
    """Read stored hashes; return None if the file is missing or fails its checksum."""
    try:
        content = bytearray(file.read_bytes())  # torch takes no arrays that cannot be written
    except FileNotFoundError:
        return None
    content, digest = content[:-32], content[-32:]
    size = 9 + SIDE * SIDE + VIEW_COUNT * VIEW_SIDE**2
    if len(content) != rows * size or hashlib.sha256(content).digest() != digest:
        return None
    whole, starts = np.frombuffer(content, np.uint8), np.array([8, 8 + SIDE * SIDE, size - 1]) * rows
    exact, thumbnails, views, sides = np.split(whole, starts)
    return ImageHashes(
        exact.view(np.uint64),
        thumbnails.reshape(rows, SIDE * SIDE),
        views.reshape(rows, VIEW_COUNT, VIEW_SIDE**2),
        sides,
    )


def _make_empty_hashes(rows: int) -> ImageHashes:
    """Return hashes, thumbnails and views of zeros."""
    thumbnails = np.zeros((rows, SIDE * SIDE), np.uint8)
    views = np.zeros((rows, VIEW_COUNT, VIEW_SIDE**2), np.uint8)
    return ImageHashes(np.zeros(rows, np.uint64), thumbnails, views, np.zeros(rows, np.uint8))


def hash_images(images: Images, name: str) -> ImageHashes:
    """Return the hashes of the images of the split `name`.

    Raises:
        DataError: an image cannot be decoded.
    """
    made = _make_empty_hashes(len(images))
    hashed = ImageMapper(images, _hash_image, "Comparing images", f" of the {name} split")
    chunks = [range(start, min(start + CHUNK, len(images))) for start in range(0, len(images), CHUNK)]
    drawn = int(np.random.default_rng().integers(len(chunks) or 1))

    def hash_chunk(chunk: range) -> int:
        for index, found in zip(chunk, hashed(chunk, thorough=chunk == chunks[drawn]), strict=True):
            made.exact[index], made.thumbnails[index], made.views[index], made.sides[index] = found
        return len(chunk)

    with progress.show_progress_bar(f"Comparing {name} images", len(images)) as advance, ThreadPoolExecutor() as pool:
        for done in pool.map(hash_chunk, chunks):
            advance(done)
    return made


def _hash_image(image: Image) -> tuple[int, np.ndarray, np.ndarray, int]:
    """Return an image's hash (of size and pixels), thumbnail, views, and shorter side in pixels, at most 255."""
    side = min(*image.size, 255)
    if image.mode in {"P", "PA"}:  # places in a palette are no pixels
        image = image.convert("RGBA" if image.mode == "PA" or "transparency" in image.info else "RGB")
    content = hashlib.blake2b(str(image.size).encode(), digest_size=8)
    content.update(_encode_as_rgb_bytes(image))
    grey = _convert_to_grey(image)
    return int.from_bytes(content.digest()), _shrink_to_thumbnail(grey), make_image_views(grey), side


def make_thumbnail(image: Image) -> np.ndarray:
    """Return the grey thumbnail (1024,) uint8 of an image without a palette."""
    return _shrink_to_thumbnail(_convert_to_grey(image))


def _shrink_to_thumbnail(grey: Image) -> np.ndarray:
    return np.asarray(grey.resize((SIDE, SIDE), Resampling.BOX)).reshape(-1)


def _encode_as_rgb_bytes(image: Image) -> bytes:
    """Return the image's pixels as RGB bytes; images with the same pixels have the same bytes."""
    if image.mode == "LAB":  # which pillow does not turn into RGB
        return image.tobytes()
    if image.mode in {"La", "RGBa"}:  # colours times transparency
        image = image.convert({"La": "LA", "RGBa": "RGBA"}[image.mode])
    return (_reduce_bit_depth(image) if _has_more_than_8_bits(image) else image).convert("RGB").tobytes()


def _convert_to_grey(image: Image) -> Image:
    """Convert an image to grey with 8 bits per pixel."""
    if _has_more_than_8_bits(image):
        return _reduce_bit_depth(image)
    return image.getchannel(0) if image.mode in {"LAB", "La"} else image.convert("L")


def _has_more_than_8_bits(image: Image) -> bool:
    return image.mode.startswith(("I", "F"))


def _reduce_bit_depth(image: Image) -> Image:
    """Convert deep pixels to 8 bits: unchanged if all values fit, otherwise scaled by the image's own range."""
    values = np.nan_to_num(np.asarray(image, dtype=np.float64))
    low, high = values.min(), values.max()
    if low >= 0 and high <= 255 and np.array_equal(values, np.rint(values)):
        return fromarray(values.astype(np.uint8))
    return fromarray(((values - low) * (255 / max(high - low, 1e-300))).astype(np.uint8))
