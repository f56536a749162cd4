"""Modules for export: each computes what an extractor's `open` computes, in a form that torch can trace.

It registers nothing.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class PooledFeatures(nn.Module):
    """The backbone's features (c, d) of images (c, 3, h, w); with `mirror`, averaged over images and mirror images."""

    def __init__(self, backbone: nn.Module, *, mirror: bool) -> None:
        super().__init__()
        self.backbone, self.mirror = backbone.eval().requires_grad_(False), mirror

    def forward(self, images: Tensor) -> Tensor:
        """Return (c, d) float32."""
        features: Tensor = self.backbone(images).flatten(1)
        return (features + self.backbone(images.flip(3)).flatten(1)) / 2 if self.mirror else features


class FirstLayers(nn.Module):
    """The first layers of a network; returns their activations (c, channels, h', w') in float16."""

    def __init__(self, layers: nn.Module) -> None:
        super().__init__()
        self.layers = layers.eval().requires_grad_(False)

    def forward(self, images: Tensor) -> Tensor:
        """Return (c, channels, h', w') float16."""
        found: Tensor = self.layers(images)
        return found.to(torch.float16)
