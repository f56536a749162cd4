"""Small tasks with data, on which the laws test learners, and the base class of the suites for learners."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from dpbench.api import Budget, Curator, Features, Learner, Planned, Predict, PublicData, Split, Splits, Task
from dpbench.errors import LawBroken
from dpbench.harness.leftovers import LeftoverStateSearch
from dpbench.harness.roles import select_declared_public_data
from dpbench.harness.scoring import predict_all
from dpbench.privacy.binding import bind
from dpbench.privacy.core.accounting.calibration import calibrate
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from dpbench.records.protocol import Component
from dpbench.registry import load
from dpbench.testing.laws import Laws, expect

LARGE_EPSILON, TINY_EPSILON = 20.0, 1e-3  # epsilon at which a learner must, and must not, learn 1,500 examples
PRIVATE_SIZE, PUBLIC_SIZE, DELTA = 1500, 300, 1e-5  # examples of each split, and the delta of all budgets
HOPELESS_NOISE = 1e7  # a noise multiplier above what epsilon 0.001 needs, for any plan of up to 10^7 steps
NOISE_KEY = "a law"  # what noise in these worlds is derived from, beside a seed
FIT_COUNT, CHANCE_MARGIN = 5, 0.2  # so many fits average to within it of chance unless something leaks

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class TaskData:
    """A small task with its data: ten separable clusters, or a draw of the dataset that the learner is made for."""

    x: Tensor  # (n, *example_shape)
    y: Tensor  # (n,)
    public: PublicData
    test_x: Tensor
    test_y: np.ndarray
    classes: int = 10

    @property
    def rows(self) -> PrivateRows:
        """The private rows, as the curator holds them."""
        return PrivateRows(self.x, self.y, torch.arange(len(self.y)))


def replace_second_half(data: TaskData) -> TaskData:
    """Return a copy in which the second half of the private rows differs in norm, direction and labels."""
    half = len(data.y) // 2
    x, y = data.x.clone(), data.y.clone()
    x[half:] = 3 * x[half:].flip(0).roll(1, -1)
    y[half:] = (y[half:] % 3) * 2 % data.classes
    return dataclasses.replace(data, x=x, y=y)


def _split_tensors(split: Split | None) -> tuple[Tensor, Tensor]:
    if split is None or not isinstance(split.images, Features):
        raise LawBroken("A learner is made for a dataset of features with public examples of its own, like m=300.")
    return torch.from_numpy(split.images.x), torch.from_numpy(split.labels)


class LearnerSuite(Laws):
    """Base class of the suites for learners: makes task data, fits the learner, and caches fits that laws share."""

    learner: ClassVar[Learner]
    example_shape: ClassVar[tuple[int, ...]] = (64,)
    tail: ClassVar[Callable[[], nn.Module] | None] = None
    """Makes the network that follows activations of `example_shape`, for a learner that trains it; see `Task.tail`."""
    _made: ClassVar[dict[str, Any]]

    def __init_subclass__(cls, **keywords: Any) -> None:
        """Give each suite its own store for fits that its laws share."""
        super().__init_subclass__(**keywords)
        cls._made = {}

    @property
    def ample_epsilon(self) -> float:
        """The epsilon at which the learner must learn; infinite for a reference, which has no finite epsilon."""
        return math.inf if self.subject().reference else LARGE_EPSILON

    def subject(self) -> Learner:
        """Return the learner under test."""
        learner = getattr(type(self), "learner", None)
        if not isinstance(learner, Learner):
            raise LawBroken(
                f"Set `learner = YourLearner(...)` in {type(self).__name__}; a suite without one tests nothing."
            )
        return learner

    def test_same_seeds_give_same_predictions(self) -> None:
        """Two fits with the same data and seeds give the same predictions, to the last bit."""
        world = self._make_task_data(0)
        fits = (self._cached_first_fit(), self._fit(world, self.ample_epsilon))
        first, second = (self._predict_scores(fit, world) for fit in fits)
        expect(np.array_equal(first, second), "Two fits with the same seeds predict differently.")

    def test_predictions_are_per_example(self) -> None:
        """A prediction for an example is the same alone and in a batch."""
        world = self._make_task_data(0)
        predict = self._cached_first_fit()
        among = self._predict_scores(predict, world)[:8]
        with torch.no_grad():
            alone = torch.cat([predict(world.test_x[[row]]) for row in range(8)]).double().numpy()
        scale = np.abs(among).max()
        expect(
            np.allclose(among, alone, rtol=1e-3, atol=1e-4 * scale), "A prediction depends on the rest of its batch."
        )

    def test_a_large_budget_beats_chance(self) -> None:
        """With an ample budget, a learner learns separable clusters."""
        world = self._make_task_data(0)
        mean = self._compute_mean_accuracy(
            lambda seed: self._fit(world, self.ample_epsilon, seed) if seed else self._cached_first_fit(), world
        )
        expect(
            mean > self.chance + CHANCE_MARGIN,
            f"It scores {mean:.2f} at epsilon {self.ample_epsilon:g}; chance is {self.chance}.",
        )

    @property
    def chance(self) -> float:
        """The accuracy of random guesses; labels are balanced."""
        return 1 / self._task().classes

    def _task(self) -> Task:
        """Return the `Task` (shape, classes, number of examples), which is the same for all data of the learner."""
        return self._make_once_per_suite("task", lambda: self._make_task(self._make_task_data(0)))

    def _make_task(self, data: TaskData) -> Task:
        shape = tuple(data.x.shape[1:])
        return Task(shape, data.classes, len(data.y), torch.device("cpu"), len(data.public.x), tail=type(self).tail)

    def _settle_learner(self, epsilon: float) -> Learner:
        """Return the learner with the settings that it chooses at this epsilon."""
        return self.subject().settle(self._task(), Budget(epsilon, DELTA))

    def _make_task_data(self, seed: int) -> TaskData:
        made_for = self.subject().made_for()
        return self._draw_task_data(made_for, seed) if made_for else self._make_clusters(seed)

    def _draw_task_data(self, dataset_text: str, seed: int) -> TaskData:
        component = Component.parse(dataset_text)
        dataset = self._make_once_per_suite(
            "dataset", lambda: load().build("dataset", component.name, component.options)
        )
        splits: Splits = dataset.drawn(seed).load()
        train, public, test = (_split_tensors(split) for split in (splits.train, splits.public, splits.test))
        return TaskData(*train, self._select_public_data(*public), test[0], test[1].numpy(), len(dataset.classes))

    def _make_clusters(self, seed: int) -> TaskData:
        generator = torch.Generator().manual_seed(seed)
        sides = int(np.prod(self.example_shape))
        centres = torch.randn(10, sides, generator=torch.Generator().manual_seed(99))

        def draw_examples(n: int) -> tuple[Tensor, Tensor]:
            y = torch.randint(10, (n,), generator=generator)
            x = centres[y] + 0.5 * torch.randn(n, sides, generator=generator)
            return x.reshape(n, *self.example_shape), y

        (x, y), (public_x, public_y), (test_x, test_y) = (
            draw_examples(PRIVATE_SIZE),
            draw_examples(PUBLIC_SIZE),
            draw_examples(400),
        )
        public = self._select_public_data(public_x, public_y)
        return TaskData(x, y, public, test_x, test_y.numpy())

    def _select_public_data(self, x: Tensor, y: Tensor) -> PublicData:
        return select_declared_public_data(PublicData(x, y, x.flip(-1)), self.subject())

    def _make_random_public_data(self) -> PublicData:
        generator, task = torch.Generator().manual_seed(5), self._task()
        x = torch.randn(PUBLIC_SIZE, *task.example_shape, generator=generator)
        return self._select_public_data(x, torch.randint(task.classes, (PUBLIC_SIZE,), generator=generator))

    def _plan(self, epsilon: float) -> tuple[Planned, ...]:
        plan = self._settle_learner(epsilon).plan(self._task(), Budget(epsilon, DELTA))
        return check_plan(plan, f"learner {self.subject().name!r}")

    def _curator(self, data: TaskData, epsilon: float, seed: int = 0) -> LedgerCurator:
        budget, plan = Budget(epsilon, DELTA), self._plan(epsilon)
        base = (
            HOPELESS_NOISE if epsilon == TINY_EPSILON else calibrate(plan, budget, "rdp")
        )  # rdp: the quickest, and not below
        return bind(data.rows, self._task(), plan, base, Randomness.research(seed, NOISE_KEY))

    def _fit(self, data: TaskData, epsilon: float, seed: int = 0) -> Predict:
        curator = self._curator(data, epsilon, seed)
        predict = self._fit_learner(make_learner_curator(curator), data.public, seed, epsilon)
        curator.guard.raise_earlier_refusal()
        return predict

    def _fit_learner(
        self, curator: Curator, public: PublicData, seed: int = 0, epsilon: float | None = None
    ) -> Predict:
        """Fit the learner and record the state that the fit leaves behind.

        Every fit of the suite is recorded, because the next fit finds that state unchanged.
        """
        learner = self._settle_learner(self.ample_epsilon if epsilon is None else epsilon)
        leftovers = LeftoverStateSearch(learner)
        try:
            return learner.fit(curator, public, Randomness.research(seed, NOISE_KEY).initialisation)
        finally:
            self._leftover_states.append(leftovers.find())

    @property
    def _leftover_states(self) -> list[str | None]:
        """The state that each fit of this suite left behind; None for a clean fit."""
        return self._make_once_per_suite("leftovers", list)

    def _cached_first_fit(self) -> Predict:
        """Return the predictor fitted with seed 0 to the data of seed 0, for laws that only need predictions."""
        return self._make_once_per_suite("first fit", lambda: self._fit(self._make_task_data(0), self.ample_epsilon))

    def _make_once_per_suite(self, key: str, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    def _predict_scores(self, predict: Predict, data: TaskData) -> np.ndarray:
        leftovers = LeftoverStateSearch(self.subject())
        scores = predict_all(predict, data.test_x, self._task())
        self._leftover_states.append(leftovers.find())
        return scores

    def _compute_mean_accuracy(self, fit: Callable[[int], Predict], data: TaskData) -> float:
        """Return the mean accuracy of five fits; stop early if the remaining fits cannot change the verdict."""
        scores, bar = list[float](), FIT_COUNT * (self.chance + CHANCE_MARGIN)
        while len(scores) < FIT_COUNT and sum(scores) <= bar <= sum(scores) + FIT_COUNT - len(scores):
            hits = self._predict_scores(fit(len(scores)), data).argmax(1) == data.test_y
            scores.append(float(np.mean(hits)))
        return float(np.mean(scores))
