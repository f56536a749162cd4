"""What a user should hear before a run starts."""

from __future__ import annotations

from dpbench.api import Features, Images
from dpbench.support import progress

SIDE = 32  # pixels up to which private learners do well on raw pixels


def suggest_network(images: Images | Features) -> None:
    """Say that large images need a network's features; call it where nobody has named an extractor."""
    if isinstance(images, Features):
        return
    try:
        width, height = images[0].size
    except Exception:  # whatever a decoder raises: extraction names the image, and says what to do
        return
    if max(width, height) > SIDE:
        progress.line(
            f"These images are {width} x {height} pixels, and without --extractor a learner reads raw pixels. The "
            "features of a network are smaller and serve private learners far better: add --extractor "
            "efficientnet-lite0, or another of dpbench list extractors."
        )
