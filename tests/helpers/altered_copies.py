"""How many altered copies are found, measured on real images.

`python -m tests.helpers.altered_copies` prints a table, for the datasets that are on this machine.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from dpbench_plugins.datasets.cifar10 import Cifar10
from dpbench_plugins.datasets.ham10000 import Ham10000
from dpbench_plugins.datasets.kermany import Pneumonia
from dpbench_plugins.datasets.odir import Odir
from dpbench_plugins.datasets.sklearn import Digits
from dpbench_plugins.datasets.torchvision import Gtsrb, Pcam
from PIL import ImageEnhance, ImageFilter, ImageOps
from PIL.Image import Image, Resampling, Transpose

from dpbench import Dataset, Split
from dpbench.data.altered import find_altered_copies
from dpbench.data.duplicates import ImageHashes, hash_images

DATASETS: Mapping[str, Dataset] = {
    "digits": Digits(), "CIFAR-10": Cifar10(), "X-rays": Pneumonia(), "GTSRB": Gtsrb(training="final"),
    "HAM10000": Ham10000(), "PCAM": Pcam(), "ODIR": Odir(),
}  # fmt: skip
COPIES, HONEST, MAX_PRIVATE = 300, 750, 1_000  # images of each dataset: altered, public, private


def shrink(image: Image) -> Image:
    """Shrink to a quarter of the sides, at least 4 pixels, and enlarge again."""
    width, height = image.size
    small = image.resize((max(4, width // 4), max(4, height // 4)), Resampling.BOX)
    return small.resize(image.size, Resampling.BICUBIC)


def pad(image: Image) -> Image:
    """Add a black border of an eighth of the shorter side."""
    return ImageOps.expand(image, max(1, min(image.size) // 8))


ALTERATIONS: Mapping[str, Callable[[Image], Image]] = {
    "blurred (σ 1/16 of a side)": lambda image: image.filter(ImageFilter.GaussianBlur(min(image.size) / 16)),
    "shrunk to 1/4 (at least 4 pixels) and enlarged": shrink,
    "brightened by half": lambda image: ImageEnhance.Brightness(image).enhance(1.5),
    "padded by 1/8 of a side": pad,
    "padded, then resized to the former size": lambda image: pad(image).resize(image.size, Resampling.BICUBIC),
    "inverted": ImageOps.invert,
    "edge-filtered (`FIND_EDGES`)": lambda image: image.filter(ImageFilter.FIND_EDGES),
    "black and white": lambda image: image.convert("L").point([0] * 128 + [255] * 128),
    "embossed": lambda image: image.filter(ImageFilter.EMBOSS),
    "mirrored": lambda image: image.transpose(Transpose.FLIP_LEFT_RIGHT),
    "rotated by 90°": lambda image: image.transpose(Transpose.ROTATE_90),
}
OTHERS, RELATED = "other images", "other images of the same track, lesion or patient"


def main() -> None:
    """Print the table."""
    measured = {name: measure(dataset) for name, dataset in DATASETS.items()}
    lines = [f"| public images | {' | '.join(measured)} |", "|---|" + "---:|" * len(measured)]
    for row in (*ALTERATIONS, OTHERS, RELATED):
        lines.append(f"| {row} | {' | '.join(found.get(row, '') for found in measured.values())} |")
    print("\n".join(lines))


def measure(dataset: Dataset) -> dict[str, str]:
    """Return the share of images found, by row of the table."""
    splits = dataset.load()
    public, private = cut(splits.train)
    hashes = hash_rows(splits.train, private)
    rows = [int(row) for row in private[:COPIES]]
    made = {name: share(hash_rows(splits.train, rows, alter), hashes, name=name) for name, alter in ALTERATIONS.items()}
    made[OTHERS] = share(hash_rows(splits.train, public), hashes, name=OTHERS)
    if splits.train.units is not None:
        siblings = np.flatnonzero(np.isin(splits.train.units, splits.train.units[private]))
        siblings = siblings[~np.isin(siblings, private)][:COPIES]
        made[RELATED] = share(hash_rows(splits.train, siblings), hashes, name=RELATED)
    return made


def cut(train: Split) -> tuple[np.ndarray, np.ndarray]:
    """Return public and private rows of different units; of units with several images one in ten is neither."""
    generator, rows = np.random.default_rng(0), len(train.labels)
    owners = np.arange(rows) if train.units is None else np.unique(train.units, return_inverse=True)[1]
    order = generator.permutation(owners.max() + 1)[owners]  # of its unit
    by_unit = np.lexsort((generator.permutation(rows), order))
    public = by_unit[: min(HONEST, rows // 3)]
    rest = by_unit[~np.isin(order[by_unit], order[public])]
    if train.units is not None:
        rest = rest[generator.random(len(rest)) > 0.1]
    return public, generator.permutation(rest)[:MAX_PRIVATE]


def hash_rows(
    train: Split, rows: Sequence[int] | np.ndarray, alter: Callable[[Image], Image] | None = None
) -> ImageHashes:
    """Return hashes of rows of a split, altered if asked."""
    images = [train.images[int(row)] for row in rows]
    if alter is not None:
        images = [alter(image if image.mode in {"L", "RGB"} else image.convert("RGB")) for image in images]
    return hash_images(images, "train")


def share(public: ImageHashes, private: ImageHashes, *, name: str) -> str:
    """Return which share of the public images matches a private one."""
    distinct = public.distinct_hashes
    found = find_altered_copies(distinct.image_views, private.distinct_hashes.image_views)
    print(f"{name}: {int(found.sum())} of {len(distinct)}", file=sys.stderr, flush=True)
    percent = 100 * float(found.float().mean())
    return f"{percent:.1f} %" if name in {OTHERS, RELATED} else f"{percent:.0f} %"


if __name__ == "__main__":
    main()
