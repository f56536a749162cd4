"""A result: one JSON file a run, written by the harness alone. No torch here: a board reads results without it."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Union, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, create_model

from dpbench.api import Planned
from dpbench.privacy import MECHANISM
from dpbench.privacy.core.accounting.accountant import AccountantName
from dpbench.privacy.core.plan import sigmas
from dpbench.privacy.mechanisms.table import PLANS
from dpbench.records import storage
from dpbench.records.checksums import seal_of
from dpbench.records.metrics import METRICS, KeptPredictions, Share
from dpbench.records.overlap import SUSPECT, Copies, Overlap, find_excess
from dpbench.records.search import Selection, SelectionRule, Trial
from dpbench.records.spec import Spec

NOT_COVERED = (
    "the size of the private split, public by declaration",
    "the choice of hyperparameters, where they were chosen on this private data",
    "how many images stand in two splits (overlap), counted on the data themselves",
    "timing and memory",
    "a plugin written to defeat the harness",
)
SEEDED = (
    "whoever knows the seed and can run this code: research noise follows from them, and --secure-rng keeps no seed"
)
SEEDED_SEARCH = "whoever knows the seed: noise and the number of runs follow from it, and --secure-rng keeps no seed"
EXACT = (
    "less than 1e-12 of epsilon: noise is a discrete Gaussian on a fine lattice, and that of the accountants continuous"
)


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")


class PlannedUse(_Record):
    """One use in the plan, with the noise multiplier it was given; each kind of plan has a record with its fields."""

    name: str
    steps: int = Field(ge=1)
    relative_noise: float = Field(gt=0)
    sigma: float = Field(ge=0)

    @property
    def planned(self) -> Planned:
        """The use as a learner plans it."""
        kind = next(kind for kind, record in RECORDS.items() if isinstance(self, record))
        return kind(**self.model_dump(exclude={"sigma"}))


def _record_of(kind: type[Planned]) -> type[PlannedUse]:
    hints, name = get_type_hints(kind), kind.__name__
    own: dict[str, Any] = {
        field.name: (hints[field.name], Field(**field.metadata))
        for field in dataclasses.fields(kind)  # type: ignore[arg-type]  # each kind is a dataclass
        if field.name not in PlannedUse.model_fields
    }
    said = f"One {name.lower()} of the plan, with the noise multiplier it was given."
    made: type[PlannedUse] = create_model(
        f"Planned{name}", __base__=PlannedUse, __module__=__name__, __doc__=said, **own
    )
    return made


RECORDS = {kind: _record_of(kind) for kind in PLANS}
globals().update({record.__name__: record for record in RECORDS.values()})  # where other processes look for them
if TYPE_CHECKING:
    AnyUse = PlannedUse
else:
    AnyUse = Union[tuple(RECORDS.values())]  # noqa: UP007  # of as many as there are


def state_plan(plan: Sequence[Planned], sigma: float) -> tuple[PlannedUse, ...]:
    """Return a plan as a result states it, given its base noise multiplier."""
    noise = sigmas(plan, sigma)
    return tuple(RECORDS[type(one)](**one.record(), sigma=noise[one.name]) for one in plan)


def restore_plan(plan: Sequence[PlannedUse]) -> tuple[Planned, ...]:
    """Return a stated plan as a learner makes it."""
    return tuple(one.planned for one in plan)


class CrossCheck(_Record):
    """What a second accountant says about the same plan and sigma."""

    accountant: str
    lower: float
    upper: float


class PlannedRepeats(_Record):
    """A seed stands for the best of a random number of runs, and epsilon for all of them (`privacy.repeats`)."""

    mean: float = Field(gt=1)
    shape: float = Field(ge=0)


class Privacy(_Record):
    """The guarantee, computed from plan and sigma."""

    epsilon: float = Field(ge=0)  # 0 where the plan is empty
    delta: float = Field(ge=0, lt=1)  # 0 where the plan is one choice, which is pure
    accountant: AccountantName
    adjacency: Literal["add-or-remove-one"]
    sigma: float = Field(ge=0)
    plan: tuple[AnyUse, ...]
    independent: CrossCheck
    rng: Literal["research", "secure"]
    repeats: PlannedRepeats | None = None
    mechanism: str  # `dpbench.privacy.MECHANISM` when it ran
    not_covered: tuple[str, ...] = NOT_COVERED

    @property
    def releases(self) -> tuple[Planned, ...]:
        """The plan as a learner makes it."""
        return restore_plan(self.plan)

    @property
    def repeatable(self) -> bool:
        """Whether this code samples, sums and adds noise as the code did that made the result."""
        return self.mechanism == MECHANISM


class SeedResult(KeptPredictions):
    """One fit, scored on the test split at full precision."""

    seed: int
    class_accuracy: tuple[Share | None, ...]
    correct: str  # base64 of one bit a test example, in order
    predictions: str  # SHA-256 of the predicted classes, int64 little-endian: a rerun must give them
    spent: dict[str, int]
    setting: dict[str, Any] | None = None  # where each seed chose its own


class Interval(_Record):
    """Mean over seeds with its 95% Student t interval (none for a single seed)."""

    mean: float
    low: float | None
    high: float | None


class UnitFacts(_Record):
    """Whose the private images are, and what the plan costs whoever has several, where epsilon is an image's."""

    word: str  # patient, lesion, track ...
    count: int = Field(ge=1)
    images: int = Field(ge=1)
    largest: int = Field(ge=1)  # images of the unit that has most
    median: int = Field(ge=1)  # of the unit in the middle, the smaller of two
    # Of all images of such a unit together; None where infinite, or where epsilon is a unit's already.
    largest_epsilon: float | None = None
    median_epsilon: float | None = None


