"""Make the tasks that learners are fitted on for their fingerprints. The tasks are equal on every machine.

They are synthetic, drawn by numpy and rounded to a grid: clusters of ten classes in 160 features (600 or 1,280 if the
setting `k` needs as many), with 400 private rows and two public rows per feature, at most 1,300; 200 images; and 200
activations with the small network that follows them. A learner that is made for one dataset is fitted on that dataset.
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

CLASSES, VECTOR_ROWS, IMAGE_ROWS = 10, 400, 200
FEATURE_COUNTS = (160, 600, 1280)
MAX_PUBLIC_ROWS = 1300
TEST_ROWS = 100  # test examples
GRID_STEP = 2.0**-10


@dataclass(frozen=True)
class FixedTask:
    """A task with examples that are the same on every machine."""

    name: str
    task: Task
    private: PrivateRows
    public: PublicData
    test: Tensor  # (LABELLED, *example_shape)


def list_fixed_tasks(learner: Learner, plugins: Registry) -> Iterator[FixedTask]:
    """Yield the fixed tasks to try for a learner: its own task, or else vectors, images and activations."""
    if named := learner.made_for():
        yield load_dataset_task(named, plugins)
        return
    k = getattr(learner, "k", None)
    yield make_vector_task(next((size for size in FEATURE_COUNTS if size > (k or 0)), FEATURE_COUNTS[-1]))
    yield make_image_task()
    yield make_activation_task()


@functools.cache
def make_vector_task(features: int) -> FixedTask:
    """Return a task of ten Gaussian clusters in this many features, with a decaying spectrum."""
    draw = np.random.default_rng([features, 1])
    spectrum = (1 + np.arange(features) / 10) ** -0.6
    mix = draw.standard_normal((features, features)) / features**0.5
    centres = 0.4 * draw.standard_normal((CLASSES, features))

    def draw_examples(count: int) -> tuple[Tensor, Tensor]:
        y = draw.integers(CLASSES, size=count)
        latent = (centres[y] + draw.standard_normal((count, features))) * spectrum
        return _round_to_grid(0.3 + latent @ mix), torch.from_numpy(y)

    return _make_task(
        f"{features} features", (features,), draw_examples, VECTOR_ROWS, min(2 * features, MAX_PUBLIC_ROWS)
    )


@functools.cache
def make_image_task() -> FixedTask:
    """Return a task of 200 noisy images of 3 x 8 x 8 numbers, with a pattern for each class."""
    return _make_grid_task("images", (3, 8, 8), 2, 200, None)


@functools.cache
def make_activation_task() -> FixedTask:
    """Return a task of 200 activations of 8 x 4 x 4 numbers, with the small network that follows them."""
    return _make_grid_task("activations", (8, 4, 4), 3, 300, make_small_tail)


def _make_grid_task(
    name: str, shape: tuple[int, ...], seed: int, public: int, tail: Callable[[], nn.Module] | None
) -> FixedTask:
    draw = np.random.default_rng([8, seed])
    centres = draw.standard_normal((CLASSES, *shape))

    def draw_examples(count: int) -> tuple[Tensor, Tensor]:
        y = draw.integers(CLASSES, size=count)
        values = 0.5 + 0.25 * (centres[y] + 0.5 * draw.standard_normal((count, *shape)))
        return _round_to_grid(values), torch.from_numpy(y)

    return _make_task(name, shape, draw_examples, IMAGE_ROWS, public, tail)


def _round_to_grid(values: np.ndarray) -> Tensor:
    return torch.from_numpy((np.rint(values / GRID_STEP) * GRID_STEP).astype(np.float32))


def _make_task(
    name: str,
    shape: tuple[int, ...],
    examples: Callable[[int], tuple[Tensor, Tensor]],
    rows: int,
    public: int,
    tail: Callable[[], nn.Module] | None = None,
) -> FixedTask:
    (x, y), (public_x, public_y), (test, _) = examples(rows), examples(public), examples(TEST_ROWS)
    task = Task(shape, CLASSES, rows, torch.device("cpu"), public, tail=tail)
    return FixedTask(
        name, task, PrivateRows(x, y, torch.arange(rows)), PublicData(public_x, public_y, public_x.flip(-1)), test
    )


def make_small_tail() -> nn.Module:
    """Return a network of pointwise and depthwise convolutions that maps activations (c, 8, 4, 4) to 320 features."""
    with torch.device("meta"):  # weights are drawn by numpy, and torch's generator is left alone
        layers = OrderedDict(
            first=nn.Conv2d(8, 16, 1), act=nn.Hardswish(), depthwise=nn.Conv2d(16, 16, 3, 2, 1, groups=16),
            last=nn.Conv2d(16, 320, 1), end=nn.Hardswish(), pool=nn.AdaptiveAvgPool2d(1), flat=nn.Flatten(),
        )  # fmt: skip
    network, draw = nn.Sequential(layers), np.random.default_rng(9)
    drawn = {
        name: _round_to_grid(float(parameter[0].numel()) ** -0.5 * draw.standard_normal(tuple(parameter.shape)))
        for name, parameter in network.named_parameters()
    }
    network.load_state_dict(drawn, assign=True)
    return network.eval().requires_grad_(False)


def load_dataset_task(dataset_spec: str, plugins: Registry) -> FixedTask:
    """Return the task of the dataset that a learner is made for, with the examples of seed 0."""
    component = Component.parse(dataset_spec)
    dataset = plugins.build("dataset", component.name, component.options)
    splits = dataset.drawn(0).load()
    (x, y), public, (test, _) = (
        _get_feature_tensors(splits.train),
        _get_feature_tensors(splits.public),
        _get_feature_tensors(splits.test),
    )
    task = Task(tuple(x.shape[1:]), len(dataset.classes), len(y), torch.device("cpu"), len(public[0]))
    return FixedTask(dataset_spec, task, PrivateRows(x, y, torch.arange(len(y))), PublicData(*public), test[:TEST_ROWS])


def _get_feature_tensors(split: Split | None) -> tuple[Tensor, Tensor]:
    if split is None or not isinstance(split.images, Features):
        raise DataError("A learner is made for a dataset of features with public examples of its own, like m=300.")
    return torch.from_numpy(split.images.x), torch.from_numpy(split.labels)
