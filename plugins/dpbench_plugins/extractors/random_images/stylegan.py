"""Untrained style-based generators whose filters are wavelets: StyleGAN-Oriented, -Sparse and -High-freq."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import conv2d, interpolate, pad

from dpbench_plugins.extractors.random_images.draws import ImageRandomState
from dpbench_plugins.extractors.random_images.random_fields import draw_power_law_fields

CHANNELS = 32
START = 4  # pixels of the constant that every generator grows from
ORIENTATIONS = 8
FEWEST_FILTERS = 5  # different ones in a layer
STYLE = 0.72  # deviation of styles around 1: that of a random affine map of leaky-ReLU normals
NOISE = 0.3  # strength of the noise map in a layer, at most
BIAS = 0.2  # of channels, at most


@dataclass(frozen=True)
class StyleGANImages:
    """A style-based generator with new random weights for every image.

    It starts from a random constant of 4x4. Each resolution has two layers, and adds its colours to those of the
    previous resolutions. A layer draws a wavelet for each channel (first and second derivatives in eight orientations,
    spots, and their negatives). The wavelets' responses, weighted by random scales and styles, are summed to one field
    of mean 0 and standard deviation 1. Each channel is this field with a random sign, plus noise and a bias, through a
    ReLU. The noise is the same map for all resolutions: a 1/f field under a Laplacian envelope. Finally, each colour
    gets a random mean and standard deviation.

    Source: Baradad et al. 2021 (arXiv:2106.05963), section 3.3 and its "oriented" variant, with the ranges of its code,
    on StyleGAN2 (Karras et al. 2020). Differs: weights belong to one image, where theirs last for hundreds; 32
    channels, where theirs have up to 512; fields are normalised as in the first StyleGAN, where theirs are demodulated,
    because images of few resolutions would be blurred otherwise; borders are padded by replication; a colour's mean and
    standard deviation are uniform, where theirs follow statistics of natural images.

    `variant` follows their code, `generate_datasets/stylegan`: `sparse` draws a noise map for each layer instead of a
    common one. `high-freq` draws one for each layer too, without an envelope; it has no biases, and its filters are the
    signs of all wavelets, not a random subset of the wavelets.
    """

    seed: int
    size: int
    variant: Literal["oriented", "sparse", "high-freq"] = "oriented"

    def __call__(self, indices: Tensor) -> Tensor:
        """Return images (n, 3, size, size), float32 in [0, 1], for image indices (n,) int64."""
        draws = ImageRandomState(self.seed, indices)
        layer = self._make_layer(draws)
        x = layer(draws.normal(CHANNELS, START, START))
        image = _map_to_colours(x, draws)
        for _ in range(int(math.log2(self.size // START))):
            x = layer(layer(_double_size(x)))
            image = _double_size(image) + _map_to_colours(x, draws)
        return _adjust_tone(image, draws)

    def _make_layer(self, draws: ImageRandomState) -> Callable[[Tensor], Tensor]:
        """Return a function that applies a layer of this variant, with new weights at every call."""
        filters = make_filter_bank(draws.device)
        if self.variant == "high-freq":
            signs = _normalise_filters(filters.sign())
            return lambda x: _apply_layer(
                x, _draw_from_all_filters(draws, signs), _field(draws, x.shape[-1]), draws, bias=0.0
            )
        if self.variant == "sparse":
            return lambda x: _apply_layer(
                x, _draw_from_filter_subset(draws, filters), _noise(draws, x.shape[-1]), draws
            )
        common = _noise(draws, self.size)
        return lambda x: _apply_layer(x, _draw_from_filter_subset(draws, filters), common, draws)


def make_filter_bank(device: torch.device) -> Tensor:
    """Return the filters (m, 3, 3), each of norm 1: edges, lines, spots, and the negatives of all these."""
    place = torch.arange(-1, 2, device=device).float()
    y, x = torch.meshgrid(place, place, indexing="ij")
    made = []
    for turn in torch.arange(ORIENTATIONS, device=device) * (math.pi / ORIENTATIONS):
        along = x * turn.cos() + y * turn.sin()
        envelope = torch.exp(-(x.square() + y.square()) / 4)
        for wave in (torch.sin(math.pi / 2 * along), torch.cos(math.pi * along)):
            made.append(wave * envelope - (wave * envelope).mean())
    spot = ((x == 0) & (y == 0)).float()
    made += [spot, spot - 1 / 9, ((x * y) == 0).float(), ((x * y) == 0).float() - 5 / 9]
    filters = _normalise_filters(torch.stack(made))
    return torch.cat([filters, -filters])


def _normalise_filters(filters: Tensor) -> Tensor:
    """Scale each of the filters (m, 3, 3) to norm 1."""
    return filters / filters.square().sum((1, 2), keepdim=True).sqrt()


def _apply_layer(x: Tensor, filters: Tensor, noise: Tensor, draws: ImageRandomState, bias: float = BIAS) -> Tensor:
    """Return a layer's activations (n, channels, h, w): ReLU of a wavelet field with random signs, noise and a bias."""
    n, channels, height, width = x.shape
    style = (1 + STYLE * draws.normal(channels, 1, 1)) * draws.normal(channels, 1, 1)
    padded = pad(x, (1, 1, 1, 1), mode="replicate").reshape(1, -1, height + 2, width + 2)
    field = _standardise_channels(conv2d(padded, filters * style, groups=n).reshape(n, 1, height, width))
    sign = (draws.uniform(channels, 1, 1) < 0.5).float() * 2 - 1
    strength = draws.uniform(1, 1, 1, high=NOISE)
    shift = draws.uniform(channels, 1, 1, low=-bias, high=bias)
    grain = strength * interpolate(noise, (height, width), mode="area")
    return (field * sign + grain + shift).relu() * math.sqrt(2)


