"""How many images of one split stand in another one too, and how many are too many. No torch here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from pydantic import BaseModel, ConfigDict, Field

COPIES = 0.01
"""The share of exact copies, of the smaller split, above which a score says nothing of unseen images."""
LOOKALIKES = 0.5
"""The same for near copies. Where all images are alike they are look-alikes: 23% of Fashion-MNIST's test images."""


class Overlap(BaseModel):
    """Of `among` images, how many are the same as one of the others, and how many the same or near (`duplicates`)."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    exact: int = Field(ge=0)
    near: int = Field(ge=0)  # the exact ones included
    among: int = Field(ge=0)

    def __str__(self) -> str:
        return f"{self.near:,} of {self.among:,} images, {self.exact:,} exactly"


def find_excess(overlap: Mapping[str, Overlap], private: int) -> Iterator[tuple[str, str]]:
    """Yield each pair of splits that shares too many images for a board, with what is wrong; `private` is a size.

    No image may be both trained on and tested on. Public images that repeat private ones are outside this rule: they
    change no score, and whoever publishes an image has given up its protection.
    """
    sizes = {"private": private, "public": overlap["public in private"].among if "public in private" in overlap else 0}
    for pair, counted in overlap.items():
        smaller = min(counted.among, sizes[pair.split()[-1]])
        if pair.startswith("test") and counted.exact > COPIES * smaller:
            yield pair, _said(counted.exact, COPIES, smaller, "exact copies")
        elif pair.startswith("test") and counted.near > LOOKALIKES * smaller:
            yield pair, _said(counted.near, LOOKALIKES, smaller, "near copies")


def _said(many: int, share: float, smaller: int, kind: str) -> str:
    return f"expected at most {share:.0%} of the {smaller:,} images of the smaller split to be {kind}, got {many:,}"
