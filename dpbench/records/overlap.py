"""The number of images that two splits share, and the limits on it. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import Field, model_validator

from dpbench.support.validation import Record

MAX_COPIES = 0.01
"""Limit on the exact copies that two splits share, as a share of the smaller split."""
MAX_LOOKALIKES = 0.5
"""Limit on the near copies that two splits share, as a share of the smaller split; some are mere look-alikes.

Half lies between the share of near copies in honest splits and the share of real copies that is found. In a random
public tenth, the following share of images has a near copy among the private images: 0.8% of the chest X-rays, 2.2% of
CIFAR-10, 3.4% of HAM10000, 23.7% of Fashion-MNIST, where garments look alike, and 33.6% of GTSRB, where 30 frames show
one sign. Of real copies, dpbench finds 85 to 100% if they were compressed again (JPEG quality 50), halved or turned
grey, 95 to 99% if they were cropped by up to 1/32 of a side at each edge, and 67 to 97% if they were cropped by up to
2/32.

Near copies do not count if both splits number their units (patients) and share none: they then show different people.
In a public tenth of ODIR's fundus photographs, which all show a bright disc on black, 74% are such near copies.

The limit misses public data of which less than half are copies of private images; above `SUSPICIOUS_SHARE` the result
asks a person to look. `AlteredCopyCounts` counts stronger alterations, with the same limits. Copies that were
mirrored, rotated, or cropped by more than 3/32 are not found."""

MAX_LEFT_OUT = 0.1
"""The largest share of private images that may be left out because a public image equals them."""

SUSPICIOUS_SHARE = 0.05
"""Share of near copies above which a result asks a person to look; chest X-rays, CIFAR-10 and HAM10000 have less."""


class OverlapCounts(Record):
    """Counts of a split's images (`among`) that equal (`exact`) or resemble (`near`) an image of another split.

    `units` counts the images whose patient, lesion or other unit also has images in the other split; None without
    units.
    """

    exact: int = Field(ge=0)
    near: int = Field(ge=0)  # the exact ones included
    among: int = Field(ge=0)
    units: int | None = Field(default=None, ge=0, exclude_if=lambda value: value is None)

    def __str__(self) -> str:
        of_units = "" if self.units is None else f"; {self.units:,} belong to a unit that is in both splits"
        return f"{self.near:,} of {self.among:,} (near-duplicates; {self.exact:,} identical){of_units}"


class CopyCounts(Record):
    """Counts of private images that equal another private image, and of the copies of the most common image."""

    images: int = Field(ge=0)
    most: int = Field(ge=0)
    among: int = Field(ge=0)

    @property
    def excess_complaint(self) -> str | None:
        """A board's complaint if the private split has too many copies, or None."""
        if self.images <= MAX_COPIES * self.among:
            return None
        return (
            f"expected at most {MAX_COPIES:.0%} of the {self.among:,} private images to be copies of another, got "
            f"{self.images:,}, of one image {self.most:,}. Remove repeats at the source; do not oversample: a learner "
            "that reweights classes costs no privacy"
        )


class AlteredCopyCounts(Record):
    """Counts of images of the smaller split, public or private, that match an image of the other split.

    A match looks like the other image apart from blur, brightness, borders, edges or inversion; exact and near copies
    match, too. In large splits, `among` is a sample.
    """

    found: int = Field(ge=0)
    among: int = Field(ge=0)

    @model_validator(mode="after")
    def _check_counts(self) -> AlteredCopyCounts:
        if self.found > self.among:
            raise ValueError(f"expected at most {self.among} of {self.among} images to match, got {self.found}")
        return self

    def __str__(self) -> str:
        return f"{self.found:,} of {self.among:,}"

    @property
    def excess_complaint(self) -> str | None:
        """The complaint if too many public images are altered copies of private ones, or None."""
        if self.found <= MAX_LOOKALIKES * self.among:
            return None
        return (
            f"expected at most {MAX_LOOKALIKES:.0%} of {self.among:,} images of the smaller split to match an image of "
            f"the other split but for blur, brightness, borders, edges or inversion, got {self.found:,}"
        )


def find_excess_overlap(overlap: Mapping[str, OverlapCounts], private: int) -> Iterator[tuple[str, str]]:
    """Yield each pair of splits that shares too many images, with a complaint; `private` is the private split's size.

    No image may be used for both training and testing, and no public image may also be private, because epsilon does
    not cover what is learned from public data. If units are known, no unit may be both public and private either.
    """
    sizes = {"private": private, "public": overlap["public in private"].among if "public in private" in overlap else 0}
    for pair, counted in overlap.items():
        smaller = min(counted.among, sizes.get(pair.rpartition(" ")[2], 0))
        if counted.exact > MAX_COPIES * smaller:
            yield pair, _format_complaint(counted.exact, MAX_COPIES, smaller, "exact copies")
        elif counted.units != 0 and counted.near > MAX_LOOKALIKES * smaller:
            yield pair, _format_complaint(counted.near, MAX_LOOKALIKES, smaller, "near copies")
        elif (counted.units or 0) > (allowed := 0.0 if pair == "public in private" else MAX_COPIES) * smaller:
            yield pair, _format_complaint(counted.units or 0, allowed, smaller, "of a unit that is in both splits")


def _format_complaint(count: int, share: float, smaller: int, kind: str) -> str:
    return f"expected at most {share:.0%} of the {smaller:,} images of the smaller split to be {kind}, got {count:,}"
