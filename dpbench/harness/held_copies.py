"""Refuse learners that reach a copy of the private data, such as the training set in a global array of a notebook.

A learner would read such a copy without noise, so the stated epsilon would not hold.

Covered: arrays, tensors and tables of pandas that a learner, its class, closures and defaults reach, globals that its
code names, and all globals of the modules of its distribution. `SAMPLE_SIZE` or more evenly spaced rows of each array
are compared, or all rows of a shorter array. An array is a copy if `MIN_COPIES` of the compared rows match different
private rows or images, up to scale and shift; images may have any size.
Not covered: fewer private rows than `MIN_COPIES`, private rows hidden among far more other rows, features of
fewer than `MIN_WIDTH` numbers, standardised or projected copies, arrays that code finds without naming them (such as
through `globals()`), lists of numbers, and files (`private_files`).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from PIL.Image import fromarray
from torch import Tensor

from dpbench.api import Learner
from dpbench.data.duplicates import make_thumbnail, normalise_thumbnails
from dpbench.errors import PrivacyError
from dpbench.harness.leftovers import LeftoverStateSearch
from dpbench.harness.split_images import SplitImages
from dpbench.privacy.core.rows import PrivateRows

SAMPLE_SIZE = 256  # rows of an array that are compared, at least, and fewer than twice as many
MIN_COPIES = 16  # different private rows among these; fewer may be chance
MIN_ROW_LIKENESS, MIN_IMAGE_LIKENESS = 1 - 1e-5, 0.999  # correlation of two rows, and of two thumbnails
MIN_SPREAD = 1e-6  # of a row's largest number: rows that vary less are constant
MIN_WIDTH = 8  # numbers of a row: shorter rows look alike
BLOCK = 4096
COLOURS = (1, 3)  # channels of an image


def refuse_held_copies(learner: Learner, rows: PrivateRows, images: SplitImages) -> None:
    """Check that a learner reaches no copy of the private rows or images.

    Raises:
        PrivacyError: the learner reaches a copy; the message says where it was found.
    """
    for path, sample in _list_reached_arrays(learner):
        found = _count_copied_rows(sample.flatten(1), rows)
        if found < MIN_COPIES and (thumbnails := _make_thumbnails(sample, images.shape)) is not None:
            found = _count_matching_rows(
                thumbnails, [images.hash_split("private").normalised_thumbnails], MIN_IMAGE_LIKENESS
            )
        if found >= MIN_COPIES:
            raise PrivacyError(
                f"Learner {learner.name!r} reaches a copy of the private data: {path} holds rows of it. What a learner "
                "reads there has no noise, so the stated epsilon would not hold. Remove it from the learner's code: "
                "private rows come from the curator only, and public examples are in `public`."
            )


def _list_reached_arrays(learner: Learner) -> Iterator[tuple[str, Tensor]]:
    """Yield the path and some rows (c, ...) of each array that a learner reaches.

    Many arrays of equal shape in one container are treated as the rows of one array.
    """
    beside: dict[tuple[int, tuple[int, ...]], list[Tensor]] = defaultdict(list)
    paths: dict[tuple[int, tuple[int, ...]], str] = {}
    for entry in LeftoverStateSearch(learner).list_arrays():
        array = entry.thing
        if not (array.size if isinstance(array, np.ndarray) else array.numel()):
            continue
        if array.ndim > 1 and len(array) >= MIN_COPIES:
            yield entry.path(), _convert_to_double_tensor(array[:: max(1, len(array) // SAMPLE_SIZE)])
        elif array.ndim:
            key = id(entry.parent), tuple(array.shape)
            beside[key].append(array)
            paths.setdefault(key, entry.path())
    for key, arrays in beside.items():
        if len(arrays) >= MIN_COPIES:
            yield (
                paths[key],
                torch.stack([*map(_convert_to_double_tensor, arrays[:: max(1, len(arrays) // SAMPLE_SIZE)])]),
            )


def _convert_to_double_tensor(array: np.ndarray | Tensor) -> Tensor:
    if not isinstance(array, Tensor):
        return torch.from_numpy(array.astype(np.float64))
    return (array.dequantize() if array.is_quantized else array).detach().cpu().double()


def _count_copied_rows(sample: Tensor, rows: PrivateRows) -> int:
    """Count the private rows that match a row of `sample` (c, d), up to scale and shift.

    The count is 0 if rows cannot be compared, such as rows of another width or of fewer than `MIN_WIDTH` numbers.
    """
    width = math.prod(rows.example_shape)
    if sample.shape[1] != width or width < MIN_WIDTH or not isinstance(rows.held, Tensor):
        return 0
    places = (rows.index[start : start + BLOCK] for start in range(0, len(rows), BLOCK))
    held = (_normalise_rows(rows.held[index].flatten(1)) for index in places)
    return _count_matching_rows(_normalise_rows(sample), held, MIN_ROW_LIKENESS)


def _make_thumbnails(sample: Tensor, shape: tuple[int, int, int]) -> Tensor | None:
    """Return normalised thumbnails (c, 256) of an array of images; None if its shape is not that of images.

    Args:
        sample: images (c, height, width), with channels first, last or absent, or flattened.
        shape: height, width and channels of the dataset's images, to recognise flattened images.
    """
    if sample.ndim == 2 and sample.shape[1] == math.prod(shape):
        sample = sample.reshape(-1, *shape)
    if sample.ndim == 4 and sample.shape[1] in COLOURS and sample.shape[3] not in COLOURS:
        sample = sample.permute(0, 2, 3, 1)
    if sample.ndim == 4 and sample.shape[3] in COLOURS:
        sample = sample.squeeze(3)
    if sample.ndim not in (3, 4) or (sample.ndim == 4 and sample.shape[3] not in COLOURS):
        return None
    low, high = sample.min(), sample.max()
    levels = ((sample - low) * (255 / (high - low).clamp(min=1e-300))).round().to(torch.uint8).numpy()
    return normalise_thumbnails(np.stack([make_thumbnail(fromarray(image)) for image in levels]))


def _normalise_rows(rows: Tensor) -> Tensor:
    """Return rows with mean 0 and length 1; constant rows, which look alike, become 0."""
    centred = rows.double() - rows.double().mean(1, keepdim=True)
    lengths = centred.norm(dim=1, keepdim=True)
    return torch.where(lengths > MIN_SPREAD * rows.abs().amax(1, keepdim=True), centred / lengths, 0).float()


def _count_matching_rows(sample: Tensor, blocks: Iterable[Tensor], least: float) -> int:
    """Count the distinct rows in `blocks` that are the best match of some sample row.

    A match has a correlation of at least `least`. All rows are normalised.
    """
    best, match = torch.zeros(len(sample)), torch.full((len(sample),), -1)
    start = 0
    for block in blocks:
        found, place = (sample @ block.T).max(1)
        better = found > best
        best, match = torch.where(better, found, best), torch.where(better, place + start, match)
        start += len(block)
    return len(set(match[best >= least].tolist()))
