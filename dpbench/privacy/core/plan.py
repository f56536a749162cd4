"""Plans, their checks, and the ledger that limits a fit to its plan. Imports no torch."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from dpbench.errors import NotPlanned, PlanError, SpecError
from dpbench.privacy.core.closed import is_defined_by_dpbench
from dpbench.support.messages import format_duration

if TYPE_CHECKING:
    import numpy as np
    import torch
    from torch import nn

Adjacency = Literal["add-or-remove-one"]
MOST_STEPS = 1_000_000  # more is a slip: it would run for hours, and accountants for minutes

MOST_RELATIVE = 1e18  # times the noise of another release: more is a slip, and squares of its square overflow


@dataclass(frozen=True)
class Task:
    """The facts about the private data that the protocol declares public."""

    example_shape: tuple[int, ...]
    classes: int
    size: int  # n of the private split: public by declaration
    device: torch.device
    public: int = 0  # examples of public data that the learner sees
    same_source: bool = True  # whether they are of the private data's own dataset, not of another (`--public-dataset`)
    metric: str = "accuracy"  # what results are compared by, such as balanced_accuracy: a learner may aim for it
    tail: Callable[[], nn.Module] | None = dataclasses.field(default=None, compare=False, repr=False)
    """Loads the stages of the published network after the layer whose activations are the examples (`Extractor.tail`).

    None if the extractor has no such function.
    """


@dataclass(frozen=True)
class Budget:
    """The target guarantee, fixed by the protocol. `epsilon` is in nats and may be infinite."""

    epsilon: float
    delta: float
    adjacency: Adjacency = "add-or-remove-one"


class PureDpCost(ABC):
    """The cost of a plan whose single use is epsilon-DP with delta 0; every accountant states the same epsilon."""

    @abstractmethod
    def epsilon(self, noise: float) -> float:
        """Return epsilon at this noise multiplier."""

    @abstractmethod
    def epsilon_lower_bound(self, noise: float) -> float:
        """Return a lower bound on epsilon at this noise multiplier, computed without the formula of `epsilon`."""

    @abstractmethod
    def base_sigma(self, epsilon: float) -> float:
        """Return the base sigma at which the plan has this epsilon."""


class Planned(ABC):
    """One planned use of the private data by one mechanism: a frozen dataclass that states its cost.

    It holds all that accountants, ledger, records and audit need to know about a mechanism, so none of these names a
    particular mechanism. The argument `noise` is a noise multiplier: the plan's base sigma times `relative_noise`.
    """

    name: str
    steps: int
    relative_noise: float

    numbers: ClassVar[tuple[str, ...]]
    """The fields that are numbers, in the order in which they are checked."""
    word: ClassVar[str]
    """The name of the curator's method that spends a step of this use."""
    gaussian: ClassVar[bool] = False
    """Whether it adds Gaussian noise to sums over Poisson samples, for which accountants have closed forms."""

    @property
    @abstractmethod
    def sample_rate(self) -> float:
        """The chance that an example is in the sample of a step."""

    @property
    def step(self) -> Planned:
        """One step, reduced to the fields that determine its cost, so that `merge_steps` can merge equal steps."""
        return replace(self, name="", steps=1)  # type: ignore[type-var]  # each kind is a dataclass

    @property
    def pure(self) -> PureDpCost | None:
        """The cost of a plan with only this use, if it is epsilon-DP with delta 0; otherwise None."""
        return None

    def record(self) -> dict[str, Any]:
        """Return the fields of this use that a result records, in addition to the noise multiplier.

        A field's metadata (`gt`, `ge`, `le`) bound the values that a result may record.
        """
        return asdict(self)  # type: ignore[call-overload, no-any-return]  # each kind is a dataclass

    @abstractmethod
    def describe(self, noise: float) -> str:
        """Describe one step as text, without the number of steps."""

    @abstractmethod
    def check(self, where: str) -> None:
        """Refuse impossible values of the fields that only this type of use has.

        Raises:
            PlanError: a value is impossible; the message names the field, and says `where` in the plan it is.
        """

    @abstractmethod
    def event(self, noise: float) -> Any:
        """Return dp-accounting's `DpEvent` of one step, sampling included, for Renyi accountants."""

    @abstractmethod
    def loss_distribution(self, noise: float, interval: float) -> Any:
        """Return dp-accounting's privacy loss distribution of all steps, rounded up to a grid of this interval."""

    @abstractmethod
    def loss_variables(self, noise: float) -> tuple[Any, int]:
        """Return a privacy loss variable of Microsoft's prv-accountant, and how many copies of it to compose."""

    @abstractmethod
    def renyi(self, noise: float, orders: Sequence[float]) -> np.ndarray:
        """Return the Renyi divergence of all steps at these orders, computed by code that is independent of `event`."""


