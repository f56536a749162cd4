"""The end of a pre-trained network as it is fine-tuned: pooled features, a public projection, a head, and its gradients.

Per-example gradients come from one backward pass over a chunk: convolutions and linear layers are noted as they are
called, the gradient by what each gives is asked of autograd, and its product with what each was given, example by
example, is that layer's gradient. On a processor that takes two and a half passes without privacy on the last stage
of efficientnet-lite0; vmap over grad takes three, and Opacus' hooks, which lay depthwise convolutions out in full, 20
to 50 (`tests/benchmarks/test_finetune_steps.py`).

Covered: a row follows from its example, its label and public values, up to a library's rounding beside other rows
(`privacy.core.sum` states that assumption); nothing looks at a batch.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.functional import conv2d, cross_entropy, linear, normalize, pad, unfold
from torch.overrides import TorchFunctionMode

from dpbench import Chunk, Joined, Predict, RowFn, SpecError
from dpbench_plugins.learners.thrift import spectrum

BATCH = 256  # examples predicted at once
WHITENING = 0.3  # thrift's
SMALLEST = 1e-3  # the unit of a tensor that is published as zeros


@dataclass(frozen=True)
class Neck:
    """The public map from pooled features (c, d) to what the head reads (c, k), rows of norm sqrt(k)."""

    scale: Tensor  # (d,)
    shift: Tensor  # (d,)
    weight: Tensor  # (k, d)
    offset: Tensor  # (k,)

    @classmethod
    def of(cls, public: Tensor, k: int) -> Neck:
        """Return the map on the leading components of public features (m, d), half whitened as `thrift` has them."""
        spectral = spectrum(public)
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
        """Return (c, k)."""
        rows = normalize(features * self.scale + self.shift)
        return normalize(linear(rows, self.weight, self.offset)) * len(self.offset) ** 0.5


class TunedNetwork(nn.Module):
    """Activations to logits: the tail, the neck and a linear head."""

    def __init__(self, tail: nn.Module, neck: Neck, head: Tensor) -> None:
        """Take a head (classes, k + 1), its bias in the last column."""
        super().__init__()
        self.tail, self.neck = tail, neck
        self.head = nn.Linear(head.shape[1] - 1, len(head), device=head.device)
        self.head.load_state_dict({"weight": head[:, :-1], "bias": head[:, -1]})
        self.eval().requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Return (c, classes)."""
        logits: Tensor = self.head(self.neck(self.tail(x)))
        return logits


class Adapter(nn.Module):
    """A frozen layer plus a product of two narrow ones, which is zero at first (Hu et al. 2022)."""

    def __init__(self, layer: nn.Module, down: nn.Module, up: nn.Module) -> None:
        super().__init__()
        self.layer, self.down, self.up = layer, down, up

    def forward(self, x: Tensor) -> Tensor:
        """Return the sum."""
        total: Tensor = self.layer(x) + self.up(self.down(x))
        return total


def pooled(tail: nn.Module, x: Tensor) -> Tensor:
    """Return the features (m, d) of public activations."""
    with torch.no_grad():
        return torch.cat([tail(part) for part in torch.split(x, BATCH)])


