"""The fine-tuned end of a pre-trained network (tail, public projection and head), and its per-example gradients.

Per-example gradients come from one backward pass over a chunk. The network records the input and output of each trained
convolution and linear layer. Autograd returns the gradient with respect to each output. The product of this gradient
with the input, example by example, is the gradient with respect to the layer's weight. On the last stage of
efficientnet-lite0, on a CPU, vmap over grad takes 1.7 times as long; the hooks of Opacus, which expand depthwise
convolutions in full, take 10 times as long (`tests/benchmarks/test_finetune_steps.py`).

Guarantee: a row is computed from its example, its label and public values alone, except for rounding, which may depend
on other rows in the batch (`privacy.core.sum` states this assumption). No layer uses statistics of a batch.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv2d, cross_entropy, linear, normalize, pad, unfold

from dpbench import Chunk, Joined, Predict, RowFn, SpecError
from dpbench_plugins.learners.spectrum import compute_spectrum
from dpbench_plugins.learners.tail_training import TrainedTail

BATCH = 256  # examples predicted at once
WHITENING = 0.3  # thrift's
SMALLEST = 1e-3  # the unit of a tensor that is published as zeros


@dataclass(frozen=True)
class Neck:
    """The public map from pooled features (c, d) to the inputs of the head (c, k), whose rows have norm sqrt(k)."""

    scale: Tensor  # (d,)
    shift: Tensor  # (d,)
    weight: Tensor  # (k, d)
    offset: Tensor  # (k,)

    @classmethod
    def from_features(cls, public: Tensor, k: int) -> Neck:
        """Return the map to the leading components of public features (m, d), softly whitened as in `thrift`."""
        spectral = compute_spectrum(public)
        most = min(spectral.examples - 1, len(spectral.centre))
        if k > most:
            raise SpecError(
                f"Expected k={k} in 1..{most} in learner 'dp-finetune': fewer than the public examples, and no more "
                "than the pooled features. Add --public-fraction, or set dp-finetune:k=..."
            )
        values = spectral.components.values
        relative = (values[-k:] / values[-1].clamp(min=1e-12)).clamp(min=1e-4)
        weight = (spectral.components.leading(k) * relative.pow(-WHITENING / 2)).T  # (k, d)
        offset = -weight @ spectral.centre
        return cls(spectral.standardise.scale, spectral.standardise.shift, weight.float(), offset.float())

    def __call__(self, features: Tensor) -> Tensor:
        """Return the inputs (c, k) of the head for pooled features (c, d)."""
        rows = normalize(features * self.scale + self.shift)
        found: Tensor = normalize(linear(rows, self.weight, self.offset)) * len(self.offset) ** 0.5
        return found


def flatten_features(features: Tensor) -> Tensor:
    """Return pooled features (c, d, ...) flattened to rows, for a head that reads all of them."""
    return features.flatten(1)


class TunedNetwork(nn.Module):
    """A network from activations to logits: the tail, the neck and a linear head."""

    def __init__(self, tail: nn.Module, neck: Callable[[Tensor], Tensor], head: Tensor) -> None:
        """Combine a tail, a neck and a head (classes, k + 1) whose last column is the bias; freeze all parameters."""
        super().__init__()
        self.tail, self.neck = tail, neck
        with torch.device("meta"):
            self.head = nn.Linear(head.shape[1] - 1, len(head))
        self.head.load_state_dict({"weight": head[:, :-1].clone(), "bias": head[:, -1].clone()}, assign=True)
        self.eval().requires_grad_(False)

    @classmethod
    def from_trained(cls, trained: TrainedTail) -> TunedNetwork:
        """Return the network that was trained on public examples, with its own head on the pooled features."""
        network = trained.network
        head = torch.cat([network.head.weight, network.head.bias.unsqueeze(1)], 1)
        return cls(network.tail, flatten_features, head.detach())

    def forward(self, x: Tensor) -> Tensor:
        """Return the logits (c, classes)."""
        logits: Tensor = self.head(self.neck(self.tail(x)))
        return logits


class LowRankAdapter(nn.Module):
    """A frozen layer plus a product of two narrow layers, which starts at zero (Hu et al. 2022)."""

    def __init__(self, layer: nn.Module, down: nn.Module, up: nn.Module) -> None:
        super().__init__()
        self.layer, self.down, self.up = layer, down, up

    def forward(self, x: Tensor) -> Tensor:
        """Return the output of the layer plus that of the narrow layers."""
        total: Tensor = self.layer(x) + self.up(self.down(x))
        return total


class ChannelGain(nn.Module):
    """A factor for each channel of a layer's output, which starts at 1."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x: Tensor) -> Tensor:
        """Return x (c, channels, ...), scaled."""
        scaled: Tensor = x * self.weight.view(-1, *[1] * (x.ndim - 2))
        return scaled


