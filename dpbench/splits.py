"""The images of a dataset (as records, in memory, or as features) and the splits that they form.

Nothing here imports torch. Array axes in comments: n examples, d features.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from dpbench.errors import DataError

if TYPE_CHECKING:
    import numpy as np
    from PIL.Image import Image

Place = TypeVar("Place")

INDEPENDENT_DRAWS = "drawn at random, each on its own"
"""The `processing` of synthetic examples; equal examples of this kind do not count as copies."""


class Images(Protocol):
    """A sequence of images, each decoded when it is read; several threads may read at once."""

    def __len__(self) -> int:
        """Return the number of images."""

    def __getitem__(self, index: int, /) -> Image:
        """Decode the image at this index."""


@dataclass(frozen=True)
class Features:
    """Examples that are features instead of images; a run uses them unchanged and extracts nothing.

    Indexing returns a row as a grey image of height 1, in floating point.
    """

    x: np.ndarray  # (n, d) float32
    processing: str = ""  # what was done to each row on the way here; `INDEPENDENT_DRAWS`; empty is undeclared

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.x)

    def __getitem__(self, index: int, /) -> Image:
        """Return a row as an image of mode F."""
        from PIL.Image import fromarray

        return fromarray(self.x[index][None])


@dataclass(frozen=True)
class Records(Generic[Place]):
    """The images of a split as records: a place for each image, and a function that reads the image at a place.

    A place identifies one image in its source: a path, a member of a zip, a line of a table, the bytes of one image. It
    is text, bytes, a whole number, or a tuple or dataclass of these. `read` is called with one place at a time, on
    several threads, and must not keep state; dpbench checks this as for row functions. `read` may hold options, such as
    a mode. dpbench refuses numbers and arrays in places and options: if they were computed from the images, the content
    of one image could affect others. If places hold bytes, state in `processing` how each image was processed.

    With `reader`, the cache identifies features by the images alone, whatever their labels, units, order, folder or
    dataset: if a folder grows, only the new images are processed. Without `reader`, the cache uses `Splits.digest`, the
    split and the row. An image must depend on its stored bytes and `reader` only.
    """

    places: Sequence[Place]
    read: Callable[[Place], Image]
    processing: str = ""  # where places hold bytes: what was done to each, as `DeclaredImages` has it
    keys: Sequence[bytes] | None = None
    """The SHA-256 of each record's stored bytes, 32 bytes each, in the order of `places`; read only to look up features
    or hashes. If this is None, dpbench computes the hashes if places are bytes; otherwise they are unknown."""
    reader: str = ""
    """Identifies how `read` decodes stored bytes: a name, every option that changes pixels, and a version, like
    `my-scans-RGB-1`. Change the version whenever the pixels change. Datasets may share a reader only if they decode
    equal bytes to equal pixels."""

    def __post_init__(self) -> None:
        """Raise DataError if there are keys without a reader, or not as many keys as places."""
        if self.keys is not None and not self.reader:
            raise DataError("Expected Records with keys to name their reader, such as 'my-scans-RGB-1'; got none.")
        if self.keys is not None and len(self.keys) != len(self.places):
            raise DataError(f"Expected a key for each of {len(self.places):,} records, got {len(self.keys):,}.")

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self.places)

    def __getitem__(self, index: int, /) -> Image:
        """Read the image at this index."""
        return self.read(self.places[index])

    @cached_property
    def stored_digests(self) -> Sequence[bytes] | None:
        """The keys if there are any; otherwise the SHA-256 of each place if all places are bytes, or else None."""
        if self.keys is not None:
            return list(self.keys)
        digests = [hashlib.sha256(place).digest() for place in self.places if isinstance(place, bytes)]
        return digests if len(digests) == len(self.places) else None


@dataclass(frozen=True)
class DeclaredImages:
    """Images in memory, with a sentence about the processing of each image since its publication.

    Nobody can check from outside how the images were made, so boards require the sentence, and results quote it.
    """

    images: Images
    processing: str

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.images)

    def __getitem__(self, index: int, /) -> Image:
        """Return the image at this index."""
        return self.images[index]


OWN_RECORD = "read from its own record"
"""The `processing` of `Records` whose places hold no bytes."""


def _records_hold_bytes(record_places: Sequence[Any]) -> bool:
    first = record_places[0] if len(record_places) else ""
    return any(isinstance(part, bytes) for part in (first if isinstance(first, tuple) else (first,)))


@dataclass(frozen=True)
class Split:
    """Images that are decoded on access, with their labels."""

    images: Images | Features
    labels: np.ndarray  # (n,) int64 in [0, classes)
    units: np.ndarray | None = None
    """(n,) int64: the unit of each example. All examples of a unit (a patient, a lesion, a track) share one number, in
    every split, and no other example has it. None: units are unknown, or each example is a unit of its own."""
    groups: Mapping[str, np.ndarray] | None = None
    """Column -> (n,) text: attributes of each example besides its class, such as sex, age band or source; empty text
    means unknown. dpbench reads the test split's groups only, to state accuracy by group; no learner sees them."""

    @property
    def processing(self) -> str:
        """The processing of each example: `OWN_RECORD`, `INDEPENDENT_DRAWS`, the dataset's declaration, or empty."""
        if isinstance(self.images, Records):
            return self.images.processing if _records_hold_bytes(self.images.places) else OWN_RECORD
        return self.images.processing if isinstance(self.images, DeclaredImages | Features) else ""


@dataclass(frozen=True)
class Splits:
    """A dataset as it was published, opened on this machine."""

    train: Split
    test: Split
    digest: str
    """Digest of the bytes that the data was read from, and of options that change pixels. It identifies the data in
    results, and cached features of images that have no keys of their own (`Records.keys`)."""
    public: Split | None = None  # examples that are public beside the public share of the training split
    unit: str = ""
    """The word for the units in `Split.units`: `patient`, `lesion`, `track`; empty if the training split has no units.
    It is known only after loading: a copy of the data may lack the names that units are read from."""
    edition: str = ""
    """Description of a copy that is not the whole published data with its published split: how many images it has, its
    digest, and who cut it and how; else empty. Every result and `dpbench data info` state it."""
    ignored: Sequence[str] = ()
    """Names of files that lie among the images and were not read. dpbench prints their number for each ending, and no
    name; results do not store them. The name of a pipe, a socket or a device ends in a slash."""
