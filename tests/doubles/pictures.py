"""Images that compress well and are all different: each shows its own number, and a little of its class.

An image has 4 x 4 cells of one colour each, random by its number and tinted a little by its class, and below them a
strip of 24 bars: its number in binary, which is still readable in a JPEG file.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence

import numpy as np

CELLS, BITS = 4, 24
TINT = 24  # grey levels that a class moves a cell by, of 110 by which its number does
BLOCK = 1 << 24  # bytes that are drawn at a time


def draw(numbers: np.ndarray, labels: np.ndarray, size: tuple[int, int], channels: int = 3) -> np.ndarray:
    """Return the images of some numbers and classes, (n, height, width, channels) uint8.

    `size` is height and width: multiples of 4, and at least 28 wide.
    """
    height, width = size
    cells, parts = (len(numbers), CELLS, CELLS, channels), CELLS * CELLS * channels
    noise, tint = (_uniform(seeds, parts).reshape(cells) for seeds in (numbers, labels + (1 << 40)))
    colours = np.rint(128 + 110 * noise + TINT * np.sign(tint)).clip(0, 255).astype(np.uint8)
    images: np.ndarray = colours.repeat(height // CELLS, 1).repeat(width // CELLS, 2)
    bars = 255 * (numbers[:, None] >> np.arange(BITS) & 1).astype(np.uint8)  # (n, 24)
    strip = np.zeros((len(numbers), width), np.uint8)
    strip[:, : BITS * (width // BITS)] = bars.repeat(width // BITS, 1)
    images[:, -_strip(height) :] = strip[:, None, :, None]
    return images


def read_number(image: np.ndarray) -> int:
    """Return the number that an image (height, width) or (height, width, 3) shows."""
    height, width = image.shape[:2]
    bar = width // BITS
    row = image[height - (_strip(height) + 1) // 2].reshape(width, -1)[:, 0]
    bits = row[bar // 2 :: bar][:BITS] > 127
    return int((bits.astype(np.int64) << np.arange(BITS)).sum())


def blocks(labels: np.ndarray, first: int, size: tuple[int, int], channels: int = 3) -> Iterator[np.ndarray]:
    """Yield the images of these classes in blocks; the first of them has the number `first`."""
    step = max(1, BLOCK // (size[0] * size[1] * channels))
    for start in range(0, len(labels), step):
        part = labels[start : start + step]
        yield draw(np.arange(len(part)) + first + start, part, size, channels)


def encode(image: np.ndarray, form: str) -> bytes:
    """Return an image file."""
    from PIL import Image

    content = io.BytesIO()
    Image.fromarray(image).save(content, form)
    return content.getvalue()


def deal(count: int, classes: int) -> np.ndarray:
    """Return labels in turn, so that all classes are as large as they can be alike."""
    return np.arange(count) % classes


def spread(counts: Sequence[int]) -> np.ndarray:
    """Return labels, one class after the other."""
    return np.repeat(np.arange(len(counts)), counts)


def _strip(height: int) -> int:
    return max(3, height // 8)


def _uniform(seeds: np.ndarray, count: int) -> np.ndarray:
    """Return numbers in (-1, 1) that follow from the seeds alone, (n, count): splitmix64."""
    with np.errstate(over="ignore"):
        mixed: np.ndarray = seeds.astype(np.uint64)[:, None] * np.uint64(0xD1342543DE82EF95)
        mixed = (mixed + np.arange(1, count + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
        mixed = (mixed ^ mixed >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    found: np.ndarray = (mixed >> np.uint64(40)).astype(np.float64) / 2**23 - 1
    return found
