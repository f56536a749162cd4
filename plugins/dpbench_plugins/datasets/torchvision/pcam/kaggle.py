"""Kaggle's copy of PatchCamelyon: a folder of TIFF files and a table of labels, or the zip with both."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from dpbench import DataError, Splits
from dpbench_plugins.datasets.hash_cut import is_in_test_split, sha256_as_int
from dpbench_plugins.datasets.image_trees import (
    ANYWHERE,
    ImageFile,
    Layout,
    check_one_line_per_image,
    fingerprint_images,
    list_images,
    open_splits,
    read_rows,
    table_name,
)

PAGE = "https://www.kaggle.com/competitions/histopathologic-cancer-detection"
ARCHIVE = "histopathologic-cancer-detection"
TABLE = "train_labels.csv"
COUNT = 220_025  # labelled images
CLASSES = ("normal", "tumour")
HOMES = (("pcam/train", f"pcam/{TABLE}"), (f"pcam/{ARCHIVE}.zip",))
ADVICE = f"Copy it again from {PAGE}."
LAYOUT = Layout(
    re.compile(rf"{ANYWHERE}train/(?P<kind>)(?P<file>[^/]+\.tif)"), split=lambda _: "train", advice=ADVICE, top="train/"
)


def open_archive(images: Path, table: Path, fraction: float) -> Splits:
    """Open the labelled images, split by the SHA-256 of their ids, and keep the share `fraction` of the training split.

    For a zip, both paths are the zip.

    Raises:
        DataError: the table is missing from a zip or does not parse, a label is not 0 or 1, the table does not match
            the images, or there are more images than published.
    """
    listed, rows = list_images(images, LAYOUT), _read_labels(table)
    check_one_line_per_image(
        [_parse_patch_id(file) for file in listed],
        [row["id"] for row in rows],
        images,
        table_name(table, TABLE),
        ADVICE,
    )
    labels = {row["id"]: int(row["label"]) for row in rows}
    if len(listed) > COUNT:
        raise DataError(f"Expected at most {COUNT:,} images in {images}, got {len(listed):,}. {ADVICE}")

    def assign_split(file: ImageFile) -> ImageFile:
        return file._replace(
            kind=CLASSES[labels[_parse_patch_id(file)]],
            split="test" if is_in_test_split(_encode_patch_id(file)) else "train",
        )

    files = sorted(map(assign_split, listed))
    digest = fingerprint_images(files)
    kept = [file for file in files if file.split == "test" or sha256_as_int(_encode_patch_id(file)) < fraction * 2**256]
    splits = open_splits(kept, CLASSES, "RGB", digest, ADVICE)
    said = (
        f"{len(files):,} of the {COUNT:,} labelled images of Kaggle's {ARCHIVE}, digest {digest[:12]}; no split is "
        "published, so the fifth whose SHA-256 of the id is divisible by five is the test split"
    )
    return dataclasses.replace(splits, edition=said)


def _read_labels(table: Path) -> list[dict[str, str]]:
    """Return the id and the label in each line of the table."""
    rows = read_rows(table, TABLE, ("id", "label"), ADVICE)
    for row in rows:
        if row["label"] not in {"0", "1"}:
            raise DataError(
                f"Expected label 0 or 1 of every image in {table_name(table, TABLE)}, got {row['label']!r} of "
                f"{row['id']}. {ADVICE}"
            )
    return rows


def _parse_patch_id(file: ImageFile) -> str:
    return file.file.removesuffix(".tif")


def _encode_patch_id(file: ImageFile) -> bytes:
    return _parse_patch_id(file).encode("utf-8", "surrogateescape")
