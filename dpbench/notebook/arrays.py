"""Your own arrays as a dataset, without a plugin."""

from __future__ import annotations

import hashlib
import os
import secrets
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpbench.api import Dataset, DeclaredImages, Features, Split, Splits
from dpbench.data.groups import check_group_columns
from dpbench.errors import DataError
from dpbench.models.model import array_to_image, check_image_values
from dpbench.records.protocol import PIXELS, SUGGESTED_NETWORK
from dpbench.support.paths import cache_folder

if TYPE_CHECKING:
    from PIL.Image import Image

KEY_BYTES = 32
MAX_PIXEL_SIDE = 32  # pixels, up to which private learners do well on raw pixels


@dataclass(frozen=True)
class ArrayImages:
    """Images in a single array."""

    held: np.ndarray  # (n, h, w) or (n, h, w, 3)

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: int, /) -> Image:
        return array_to_image(self.held[index])


@dataclass(frozen=True)
class UserArrayDataset(Dataset):
    """The class of datasets that `dataset` returns. A keyed digest identifies their data."""

    digest: str = ""


def dataset(
    x: np.ndarray,
    y: Sequence[Any] | np.ndarray,
    x_test: np.ndarray,
    y_test: Sequence[Any] | np.ndarray,
    *,
    classes: Sequence[Any] | None = None,
    name: str = "arrays",
    licence: str = "as stated by its owner",
    processing: str = "",
    groups: Mapping[str, Sequence[str] | np.ndarray] | None = None,
) -> Dataset:
    """Turn your own arrays into a dataset for `dpbench.run(dataset=...)`. The arrays are copied.

    Neighbouring datasets differ by one row of `x`. The classes and the number of rows are public.
    Results and models identify the data by a digest keyed with a secret in this machine's cache folder, so that nobody
    can test guesses of a row. On another machine the same arrays get another name and other noise.

    Args:
        x: training images of whole numbers 0 to 255, (n, height, width) or (n, height, width, 3), from which the public
            split is cut; or vectors (n, d) of finite numbers, such as features that you extracted.
        y: (n,) the class of each row of `x`.
        x_test: test images of the same kind.
        y_test: the classes of the test images.
        classes: the classes in order, each a value of `y`; by default the classes that occur, sorted.
        name: the dataset's name in results.
        licence: licence of the data, for the record.
        processing: a sentence for the record on how each row was processed, independently of other rows. ε does not
            cover a row that was normalised with statistics of other rows.
        groups: groups of the test images, for accuracy by group: maps a column such as "sex" to (n,) texts, empty if
            unknown. Training never sees groups, and neither the digest of the data nor the noise depends on groups.

    Raises:
        DataError: an array has another shape or other values, or labels or groups do not fit the images.
    """
    pairs = [(_copy_array(x, "x"), _copy_array(y, "y")), (_copy_array(x_test, "x_test"), _copy_array(y_test, "y_test"))]
    for (images, labels), what in zip(pairs, ("x and y", "x_test and y_test"), strict=True):
        _check_images_and_labels(images, labels, what)
    (train, labels), (test, test_labels) = pairs
    if train.shape[1:] != test.shape[1:]:
        raise DataError(f"Expected rows of one shape in x and x_test, got shapes {train.shape} and {test.shape}.")
    known = np.unique(np.concatenate([labels, test_labels])) if classes is None else np.asarray(classes)
    if classes is None and len(unseen := np.setdiff1d(test_labels, labels)):
        raise DataError(
            f"Expected every class of y_test in y, but {unseen[0]} is missing. If this is intended, list all classes "
            "in `classes`."
        )
    named, data_licence = name, licence
    suggested = SUGGESTED_NETWORK if train.ndim > 2 and max(train.shape[1:3]) > MAX_PIXEL_SIDE else PIXELS
    splits = Splits(
        Split(_wrap_examples(train, processing), _index_labels(labels, known)),
        _attach_groups(Split(_wrap_examples(test, processing), _index_labels(test_labels, known)), groups),
        _compute_keyed_digest(train, labels, test, test_labels, known),
    )  # fmt: skip

    @dataclass(frozen=True)
    class OwnArrays(UserArrayDataset):
        name = named
        classes = tuple(map(str, known.tolist()))
        licence = data_licence
        default_extractor = suggested
        citation = "as stated by its owner"
        digest: str = splits.digest[:16]

        def load(self) -> Splits:
            """Return the arrays as splits.

            Raises:
                DataError: the digest belongs to other arrays.
            """
            if self.digest != splits.digest[:16]:
                raise DataError(f"Expected arrays of digest {self.digest}, got others: {splits.digest[:16]}.")
            return splits

    return OwnArrays()


