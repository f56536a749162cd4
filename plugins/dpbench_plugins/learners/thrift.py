"""Thrift: private softmax regression in a few public coordinates. You do not need to choose any settings."""

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
    """Private softmax regression in a few public coordinates; the settings follow from data size and budget.

    The ratio n / sigma compares the number of private examples with the noise of one release that spends the whole
    budget (`effective_size`).

    1. Principal components. Each public feature is centred and divided by the square root of its standard deviation,
       and each row is scaled to unit norm. The learner keeps the leading `k` = 1.3 (n / sigma)^0.6 principal
       components, divides component j by its standard deviation to the power `whitening`, and scales the rows to unit
       norm again. This step reads public data only.
    2. Neighbourhood graph. At most 5,000 public rows are connected to their nearest neighbours. The graph's leading
       eigenvectors give further coordinates: as many as there are principal components, but at most 200 and at most a
       quarter of the number of rows. Each eigenvector is multiplied by the cube of its eigenvalue, which amounts to
       three steps of diffusion (Coifman and Lafon 2006). The graph coordinates of a row are the sum of the coordinates
       of its nearest public rows, weighted by the cube of their cosine similarity and scaled to unit norm. The graph
       separates classes that lie close together in the principal components, and it needs fewer dimensions, so it helps
       when there is little private data. Training on private data cannot correct the errors of the graph, so the
       principal components are better when there is a lot. `graph` is the share of a row's squared norm that the graph
       coordinates have. By default it is 1 / (1 + (n / sigma / (20 classes))^1.5), which is one half when n / sigma is
       20 per class. The learner does not use the graph when this share is below 0.05, when there are fewer than 40
       public rows, or when the public rows come from another dataset, whose neighbourhoods say little about the private
       data. This step reads public data only.
    3. Training. The learner takes `steps` full-batch gradient steps and clips each example's gradient. The clip is
       `clip` times the largest norm that a gradient can have when its residual has norm 1. Only this step uses private
       data; the harness bounds every sum, adds noise to it and accounts for it. Residuals shrink as the head learns, so
       a small clip costs little accuracy, and noise is proportional to the clip. `learning_rate` times `steps` limits
       how far the head can move. By default it is 7 + k / 6 and at most 84, with k as it is before the number of public
       examples and features limits it: a short distance when there is much noise, and enough to converge when there is
       little. The bias is one more coordinate with the same deviation as the others. It learns the class frequencies,
       so the learner does not ask for class counts.
    4. Shrinkage. With `shrink`, the learner shrinks the bias towards equal class frequencies by the share of the bias
       that noise explains (after James and Stein 1961). The amount of noise depends on sigma and other public numbers,
       not on the head, so this step is post-processing.
    5. Balanced accuracy. If the protocol compares balanced accuracy, the learner predicts on the public data and
       subtracts the logarithm of each class's share in these predictions from the logits (Menon et al. 2021). This step
       is post-processing. The learner does not divide the logits by a temperature: noise makes a head overconfident,
       the short training makes it underconfident, and the two effects are about equal.

    The constants were chosen on training images only, some of them held out for validation: CIFAR-10
    (efficientnet-lite0; with 1,000, 3,000, 10,000 and 40,000 private images, with five classes, and with seven classes
    of very unequal size), chest X-rays, Fashion-MNIST and the digits (pixels), at epsilon 0.03 to 8. No test split was
    used.

    Ablations at epsilon 0.1 measure what each part adds, in percentage points on held-out images, for CIFAR-10 (3,000
    private images), the digits (1,000) and the chest X-rays (3,700), in this order, with eight seeds. The graph adds
    11, 19 and 0 points; a clip of 0.5 instead of 1 adds 6, 10 and 2; `shrink` adds 0, 1 and 0; several steps instead of
    one release add 0, -3 and 3; a `whitening` of 0.3 instead of 0 or 1 adds 0. An earlier version fitted a student to
    the noisy head's predictions on public images (smoothing and distillation). This student added 3, 5 and 0 points on
    its own, and between -5 and 1 when it was combined with the graph. Averaging over steps added nothing.
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
        """Check that the settings describe a projection, a power, a share and a bound."""
        if self.k is not None and self.k < 1:
            raise SpecError(f"Expected k={self.k} >= 1 in learner {self.name!r}: the number of components kept.")
        if self.graph is not None and not 0 <= self.graph <= 1:
            raise SpecError(f"Expected graph={self.graph} in [0, 1] in learner {self.name!r}: a share of each row.")
        if not 0 <= self.whitening <= 1:
            raise SpecError(f"Expected whitening={self.whitening} in [0, 1] in learner {self.name!r}: 1 whitens fully.")
        if not self.clip > 0:
            raise SpecError(f"Expected clip={self.clip} > 0 in learner {self.name!r}: in units of a row's norm.")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return k, graph, steps and learning rate. There are at least two public examples for each component."""
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
        """Plan one full-batch gradient per step; everything else reads public data or is post-processing."""
        return [Release("gradient", steps=require_setting(self.steps))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train a head in the public coordinates, then shrink its bias by what noise explains."""
        features, probe = self.features(public.x, generator), self._probe()
        head = probe.descend(curator.map(features), generator)  # (classes, coordinates + 1)
        if self.shrink:
            step = require_setting(self.learning_rate) * curator.sigma["gradient"] * probe.clip / curator.task.size
            head = shrink_bias(head, step**2 * require_setting(self.steps))  # variance of each of the head's numbers
        return aimed(lambda x: probe.logits(head, features(x)), curator.task, public)

    def features(self, public: Tensor, generator: torch.Generator) -> Transform:
        """Return the map (c, *shape) -> (c, coordinates), whose rows have norm sqrt(k) or less."""
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
    """The principal components of public rows, from which all maps of this learner are built."""

    standardise: Standardise
    centre: Tensor  # (d,) float64, of rows of unit norm
    components: PrincipalComponents
    examples: int
    who: str = "thrift"  # reads it, for messages

    def soften(self, k: int, whitening: float) -> Transform:
        """Return the map (c, *shape) -> (c, k) on the leading components; its rows have unit norm or are zero.

        Raises:
            SpecError: there are fewer public examples or features than components.
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
        SpecError: there are fewer than two examples, or some features are not finite.
    """
    flat = x.flatten(1)  # (m, d)
    if len(flat) < 2:
        raise SpecError(
            f"Expected at least 2 public examples in learner {who!r}, got {len(flat)}. Add --public-fraction or "
            "--public-dataset."
        )
    mean, deviation = flat.mean(0), flat.std(0, correction=0)
    if not bool(deviation.isfinite().all()):
        raise SpecError(f"Some public features in learner {who!r} are not finite. Check the data.")
    # A feature that hardly varies in public may vary in private: it is not blown up.
    scale = deviation.clamp(min=max(0.1 * float(deviation.mean()), 1e-12)).rsqrt()
    standardise = Standardise(-mean * scale, scale)
    units = unit_norm(standardise(x)).double()
    centre = units.mean(0)
    return Spectrum(standardise, centre, PrincipalComponents.of(units - centre, len(units)), len(units), who)


def shrink_bias(head: Tensor, noise: float) -> Tensor:
    """Return the head (classes, coordinates + 1) with its bias shrunk to remove noise of this variance."""
    import torch

    bias = head[:, -1] - head[:, -1].mean()
    explained = (len(bias) - 1) * noise / float(bias.square().sum().clamp(min=1e-30))
    return torch.cat([head[:, :-1], max(0.0, 1 - explained) * bias.unsqueeze(1)], 1)


def neighbourhood(spectral: Spectrum, public: Tensor, k: int, generator: torch.Generator) -> Transform:
    """Return the map (c, *shape) -> (c, k or fewer) to coordinates in the graph of these public rows.

    Rows have unit norm or are zero. Neighbours are found by cosine similarity in min(200, m / 4) half-whitened
    components, where m is the number of public rows. A row has m / 24 neighbours, at least 3 and at most 20.
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
    """Return symmetric weights (m, m) that connect unit rows to their `count` nearest rows: cosines cubed."""
    import torch

    cosines = (places @ places.T).fill_diagonal_(-1)
    nearest = cosines.topk(count)
    graph = torch.zeros_like(cosines).scatter_(1, nearest.indices, nearest.values.clamp(min=0).pow(3))
    return graph + graph.T


def diffusion(graph: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return coordinates (m, count): a basis of a graph's leading non-constant eigenvectors, diffused three times.

    The basis comes from subspace iteration that starts at random vectors. Single eigenvectors are not computed: a graph
    of many parts has equal eigenvalues, and rounding would decide which eigenvector is which.
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
