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
    PublicData,
    Release,
    SpecError,
    Standardise,
    Task,
    effective_size,
    exact_linear,
    hookimpl,
    settled,
    unit_norm,
)

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    Transform = Callable[[Tensor], Tensor]

LONGEST = 84.0  # travel of a head
NOISY = 0.2  # share of noise in the scores from which on a student gains
ROWS = 5000  # public rows in the graph, whose size is their square
NEIGHBOURS, ROUNDS = 20, 12
SHARPNESS, RIDGE, DIMENSIONS = 2.5, 1e-4, 400  # of the student


@dataclass(frozen=True)
class Thrift(Learner):
    """Clipped steps of softmax regression in k publicly softened dimensions, where k and the way follow n / sigma.

    n / sigma says how many examples there are to the noise of one release with the whole budget (`effective_size`).

    1. `k`: 1.3 (n / sigma)^0.6 leading public components of rows whose features are centred and divided by the root of
       their deviation and which are brought to unit norm; component j is divided by its deviation to the power
       `whitening`, and rows are brought to one norm again. Reads public data alone.
    2. `steps` full-batch gradients, clipped at `clip` times the largest norm a residual of 1 can give. This is the one
       use of the private data: the harness bounds, noises and accounts for every sum. Residuals shrink as a head
       learns, so a small clip costs little and noise is proportional to it. `learning_rate` times `steps`, the way that
       the head may go, is 7 + k / 6 before k meets its limits: little where noise is large, a converged head where not.
       The bias is one more coordinate of the same deviation as the others: it learns the class frequencies, no count is
       asked for.
    3. `shrink`: the bias is drawn to equal frequencies by the share of it that noise explains (James and Stein 1961);
       what noise does to a head follows from public numbers. Post-processing.
    4. `student`: where more than a fifth of the head's energy is noise, its scores of public rows are smoothed over
       their 20 nearest neighbours, and a softmax regression in 400 dimensions is fitted to them: errors that neighbours
       do not share average out. Post-processing with unlabelled public data.

    Constants were chosen on CIFAR-10's training images (efficientnet-lite0: 1,000, 3,000 and 10,000 private ones, two
    and five of the classes, all in the ratio 1 to 20), chest X-rays' and the pixels of Fashion-MNIST's and the digits',
    all training images, at epsilon 0.03 to 8. No test split had a part. What a stage is worth there, in points at
    epsilon 0.1 on images held out (3,000 private ones of CIFAR-10; 1,000 digits; 4,000 chest X-rays; three seeds, when
    heads were averages over steps): the student 3, 5, 0; `shrink` 1, 4, 0; a clip of 0.5 rather than 1 3, 6, 0;
    `whitening` 0.3 rather than 0 or 1 0 to 1, -1 to 3, 1 to -1; steps rather than one release 3, -, 6. Averages over
    the last half of the steps, and shrinking components by their estimated energy, gained nothing and went.
    """

    name: ClassVar[str] = "thrift"
    public: ClassVar[Literal["none", "unlabelled", "labelled"]] = "unlabelled"
    logits: ClassVar[bool] = True
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "k": (10, 20, 40, 80, 160, 320),
        "whitening": (0.0, 0.3, 0.6),
    }

    k: int | None = None
    steps: int | None = None
    learning_rate: float | None = None
    clip: float = 0.5
    whitening: float = 0.3
    shrink: bool = True
    student: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot be a projection, a power or a bound."""
        if self.k is not None and self.k < 1:
            raise SpecError(f"Expected k={self.k} >= 1 in learner 'thrift': the number of components kept.")
        if not 0 <= self.whitening <= 1:
            raise SpecError(f"Expected whitening={self.whitening} in [0, 1] in learner 'thrift': 1 whitens fully.")
        if not self.clip > 0:
            raise SpecError(f"Expected clip={self.clip} > 0 in learner 'thrift': in units of a row's norm.")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return k, steps and learning rate. A component is estimated from two public examples at least."""
        k = 1.3 * math.pow(effective_size(task, budget), 0.6)  # infinite without privacy
        travel = min(7 + k / 6, LONGEST)
        steps = self.steps or 20 + round(travel)
        most = max(1, min(task.public // 2, math.prod(task.example_shape)))
        components = min(max(2, round(min(k, most))), most)
        return {"k": components, "steps": steps, "learning_rate": float(f"{travel / steps:.3g}")}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Every step's full-batch gradient: the maps read public data, all else is post-processing."""
        return [Release("gradient", steps=settled(self.steps))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train in the public map, then take from the head what is known to be noise."""
        import torch

        components = spectrum(public.x)
        features = components.softened(settled(self.k), self.whitening)
        probe = self._probe()
        head = probe.descend(curator.map(features), generator)  # (classes, k + 1)
        step = settled(self.learning_rate) * curator.sigma["gradient"] * probe.clip / curator.task.size
        noise = step**2 * settled(self.steps)  # variance of each of the head's numbers
        if self.shrink:
            head = even(head, noise)

        def predict(x: Tensor) -> Tensor:
            return probe.logits(head, features(x))

        share = noise_share(head, features(public.x), noise)
        if self.student and NOISY < share < float("inf"):
            x = public.x[torch.randperm(len(public.x), generator=generator)[:ROWS].to(public.x.device)]
            return tutored(predict, x, components, pull=min(0.3 + 0.6 * share, 0.7))
        return predict

    def _probe(self) -> LinearProbe:
        norm = (settled(self.k) + 1) ** 0.5  # of a row and its bias
        return LinearProbe(settled(self.steps), 1.0, settled(self.learning_rate), 0.0, self.clip * norm)


@dataclass(frozen=True)
class Spectrum:
    """The public components of rows of features: what every map of this learner is made of."""

    standardise: Standardise
    centre: Tensor  # (d,) float64, of rows of unit norm
    values: Tensor  # (d,) float64, ascending
    vectors: Tensor  # (d, d) float64
    examples: int

    def softened(self, k: int, whitening: float) -> Transform:
        """Return the map (c, *shape) -> (c, k) on the leading components, rows of norm sqrt(k).

        Raises:
            SpecError: fewer public examples or features than components.
        """
        most = min(self.examples - 1, len(self.values))
        if k > most:
            raise SpecError(
                f"Expected k={k} in 1..{most} in learner 'thrift': fewer than the {self.examples} public examples, and "
                f"no more than the {len(self.values)} features. Add --public-fraction or --public-dataset, or set "
                "thrift:k=..."
            )
        relative = (self.values[-k:] / self.values[-1].clamp(min=1e-12)).clamp(min=1e-4)
        directions = (self.vectors[:, -k:] * relative.pow(-whitening / 2)).T  # (k, d)
        weight, shift = directions.float(), (-directions @ self.centre).float()
        standardise = self.standardise
        return lambda rows: unit_norm(exact_linear(unit_norm(standardise(rows)), weight, shift)) * k**0.5


def spectrum(x: Tensor) -> Spectrum:
    """Return the components of public features (m, *shape), centred, scaled and brought to unit norm.

    Raises:
        SpecError: fewer than two examples, or features that are not finite.
    """
    import torch

    flat = x.flatten(1)  # (m, d)
    if len(flat) < 2:
        raise SpecError(
            f"Expected at least 2 public examples in learner 'thrift', got {len(flat)}. Add --public-fraction or "
            "--public-dataset."
        )
    mean, deviation = flat.mean(0), flat.std(0, correction=0)
    if not bool(deviation.isfinite().all()):
        raise SpecError("Expected finite public features in learner 'thrift', got some that are not. Check the data.")
    # A feature that hardly varies in public may vary in private: it is not blown up.
    scale = deviation.clamp(min=max(0.1 * float(deviation.mean()), 1e-12)).rsqrt()
    standardise = Standardise(-mean * scale, scale)
    units = unit_norm(standardise(x)).double()
    centre = units.mean(0)
    values, vectors = torch.linalg.eigh((units - centre).T @ (units - centre) / len(units))
    return Spectrum(standardise, centre, values, vectors, len(units))


def even(head: Tensor, noise: float) -> Tensor:
    """Return the head (classes, k + 1) with its bias shrunk towards equal classes by noise of this variance."""
    import torch

    bias = head[:, -1] - head[:, -1].mean()
    explained = (len(bias) - 1) * noise / float(bias.square().sum().clamp(min=1e-30))
    return torch.cat([head[:, :-1], max(0.0, 1 - explained) * bias.unsqueeze(1)], 1)


def noise_share(head: Tensor, x: Tensor, noise: float) -> float:
    """Return which part of the scores' energy on public rows (m, k) noise of this variance in the head explains."""
    weight, energy = head[:, :-1] - head[:, :-1].mean(0), x.square().mean(0)
    total = float((weight.square().sum(0) * energy).sum())
    return noise * (len(head) - 1) * float(energy.sum()) / total if total > 0 else 0.0


def tutored(predict: Predict, x: Tensor, components: Spectrum, pull: float) -> Predict:
    """Return softmax regression on the head's scores of public rows `x`, each drawn to its neighbours' by `pull`."""
    import torch

    most = min(components.examples - 1, len(components.values))
    nearby = neighbourhoods(components.softened(min(DIMENSIONS // 2, most), 0.5)(x))
    scores = predict(x)
    scores = smooth = scores - scores.mean(1, keepdim=True)
    for _ in range(ROUNDS):
        smooth = pull * (nearby @ smooth) + (1 - pull) * scores
    features = components.softened(min(DIMENSIONS, most), 0.0)
    head = fitted(features(x), (SHARPNESS * smooth / smooth.std().clamp(min=1e-12)).softmax(1))
    return lambda rows: torch.addmm(head[:, -1], features(rows), head[:, :-1].T)


def neighbourhoods(x: Tensor) -> Tensor:
    """Return the normalised graph (m, m) of each row's nearest others, weighted by the cube of their cosine."""
    import torch

    units = unit_norm(x)
    cosines = (units @ units.T).fill_diagonal_(-1)
    nearest = cosines.topk(min(NEIGHBOURS, len(x) - 1))
    graph = torch.zeros_like(cosines).scatter_(1, nearest.indices, nearest.values.clamp(min=0).pow(3))
    graph = graph + graph.T
    degrees = graph.sum(1).clamp(min=1e-12).rsqrt()
    return graph * degrees * degrees.unsqueeze(1)


def fitted(x: Tensor, targets: Tensor) -> Tensor:
    """Return the head (classes, k + 1) of softmax regression on rows (m, k) with soft targets, by L-BFGS."""
    import torch

    inputs = torch.nn.functional.pad(x, (0, 1), value=1.0)
    with torch.enable_grad():
        head = torch.zeros(targets.shape[1], inputs.shape[1], device=x.device, requires_grad=True)
        optimiser = torch.optim.LBFGS([head], max_iter=30, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            value = -(targets * (inputs @ head.T).log_softmax(1)).sum(1).mean() + RIDGE * head[:, :-1].square().sum()
            value.backward()  # type: ignore[no-untyped-call]
            return value

        optimiser.step(loss)  # type: ignore[no-untyped-call]
    return head.detach()


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learners of this module."""
    return [Thrift]
