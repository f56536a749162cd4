"""Read and prepare images one at a time; the purity guard checks that no state passes between images.

If a loader or a preparation keeps state (a running maximum, a count, the last image), one person's image can change
another person's row before any clipping.

Covered: the same objects as in `privacy.purity.guard`, for `Records.read` and `Extractor.prepare`. The objects that
these functions reach are compared before and after every few images. Around randomly drawn images, globals and the
content of arrays are compared as well.

Not covered: the content of objects that cannot be compared, such as an open file or a session of another runtime
(objects beside these are compared, and images are still prepared again in another order); and images that a dataset
provides in memory, because the dataset declares how they were made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from functools import partial
from typing import Any, Generic, TypeVar

import numpy as np
from PIL.Image import Image, new
from torch import Tensor

from dpbench.api import Extractor, Images, Records
from dpbench.errors import DataError, DpbenchError, NotPure
from dpbench.privacy.purity.quiet_room import call_quietly
from dpbench.privacy.purity.reach import MOST_OBJECTS, Reach
from dpbench.support.code import get_top_package
from dpbench.support.plugin_calls import call_plugin

R = TypeVar("R")
DATA_TYPES = (float, complex, bytearray, np.floating, np.ndarray, Tensor, Image)
"""Types of values that may have been computed from images."""
MAX_OPTION_NUMBERS = 16  # that are options; more are a table
INDEPENDENCE_RULE = (
    "Each image must depend only on its own record, or removing one image would change others: see 'Add a dataset'."
)


class ImageMapper(Generic[R]):
    """Reads images one at a time and calls a function on each; checks that reader and function keep no state.

    Several threads may call it. The code can read files and do nothing else (`call_quietly`).
    """

    def __init__(self, images: Images, function: Callable[[Image], R], what: str, split: str = "") -> None:
        self._images, self._use, self._what, self._split = images, function, what, split
        read = images.read if isinstance(images, Records) else None
        self._places = images.places if isinstance(images, Records) else None
        if read is not None:
            _check_reader_holds_options_only(read)
        self._functions: dict[str, Any] = (
            {what: function} if read is None else {what: function, "Reading a record": read}
        )
        self._reaches = self._list_reaches(thorough=False)

    def __call__(self, indices: Sequence[int], *, thorough: bool = False) -> list[R]:
        """Return the function's results on these images; with `thorough`, compare every covered object.

        Raises:
            DataError: an image cannot be decoded.
            NotPure: reading, or the function, changed an object that it reaches.
            ComponentFailed: the function failed.
        """
        # All that is reached is looked up now: before the first call something may have been made.
        reaches = [*self._reaches, *(self._list_reaches(thorough=True) if thorough else ())]
        before = [reach.read() for _, reach in reaches]
        try:
            return call_quietly(self._map_images, indices, self._what, reads=True)
        finally:
            for (what, reach), reading in zip(reaches, before, strict=True):
                if change := reach.find_change(reading, reach.read()):
                    raise NotPure(
                        f"{what} changed what it reaches while it worked: {change}. {INDEPENDENCE_RULE}"
                    ) from None

    def _list_reaches(self, *, thorough: bool) -> list[tuple[str, Reach]]:
        found = (
            (what, find_reached_objects(function, thorough=thorough)) for what, function in self._functions.items()
        )
        return [(what, reach) for what, reach in found if reach is not None]

    def _map_images(self, indices: Sequence[int]) -> list[R]:
        return [self._decode_and_map(index) for index in indices]

    def _decode_and_map(self, index: int) -> R:
        if self._places is not None and (kind := _find_possibly_computed_type(self._places[index])):
            raise NotPure(
                f"Expected the place of a record as text, bytes or whole numbers, got a {kind}. {INDEPENDENCE_RULE}"
            )
        try:
            image = self._images[index]
            image.load()
        except DpbenchError:  # says itself what to do
            raise
        except Exception as error:  # whatever a decoder raises
            reason = f"{type(error).__name__}: {error}".rstrip(".")
            raise DataError(
                f"Image {index}{self._split} cannot be decoded ({reason}). Remove or replace it at its source."
            ) from error
        return call_plugin(f"{self._what} on image {index}", self._use, image)


def return_image_unchanged(image: Image) -> Image:
    """Return the image unchanged, for an `ImageMapper` that only reads."""
    return image


def make_image_preparer(images: Images, extractor: Extractor) -> ImageMapper[Tensor]:
    """Return an `ImageMapper` that prepares images; a first call on a blank image sets up the extractor's state."""
    with suppress(Exception):  # one that takes no such image says so of the first that it is given
        extractor.prepare(new("RGB", (64, 64)))
    return ImageMapper(images, extractor.prepare, f"Extractor {extractor.name!r}")


def find_reached_objects(functions: Any, *, thorough: bool) -> Reach | None:
    """Return the objects that functions reach, without those that cannot be compared; None if there are too many."""
    try:
        return Reach(functions, thorough=thorough, own_package=_find_package_of_function(functions))
    except NotPure:
        return None


def _find_package_of_function(function: Any) -> str:
    """Return the package of the code that a function runs."""
    if isinstance(function, partial):
        return _find_package_of_function(function.func)
    return get_top_package(getattr(function, "__module__", None))


def _check_reader_holds_options_only(read: Callable[[Any], Image]) -> None:
    """Check that a reader holds options only: other values may have been computed from other images."""
    reach = find_reached_objects(read, thorough=False)
    held = reach.read().flat if reach else []
    found = [] if reach else [f"table of more than {MOST_OBJECTS:,} objects"]
    found += [type(value).__name__ for value in held if isinstance(value, (*DATA_TYPES, np.generic, bytes))]
    if sum(type(value) is int for value in held) > MAX_OPTION_NUMBERS:
        found.append(f"table of more than {MAX_OPTION_NUMBERS} numbers")
    if found:
        raise NotPure(
            f"Expected the object that reads a dataset's records to hold options only, got a {found[0]}. "
            f"{INDEPENDENCE_RULE}"
        )


def _find_possibly_computed_type(record_place: Any) -> str | None:
    """Return the name of the type of the first value in `record_place` that may be computed from other images, or None.

    A place identifies a record in its source.
    """
    if isinstance(record_place, DATA_TYPES):
        return type(record_place).__name__
    if isinstance(record_place, tuple | list):
        return next(filter(None, map(_find_possibly_computed_type, record_place)), None)
    fields = vars(record_place).values() if is_dataclass(record_place) else ()
    return next(filter(None, map(_find_possibly_computed_type, fields)), None)
