"""Convolutional networks without batch statistics: an image's scores depend on no other image.

Networks are built on torch's meta device and hold only shapes; callers pass the parameters as separate tensors
(`torch.func.functional_call`). Each has a `trunk`, a final `norm` and a linear `head`, in this order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import conv2d

from dpbench import SpecError

WRN = re.compile(r"wrn-(\d+)-(\d+)")
GROUPS = 16  # of every GroupNorm in De et al. (2022)
EPSILON = 1e-4  # below it a filter is too small to be standardised


def standardise_weight(weight: Tensor, gain: Tensor) -> Tensor:
    """Standardise filters (o, ...) to mean 0 and norm 1, then multiply each by its `gain` (o,).

    Source: De et al. 2022, appendix; the authors' WSConv2D (gain * (w - mean) / sqrt(fan-in * variance)).
    """
    centred, scale = centre_and_scale(weight)
    return centred * (scale * gain.reshape(scale.shape))


def centre_and_scale(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return filters (o, ...) minus their means, and the factors (o, 1, ...) that scale each of them to norm 1."""
    axes = tuple(range(1, weight.ndim))
    centred = weight - weight.mean(axes, keepdim=True)
    return centred, centred.square().sum(axes, keepdim=True).clamp(min=EPSILON).rsqrt()


class WSConv2d(nn.Conv2d):
    """A convolution with weight standardisation; padding of half the kernel keeps the input's size at stride 1."""

    standardised = False  # True where the weight put in place is what `standardise` returned

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int = 1) -> None:
        super().__init__(inputs, outputs, kernel, stride, padding=kernel // 2)
        self.gain = nn.Parameter(torch.ones(outputs))

    def forward(self, x: Tensor) -> Tensor:
        """Return the outputs (c, outputs, ...) for x (c, inputs, height, width)."""
        weight = self.weight if self.standardised else standardise_weight(self.weight, self.gain)
        return conv2d(x, weight, self.bias, self.stride, self.padding)


class Network(nn.Module):
    """A trunk, a final normalisation, the mean over positions, and a linear head."""

    def __init__(self, trunk: nn.Module, norm: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.trunk, self.norm, self.head = trunk, norm, nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Return the inputs of the head (c, width)."""
        mean: Tensor = self.norm(self.trunk(x)).mean((2, 3))
        return mean

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (c, classes) of images (c, channels, height, width)."""
        logits: Tensor = self.head(self.features(x))
        return logits


class ResidualBlock(nn.Module):
    """A residual block: two 3x3 convolutions, each preceded by ReLU and then GroupNorm, as in De et al. (2022)."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.norm1, self.conv1 = nn.GroupNorm(GROUPS, inputs), WSConv2d(inputs, outputs, 3, stride)
        self.norm2, self.conv2 = nn.GroupNorm(GROUPS, outputs), WSConv2d(outputs, outputs, 3)
        self.skip: nn.Module = nn.Identity()
        if inputs != outputs:
            self.skip = nn.Sequential(nn.ReLU(), nn.GroupNorm(GROUPS, inputs), WSConv2d(inputs, outputs, 1, stride))

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the two convolutions plus that of the skip connection."""
        inner = self.conv1(self.norm1(x.relu()))
        total: Tensor = self.skip(x) + self.conv2(self.norm2(inner.relu()))
        return total


def _build_wide_resnet(channels: int, classes: int, depth: int, widen: int) -> Network:
    """Return WRN-depth-widen (Zagoruyko and Komodakis 2016) as De et al. 2022 train it.

    The network of Tang et al. differs. They use the code of Sander et al., which is said to follow De et al., but whose
    convolutions are not standardised.
    """
    blocks = (depth - 4) // 6
    layers: list[nn.Module] = [WSConv2d(channels, 16, 3)]
    width = 16
    for group in range(3):
        for place in range(blocks):
            layers.append(ResidualBlock(width, 16 * widen * 2**group, 2 if group and not place else 1))
            width = 16 * widen * 2**group
    return Network(nn.Sequential(*layers, nn.ReLU()), nn.GroupNorm(GROUPS, width), width, classes)


class _MishGradient(torch.autograd.Function):
    """The gradient of Mish with respect to its input, computed in one call for many examples.

    vmap would split torch's own gradient function into one call per example.
    """

    @staticmethod
    def forward(gradient: Tensor, x: Tensor) -> Tensor:
        slope: Tensor = torch.ops.aten.mish_backward(gradient, x)
        return slope

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        pass

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int | None, int | None], *inputs: Tensor) -> tuple[Tensor, int]:
        first = (value if at is None else value.movedim(at, 0) for value, at in zip(inputs, in_dims, strict=True))
        return _MishGradient.apply(*torch.broadcast_tensors(*first)), 0  # type: ignore[no-untyped-call]