def predictor(network: TunedNetwork) -> Predict:
    """Return the map of activations to logits, a limited number at once."""

    def predict(x: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.cat([network(part) for part in torch.split(x, BATCH)])

    return predict


@dataclass(frozen=True)
class TailGradients:
    """The row function of fine-tuning: row i is example i's gradient by the trained tensors, in units of their sizes.

    Sensitivity: the curator clips a row as one vector, whatever tensors it consists of.
    """

    network: TunedNetwork
    published: Mapping[str, Tensor]  # every parameter before the first step
    units: Mapping[str, float]  # of the trained ones, in order

    @classmethod
    def of(cls, network: TunedNetwork, which: str, rank: int, generator: torch.Generator) -> TailGradients:
        """Return the gradients of what `which` names; adapters are put into the network, which changes.

        Raises:
            SpecError: the tail has no such parameters.
        """
        if which == "lora":
            _adapt(network.tail, rank, generator)
            network.requires_grad_(False)
        named = dict(network.named_parameters())
        trained = _trained(network, which)
        if not any(name.startswith("tail.") for name in trained):
            raise SpecError(f"The tail has no parameters of kind {which!r} to train. Choose others.")
        units = {name: max(float(named[name].square().mean().sqrt()), SMALLEST) for name in trained}
        for name in trained:  # a product's second factor is published as zeros, and moves as the first does
            if name.endswith("up.weight"):
                units[name] = units[name.replace("up.weight", "down.weight")]
        return cls(network, named, units)

    def start(self) -> Tensor:
        """Return (p,): the trained tensors in units of their sizes, one after another."""
        return torch.cat([self.published[name].flatten() / unit for name, unit in self.units.items()])

    def network_at(self, position: Tensor) -> TunedNetwork:
        """Return the network with the trained tensors at `position` (p,)."""
        network = copy.deepcopy(self.network)
        network.load_state_dict({**self.published, **self._tensors(position)})
        return network

    def at(self, position: Tensor) -> RowFn:
        """Return the function from a chunk to rows at `position` (p,). Memory grows with the chunk times p."""
        trained = {name: value.requires_grad_() for name, value in self._tensors(position).items()}
        parameters, network, units = {**self.published, **trained}, self.network, self.units

        def rows(chunk: Chunk) -> Joined:
            if not len(chunk):
                return Joined(tuple(position.new_empty(0, *value.shape) for value in trained.values()))
            calls = Calls(trained)
            with torch.enable_grad(), calls:
                logits = functional_call(network, parameters, (chunk.x,))
                loss = cross_entropy(logits, chunk.y, reduction="sum")
            found = calls.gradients(loss)
            return Joined(tuple(found[name].mul_(unit) for name, unit in units.items()))

        return rows

    def _tensors(self, position: Tensor) -> dict[str, Tensor]:
        sizes = [self.published[name].numel() for name in self.units]
        parts = zip(self.units.items(), torch.split(position, sizes), strict=True)
        return {name: (part * unit).view(self.published[name].shape) for (name, unit), part in parts}


class Calls(TorchFunctionMode):
    """Notes what convolutions and linear layers with trained parameters are given, and give."""

    def __init__(self, trained: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._trained = trained
        self._names = {id(value): name for name, value in trained.items()}
        self._calls: list[Call] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call, and note."""
        given = kwargs or {}
        outcome = func(*args, **given)
        if func is conv2d or func is linear:
            weight, bias = args[1], args[2] if len(args) > 2 else given.get("bias")
            names = self._names.get(id(weight)), self._names.get(id(bias))
            if any(names):
                rows = _linear_rows if func is linear else _convolution_rows(weight, *args[3:])
                self._calls.append(Call(names[0], names[1], args[0].detach(), outcome, rows))
        return outcome

    def gradients(self, loss: Tensor) -> dict[str, Tensor]:
        """Return each trained tensor's gradients (c, *shape)."""
        outer = torch.autograd.grad(loss, [call.outcome for call in self._calls])
        found = {}
        for call, gradient in zip(self._calls, outer, strict=True):
            if call.weight is not None:
                found[call.weight] = call.rows(call.given, gradient).view(-1, *self._trained[call.weight].shape)
            if call.bias is not None:
                found[call.bias] = gradient.flatten(2).sum(2) if gradient.ndim == 4 else gradient
        return found


@dataclass(frozen=True)
class Call:
    """One layer's call: the names of its weight and bias where they are trained."""

    weight: str | None
    bias: str | None
    given: Tensor
    outcome: Tensor
    rows: Callable[[Tensor, Tensor], Tensor]


def _linear_rows(given: Tensor, gradient: Tensor) -> Tensor:
    return gradient.unsqueeze(2) * given.unsqueeze(1)


def _convolution_rows(weight: Tensor, stride: Any, padding: Any, dilation: Any, groups: int) -> Any:
    """Return the function to the gradients (c, o, i / groups, h, w) by a convolution's weight."""
    outputs, inputs, *kernel = weight.shape

    def pointwise(given: Tensor, gradient: Tensor) -> Tensor:
        return gradient.flatten(2) @ given.flatten(2).transpose(1, 2)

    def depthwise(given: Tensor, gradient: Tensor) -> Tensor:
        padded = pad(given, (padding[1], padding[1], padding[0], padding[0]))
        (height, width), (down, right) = gradient.shape[2:], stride
        taps = [
            (padded[:, :, i : i + height * down : down, j : j + width * right : right][..., :height, :width] * gradient)
            .sum((2, 3))
            for i in range(0, kernel[0] * dilation[0], dilation[0])
            for j in range(0, kernel[1] * dilation[1], dilation[1])
        ]  # fmt: skip
        return torch.stack(taps, 2)

    def general(given: Tensor, gradient: Tensor) -> Tensor:
        patches = unfold(given, kernel, dilation, padding, stride)  # (c, i * h * w, places)
        of_groups = patches.view(len(given), groups, -1, patches.shape[2])
        return gradient.flatten(2).view(len(given), groups, -1, patches.shape[2]) @ of_groups.transpose(2, 3)

    if kernel == [1, 1] and groups == 1 and set(stride) == {1} and set(padding) == {0}:
        return pointwise
    return depthwise if inputs == 1 and groups == outputs else general


def _trained(network: TunedNetwork, which: str) -> list[str]:
    """Return the names of the trained parameters: convolutions' and linear layers' alone, the head's last."""
    layers = {name: one for name, one in network.named_modules() if isinstance(one, nn.Conv2d | nn.Linear)}
    kept = {
        "bias": lambda name, kind: kind == "bias",
        "lora": lambda name, kind: name.rpartition(".")[2] in {"down", "up"},
        "last": lambda name, kind: name == [one for one in layers if one != "head"][-1],
        "all": lambda name, kind: True,
    }[which]
    return [
        f"{name}.{kind}"
        for name, layer in layers.items()
        for kind, _ in layer.named_parameters()
        if name == "head" or kept(name, kind)
    ]


def _adapt(tail: nn.Module, rank: int, generator: torch.Generator) -> None:
    """Put adapters beside 1x1 convolutions and linear layers, their first factors drawn with variance 1 / fan-in."""
    for name, layer in list(tail.named_modules()):
        narrow: tuple[nn.Module, nn.Module] | None = None
        if isinstance(layer, nn.Linear):
            narrow = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=False)
        elif isinstance(layer, nn.Conv2d) and layer.kernel_size == (1, 1) and layer.groups == 1:
            first = nn.Conv2d(layer.in_channels, rank, 1, layer.stride, bias=False)
            narrow = first, nn.Conv2d(rank, layer.out_channels, 1, bias=False)
        if narrow is None:
            continue
        down, up = narrow
        with torch.no_grad():
            drawn = torch.randn(down.weight.shape, generator=generator)
            down.weight.copy_(drawn * drawn[0].numel() ** -0.5)
            up.weight.zero_()
        parent, _, own = name.rpartition(".")
        setattr(tail.get_submodule(parent), own, Adapter(layer, *narrow).to(layer.weight.device))