def _load_digest_key() -> bytes:
    """Return this machine's key, created at first use; if it cannot be stored, a key for this process only.

    Raises:
        DataError: the key is damaged. A new key would give arrays other names, and their runs other noise.
    """
    file = cache_folder() / "arrays.key"
    try:
        if not file.exists():
            _create_digest_key(file)
        kept = file.read_bytes()
    except OSError:
        return _make_digest_key_for_process()
    if len(kept) != KEY_BYTES:
        raise DataError(
            f"Expected {KEY_BYTES} bytes in {file}, got {len(kept)}. Delete it: dpbench makes a new key, and arrays "
            "get new names."
        )
    return kept


def _create_digest_key(file: Path) -> None:
    """Write a new key atomically and only once, even if another process creates it at the same time."""
    file.parent.mkdir(parents=True, exist_ok=True)
    descriptor, made = tempfile.mkstemp(dir=file.parent)  # 0600
    try:
        with os.fdopen(descriptor, "wb") as new:
            new.write(secrets.token_bytes(KEY_BYTES))
        try:
            os.link(made, file)
        except FileExistsError:
            return
        except OSError:  # a file system without links
            Path(made).replace(file)
    finally:
        Path(made).unlink(missing_ok=True)


@cache
def _make_digest_key_for_process() -> bytes:
    return secrets.token_bytes(KEY_BYTES)


def _copy_array(values: Any, name: str) -> np.ndarray:
    try:
        found = np.array(values)  # a copy: data that changed under its digest would be answered with the same noise
    except ValueError as error:
        raise DataError(f"Expected {name} as one array, got rows that differ in shape: {error}.") from error
    if found.dtype == object:
        raise DataError(f"Expected {name} as an array of numbers or texts, got one of Python objects.")
    return found


def _attach_groups(test: Split, groups: Mapping[str, Sequence[str] | np.ndarray] | None) -> Split:
    if not groups:
        return test
    split = replace(test, groups={column: np.array(values) for column, values in groups.items()})
    check_group_columns(split, "groups of x_test")
    return split


def _wrap_examples(x: np.ndarray, processing: str) -> DeclaredImages | Features:
    return (
        Features(np.ascontiguousarray(x, np.float32), processing)
        if x.ndim == 2
        else DeclaredImages(ArrayImages(x), processing)
    )


def _check_images_and_labels(images: np.ndarray, labels: np.ndarray, split_name: str) -> None:
    try:
        check_image_values(images)
    except DataError as error:
        raise DataError(f"In {split_name}: {error}") from error
    if labels.shape != (len(images),) or not len(images):
        raise DataError(
            f"Expected one label a row in {split_name}, got {len(images)} rows and labels of shape {labels.shape}."
        )
    if labels.dtype.kind == "f" and len(broken := labels[labels != np.floor(labels)]):
        raise DataError(
            f"Expected a class for each row in {split_name}, such as a whole number or a text, got {broken[0]}. "
            "dpbench does not support regression."
        )


def _index_labels(labels: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Return the index of each label among the classes, (n,) int64."""
    place = {value: index for index, value in enumerate(known.tolist())}
    if len(place) < max(2, len(known)):
        raise DataError(f"Expected two classes or more, each once, got {known.tolist()}.")
    unknown = [value for value in labels.tolist() if value not in place]
    if unknown:
        raise DataError(f"Expected labels among the classes {known.tolist()}, got {unknown[0]!r}.")
    return np.array([place[value] for value in labels.tolist()], dtype=np.int64)


def _compute_keyed_digest(*arrays: np.ndarray) -> str:
    found = hashlib.blake2b(key=_load_digest_key(), digest_size=32)
    for array in arrays:
        found.update(f"{array.dtype} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    return found.hexdigest()