def compute_pooled_features(tail: nn.Module, x: Tensor) -> Tensor:
    """Return the pooled features (m, d) of public activations x."""
    with torch.no_grad():
        return torch.cat([tail(part) for part in torch.split(x, BATCH)])


def make_predictor(network: TunedNetwork) -> Predict:
    """Return the map from activations to logits, which processes a limited number of examples at once."""

    def predict(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([network(part) for part in torch.split(x, BATCH)])

    return predict


@dataclass(frozen=True)
class TailGradients:
    """The row function of fine-tuning: row i is example i's gradient with respect to the scaled trained tensors.

    Sensitivity: the curator clips a row as one vector, whatever tensors it consists of.
    """

    network: TunedNetwork
    published: Mapping[str, Tensor]  # every parameter before the first step
    units: Mapping[str, float]  # of the trained ones, in order
    length: int  # of the chunks that the network sees

    @classmethod
    def for_parameters(
        cls, network: TunedNetwork, kind: str, rank: int, length: int, generator: torch.Generator
    ) -> TailGradients:
        """Return the gradients for the parameters that `kind` names; `lora` and `film` add layers to the tail in place.

        Chunks of fewer than `length` rows are padded with zeros, because convolutions over another number of rows may
        round differently. A ReLU turns rounding into a jump: without padding, one row in a hundred would differ by up
        to two percent.

        Raises:
            SpecError: the tail has no parameters of this kind.
        """
        trained = [f"tail.{name}" for name in choose_trained_parameters(network.tail, kind, rank, generator)]
        network.requires_grad_(False)
        named = dict(network.named_parameters())
        units = {name: max(float(named[name].square().mean().sqrt()), SMALLEST) for name in trained}
        for name in trained:  # a product's second factor is published as zeros, and moves as the first does
            if name.endswith("up.weight"):
                units[name] = units[name.replace("up.weight", "down.weight")]
        return cls(network, named, units, length)

    def start_position(self) -> Tensor:
        """Return the trained tensors as one vector (p,), each divided by its unit."""
        return torch.cat([self.published[name].flatten() / unit for name, unit in self.units.items()])

    def build_network_at(self, position: Tensor) -> TunedNetwork:
        """Return the network with the trained tensors at `position` (p,)."""
        network = copy.deepcopy(self.network)
        network.load_state_dict({**self.published, **self._split_trained_tensors(position)})
        return network

    def row_function(self, position: Tensor) -> RowFn:
        """Return the row function at `position` (p,). Its memory grows with the chunk size times p."""
        trained = {name: value.requires_grad_() for name, value in self._split_trained_tensors(position).items()}
        parameters, shapes, units = {**self.published, **trained}, self._meta_network, self.units

        def rows(chunk: Chunk) -> Joined:
            x, y = self._pad_chunk(chunk)
            calls = LayerRecorder(shapes, units)
            with torch.enable_grad():
                loss = cross_entropy(functional_call(calls.network, parameters, (x,)), y, reduction="sum")
            found = calls.gradients(loss)
            return Joined(tuple(found[name][: len(chunk)].view(-1, *value.shape) for name, value in trained.items()))

        return rows

    def loss_change_function(self, position: Tensor, step: Tensor) -> RowFn:
        """Return a row function (c, 2): how much each loss changes with `step`, and with the opposite step."""
        networks = [self.build_network_at(point) for point in (position, position - step, position + step)]

        def rows(chunk: Chunk) -> Tensor:
            x, y = self._pad_chunk(chunk)
            with torch.no_grad():
                here, forward, backward = (cross_entropy(network(x), y, reduction="none") for network in networks)
            return torch.stack([forward - here, backward - here], 1)[: len(chunk)]

        return rows

    def _pad_chunk(self, chunk: Chunk) -> tuple[Tensor, Tensor]:
        """Return the examples and labels of a chunk, padded with zeros to `length` rows."""
        missing = max(0, self.length - len(chunk))
        return torch.cat([chunk.x, chunk.x.new_zeros(missing, *chunk.x.shape[1:])]), pad(chunk.y, (0, missing))

    @cached_property
    def _meta_network(self) -> TunedNetwork:
        neck = self.network.neck
        return copy.deepcopy(self.network, {id(neck): neck}).to("meta")

    def _split_trained_tensors(self, position: Tensor) -> dict[str, Tensor]:
        sizes = [self.published[name].numel() for name in self.units]
        parts = zip(self.units.items(), torch.split(position, sizes), strict=True)
        return {name: (part * unit).view(self.published[name].shape) for (name, unit), part in parts}


class LayerRecorder:
    """A copy of the network that records the inputs and outputs of trained layers for one chunk."""

    def __init__(self, meta_network: TunedNetwork, units: Mapping[str, float]) -> None:
        """Copy a network on the meta device but share its neck; a call of the copy must supply the parameters."""
        neck = meta_network.neck
        self.network, self._units = copy.deepcopy(meta_network, {id(neck): neck}), units
        self._seen: list[tuple[str, nn.Module, Tensor, Tensor]] = []
        for name in sorted({name.rpartition(".")[0] for name in units}):
            self.network.get_submodule(name).register_forward_hook(self._record_call(name))

    def _record_call(self, name: str) -> Callable[[nn.Module, tuple[Tensor], Tensor], None]:
        return lambda layer, given, gave: self._seen.append((name, layer, given[0].detach(), gave))

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """Return the per-example gradients (c, ...) of each trained tensor, multiplied by the tensor's unit."""
        outer = torch.autograd.grad(loss, [gave for *_, gave in self._seen])
        found = {}
        for (name, layer, given, _), gradient in zip(self._seen, outer, strict=True):
            if (weight := f"{name}.weight") in self._units:
                found[weight] = _compute_weight_gradients(layer, given, gradient * self._units[weight])
            if (bias := f"{name}.bias") in self._units:
                found[bias] = (gradient.flatten(2).sum(2) if gradient.ndim == 4 else gradient) * self._units[bias]
        return found


def _compute_weight_gradients(layer: nn.Module, inputs: Tensor, gradient: Tensor) -> Tensor:
    """Return per-example gradients (c, ...) of a layer's weight, from its input and the gradient of its output."""
    if isinstance(layer, ChannelGain):
        return (gradient * inputs).view(*inputs.shape[:2], -1).sum(2)
    if not isinstance(layer, nn.Conv2d):
        return gradient.unsqueeze(2) * inputs.unsqueeze(1)
    if layer.kernel_size == (1, 1) and layer.stride == (1, 1) and layer.groups == 1 and not any(_get_padding(layer)):
        return gradient.flatten(2) @ inputs.flatten(2).transpose(1, 2)
    if layer.groups == layer.in_channels == layer.out_channels:
        return _compute_depthwise_gradients(layer, inputs, gradient)
    patches = unfold(inputs, layer.kernel_size, layer.dilation, _get_padding(layer), layer.stride)  # (c, i * h * w, p)
    of_groups = patches.view(len(inputs), layer.groups, -1, patches.shape[2])
    outer = gradient.flatten(2).view(len(inputs), layer.groups, -1, patches.shape[2])
    return outer @ of_groups.transpose(2, 3)


def _get_padding(layer: nn.Conv2d) -> tuple[int, int]:
    if isinstance(layer.padding, str):
        raise SpecError(
            f"Expected convolutions with numeric padding in a tail that is trained, got padding={layer.padding!r}."
        )
    return layer.padding[0], layer.padding[1]


def _compute_depthwise_gradients(layer: nn.Conv2d, inputs: Tensor, gradient: Tensor) -> Tensor:
    """Return weight gradients (c, i, 1, kernel): each channel of each example convolved with its output gradient."""
    count, channels, *size = gradient.shape
    vertical, horizontal = _get_padding(layer)
    height, width = (
        (side - 1) * stride + (taps - 1) * gap + 1  # what the taps reach: the rest would give more of them
        for side, stride, taps, gap in zip(size, layer.stride, layer.kernel_size, layer.dilation, strict=True)
    )
    padded = pad(inputs, (horizontal, horizontal, vertical, vertical))[:, :, :height, :width]
    maps, filters = padded.reshape(1, -1, height, width), gradient.reshape(-1, 1, *size)
    strides, gaps = (layer.dilation[0], layer.dilation[1]), (layer.stride[0], layer.stride[1])
    return conv2d(maps, filters, stride=strides, dilation=gaps, groups=count * channels).view(count, channels, 1, -1)


def choose_trained_parameters(tail: nn.Module, selection: str, rank: int, generator: torch.Generator) -> list[str]:
    """Return the names of the parameters to train, among those of convolutions and linear layers.

    `lora` adds adapters to the tail in place, and `film` adds a gain to each layer that has a bias.

    Raises:
        SpecError: the tail has no parameters of this kind.
    """
    if selection == "lora":
        _add_adapters(tail, rank, generator)
    if selection == "film":
        _add_gains(tail)
    layers = {
        name: layer for name, layer in tail.named_modules() if isinstance(layer, nn.Conv2d | nn.Linear | ChannelGain)
    }
    *_, last = ("", *layers)
    kept: Mapping[str, Callable[[str, str], bool]] = {
        "bias": lambda name, kind: kind == "bias",
        "film": lambda name, kind: kind == "bias" or isinstance(layers[name], ChannelGain),
        "lora": lambda name, kind: name.rpartition(".")[2] in {"down", "up"},
        "last": lambda name, kind: name == last,
        "all": lambda name, kind: True,
    }
    chosen = [
        f"{name}.{kind}"
        for name, layer in layers.items()
        for kind, _ in layer.named_parameters()
        if kept[selection](name, kind)
    ]
    if not chosen:
        raise SpecError(f"The tail has no parameters of kind {selection!r} to train. Set parameters to another kind.")
    return chosen


def _add_gains(tail: nn.Module) -> None:
    for name, layer in list(tail.named_modules()):
        if isinstance(layer, nn.Conv2d | nn.Linear) and layer.bias is not None:
            parent, _, own = name.rpartition(".")
            gain = ChannelGain(len(layer.bias)).to(layer.bias)
            setattr(tail.get_submodule(parent), own, nn.Sequential(OrderedDict(layer=layer, gain=gain)))


def _add_adapters(tail: nn.Module, rank: int, generator: torch.Generator) -> None:
    """Put a low-rank adapter beside each 1x1 convolution and linear layer, in place.

    Its first factor is drawn with variance 1 / fan-in; the second is zero.
    """
    for name, layer in list(tail.named_modules()):
        if not isinstance(layer, nn.Conv2d | nn.Linear) or (narrow := _make_low_rank_layers(layer, rank)) is None:
            continue
        down, up = narrow
        drawn = torch.randn(down.weight.shape, generator=generator)
        down.weight = nn.Parameter((drawn * drawn[0].numel() ** -0.5).to(layer.weight))
        up.weight = nn.Parameter(torch.zeros(up.weight.shape).to(layer.weight))
        parent, _, own = name.rpartition(".")
        setattr(tail.get_submodule(parent), own, LowRankAdapter(layer, down, up))


def _make_low_rank_layers(
    layer: nn.Conv2d | nn.Linear, rank: int
) -> tuple[nn.Conv2d, nn.Conv2d] | tuple[nn.Linear, nn.Linear] | None:
    with torch.device("meta"):
        if isinstance(layer, nn.Linear):
            return nn.Linear(layer.in_features, rank, False), nn.Linear(rank, layer.out_features, False)
        if layer.kernel_size != (1, 1) or layer.groups > 1:
            return None
        down = nn.Conv2d(layer.in_channels, rank, 1, (layer.stride[0], layer.stride[1]), bias=False)
        return down, nn.Conv2d(rank, layer.out_channels, 1, bias=False)
