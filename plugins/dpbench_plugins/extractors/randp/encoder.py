"""The network that is pre-trained: trunk and final normalisation of a dpbench network, and a projection on top."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.functional import avg_pool2d, group_norm, normalize

from dpbench_plugins.networks.models import GROUPS, WSConv2d, build_network, draw_parameters, standardise_weight
from dpbench_plugins.networks.views import normalise_pixels

HIDDEN, EMBEDDED, PROJECTED = 512, 4096, 128  # widths of the layers on top of the network
KEPT = ("trunk.", "norm.", "embedding.")  # the parameters in a checkpoint; a learner adds its own head


class Encoder(nn.Module):
    """A network that maps images in [0, 1] to the features that a checkpoint keeps, and these to unit vectors.

    The projection to unit vectors is discarded after pre-training. Its input is the means of the last map or, with
    `embed`, the output of the layer `embedding`: 4,096 numbers computed from the whole map. A checkpoint keeps this
    layer.

    Source: the embedding is the authors' `learning_with_noise/align_uniform/wrn.py` and `linear_prob/wrn.py` (a linear
    layer without bias from 256 x 8 x 8 numbers, GroupNorm with 16 groups, ReLU). Differs: the map is normalised first.
    """

    def __init__(self, network: str, size: int, *, embed: bool = False) -> None:
        """Build `network` for RGB images of size x size, without allocating its parameters."""
        super().__init__()
        whole = build_network(network, (3, size, size), 1)
        width = whole.head.in_features
        self.width = width
        self.trunk, self.norm = whole.trunk, whole.norm
        with torch.device("meta"):
            self.projection = nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, PROJECTED))
            if embed:
                numbers = self.trunk(torch.empty(1, 3, size, size)).numel()
                self.embedding = nn.Sequential(nn.Flatten(), *_make_embedding_layers(numbers))
                self.projection = nn.Sequential(*_make_embedding_layers(EMBEDDED), nn.Linear(EMBEDDED, PROJECTED))

    def features(self, images: Tensor, pool: int = 1) -> Tensor:
        """Return the means (n, width * pool * pool) of pool x pool parts of the last map; a head uses pool 1."""
        return _average_pool(self.norm(self.trunk(normalise_pixels(images))), pool)

    def embed(self, images: Tensor) -> Tensor:
        """Return the inputs of the projection: (n, 4096), or (n, width) without an embedding."""
        if not self.has_embedding:
            return self.features(images)
        embedded: Tensor = self.embedding(self.norm(self.trunk(normalise_pixels(images))))
        return embedded

    @property
    def has_embedding(self) -> bool:
        """Whether the encoder has the layer `embedding`."""
        return "embedding" in self._modules

    def stages(self, images: Tensor, pool: int = 1) -> Tensor:
        """Return means (n, total width * pool * pool) of the last map and the maps before each halving of resolution.

        Each map is normalised first. `pool` must divide the side of the last map.

        Source: Tang et al. 2023, appendix G: probes of representations along a network approximate training the whole
        network.
        """
        x, ends = normalise_pixels(images), []
        for layer in self.trunk.children():
            following = layer(x)
            if following.shape[2:] != x.shape[2:] and x.shape[1] % GROUPS == 0:
                ends.append(group_norm(x.relu(), GROUPS))
            x = following
        return torch.cat([_average_pool(end, pool) for end in (*ends, self.norm(x))], 1)

    def activations(self, images: Tensor, layers: int) -> Tensor:
        """Return the output of the trunk's first `layers` layers, (n, channels, height, width) float16."""
        found: Tensor = nn.Sequential(*list(self.trunk.children())[:layers])(normalise_pixels(images))
        return found.to(torch.float16)

    def tail(self, layers: int) -> nn.Module:
        """Return the layers after the first `layers`, up to the features, with `nn.Conv2d` convolutions."""
        rest = nn.Sequential(*(_standardise_filters(layer) for layer in list(self.trunk.children())[layers:]))
        parts = OrderedDict(trunk=rest, norm=self.norm, pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten())
        return nn.Sequential(parts).eval().requires_grad_(False)

    def project(self, embedded: Tensor) -> Tensor:
        """Return (n, projected) unit vectors from the inputs of the projection; see `embed`."""
        return normalize(self.projection(embedded), dim=1)

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, projected) unit vectors of images."""
        return self.project(self.embed(images))


class EncoderFeatures(nn.Module):
    """The part of an encoder that an extractor uses: features of the last or all stages, embedding, or activations."""

    def __init__(self, encoder: Encoder, pool: int, *, stages: str, layers: int | None) -> None:
        super().__init__()
        self.encoder = encoder.eval().requires_grad_(False)
        self.pool, self.stages, self.layers = pool, stages, layers

    def forward(self, images: Tensor) -> Tensor:
        """Return (n, features) float32, or activations (n, channels, height, width) float16 after the first layers."""
        if self.layers is not None:
            return self.encoder.activations(images, self.layers)
        if self.stages == "embedding":
            return self.encoder.embed(images)
        return (self.encoder.stages if self.stages == "all" else self.encoder.features)(images, self.pool)


def _make_embedding_layers(width: int) -> tuple[nn.Module, ...]:
    return nn.Linear(width, EMBEDDED, bias=False), nn.GroupNorm(GROUPS, EMBEDDED), nn.ReLU()


def _average_pool(maps: Tensor, pool: int) -> Tensor:
    """Return (n, channels * pool * pool): means of maps (n, channels, side, side) over pool x pool equal parts."""
    return maps.mean((2, 3)) if pool == 1 else avg_pool2d(maps, maps.shape[2] // pool).flatten(1)


def make_random_encoder(network: str, size: int, seed: int, device: torch.device, *, embed: bool = False) -> Encoder:
    """Return an encoder with random parameters, the same on every device."""
    encoder = Encoder(network, size, embed=embed)
    start = draw_parameters(encoder, torch.Generator().manual_seed(seed))
    encoder.to_empty(device=device).load_state_dict(start)
    return encoder


def load_encoder(network: str, size: int, state: Mapping[str, Tensor]) -> Encoder:
    """Return an encoder with the parameters of a checkpoint, in float32, without a projection.

    Raises:
        RuntimeError: a parameter is missing, left over or of another shape.
    """
    encoder = Encoder(network, size, embed=any(name.startswith("embedding.") for name in state))
    encoder.projection = nn.Sequential()
    encoder.load_state_dict({name: tensor.float() for name, tensor in state.items()}, assign=True)
    return encoder


def _standardise_filters(module: nn.Module) -> nn.Module:
    """Return a module with plain convolutions, which can be trained, in place of weight-standardised ones."""
    if isinstance(module, WSConv2d):
        kernel, stride = module.kernel_size[0], module.stride[0]
        with torch.device("meta"):  # draws no weights: a fit that loads the tail may not touch the global generator
            plain = nn.Conv2d(module.in_channels, module.out_channels, kernel, stride, padding=kernel // 2)
        weight = standardise_weight(module.weight, module.gain).detach()
        plain.load_state_dict({"weight": weight, "bias": module.bias}, assign=True)
        return plain
    for name, child in module.named_children():
        setattr(module, name, _standardise_filters(child))
    return module