def _standardise_channels(x: Tensor) -> Tensor:
    """Return x with mean 0 and standard deviation 1 in each channel of each image."""
    centred = x - x.mean((2, 3), keepdim=True)
    return centred / centred.square().mean((2, 3), keepdim=True).sqrt().clamp(min=1e-6)


def _draw_from_filter_subset(draws: ImageRandomState, filters: Tensor) -> Tensor:
    """Draw a filter for each channel, (n, channels, 3, 3), from a random subset of `filters`."""
    order = draws.uniform(len(filters)).argsort(1)  # (n, m)
    kept = FEWEST_FILTERS + draws.integers(1, below=len(filters) + 1 - FEWEST_FILTERS)  # (n, 1)
    place = (draws.uniform(CHANNELS) * kept).long()
    return filters[order.gather(1, place)]


def _draw_from_all_filters(draws: ImageRandomState, filters: Tensor) -> Tensor:
    """Draw a filter for each channel, (n, channels, 3, 3), from all of `filters`."""
    return filters[draws.integers(CHANNELS, below=len(filters))]


def _map_to_colours(x: Tensor, draws: ImageRandomState) -> Tensor:
    """Map activations to colours (n, 3, h, w), with random weights scaled by a style."""
    weights = draws.normal(3, CHANNELS) * (1 + STYLE * draws.normal(1, CHANNELS)) / math.sqrt(CHANNELS)
    return (weights @ x.flatten(2)).reshape(len(x), 3, *x.shape[2:])


def _double_size(x: Tensor) -> Tensor:
    return interpolate(x, scale_factor=2, mode="bilinear", align_corners=False)


def _field(draws: ImageRandomState, size: int) -> Tensor:
    """Draw fields (n, 1, size, size) of standard deviation 1 and spectrum 1/f^a, with a in (0.5, 1.5)."""
    return draw_power_law_fields(draws, draws.uniform(1, low=0.5, high=1.5), size)


def _noise(draws: ImageRandomState, size: int) -> Tensor:
    """Draw noise maps (n, 1, size, size) of standard deviation 1: a field times a random Laplacian envelope."""
    field = _field(draws, size)
    envelope = interpolate(draws.laplace(1, 4, 4), (size, size), mode="bicubic", align_corners=False)
    return _standardise_channels(field * envelope)


def _adjust_tone(image: Tensor, draws: ImageRandomState) -> Tensor:
    """Give each channel a random mean and standard deviation, and clip colours to [0, 1]."""
    mean = draws.uniform(3, 1, 1, low=0.2, high=0.8)
    deviation = draws.uniform(3, 1, 1, low=0.1, high=0.3)
    return (mean + deviation * _standardise_channels(image)).clamp(0, 1)
