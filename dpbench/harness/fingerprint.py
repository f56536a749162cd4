"""What a learner does on a fixed task, as numbers: by them a later version is told that computes the same.

The tasks are synthetic, drawn by numpy and rounded to a grid, so that every machine has the same: clusters of ten
classes in 160 features (600 or 1,280 where the setting `k` needs as many), with 400 private rows and twice as many
public rows as features, but at most 1,300; 200 images; 200 activations before a small network; and for learners of
theorems the dataset that they are made for. A fit has the settings of a result, and sigma is calibrated to four digits, so that an
accountant's last digits change nothing.

Covered: what a fit computes and a predictor answers at these sizes, and what is chosen where settings are left open.
Not covered: code that only another shape of data reaches, such as a learner for two classes.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.api import Budget, Choice, Features, Learner, Planned, PublicData, Release, Split, Task
from dpbench.errors import DpbenchError
from dpbench.harness.fitting import fit_isolated, predict_isolated
from dpbench.harness.roles import select_public
from dpbench.privacy.binding import bind
from dpbench.privacy.core.accounting.calibration import calibrate
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.forms.contributions import Joined, RankOne
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import handle_of
from dpbench.records.fingerprints import Behaviour, FitPrint
from dpbench.records.protocol import Component
from dpbench.registry import Registry

EPSILONS = (2.0, math.inf)
DELTA = 1e-5
CLASSES, ROWS, FEW = 10, 400, 200
FEATURES = (160, 600, 1280)
MOST_PUBLIC = 1300
KEPT, LABELLED = 12, 100  # test examples whose scores are kept, and whose labels are
IDENTITY = "a fingerprint"  # what noise is derived from, beside the seed
GRID = 2.0**-10
DIGITS = 4  # of sigma
CHOICES: Mapping[str, tuple[tuple[int, ...], int, int, int]] = {
    "600 features": ((600,), 10, 1_500, 600),
    "1280 features": ((1280,), 2, 40_000, 4_444),
    "64 features": ((64,), 43, 300, 33),
}
"""Tasks for which open settings are chosen: shape, classes, private and public examples. Nothing is fitted there."""


@dataclass(frozen=True)
class FixedTask:
    """Examples that are the same on every machine."""

    name: str
    task: Task
    private: PrivateRows
    public: PublicData
    test: Tensor  # (LABELLED, *example_shape)


def take_behaviour(learner: Learner, plugins: Registry) -> Behaviour:
    """Fit a learner, whose settings are all numbers, on the first fixed task that it can plan for, at each epsilon.

    An epsilon that it refuses is kept as its refusal. A learner that refuses every one is not covered.
    """
    refusals: dict[str, dict[str, str]] = {}
    for fixed in _tasks_for(learner, plugins):
        fits = {f"{epsilon:g}": _fit_or_refusal(learner, fixed, epsilon) for epsilon in EPSILONS}
        if any(isinstance(fit, FitPrint) for fit in fits.values()):
            return Behaviour(task=fixed.name, fits=fits)
        refusals[fixed.name] = {epsilon: str(fit) for epsilon, fit in fits.items()}
    name, said = next(iter(refusals.items()))
    return Behaviour(task="", fits={}, not_covered=f"{name}: {next(iter(said.values()))}")


def take_choices(learner: Learner, plugins: Registry) -> dict[str, Any]:
    """Return what a learner chooses for settings that are left open, by task and epsilon; nothing is fitted."""
    asked = {field.name for field in dataclasses.fields(learner) if getattr(learner, field.name) is None}
    device, tail = torch.device("cpu"), activations().task.tail
    tasks = {
        name: Task(shape, classes, size, device, public) for name, (shape, classes, size, public) in CHOICES.items()
    } | {"activations": dataclasses.replace(activations().task, tail=tail)}
    found: dict[str, Any] = {}
    for name, task in tasks.items():
        for epsilon in (0.05, *EPSILONS):
            try:
                settled = learner.settle(task, Budget(epsilon, DELTA))
                said: Any = {field: getattr(settled, field) for field in sorted(asked)}
            except DpbenchError:
                said = "refused"
            found[f"{name}, {epsilon:g}"] = said
    return found


def _fit_or_refusal(learner: Learner, fixed: FixedTask, epsilon: float) -> FitPrint | str:
    try:
        return fit_fixed(learner, fixed, epsilon)
    except DpbenchError as error:
        return str(error)


def fit_fixed(learner: Learner, fixed: FixedTask, epsilon: float) -> FitPrint:
    """Fit a learner on a fixed task, through a curator as any other, and return its scores.

    Raises:
        DpbenchError: the learner cannot plan for the task, fails, or asks for what it did not plan.
    """
    budget, who = Budget(epsilon, DELTA), f"learner {learner.name!r}"
    learner = learner.settle(fixed.task, budget)
    plan = check_plan(learner.plan(fixed.task, budget), who)
    randomness = Randomness.research(0, IDENTITY)
    curator = bind(fixed.private, fixed.task, plan, _sigma(plan, budget), randomness)
    public = select_public(fixed.public, learner)
    predict = fit_isolated(
        learner, who, lambda own: own.fit(handle_of(curator), _copy(public), randomness.initialisation), curator.guard
    )
    return FitPrint.of(predict_isolated(learner, who, predict, fixed.test, fixed.task), KEPT)


def _sigma(plan: tuple[Planned, ...], budget: Budget) -> float:
    return float(f"{calibrate(plan, budget, 'rdp'):.{DIGITS}g}")  # rdp: the quickest


def _copy(public: PublicData) -> PublicData:
    return PublicData(public.x.clone(), None if public.y is None else public.y.clone())


def _tasks_for(learner: Learner, plugins: Registry) -> Iterator[FixedTask]:
    """Yield the tasks that a learner may be fitted on: its own, or those of vectors, images and activations."""
    if named := learner.made_for():
        yield made_for(named, plugins)
        return
    k = getattr(learner, "k", None)
    yield vectors(next((size for size in FEATURES if size > (k or 0)), FEATURES[-1]))
    yield images()
    yield activations()


@functools.cache
def vectors(features: int) -> FixedTask:
    """Return ten clusters in many features, whose spectrum falls, with up to twice as many public rows."""
    draw = np.random.default_rng([features, 1])
    spectrum = (1 + np.arange(features) / 10) ** -0.6
    mix = draw.standard_normal((features, features)) / features**0.5
    centres = 0.4 * draw.standard_normal((CLASSES, features))

    def examples(count: int) -> tuple[Tensor, Tensor]:
        y = draw.integers(CLASSES, size=count)
        latent = (centres[y] + draw.standard_normal((count, features))) * spectrum
        return _rounded(0.3 + latent @ mix), torch.from_numpy(y)

    return _fixed(f"{features} features", (features,), examples, ROWS, min(2 * features, MOST_PUBLIC))


@functools.cache
def images() -> FixedTask:
    """Return 200 images of three channels and 8 x 8 pixels: a pattern for each class, and noise."""
    return _grids("images", (3, 8, 8), 2, 200, None)


@functools.cache
def activations() -> FixedTask:
    """Return 200 activations of eight channels, 4 x 4, and the small network behind them."""
    return _grids("activations", (8, 4, 4), 3, 300, small_tail)


def _grids(
    name: str, shape: tuple[int, ...], seed: int, public: int, tail: Callable[[], nn.Module] | None
) -> FixedTask:
    draw = np.random.default_rng([8, seed])
    centres = draw.standard_normal((CLASSES, *shape))

    def examples(count: int) -> tuple[Tensor, Tensor]:
        y = draw.integers(CLASSES, size=count)
        values = 0.5 + 0.25 * (centres[y] + 0.5 * draw.standard_normal((count, *shape)))
        return _rounded(values), torch.from_numpy(y)

    return _fixed(name, shape, examples, FEW, public, tail)


def _rounded(values: np.ndarray) -> Tensor:
    return torch.from_numpy((np.rint(values / GRID) * GRID).astype(np.float32))


def _fixed(
    name: str,
    shape: tuple[int, ...],
    examples: Callable[[int], tuple[Tensor, Tensor]],
    rows: int,
    public: int,
    tail: Callable[[], nn.Module] | None = None,
) -> FixedTask:
    (x, y), (public_x, public_y), (test, _) = examples(rows), examples(public), examples(LABELLED)
    task = Task(shape, CLASSES, rows, torch.device("cpu"), public, tail=tail)
    return FixedTask(name, task, PrivateRows(x, y, torch.arange(rows)), PublicData(public_x, public_y), test)


def small_tail() -> nn.Module:
    """Return a network behind activations (c, 8, 4, 4) with every kind of layer; it pools to 320 features."""
    with torch.device("meta"):  # weights are drawn by numpy, and torch's generator is left alone
        layers = OrderedDict(
            first=nn.Conv2d(8, 16, 1), act=nn.Hardswish(), depthwise=nn.Conv2d(16, 16, 3, 2, 1, groups=16),
            last=nn.Conv2d(16, 320, 1), end=nn.Hardswish(), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(),
        )  # fmt: skip
    network, draw = nn.Sequential(layers), np.random.default_rng(9)
    drawn = {
        name: _rounded(float(parameter[0].numel()) ** -0.5 * draw.standard_normal(tuple(parameter.shape)))
        for name, parameter in network.named_parameters()
    }
    network.load_state_dict(drawn, assign=True)
    return network.eval().requires_grad_(False)


@functools.cache
def made_for(named: str, plugins: Registry) -> FixedTask:
    """Return the first draw of the dataset that a learner of a theorem is made for."""
    component = Component.parse(named)
    dataset = plugins.build("dataset", component.name, component.options)
    splits = dataset.drawn(0).load()
    (x, y), public, (test, _) = _arrays(splits.train), _arrays(splits.public), _arrays(splits.test)
    task = Task(tuple(x.shape[1:]), len(dataset.classes), len(y), torch.device("cpu"), len(public[0]))
    return FixedTask(named, task, PrivateRows(x, y, torch.arange(len(y))), PublicData(*public), test[:LABELLED])


def _arrays(split: Split | None) -> tuple[Tensor, Tensor]:
    if split is None or not isinstance(split.images, Features):
        raise DpbenchError("A learner is made for a dataset of features with public examples of its own, like m=300.")
    return torch.from_numpy(split.images.x), torch.from_numpy(split.labels)


def core_bits() -> str:
    """Return a digest of what the core answers to fixed questions: sums, choices and their noise, to the last bit.

    Rows are small multiples of 1/8, so that nothing that a machine computes is rounded before it is clipped.
    """
    draw = np.random.default_rng(4)
    x = torch.from_numpy(draw.integers(-8, 9, (64, 12)) / 8).float()
    y = torch.from_numpy(draw.integers(4, size=64))
    task = Task((12,), 4, 64, torch.device("cpu"))
    plan = check_plan(
        [
            Release("whole", 2), Release("sampled", 3, sample_rate=0.3), Release("loud", relative_noise=2.5),
            Choice("choice", candidates=4), Choice("parts", candidates=3), Release("votes", 1),
        ],
        "a fingerprint",
    )  # fmt: skip
    found = hashlib.sha256()
    for sigma in (0.0, 1.5):
        curator = handle_of(bind(PrivateRows(x, y, torch.arange(64)), task, plan, sigma, Randomness.research(1, IDENTITY)))
        answers = [
            curator.noisy_sum(lambda chunk: chunk.x, release="whole", clip=1.25),
            curator.noisy_sum(lambda chunk: RankOne(chunk.x[:, :3], chunk.x), release="whole", clip=0.5),
            *(curator.noisy_sum(lambda chunk: chunk.x * 2, release="sampled", clip=100.0) for _ in range(2)),
            curator.noisy_sum(lambda chunk: Joined([chunk.x, chunk.x]), release="sampled", clip=1.0),
            *curator.noisy_sum(lambda chunk: Blocks([chunk.x, chunk.x[:, :2]]), release="loud", clip=(1.0, 0.5)),
            torch.tensor(curator.noisy_choice(lambda chunk: chunk.x[:, :4].clamp(0, 1), release="choice")),
            curator.noisy_choices(lambda chunk: chunk.y * 3 + chunk.seeds.remainder(3), release="parts"),
        ]
        for answer in answers:
            found.update(answer.numpy().tobytes())
    return found.hexdigest()[:16]
