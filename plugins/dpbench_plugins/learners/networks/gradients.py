"""Per-example gradients of a network, as rows for a curator.

Gradients are exact; torch.func computes them (vmap over grad). On a CPU, a step takes two thirds of the time that
Opacus needs for a WRN-16-4, and the same time for a ResNet-9 (`tests/benchmarks/test_network_steps.py`).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import Literal

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn.functional import cross_entropy

from dpbench import Chunk, Joined, RowFn
from dpbench_plugins.networks.models import EPSILON, Network, WSConv2d, centre_and_scale, standardise_weight
from dpbench_plugins.networks.views import Augmentation, normalise_pixels

Trains = Literal["head", "norm+head", "all"]
CPU_BYTES = 2**30  # what a chunk may take on a processor; on a GPU, half of the memory that is free


@dataclass(frozen=True)
class ParameterLayout:
    """How the parameters of a network are laid out in one vector: the final normalisation and the head come last."""

    network: Network

    @cached_property
    def shapes(self) -> dict[str, torch.Size]:
        """The shapes of the parameters by name, in the order of the vector."""
        return {name: parameter.shape for name, parameter in self.network.named_parameters()}

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(shape.numel() for shape in self.shapes.values())

    def find_trained_start(self, trains: Trains) -> int:
        """Return the index at which the trained parameters start; they extend to the end of the vector."""
        return {"all": 0, "norm+head": self._find_start("norm."), "head": self._find_start("head.")}[trains]

    def views(self, vectors: Tensor) -> dict[str, Tensor]:
        """Split vectors (..., size) into views by parameter name; a shorter vector holds only the last parameters."""
        ends = list(accumulate(shape.numel() for shape in self.shapes.values()))
        absent = self.size - vectors.shape[-1]
        return {
            name: vectors[..., end - shape.numel() - absent : end - absent].view(*vectors.shape[:-1], *shape)
            for (name, shape), end in zip(self.shapes.items(), ends, strict=True)
            if end - shape.numel() >= absent
        }

    def flatten_parameters(self, named: dict[str, Tensor]) -> Tensor:
        """Return named parameters as one vector (size,)."""
        return torch.cat([named[name].flatten() for name in self.shapes])

    def _find_start(self, prefix: str) -> int:
        later = [shape.numel() for name, shape in self.shapes.items() if name.startswith((prefix, "head."))]
        return self.size - sum(later)


@dataclass(frozen=True)
class PerExampleGradients:
    """The row function of a network's training: row i is the mean over views of example i's gradient.

    Averaging comes before clipping, so one example contributes one clipped vector whatever the number of views (De et
    al. 2022, section 3). The loss is cross-entropy.
    """

    layout: ParameterLayout
    views: Augmentation

    def row_function(self, theta: Tensor, trains: Trains) -> RowFn:
        """Return a row function: each row's gradient with respect to the trained parameters, at parameters `theta`.

        Rows have the precision of `theta`. Memory grows with the number of rows in a chunk times the number of views.
        """
        named, start = self.layout.views(theta), self.layout.find_trained_start(trains)
        kept = self.layout.views(theta[start:])
        used = self._standardise_weights(named)
        frozen = {name: value for name, value in used.items() if name not in kept}
        trained = {name: value for name, value in used.items() if name in kept}
        plain = self._plain_network  # made here: a row function makes nothing that stays

        def loss(trained: dict[str, Tensor], views: Tensor, label: Tensor) -> Tensor:
            logits = functional_call(plain, {**frozen, **trained}, (views,))  # (k, classes)
            return cross_entropy(logits, label.expand(len(views)))

        by_example = vmap(grad(loss), in_dims=(None, 0, 0))

        def rows(chunk: Chunk) -> Joined:
            if not len(chunk):
                return Joined(tuple(theta.new_empty(0, *value.shape) for value in kept.values()))
            views = normalise_pixels(self.views(chunk.x.to(theta.dtype), chunk.seeds))
            found = by_example(trained, views, chunk.y)
            self._unstandardise_gradients(found, named)
            return Joined(tuple(found[name] for name in kept))

        return rows

    def count_rows_per_chunk(self, example_shape: tuple[int, ...], device: torch.device) -> int:
        """Return how many rows fit in 1 GiB on a CPU, or in half of the free memory on a GPU; at least one."""
        kept = 0

        def add_saved_bytes(saved: Tensor) -> Tensor:
            nonlocal kept
            kept += saved.nbytes if saved.shape[:1] == (1,) else 0  # the rest is weights
            return saved

        with torch.autograd.graph.saved_tensors_hooks(add_saved_bytes, lambda saved: saved):
            self.layout.network(torch.empty(1, *example_shape, device="meta"))
        free = torch.cuda.mem_get_info(device)[0] // 2 if device.type == "cuda" else CPU_BYTES
        # Gradients, and the copy without rows that are not finite; activations and their gradients.
        return max(1, free // (2 * 4 * self.layout.size + 2 * self.views.views_per_image * kept))

    @cached_property
    def _gain_by_weight(self) -> dict[str, str]:
        """The standardised convolutions: name of the weight -> name of the gain."""
        modules = self.layout.network.named_modules()
        return {f"{name}.weight": f"{name}.gain" for name, module in modules if isinstance(module, WSConv2d)}

    @cached_property
    def _plain_network(self) -> nn.Module:
        """A copy of the network that expects standardised weights.

        Weights are then standardised once per step, not once per row.
        """
        plain = copy.deepcopy(self.layout.network)
        for module in plain.modules():
            if isinstance(module, WSConv2d):
                module.standardised = True
        return plain

    def _standardise_weights(self, named: dict[str, Tensor]) -> dict[str, Tensor]:
        used = {name: value for name, value in named.items() if name not in self._gain_by_weight.values()}
        return used | {
            weight: standardise_weight(named[weight], named[gain]) for weight, gain in self._gain_by_weight.items()
        }

    def _unstandardise_gradients(self, gradients: dict[str, Tensor], parameters: dict[str, Tensor]) -> None:
        """Convert gradients, in place, from standardised weights to weights and gains."""
        for name, gain in self._gain_by_weight.items():
            if name in gradients:
                gradients[name], gradients[gain] = _undo_standardisation(
                    gradients[name], parameters[name], parameters[gain]
                )


def _undo_standardisation(gradient: Tensor, weight: Tensor, gain: Tensor) -> tuple[Tensor, Tensor]:
    """Convert gradients (c, o, ...) for standardised weights into those for `weight` and for `gain` (c, o).

    A filter's gradient loses its mean and its component along the filter, because standardisation removes both from
    the filter. vmap over torch's own vjp computes the same but takes four times as long.
    """
    flat = gradient.flatten(2)  # (c, o, f), written over
    centred, scale = (part.flatten(1) for part in centre_and_scale(weight))  # (o, f), (o, 1)
    unit = centred * scale
    along = torch.einsum("cof,of->co", flat, unit)
    free = scale < EPSILON**-0.5  # of a filter below the limit the scale is a constant
    flat.sub_(flat.mean(2, keepdim=True))
    flat.sub_((along * free.squeeze(1)).unsqueeze(2) * unit).mul_(scale * gain.unsqueeze(1))
    return flat.view_as(gradient), along
