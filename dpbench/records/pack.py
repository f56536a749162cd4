"""The card of a feature pack, as plain data: its network, its images and their licences."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from dpbench.support.untrusted import PrintableText
from dpbench.support.validation import Record

PACK = "pack"  # the name of the extractor that reads packs


class PackCard(Record):
    """What a feature pack states about its network, images and licences; the file's digest covers the card."""

    schema_version: Literal[1] = 1
    network: PrintableText = Field(min_length=1)  # the extractor that made the features, with its options
    version: PrintableText  # of the extractor
    weights: PrintableText  # SHA-256 of the weights; empty without weights
    trained_on: PrintableText = Field(min_length=1)  # what the weights have seen
    licence: PrintableText = Field(min_length=1)  # of the weights, and so of the features
    dataset: PrintableText = Field(min_length=1)
    data_licence: PrintableText
    images: dict[PrintableText, int]  # by split; equal images have one row
    made_with: PrintableText  # the version of dpbench, and what computed the network
    content: str = Field(pattern="^[0-9a-f]{64}$")  # SHA-256 of the digests and features that follow the card

    def lines(self) -> list[tuple[str, str]]:
        """Return the card as pairs of heading and text."""
        counts = ", ".join(f"{count:,} {split}" for split, count in self.images.items())
        return [
            ("features by", self.network),
            ("weights trained on", self.trained_on),
            ("licence", self.licence),
            ("images", f"{self.dataset}: {counts}"),
            ("licence of the images", self.data_licence),
            ("made with", self.made_with),
        ]
