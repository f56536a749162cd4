"""Thrift: a head in as many public dimensions, trained as far, as the budget pays for. Nothing needs to be set."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import (
    Budget,
    Curator,
    Learner,
    LinearProbe,
    Predict,
    PrincipalComponents,
    PublicData,
    Release,
    SpecError,
    Standardise,
    Task,
    aimed,
    effective_size,
    exact_linear,
    hookimpl,
    require_setting,
    subspace_iteration,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Transform = Callable[[Tensor], Tensor]

LONGEST = 84.0  # travel of a head
ROWS = 5000  # public rows in the graph, whose size is their square
FEW, LEAST = 40, 0.05  # public rows, and share of a row, below which there is no graph
NEIGHBOURS, DIRECTIONS, ROUNDS = 20, 200, 30  # of a row; they are looked for in; of the iteration
AT_ONCE = 512  # rows that meet all public rows


@dataclass(frozen=True)
class Thrift(Learner):
    """Clipped steps of softmax regression in few public coordinates; how many, which and how far follow n / sigma.

    n / sigma says how many examples there are to the noise of one release with the whole budget (`effective_size`).

    1. Components: the `k` = 1.3 (n / sigma)^0.6 leading ones of public rows whose features are centred and divided by
       the root of their deviation and which are brought to unit norm; component j is divided by its deviation to the
       power `whitening`, and rows are brought to one norm again. Reads public data alone.
    2. The graph of neighbours among public rows, 5,000 at most: as many of its leading eigenvectors as there are
       components, but 200 and a quarter of the rows at most, each times its eigenvalue cubed (three steps of
       diffusion: Coifman and Lafon 2006). A row has the sum of its nearest public rows' coordinates, weighted by the
       cube of their cosine, brought to one norm. Classes that lie beside each other in components come apart here, in
       fewer dimensions than components take, so the graph is for little data; what it gets wrong no private data
       mends, so components are for much. `graph` is the share of a row's norm squared that it has:
       1 / (1 + (n / sigma / (20 classes))^1.5), that is one half where a class has 20 examples to sigma, and none
       where that is below 0.05, there are fewer than 40 public rows, or they are another dataset's: theirs is a
       graph of other things. Reads public data alone.
    3. `steps` full-batch gradients, clipped at `clip` times the largest norm a residual of 1 can give. This is the one
       use of the private data: the harness bounds, noises and accounts for every sum. Residuals shrink as a head
       learns, so a small clip costs little and noise is proportional to it. `learning_rate` times `steps`, the way that
       the head may go, is 7 + k / 6, with k as it is before it meets the limits of the data, and 84 at most: little
       where noise is large, a converged head where not. The bias is one more coordinate of the same deviation as the
       others: it learns the class frequencies, no count is asked for.
    4. `shrink`: the bias is drawn to equal frequencies by the share of it that noise explains (after James and Stein
       1961); the noise of a head is sigma's, whatever the head, and follows from public numbers. Post-processing.
    5. Where the protocol compares by balanced accuracy, the logarithm of the class shares in public predictions is
       taken off the logits (Menon et al. 2021): post-processing. No temperature divides them, as noise makes a head too
       sure, and the short way that it goes too unsure by about as much.

    Constants were chosen on training images alone, some of them held out: CIFAR-10's (efficientnet-lite0: 1,000, 3,000,
    10,000 and 40,000 private ones, five classes, seven of very unequal size), chest X-rays', Fashion-MNIST's and the
    digits' (pixels), at epsilon 0.03 to 8. No test split had a part. What a stage is worth there, in points at epsilon
    0.1 on images held out (3,000 private ones of CIFAR-10; 1,000 digits; 3,700 chest X-rays; eight seeds): the graph
    11, 19, 0; a clip of 0.5 rather than 1 6, 10, 2; `shrink` 0, 1, 0; steps rather than one release 0, -3, 3;
    `whitening` 0.3 rather than 0 or 1 0. A public student of a noisy head (smoothing and distillation), which was
    here before, gained 3, 5, 0, and beside the graph from -5 to 1. Averages over steps gained nothing.
    """

    name: ClassVar[str] = "thrift"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    logits: ClassVar[bool] = True
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "k": (10, 20, 40, 80, 160, 320),
        "whitening": (0.0, 0.3, 0.6),
        "graph": (0.0, 0.5, 1.0),
    }

    k: int | None = None
    graph: float | None = None
    steps: int | None = None
    learning_rate: float | None = None
    clip: float = 0.5
    whitening: float = 0.3
    shrink: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be a projection, a power, a share or a bound."""
        if self.k is not None and self.k < 1:
            raise SpecError(f"Expected k={self.k} >= 1 in learner {self.name!r}: the number of components kept.")
        if self.graph is not None and not 0 <= self.graph <= 1:
            raise SpecError(f"Expected graph={self.graph} in [0, 1] in learner {self.name!r}: a share of each row.")
        if not 0 <= self.whitening <= 1:
            raise SpecError(f"Expected whitening={self.whitening} in [0, 1] in learner {self.name!r}: 1 whitens fully.")
        if not self.clip > 0:
            raise SpecError(f"Expected clip={self.clip} > 0 in learner {self.name!r}: in units of a row's norm.")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return k, graph, steps and learning rate. A component is estimated from two public examples at least."""
        size = effective_size(task, budget)
        k = 1.3 * math.pow(size, 0.6)  # infinite without privacy
        travel = min(7 + k / 6, LONGEST)
        steps = self.steps or 20 + round(travel)
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

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Every step's full-batch gradient: the maps read public data, all else is post-processing."""
        return [Release("gradient", steps=require_setting(self.steps))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train in the public map, then take from the head what is known to be noise."""
        features, probe = self.features(public.x, generator), self._probe()
        head = probe.descend(curator.map(features), generator)  # (classes, coordinates + 1)
        if self.shrink:
            step = require_setting(self.learning_rate) * curator.sigma["gradient"] * probe.clip / curator.task.size
            head = shrink_bias(head, step**2 * require_setting(self.steps))  # variance of each of the head's numbers
        return aimed(lambda x: probe.logits(head, features(x)), curator.task, public)

    def features(self, public: Tensor, generator: torch.Generator) -> Transform:
        """Return the map (c, *shape) -> (c, coordinates), rows of norm sqrt(k) or less."""
        import torch

        spectral, k, graph = spectrum(public, self.name), require_setting(self.k), require_setting(self.graph)
        components = spectral.soften(k, self.whitening)
        if graph == 0:
            return lambda x: components(x) * k**0.5
        rows = public[torch.randperm(len(public), generator=generator)[:ROWS].to(public.device)]
        near = neighbourhood(spectral, rows, k, generator)
        first, second = (k * (1 - graph)) ** 0.5, (k * graph) ** 0.5
        return lambda x: torch.cat([components(x) * first, near(x) * second], 1)

    def _probe(self) -> LinearProbe:
        norm = (require_setting(self.k) + 1) ** 0.5  # of a row, however many coordinates it has, and its bias
        return LinearProbe(require_setting(self.steps), 1.0, require_setting(self.learning_rate), 0.0, self.clip * norm)


@dataclass(frozen=True)
class Spectrum:
    """The public components of rows of features: what every map of this learner is made of."""

    standardise: Standardise
    centre: Tensor  # (d,) float64, of rows of unit norm
    components: PrincipalComponents
    examples: int
    who: str = "thrift"  # reads it, for messages

    def soften(self, k: int, whitening: float) -> Transform:
        """Return the map (c, *shape) -> (c, k) on the leading components, rows of unit norm, or zero.

        Raises:
            SpecError: fewer public examples or features than components.
        """
        features, values = len(self.centre), self.components.values
        most = min(self.examples - 1, features)
        if k > most:
            raise SpecError(
                f"Expected k={k} in 1..{most} in learner {self.who!r}: fewer than the {self.examples} public examples, "
                f"and no more than the {features} features. Add --public-fraction or --public-dataset, or set "
                f"{self.who}:k=..."
            )
        relative = (values[-k:] / values[-1].clamp(min=1e-12)).clamp(min=1e-4)
        directions = (self.components.leading(k) * relative.pow(-whitening / 2)).T  # (k, d)
        weight, shift = directions.float(), (-directions @ self.centre).float()
        standardise = self.standardise
        return lambda rows: unit_norm(exact_linear(unit_norm(standardise(rows)), weight, shift))


def spectrum(x: Tensor, who: str = "thrift") -> Spectrum:
    """Return the components of public features (m, *shape), centred, scaled and brought to unit norm.

    Raises:
        SpecError: fewer than two examples, or features that are not finite.
    """
    flat = x.flatten(1)  # (m, d)
    if len(flat) < 2:
        raise SpecError(
            f"Expected at least 2 public examples in learner {who!r}, got {len(flat)}. Add --public-fraction or "
            "--public-dataset."
        )
    mean, deviation = flat.mean(0), flat.std(0, correction=0)
    if not bool(deviation.isfinite().all()):
        raise SpecError(f"Expected finite public features in learner {who!r}, got some that are not. Check the data.")
    # A feature that hardly varies in public may vary in private: it is not blown up.
    scale = deviation.clamp(min=max(0.1 * float(deviation.mean()), 1e-12)).rsqrt()
    standardise = Standardise(-mean * scale, scale)
    units = unit_norm(standardise(x)).double()
    centre = units.mean(0)
    return Spectrum(standardise, centre, PrincipalComponents.of(units - centre, len(units)), len(units), who)


def shrink_bias(head: Tensor, noise: float) -> Tensor:
    """Return the head (classes, coordinates + 1), its bias shrunk towards equal classes by noise of this variance."""
    import torch

    bias = head[:, -1] - head[:, -1].mean()
    explained = (len(bias) - 1) * noise / float(bias.square().sum().clamp(min=1e-30))
    return torch.cat([head[:, :-1], max(0.0, 1 - explained) * bias.unsqueeze(1)], 1)


def neighbourhood(spectral: Spectrum, public: Tensor, k: int, generator: torch.Generator) -> Transform:
    """Return the map (c, *shape) -> (c, k or fewer) to coordinates in the graph of these public rows.

    Rows of unit norm, or zero. Neighbours are by cosine in min(200, m / 4) half-whitened components, m the number of
    public rows; of m / 24 neighbours there are 3 at least and 20 at most.
    """
    import torch

    count = min(max(3, min(NEIGHBOURS, len(public) // 24)), len(public) - 1)
    directions = min(DIRECTIONS, max(1, len(public) // 4), len(spectral.centre), spectral.examples - 1)
    place = spectral.soften(directions, 0.5)
    places = place(public)  # (m, directions)
    coordinates = diffusion(graph_of(places, count), min(k, directions), generator).T.contiguous()

    def near(rows: Tensor) -> Tensor:
        cosines = exact_linear(place(rows), places)  # (c, m)
        nearest = torch.where(cosines < cosines.topk(count).values[:, -1:], 0.0, cosines.clamp(min=0))
        return unit_norm(exact_linear(nearest * nearest * nearest, coordinates))

    return lambda rows: torch.cat([near(part) for part in torch.split(rows, AT_ONCE)])


def graph_of(places: Tensor, count: int) -> Tensor:
    """Return the weights (m, m) of unit rows' `count` nearest others: the cube of their cosine, the same both ways."""
    import torch

    cosines = (places @ places.T).fill_diagonal_(-1)
    nearest = cosines.topk(count)
    graph = torch.zeros_like(cosines).scatter_(1, nearest.indices, nearest.values.clamp(min=0).pow(3))
    return graph + graph.T


def diffusion(graph: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return coordinates (m, count): a basis of a graph's leading eigenvectors but the constant, diffused three times.

    By subspace iteration from random vectors. No eigenvector is told from another, as a graph in many parts has equal
    eigenvalues: rounding would choose among them.
    """
    import torch

    degrees = graph.sum(1)
    scale = degrees.clamp(min=1e-12).rsqrt()
    normal = (graph * scale * scale.unsqueeze(1)).to_sparse()
    constant = torch.nn.functional.normalize(degrees.sqrt(), dim=0).unsqueeze(1)  # whose eigenvalue is 1

    def diffused(basis: Tensor) -> Tensor:
        step: Tensor = torch.sparse.mm(normal, basis)
        return step - constant @ (constant.T @ basis)

    start = torch.randn(len(graph), count, generator=generator).to(graph.device)
    basis = subspace_iteration(diffused, start, ROUNDS)
    return diffused(diffused(diffused(basis)))


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [Thrift]
