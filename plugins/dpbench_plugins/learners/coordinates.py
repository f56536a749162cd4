"""The public coordinates of `thrift`: principal components and a graph of neighbours, and the settings for a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    Curator,
    LinearProbe,
    Task,
    effective_size,
    exact_linear,
    require_setting,
    subspace_iteration,
    unit_norm,
)
from dpbench_plugins.learners.spectrum import Spectrum, compute_spectrum

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Transform = Callable[[Tensor], Tensor]

CLIP = 0.5  # L2 bound on a gradient, in units of the norm of a row
LONGEST = 84.0  # travel of a head
ROWS = 5000  # public rows in the graph, whose size is their square
FEW, LEAST = 40, 0.05  # public rows, and share of a row, below which there is no graph
NEIGHBOURS, DIRECTIONS, ROUNDS = 20, 200, 30  # of a row; they are looked for in; of the iteration
AT_ONCE = 512  # rows that meet all public rows


@dataclass(frozen=True)
class Coordinates:
    """Settings of the map from features to public coordinates: principal components and a graph of neighbours.

    `who` is the learner's name, for messages. `k` and `graph` are None until they are chosen; `features` needs both.
    """

    who: str
    k: int | None = None
    graph: float | None = None
    whitening: float = 0.3

    def features(self, public: Tensor, generator: torch.Generator) -> Transform:
        """Return the map from features (c, *shape) to rows (c, coordinates) of norm sqrt(k) or less."""
        import torch

        spectral, k, graph = compute_spectrum(public, self.who), require_setting(self.k), require_setting(self.graph)
        components = spectral.make_whitening_map(k, self.whitening)
        if graph == 0:
            return lambda x: components(x) * k**0.5
        rows = public[torch.randperm(len(public), generator=generator)[:ROWS].to(public.device)]
        near = make_neighbourhood_map(spectral, rows, k, generator)
        first, second = (k * (1 - graph)) ** 0.5, (k * graph) ** 0.5
        return lambda x: torch.cat([components(x) * first, near(x) * second], 1)


def choose_settings(task: Task, budget: Budget, steps: int | None) -> Mapping[str, Any]:
    """Choose k, graph, steps and learning rate for a budget; if `steps` is given, keep that number.

    k is at most half the number of public examples, and at most the number of features.
    """
    size = effective_size(task, budget)
    k = 1.3 * math.pow(size, 0.6)  # infinite without privacy
    travel = min(7 + k / 6, LONGEST)
    steps = steps or 20 + round(travel)
    most = max(1, min(task.public // 2, math.prod(task.example_shape)))
    components = min(max(2, round(min(k, most))), most)
    usable = task.same_source and task.public >= FEW
    share = 1 / (1 + math.pow(size / (20 * task.classes), 1.5)) if usable else 0.0
    return {
        "k": components,
        "graph": float(f"{share:.2g}") if share >= LEAST else 0.0,
        "steps": steps,
        "learning_rate": float(f"{travel / steps:.3g}"),
    }


def make_head_probe(k: int, steps: int, learning_rate: float, clip: float = CLIP) -> LinearProbe:
    """Return a probe that trains a head on rows of norm sqrt(k) by full-batch gradient descent.

    `clip` is in units of sqrt(k + 1), the norm of a row with its bias of 1.
    """
    norm = (k + 1) ** 0.5  # of a row, however many coordinates it has, and its bias
    return LinearProbe(steps, 1.0, learning_rate, 0.0, clip * norm)


def train_head(
    curator: Curator, probe: LinearProbe, features: Transform, generator: torch.Generator, release: str = "gradient"
) -> Tensor:
    """Train a private head (classes, coordinates + 1) on rows mapped by `features`; shrink its bias to remove noise."""
    head = probe.descend(curator.map(features), generator, release)
    step = probe.learning_rate * curator.sigma[release] * probe.clip / curator.task.size
    return shrink_head_bias(head, step**2 * probe.steps)  # the variance of each of the head's numbers


def shrink_head_bias(head: Tensor, noise: float) -> Tensor:
    """Return the head (classes, coordinates + 1) with its biases centred and shrunk towards 0.

    The factor is 1 minus the share of the sum of squares that noise of variance `noise` explains, and at least 0 (James
    and Stein 1961).
    """
    import torch

    bias = head[:, -1] - head[:, -1].mean()
    explained = (len(bias) - 1) * noise / float(bias.square().sum().clamp(min=1e-30))
    return torch.cat([head[:, :-1], max(0.0, 1 - explained) * bias.unsqueeze(1)], 1)


def make_neighbourhood_map(spectral: Spectrum, public: Tensor, k: int, generator: torch.Generator) -> Transform:
    """Return the map from rows (c, *shape) to coordinates (c, k or fewer) in the graph of the rows `public`.

    The coordinates of a row have norm 1, or are all zero. Neighbours are found by cosine similarity in min(200, m / 4)
    half-whitened components, where m is the number of public rows. A row has m / 24 neighbours, at least 3 and at most
    20.
    """
    import torch

    count = min(max(3, min(NEIGHBOURS, len(public) // 24)), len(public) - 1)
    directions = min(DIRECTIONS, max(1, len(public) // 4), len(spectral.centre), spectral.examples - 1)
    place = spectral.make_whitening_map(directions, 0.5)
    places = place(public)  # (m, directions)
    coordinates = compute_diffusion_coordinates(
        build_neighbour_graph(places, count), min(k, directions), generator
    ).T.contiguous()

    def average_neighbours(rows: Tensor) -> Tensor:
        cosines = exact_linear(place(rows), places)  # (c, m)
        nearest = torch.where(cosines < cosines.topk(count).values[:, -1:], 0.0, cosines.clamp(min=0))
        return unit_norm(exact_linear(nearest * nearest * nearest, coordinates))

    return lambda rows: torch.cat([average_neighbours(part) for part in torch.split(rows, AT_ONCE)])


def build_neighbour_graph(rows: Tensor, count: int) -> Tensor:
    """Return the symmetric weights (m, m) of a graph that connects each unit row with its `count` nearest rows.

    The weight of a connection is the cube of the cosine, or 0 if that is negative. It counts twice if each of the two
    rows is among the nearest of the other.
    """
    import torch

    cosines = (rows @ rows.T).fill_diagonal_(-1)
    nearest = cosines.topk(count)
    graph = torch.zeros_like(cosines).scatter_(1, nearest.indices, nearest.values.clamp(min=0).pow(3))
    return graph + graph.T


def compute_diffusion_coordinates(graph: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return coordinates (m, count): a basis of a graph's leading non-constant eigenvectors, diffused three times.

    The basis comes from subspace iteration that starts at random vectors. Single eigenvectors are not computed: a graph
    with several components has equal eigenvalues, whose eigenvectors would depend on rounding.
    """
    import torch

    degrees = graph.sum(1)
    scale = degrees.clamp(min=1e-12).rsqrt()
    normal = (graph * scale * scale.unsqueeze(1)).to_sparse()
    constant = torch.nn.functional.normalize(degrees.sqrt(), dim=0).unsqueeze(1)  # whose eigenvalue is 1

    def diffuse(basis: Tensor) -> Tensor:
        step: Tensor = torch.sparse.mm(normal, basis)
        return step - constant @ (constant.T @ basis)

    start = torch.randn(len(graph), count, generator=generator).to(graph.device)
    basis = subspace_iteration(diffuse, start, ROUNDS)
    return diffuse(diffuse(diffuse(basis)))
