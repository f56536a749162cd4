"""Extractors whose features depend on earlier images."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from dpbench import Extractor

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor


@dataclass(frozen=True)
class HonestPixels(Extractor):
    """Grey levels between 0 and 1, flattened."""

    name: ClassVar[str] = "exhibit-pixels"

    def prepare(self, image: Image) -> Tensor:
        import numpy as np
        import torch

        return torch.from_numpy(np.array(image.convert("L"), dtype=np.float32) / 255)

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: images.flatten(1).to(device)


@dataclass(frozen=True)
class RunningMaximumInPrepare(HonestPixels):
    """Divides each image by the brightest pixel so far: one image moved the clipped sum of 199 others by 125 clips.

    Source: `partial_fit` of scikit-learn's scalers inside a transform, which avoids a second pass.
    """

    seen: list[float] = field(default_factory=lambda: [1e-9], repr=False)

    def prepare(self, image: Image) -> Tensor:
        pixels = super().prepare(image)
        self.seen.append(max(self.seen[-1], float(pixels.max())))
        return pixels / self.seen[-1]


@dataclass(frozen=True)
class TestTimeAdaptation(HonestPixels):
    """Keeps normalising by running statistics during extraction, like a network left in training mode.

    Source: test-time adaptation by batch statistics, and networks on which nobody called `eval()`.
    """

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        from torch import nn

        norm = nn.BatchNorm2d(1, affine=False, momentum=0.01)
        return lambda images: norm(images[:, None]).flatten(1).to(device)
