"""The tasks that learners are fitted on for their fingerprints, equal on every machine.

They are synthetic, drawn by numpy and rounded to a grid: clusters of ten classes in 160 features (600 or 1,280 where
the setting `k` needs as many), with 400 private rows and twice as many public rows as features, but at most 1,300; 200
images; 200 activations before a small network; and for learners of theorems the dataset that they are made for.
"""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.api import Features, Learner, PublicData, Split, Task
from dpbench.errors import DataError
from dpbench.privacy.core.rows import PrivateRows
from dpbench.records.protocol import Component
from dpbench.registry import Registry

CLASSES, ROWS, FEW = 10, 400, 200
FEATURES = (160, 600, 1280)
MOST_PUBLIC = 1300
LABELLED = 100  # test examples
GRID = 2.0**-10


@dataclass(frozen=True)
class FixedTask:
    """Examples that are the same on every machine."""

    name: str
    task: Task
    private: PrivateRows
    public: PublicData
    test: Tensor  # (LABELLED, *example_shape)


def tasks_for(learner: Learner, plugins: Registry) -> Iterator[FixedTask]:
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
        raise DataError("A learner is made for a dataset of features with public examples of its own, like m=300.")
    return torch.from_numpy(split.images.x), torch.from_numpy(split.labels)
