"""One image at a time: each is read and prepared under the guard that holds row functions, and remembers nothing.

A loader or a preparation that remembers (a running maximum, a count, the last image) lets one person's image change
another one's row, before any clip.

Covered: what `privacy.purity.guard` covers, of `Records.read` and of `Extractor.prepare`: what they reach is compared
around every few images, and all of it, with globals and what arrays hold, around those that are drawn.
Not covered: what foreign objects hold that cannot be compared, such as a session of another runtime, and globals beside
them (images are still made again in another order); images that a dataset hands over in memory, which come from
wherever they were made: it declares that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import is_dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from PIL.Image import Image, new
from torch import Tensor

from dpbench.api import Extractor, Images, Records
from dpbench.errors import DataError, DpbenchError, NotPure
from dpbench.privacy.purity.quiet_room import call_quietly
from dpbench.privacy.purity.reach import Reach
from dpbench.support.plugin_calls import call_plugin

R = TypeVar("R")
DATA = (float, complex, bytearray, np.floating, np.ndarray, Tensor, Image)
"""What may have been computed from images."""
NUMBERS = 16  # that are options; more are a table
OWN = "Each image must depend only on its own record, or removing one image would change others: see 'Add a dataset'."


class PerImage(Generic[R]):
    """Reads images one at a time and gives each to a function; both are held to remembering nothing.

    Several threads may call it. It is done in a quiet room, where files can be read and nothing else.
    """

    def __init__(self, images: Images, use: Callable[[Image], R], what: str, split: str = "") -> None:
        self._images, self._use, self._what, self._split = images, use, what, split
        read = images.read if isinstance(images, Records) else None
        self._places = images.places if isinstance(images, Records) else None
        if read is not None:
            _refuse_data(read)
        self._functions: dict[str, Any] = {what: use} if read is None else {what: use, "Reading a record": read}
        self._reaches = self._reached(thorough=False)

    def __call__(self, indices: Sequence[int], *, thorough: bool = False) -> list[R]:
        """Return what the function makes of these images; `thorough` compares all that is covered.

        Raises:
            DataError: an image cannot be decoded.
            NotPure: reading, or the function, changed what it reaches.
            ComponentFailed: the function failed.
        """
        # All that is reached is looked up now: before the first call something may have been made.
        reaches = [*self._reaches, *(self._reached(thorough=True) if thorough else ())]
        before = [reach.read() for _, reach in reaches]
        try:
            return call_quietly(self._each, indices, self._what, reads=True)
        finally:
            for (what, reach), reading in zip(reaches, before, strict=True):
                if change := reach.find_change(reading, reach.read()):
                    raise NotPure(f"{what} changed what it reaches while it worked: {change}. {OWN}") from None

    def _reached(self, *, thorough: bool) -> list[tuple[str, Reach]]:
        found = ((what, reach_of(function, thorough=thorough)) for what, function in self._functions.items())
        return [(what, reach) for what, reach in found if reach is not None]

    def _each(self, indices: Sequence[int]) -> list[R]:
        return [self._one(index) for index in indices]

    def _one(self, index: int) -> R:
        if self._places is not None and (kind := _data_in(self._places[index])):
            raise NotPure(f"Expected the place of a record as text, bytes or whole numbers, got a {kind}. {OWN}")
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


def itself(image: Image) -> Image:
    """Return an image, for whoever wants to read it alone."""
    return image


def preparing(images: Images, extractor: Extractor) -> PerImage[Tensor]:
    """Return what prepares images by an extractor; what that makes at its first call follows from a blank image."""
    with suppress(Exception):  # one that takes no such image says so of the first that it is given
        extractor.prepare(new("RGB", (64, 64)))
    return PerImage(images, extractor.prepare, f"Extractor {extractor.name!r}")


def reach_of(functions: Any, *, thorough: bool) -> Reach | None:
    """Return what functions reach; None of what cannot be compared, such as a session of another runtime."""
    try:
        return Reach(functions, thorough=thorough)
    except NotPure:
        return None


def _refuse_data(read: Callable[[Any], Image]) -> None:
    """Refuse a reader that holds numbers which may have been computed from other images."""
    reach = reach_of(read, thorough=False)
    held = reach.read().flat if reach else []
    found = [type(one).__name__ for one in held if isinstance(one, (*DATA, np.generic, bytes))]
    if sum(type(one) is int for one in held) > NUMBERS:
        found.append(f"table of more than {NUMBERS} numbers")
    if found:
        raise NotPure(
            f"Expected the object that reads a dataset's records to hold options only, got a {found[0]}. {OWN}"
        )


def _data_in(place: Any) -> str | None:
    """Return the kind of the first thing in a place that may have been computed from other images."""
    if isinstance(place, DATA):
        return type(place).__name__
    if isinstance(place, tuple | list):
        return next(filter(None, map(_data_in, place)), None)
    fields = vars(place).values() if is_dataclass(place) else ()
    return next(filter(None, map(_data_in, fields)), None)