@dataclass(frozen=True)
class Release(Planned):
    """One planned use of the private data: `steps` noisy sums, each over a fresh Poisson sample.

    `relative_noise` is this release's noise multiplier divided by the base sigma, which the harness calibrates for the
    whole plan. A release at 2.0 spends less of the budget than one at 1.0.
    """

    numbers: ClassVar[tuple[str, ...]] = ("steps", "sample_rate", "relative_noise")
    word: ClassVar[str] = "noisy_sum"
    gaussian: ClassVar[bool] = True

    name: str
    steps: int = 1
    sample_rate: float = dataclasses.field(default=1.0, metadata={"gt": 0, "le": 1})  # probability per example and step
    relative_noise: float = 1.0

    def describe(self, noise: float) -> str:
        """Return the sample rate and the noise multiplier as text."""
        return f"each example with chance {self.sample_rate:g}, σ {noise:.4g}"

    def check(self, where: str) -> None:
        """Refuse a sample rate outside (0, 1]."""
        if not 0 < self.sample_rate <= 1:
            raise PlanError(
                f"Expected sample_rate={self.sample_rate} in (0, 1] {where}. "
                "A rate is a chance per example, not a batch size."
            )

    def event(self, noise: float) -> Any:
        """Return the event of a Gaussian, over a Poisson sample if the rate is below 1."""
        import dp_accounting as dp

        event = dp.GaussianDpEvent(noise)
        return dp.PoissonSampledDpEvent(self.sample_rate, event) if self.sample_rate < 1 else event

    def loss_distribution(self, noise: float, interval: float) -> Any:
        """Return the loss distribution of a Gaussian over Poisson samples."""
        from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

        step = from_gaussian_mechanism(noise, value_discretization_interval=interval, sampling_prob=self.sample_rate)
        return step.self_compose(self.steps)

    def loss_variables(self, noise: float) -> tuple[Any, int]:
        """Return a subsampled Gaussian and the number of steps; at rate 1, a single Gaussian of smaller noise."""
        import prv_accountant as prv

        if self.sample_rate == 1:
            return prv.GaussianMechanism(noise / math.sqrt(self.steps)), 1
        return prv.PoissonSubsampledGaussianMechanism(self.sample_rate, noise), self.steps

    def renyi(self, noise: float, orders: Sequence[float]) -> np.ndarray:
        """Return the Renyi divergence of all steps, as Opacus computes it."""
        from opacus.accountants.analysis.rdp import compute_rdp

        curve: np.ndarray = compute_rdp(
            q=float(self.sample_rate), noise_multiplier=noise, steps=self.steps, orders=orders
        )
        return curve


LARGEST_DELTA = 1e-3
"""The largest delta that a run may ask for, unless 1/n is larger: a delta below 1/n is always accepted."""
P = TypeVar("P", bound=Planned)


def check_budget(budget: Budget, task: Task) -> None:
    """Refuse a budget that guarantees nothing.

    Raises:
        SpecError: epsilon is not positive, delta is not positive, or delta is at least 1/n and above `LARGEST_DELTA`.
            Already a delta of 1/n allows publishing a random row. Papers have used such deltas, so up to
            `LARGEST_DELTA` callers only warn.
    """
    if not budget.epsilon > 0:
        raise SpecError(f"Expected epsilon={budget.epsilon} > 0. Use epsilon=inf for a run without privacy.")
    if not (0 < budget.delta < 1 / task.size or 0 < budget.delta <= LARGEST_DELTA):
        raise SpecError(
            f"Expected delta={budget.delta:g} in (0, 1/n) with n={task.size} private examples, that is below "
            f"{1 / task.size:.3g}, and never above {LARGEST_DELTA:g}. A larger delta would allow publishing someone's "
            "data outright. Leave out delta, or set it to auto."
        )


def check_plan(plan: Sequence[P], owner: str) -> tuple[P, ...]:
    """Check a plan and return it as a tuple, with numbers of Python's own types. An empty plan has epsilon 0.

    Args:
        plan: the return value of a learner's `plan`.
        owner: whose plan it is, as in `learner 'dp-sgd'`.

    Raises:
        PlanError: it is not a plan, or a field of a release is wrong; the message names the field.
    """
    if not isinstance(plan, Sequence):
        raise PlanError(f"Expected a list of Release and Choice as the plan of {owner}, got a {type(plan).__name__}.")
    return _check_releases([_convert_to_python_numbers(release, owner) for release in plan], owner)


