"""The identity representation: an image's own pixels, or a dataset's features unchanged."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import Extractor, hookimpl, setting
from dpbench_plugins.extractors.pixel_values import Mode, convert_image_to_tensor

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

LARGEST = 2048  # pixels a side


@dataclass(frozen=True)
class Pixels(Extractor):
    """Pixels in [0, 1], flattened: d = channels * height * width.

    `size` first resizes every image to size x size (bilinear). Set it if images differ in size. `flat=false` keeps
    (channels, height, width), for learners that train a network on images. `mode` converts every image to RGB or grey
    (L). Set it if a dataset has both. Features of a dataset of features are unchanged.
    """

    name = "pixels"
    trained_on = "nothing"
    identity = True

    size: int | None = setting(
        None, ge=1, le=LARGEST, says="side in pixels that images are resized to; auto: as stored"
    )
    flat: bool = setting(True, says="whether an image becomes one vector")
    mode: Mode = setting("stored", says="colours that images are converted to")

    def prepare(self, image: Image) -> Tensor:
        """Return an image as (channels, height, width) float32 in [0, 1]; if `mode` is `stored`, it is grey or RGB."""
        return convert_image_to_tensor(image, self.size, self.mode)

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, channels, height, width) -> (c, d), or the identity if `flat` is false."""
        return lambda images: images.flatten(1) if self.flat else images


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [Pixels]