class _Mish(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return torch.nn.functional.mish(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return _MishGradient.apply(gradient, *ctx.saved_tensors)  # type: ignore[no-any-return]


class Mish(nn.Module):
    """The activation function x tanh(softplus(x))."""

    def forward(self, x: Tensor) -> Tensor:
        """Return x tanh(softplus(x)), elementwise."""
        return _Mish.apply(x)  # type: ignore[no-any-return]


class SkipConnection(nn.Module):
    """A block that adds its input to its output."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Return x plus the output of the inner block."""
        total: Tensor = x + self.inner(x)
        return total


def _build_resnet9(channels: int, classes: int) -> Network:
    """Return the ResNet-9 of Klause et al. 2022 with GroupNorm and Mish, which was trained on DermaMNIST.

    Difference: the head reads the mean over positions, not the maximum over 4x4 positions, so that any image size fits.
    """

    def make_conv_layer(inputs: int, outputs: int, *then: nn.Module) -> nn.Module:
        convolution = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        return nn.Sequential(convolution, nn.GroupNorm(32, outputs), Mish(), *then)

    def make_residual_block(width: int) -> nn.Module:
        return SkipConnection(nn.Sequential(make_conv_layer(width, width), make_conv_layer(width, width)))

    pool = nn.MaxPool2d(2)
    first = (make_conv_layer(channels, 64), make_conv_layer(64, 128, pool), make_residual_block(128))
    second = (make_conv_layer(128, 256, pool), make_conv_layer(256, 256, pool), make_residual_block(256))
    return Network(nn.Sequential(*first, *second), nn.Identity(), 256, classes)


def _build_tiny_network(channels: int, classes: int) -> Network:
    """Return a network of two strided convolutions, for tests and for images of a few pixels."""
    first, second = WSConv2d(channels, 16, 3, 2), WSConv2d(16, 32, 3, 2)
    trunk = nn.Sequential(first, nn.ReLU(), nn.GroupNorm(4, 16), second, nn.ReLU())
    return Network(trunk, nn.GroupNorm(4, 32), 32, classes)


_OTHERS: Mapping[str, tuple[Callable[[int, int], Network], int]] = {
    "resnet-9": (_build_resnet9, 8),
    "tiny": (_build_tiny_network, 4),
}


def build_network(name: str, example_shape: tuple[int, ...], classes: int) -> Network:
    """Return network `name` for images of `example_shape` (channels, height, width), on the meta device.

    Names: `wrn-<depth>-<widening>` with depth 10, 16, 22 ..., `resnet-9`, `tiny`.

    Raises:
        SpecError: no such network, or images that are too small for it.
    """
    found = WRN.fullmatch(name)
    if name not in _OTHERS and not (found and int(found[1]) >= 10 and int(found[1]) % 6 == 4):
        raise SpecError(
            f"Expected a network named wrn-16-4, wrn-40-4, resnet-9 ..., got {name!r}. A wide ResNet's depth is 6n + 4."
        )
    channels, *size = example_shape
    smallest = 8 if found else _OTHERS[name][1]
    if min(size) < smallest:
        raise SpecError(
            f"Network {name!r} needs images of {smallest}x{smallest} pixels or more, got {size[0]}x{size[1]}: nothing "
            f"would be left before its head. Use --extractor pixels:flat=false,size={smallest}, or network=tiny."
        )
    with torch.device("meta"):
        if found:
            return _build_wide_resnet(channels, classes, int(found[1]), int(found[2]))
        return _OTHERS[name][0](channels, classes)


def draw_parameters(network: nn.Module, generator: torch.Generator) -> dict[str, Tensor]:
    """Return initial parameters on the generator's device: normal with variance 1 / fan-in, truncated at two std.

    Biases are 0; gains and the scales of normalisations are 1. Source: De et al.'s code. Sander et al.'s code truncates
    at the numbers -2 and 2, which hardly any draw exceeds.
    """
    made = {}
    for name, shape in ((name, parameter.shape) for name, parameter in network.named_parameters()):
        made[name] = torch.zeros(shape) if name.endswith("bias") else torch.ones(shape)
        if len(shape) > 1:
            std = shape[1:].numel() ** -0.5 / 0.8796256610342398  # a normal cut at two std has this smaller std
            nn.init.trunc_normal_(made[name], 0.0, std, -2 * std, 2 * std, generator=generator)
    return made
