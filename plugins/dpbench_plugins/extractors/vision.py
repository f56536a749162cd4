"""The common part of extractors with a network for photographs: size, views and precision of features.

It registers nothing. The network maps each view of an image separately, and the features are averaged. Each image is
still mapped on its own, so neighbouring datasets stay neighbouring and the views cost no privacy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dpbench import Extractor, SpecError, setting

if TYPE_CHECKING:
    import torch
    from torch import Tensor

Views = Literal["one", "mirror", "scales", "both"]
Precision = Literal["float32", "bfloat16"]
SMALLEST = 32  # pixels: most networks halve the side five times
SMALLER = 0.75  # the side of the second scale, as a part of the first
AT_ONCE = 4 * 224**2  # pixels that a processor's network sees at once: the layers of more leave its cache


@dataclass(frozen=True, kw_only=True)
class PhotographExtractor(Extractor):
    """Base class of extractors that apply a network for photographs; d is the number of the network's pooled features.

    `size` is the side of the network's input in pixels (default: the size that the weights were trained on). `views`
    averages the features of each image over several views of it: the image and its `mirror` image, two `scales` (the
    second three quarters of the first), or `both` (four views). `precision=bfloat16` computes with torch and 8 bits of
    precision: on most CPUs this is slower than float32 with onnxruntime, and features differ from those of `float32` by
    a few percent. Processors without such instructions compute in float32 and round the inputs and outputs of
    convolutions and linear layers, so features differ between processors in their last bits only.
    """

    size: int | None = setting(
        None, ge=SMALLEST, says="side in pixels of what the network sees; auto: that of its weights"
    )
    views: Views = setting("one", says="views of an image whose features are averaged")
    precision: Precision = setting("float32", says="precision of the computation")

    def check_image_sizes(self, side: int, least: int | None) -> None:
        """Check that a network takes images of this size.

        `side` is the size of the weights, and `least` the smallest size that the network takes; None if it takes only
        `side`, as transformers with learnt positions do.

        Raises:
            SpecError: `size` or `views` needs a size that the network does not take.
        """
        largest = self.size or side
        sides = [largest, round(SMALLER * largest)] if self._has_two_scales else [largest]
        if any(length != side if least is None else length < least for length in sides):
            wanted = f"no other size than {side} pixels" if least is None else f"{least} pixels or more"
            raise SpecError(
                f"The network of extractor {self.name!r} takes {wanted}, got {' and '.join(map(str, sides))} by "
                f"size={self.size} and views={self.views}. Change these options."
            )

    @property
    def _has_two_scales(self) -> bool:
        return self.views in {"scales", "both"}

    @abstractmethod
    def backbone(self) -> torch.nn.Module:
        """Return the network (c, 3, h, w) -> (c, d), with its weights loaded."""

    def as_module(self) -> torch.nn.Module | None:
        """Return the map of `open` as a module; None with two scales or bfloat16, which onnxruntime lacks."""
        from dpbench_plugins.extractors.exported import PooledFeatures

        if self.precision == "bfloat16" or self._has_two_scales:
            return None
        return PooledFeatures(self.backbone(), mirror=self.views == "mirror")

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, 3, h, w) -> (c, d) of the backbone; batch normalisation uses stored statistics."""
        import torch

        network, fast = self._prepare_network(self.backbone(), device)

        def embed(images: Tensor) -> Tensor:  # (c, 3, h, w) -> (c, d)
            with torch.inference_mode():
                with torch.autocast(device.type, torch.bfloat16, enabled=fast):
                    features = [
                        _run_in_batches(network, view).flatten(1).float()
                        for view in self._yield_views(images.to(device))
                    ]
                return torch.stack(features).mean(0)

        return embed

    def map_to_activations(self, network: torch.nn.Module, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, 3, h, w) -> (c, channels, h', w') float16 of a network's first layers, in evaluation mode.

        A number too large for half precision becomes infinite, and extraction refuses it.
        """
        import torch

        network, fast = self._prepare_network(network, device)

        def embed(images: Tensor) -> Tensor:  # (c, 3, h, w) -> (c, channels, h', w')
            with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=fast):
                return _run_in_batches(network, images.to(device)).to(torch.float16).contiguous()

        return embed

    def _prepare_network(self, network: torch.nn.Module, device: torch.device) -> tuple[torch.nn.Module, bool]:
        """Return the network on its device, in evaluation mode, and whether to compute in torch's bfloat16."""
        import torch

        network = network.eval().requires_grad_(False).to(device).to(memory_format=torch.channels_last)
        fast = self.precision == "bfloat16"
        if fast and device.type == "cpu" and not torch.ops.mkldnn._is_mkldnn_bf16_supported():
            return round_to_bfloat16(network), False  # torch's own convolutions take ten times as long as float32's
        return network, fast

    def _yield_views(self, images: Tensor) -> Iterator[Tensor]:
        """Yield the views of images (c, 3, h, w), each (c, 3, h', w')."""
        from torch.nn.functional import interpolate

        scales = [images]
        if self._has_two_scales:
            sides = [round(SMALLER * side) for side in images.shape[2:]]
            scales.append(interpolate(images, sides, mode="bicubic", antialias=True))
        for scale in scales:
            yield scale
            if self.views in {"mirror", "both"}:
                yield scale.flip(3)


def _run_in_batches(network: torch.nn.Module, images: Tensor) -> Tensor:
    """Return a network's output on images (c, 3, h, w); on a CPU, few images are processed at a time."""
    import torch

    height, width = images.shape[2:]
    few = max(1, AT_ONCE // (height * width)) if images.device.type == "cpu" else len(images)
    parts = images.to(memory_format=torch.channels_last).split(few)
    return torch.cat([network(part) for part in parts])


def round_to_bfloat16(network: torch.nn.Module) -> torch.nn.Module:
    """Make a network's convolutions and linear layers round like bfloat16 layers, in float32 and in place.

    Weights, inputs and outputs are rounded; sums are computed in float32, as by bfloat16 instructions.
    """
    from torch import nn

    for layer in network.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            for weight in layer.parameters():
                weight.data = _round_values(weight.data)
            layer.register_forward_pre_hook(lambda _, given: tuple(map(_round_values, given)))
            layer.register_forward_hook(lambda _, given, gave: _round_values(gave))
    return network


def _round_values(values: Tensor) -> Tensor:
    return values.bfloat16().float()