def _convert_to_python_numbers(release: P, owner: str) -> P:
    """Check a release's types and convert its numbers to Python's own, because numpy's are serialised differently."""
    if not isinstance(release, Planned) or not is_defined_by_dpbench(type(release)):
        raise PlanError(f"Expected Release or Choice in the plan of {owner}, got a {type(release).__name__}.")
    if not isinstance(release.name, str):
        raise PlanError(f"Expected name={release.name!r} of a release of {owner} to be text.")
    numbers: dict[str, Any] = {}
    for field in release.numbers:
        if not isinstance(value := getattr(release, field), Real) or isinstance(value, bool):
            raise PlanError(
                f"Expected {field} to be one number in release {release.name!r} of {owner}, got "
                f"a {type(value).__name__}."
            )
        numbers[field] = int(value) if isinstance(value, Integral) else float(value)
    changed: Any = replace(release, **numbers)  # type: ignore[type-var]  # each kind is a dataclass
    plain: P = changed
    return plain


def _check_releases(plan: Sequence[P], owner: str) -> tuple[P, ...]:
    seen: set[str] = set()
    for release in plan:
        where = f"in release {release.name!r} of {owner}"
        if release.name in seen:
            raise PlanError(f"Expected unique names, got a second one {where}.")
        seen.add(release.name)
        if not (release.steps >= 1 and release.steps % 1 == 0):  # neither holds of nan, nor the second of inf
            raise PlanError(f"Expected steps={release.steps} to be a whole number >= 1 {where}.")
        release.check(where)
        if not 1 / MOST_RELATIVE <= release.relative_noise <= MOST_RELATIVE:
            raise PlanError(
                f"Expected relative_noise={release.relative_noise} between {1 / MOST_RELATIVE:g} and "
                f"{MOST_RELATIVE:g} {where}."
            )
    total = sum(release.steps for release in plan)
    if total > MOST_STEPS:
        raise PlanError(
            f"Expected a plan of at most {MOST_STEPS:,} steps, got {total:,} of {owner}: at a millisecond each "
            f"that is {format_duration(total / 1000)} for one seed. Use fewer steps, or larger samples."
        )
    return tuple(plan)


def merge_steps(plan: Sequence[Planned]) -> list[Planned]:
    """Return a plan of equal cost: uses that are not Gaussian are merged if their steps cost the same."""
    counts: Counter[Planned] = Counter()
    for use in plan:
        counts[use if use.gaussian else use.step] += 1 if use.gaussian else use.steps
    return [use if use.gaussian else replace(use, steps=steps) for use, steps in counts.items()]  # type: ignore[type-var]


def release_sigmas(plan: Sequence[Planned], sigma: float) -> dict[str, float]:
    """Return the noise multiplier of each release: the plan's base sigma times the release's relative noise."""
    return {release.name: sigma * release.relative_noise for release in plan}


class Ledger:
    """Counts the spent steps of each planned release, and refuses to spend more than the plan."""

    def __init__(self, plan: Sequence[Planned]) -> None:
        self._plan = {release.name: release for release in plan}
        self._spent = dict.fromkeys(self._plan, 0)

    @property
    def spent(self) -> Mapping[str, int]:
        """Steps spent so far, by release."""
        return dict(self._spent)

    def spend(self, name: str, kind: type[P]) -> P:
        """Spend one step of a release that is planned as this type of use, and return the release.

        Raises:
            NotPlanned: the release is not in the plan, has no steps left, or is planned as another type.
        """
        release = self.find_release(name)
        if not isinstance(release, kind):
            raise NotPlanned(
                f"Release {name!r} is planned as a {type(release).__name__}. Ask for it with {release.word}, or plan a "
                f"{kind.__name__}."
            )
        if self._spent[name] >= release.steps:
            raise NotPlanned(
                f"All {release.steps} planned steps of release {name!r} are spent. Plan more steps; dpbench then "
                "raises sigma to pay for them."
            )
        self._spent[name] += 1
        return release

    def find_release(self, name: str) -> Planned:
        """Return the release of this name.

        Raises:
            NotPlanned: the plan has no such release.
        """
        release = self._plan.get(name)
        if release is None:
            raise NotPlanned(f"Release {name!r} is not in the plan, which has: {', '.join(self._plan)}.")
        return release