class TaskFacts(_Record):
    """What the run was about."""

    example_shape: tuple[int, ...]
    classes: tuple[str, ...]
    private: int
    public: int
    test: int
    public_labels_seen: bool
    digests: dict[str, str]
    licence: str
    overlap: dict[str, Overlap]  # "test in private" ...
    largest: Share  # of the test split, in its largest class
    sketch: str  # of the public images (`Hashes.sketch`)
    looks: str | None = None  # of the public images (`Hashes.looks`); None in results from before they were kept
    copies: Copies | None = None  # within the private split; None as above
    units: UnitFacts | None = Field(default=None, exclude_if=lambda value: value is None)  # where the dataset knows
    processing: dict[str, str] | None = None  # how each split's images were made, "" where undeclared; None as above

    @property
    def images(self) -> int:
        """How many private images there are: more than `private`, where that counts units."""
        return self.private if self.units is None else self.units.images


class ComponentOrigin(_Record):
    """Which plugin brings a component, of which distribution and version."""

    plugin: str
    distribution: str
    version: str


class Result(_Record):
    """One run, whole: what was asked, what it guarantees, what it scored, what it was made with."""

    schema_version: Literal[1] = 1
    digest: str
    spec: Spec
    status: Literal["submitted", "disputed", "withdrawn"] = "submitted"
    selection: SelectionRule
    search: Selection | None = None
    settled: dict[str, Any]  # settings that were left to the budget (None, or `auto`), as the run had them
    task: TaskFacts
    privacy: Privacy
    copies_epsilon: float | None = (
        None  # of the copies of one image that `task.copies` counts; None without, or infinite
    )
    seeds: tuple[SeedResult, ...]
    metrics: dict[str, Interval]
    seconds: dict[str, float]
    cpu_seconds: dict[str, float]  # see `Phases`
    peak_bytes: dict[str, int]
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]
    seal: dict[str, str] = {}  # see `dpbench.records.checksums`

    def seal_result(self) -> Result:
        """Return the result with a seal over all it says."""
        return self.model_copy(update={"seal": seal_of(json.loads(self.model_dump_json()))})

    @property
    def settings(self) -> dict[str, Any]:
        """The learner's settings as they ran: as asked, as a search chose them, as they followed from the budget."""
        chosen = (self.search and self.search.chosen) or {}
        return {**self.spec.learner.options, **chosen, **self.settled}

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know before the score: shared images, budget for nothing, a score of a guess."""
        shared = [f"{pair.capitalize()}: {said}." for pair, said in find_excess(self.task.overlap, self.task.images)]
        return (
            *(shared or self._alike()),
            *self._undeclared(),
            *self._repeated(),
            *self._owned(),
            *self._risky(),
            *self._unused(),
            *self._no_better(),
            *self._few(),
        )

    @property
    def without_private(self) -> str:
        """What is said of a plan that asks for nothing private: whether public images are private ones decides it."""
        counted = self.task.overlap.get("public in private")
        if counted is None or not counted.near:
            return "ε 0: no private example was read"
        return (
            f"ε 0 by its plan, but {counted.near:,} of {counted.among:,} public images are near-duplicates of private "
            f"ones ({counted.exact:,} identical)"
        )

    def _alike(self) -> list[str]:
        """Say where public images look like private ones more often than in an honest cut of most data."""
        counted = self.task.overlap.get("public in private")
        if counted is None or counted.near <= SUSPECT * counted.among:
            return []
        return [
            f"{counted.near:,} of {counted.among:,} public images look like a private one ({counted.exact:,} are "
            "identical). Check some of them: ε does not cover what is learned from copies."
        ]

    def _undeclared(self) -> list[str]:
        """Say where nobody knows how private images were made."""
        if not self.privacy.sigma or (self.task.processing or {}).get("private", "declared"):
            return []
        return [
            "The dataset does not say how its private images were processed. ε holds only if each was processed on its "
            "own: see 'Add a dataset'."
        ]

    def _repeated(self) -> list[str]:
        """Say where one image is in the private split several times: its owner has another epsilon."""
        copies, epsilon = self.task.copies, self.copies_epsilon
        if copies is None or copies.most < 2 or not self.privacy.sigma or epsilon is None:
            return []
        return [
            f"{copies.images:,} of {copies.among:,} private images are exact copies of another; one image appears "
            f"{copies.most:,} times. Its copies together have ε {epsilon:.4g}."
        ]

    def _owned(self) -> list[str]:
        """Say where epsilon is an image's and people have several: theirs is another."""
        units = self.task.units
        if units is None or self.spec.unit or not self.privacy.sigma or units.largest_epsilon is None:
            return []
        return [
            f"ε is stated for one image, but the images belong to {units.count:,} {units.word}s. For the {units.word} "
            f"with the most images ({units.largest}) ε is {units.largest_epsilon:.4g}; for the median one "
            f"({units.median}) it is {units.median_epsilon:.4g}. Add --unit {units.word} to state ε for a {units.word}."
        ]

    def _risky(self) -> list[str]:
        """Say where delta is so near 1/n that it allows as much as publishing half of a random row."""
        delta, size = self.privacy.delta, self.task.private
        if not self.privacy.sigma or delta <= 0.5 / size:
            return []
        return [
            f"Delta {delta:g} is {delta * size:.0%} of 1/n (n = {size:,}). At 1/n a mechanism may publish a random "
            "row, so use a delta well below it."
        ]

    def _unused(self) -> list[str]:
        """Say where fewer steps of a release were asked for than were planned, and paid for in sigma."""
        if not self.privacy.sigma:
            return []
        return [
            f"Release {release.name!r} asked for {least} of its {release.steps} planned steps in a seed: the rest cost "
            "accuracy and bought nothing. Plan only the steps that the fit uses."
            for release in self.privacy.plan
            if (least := min((seed.spent.get(release.name, 0) for seed in self.seeds), default=0)) < release.steps
        ]

    def _no_better(self) -> list[str]:
        """Say where always guessing one class does as well."""
        accuracy, balanced = (self.metrics[name].mean for name in ("accuracy", "balanced_accuracy"))
        if accuracy > self.task.largest:
            return []
        return [
            f"Accuracy {accuracy:.1%} is not above the largest class's share of the test split, "
            f"{self.task.largest:.1%}: always guessing that class does as well. Balanced accuracy is {balanced:.1%} "
            f"(chance: {1 / len(self.task.classes):.1%})."
        ]

    def _few(self) -> list[str]:
        """Say where an interval rests on two seeds alone."""
        if len(self.seeds) != 2:
            return []
        return ["Two seeds are too few for a reliable interval. Use five or more."]

    @property
    def file_name(self) -> str:
        """The name of this result's file: learner, dataset and the spec's digest."""
        return result_name(self.spec, self.digest)

    def write(self, folder: Path) -> Path:
        """Write the result into `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        return storage.write(self, folder / self.file_name)

    @classmethod
    def read(cls, file: Path) -> Result:
        """Read a result and check it against the schema.

        Raises:
            DataError: names the file and the first field that does not fit.
        """
        return storage.read(cls, file)


class Tuning(_Record):
    """A search for settings, whole: what was asked, what was tried, what was chosen."""

    schema_version: Literal[1] = 1
    digest: str
    spec: Spec
    selection: Selection
    default: Trial | None = None  # what the settings that were not searched for score; None where nobody looked
    digests: dict[str, str]  # of the data behind the private and the public split
    sketch: str  # of the public images (`Hashes.sketch`)
    looks: str | None = None  # of the public images (`Hashes.looks`)
    seconds: dict[str, float]
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]

    def write(self, folder: Path) -> Path:
        """Write the tuning into `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        name = f"tuning-{self.spec.learner.name}-{self.spec.dataset.name}-{self.digest[:16]}.json"
        return storage.write(self, folder / name)

    @classmethod
    def read(cls, file: Path) -> Tuning:
        """Read a tuning and check it against the schema.

        Raises:
            DataError: names the file and the first field that does not fit.
        """
        return storage.read(cls, file)


def result_name(spec: Spec, digest: str | None = None) -> str:
    """Return the name of the file of a spec's result: learner, dataset and digest."""
    return f"{spec.learner.name}-{spec.dataset.name}-{(digest or spec.digest)[:16]}.json"


def not_covered(rng: Literal["research", "secure"], search: bool) -> tuple[str, ...]:
    """Return what the guarantee leaves out, in words; `search` where it covers the choice of hyperparameters."""
    left = tuple(line for line in NOT_COVERED if not (search and line.startswith("the choice of hyperparameters")))
    return (*left, EXACT if rng == "secure" else SEEDED_SEARCH if search else SEEDED)


def summarise(seeds: Sequence[SeedResult]) -> dict[str, Interval]:
    """Return mean and interval of every scalar metric that all seeds have."""
    columns = {name: [getattr(seed, name) for seed in seeds] for name in METRICS}
    return {name: interval(values) for name, values in columns.items() if None not in values}


def interval(values: Sequence[float]) -> Interval:
    """Return the mean with its 95% t interval.

    >>> interval([0.5, 0.7]).mean
    0.6
    """
    from scipy.special import stdtrit

    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Interval(mean=mean, low=None, high=None)
    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (n - 1))
    half = float(stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n)
    return Interval(mean=mean, low=mean - half, high=mean + half)
