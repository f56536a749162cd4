"""Estimate the time and disk space of a long extraction in its first seconds, and suggest faster choices."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import torch

from dpbench.api import Extractor
from dpbench.errors import OutputError
from dpbench.records.protocol import SUGGESTED_NETWORK
from dpbench.support import progress
from dpbench.support.messages import format_bytes

SIDE = 128  # pixels: within a point of 224 on CIFAR-10, see the page on features


class ExtractionEstimate:
    """Reports once how long an extraction will take, and raises if the features do not fit on the disk."""

    def __init__(self, extractor: Extractor, device: torch.device, folder: Path, images: int) -> None:
        self._extractor, self._device, self._folder, self._images = extractor, device, folder, images
        self._estimate = progress.TimeEstimatePrinter(f"Extracting {extractor.name}", self._advice)
        self._side = 0
        self._sizes: tuple[int, int] | None = None  # bytes of the features, and at most while they are written

    def update(self, part: np.ndarray, side: int, remaining_images: int, unwritten: int) -> None:
        """Add a batch of extracted features to the estimate.

        Args:
            part: (c, *example_shape), the features of the batch.
            side: pixels of a side of the network's input; 0 if unknown.
            remaining_images: images still to extract.
            unwritten: images that had no shard on the disk when the current shard began.

        Raises:
            OutputError: the features do not fit on the disk.
        """
        self._side = side
        if self._sizes is None:  # shards stay until the features are whole
            row = part[0].nbytes
            self._sizes = self._images * row, (self._images + unwritten) * row
            check_disk_space(self._folder, self._sizes[1], f"the features of {self._images:,} images", self._sizes[0])
        self._estimate.update(len(part), remaining_images)

    def _advice(self) -> str:
        assert self._sizes is not None
        final, most = map(format_bytes, self._sizes)
        ways = suggest_faster_extraction(self._extractor, self._side, self._device)
        return f"On disk: {final} in the end, {most} until then. Faster: {ways}."


def suggest_faster_extraction(extractor: Extractor, side: int, device: torch.device) -> str:
    """Suggest how to extract faster; `side` is the side of the network's input in pixels."""
    if extractor.identity:
        return "smaller image files (most of the time goes into decoding)"
    ways = []
    if any(field.name == "size" for field in dataclasses.fields(extractor)) and side > SIDE:  # type: ignore[arg-type]
        times = round((side / SIDE) ** 2)  # a convolution's work goes with the pixels
        ways.append(f"size={SIDE} of {extractor.name} (about {times} times, if its network takes that size)")
    if extractor.name != SUGGESTED_NETWORK.partition(":")[0]:
        ways.append(f"the extractor {SUGGESTED_NETWORK}")
    if device.type == "cpu":
        ways.append("a GPU")
    return ", or ".join(ways) or "fewer images"


def check_disk_space(folder: Path, needed_bytes: int, description: str, final_bytes: int | None = None) -> None:
    """Check that the disk has room for a file before it is written.

    Raises:
        OutputError: the disk is too full; the message states the needed and the free space, and the folder.
    """
    free = shutil.disk_usage(folder).free
    if needed_bytes > free:
        end = f" ({format_bytes(final_bytes)} in the end)" if final_bytes else ""
        raise OutputError(
            f"Expected {format_bytes(needed_bytes)} free for {description}{end} in {folder.parent}, got "
            f"{format_bytes(free) or 'nothing'}. Free some space, name another folder in DPBENCH_CACHE, or take an "
            "extractor with fewer features."
        )
