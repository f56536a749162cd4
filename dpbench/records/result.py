"""A result: a JSON file per run, which only the harness writes. No torch here, so boards can read it without torch."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from dpbench.errors import MalformedFile
from dpbench.records import storage
from dpbench.records.checksums import evidence_digest
from dpbench.records.group_counts import GroupCounts, find_correct_count_error, find_group_count_error
from dpbench.records.metrics import METRICS, Share, StoredPredictions
from dpbench.records.overlap import SUSPICIOUS_SHARE, AlteredCopyCounts, CopyCounts, OverlapCounts, find_excess_overlap
from dpbench.records.search import Selection, SelectionRule
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee, list_guarantee_limits
from dpbench.support.untrusted import PrintableText
from dpbench.support.validation import Record

Seconds = Annotated[float, Field(ge=0, lt=1e12)]
TWO_SEEDS_REMARK = "Two seeds are too few for a reliable interval. Use five or more."


class SeedResult(StoredPredictions):
    """The outcome of a seed on the test split: its correct predictions, and the evidence behind its scores."""

    seed: int
    spent: dict[str, int]
    setting: dict[str, Any] | None = None  # where each seed chose its own
    # Correct predictions, counted as `TaskFacts.groups` counts test images; None where the test split has no groups.
    group_correct: GroupCounts | None = Field(default=None, exclude_if=lambda value: value is None)


class Interval(Record):
    """The mean over seeds, with its 95% Student t interval (None for a single seed)."""

    mean: float
    low: float | None
    high: float | None


class UnitFacts(Record):
    """The units (such as patients) of the private images, and epsilon per unit if the result states it per image."""

    word: str  # patient, lesion, track ...
    count: int = Field(ge=1)
    images: int = Field(ge=1)
    largest: int = Field(ge=1)  # images of the unit that has most
    median: int = Field(ge=1)  # of the unit in the middle, the smaller of two
    # Of all images of such a unit together; None where infinite, or where epsilon is a unit's already.
    largest_epsilon: float | None = None
    median_epsilon: float | None = None

    @property
    def remark(self) -> str:
        """A remark that converts epsilon per image to epsilon per unit; empty if it is already per unit or infinite."""
        if self.largest_epsilon is None:
            return ""
        return (
            f"ε is stated for one image, but the images belong to {self.count:,} {self.word}s. For the {self.word} "
            f"with the most images ({self.largest}) ε is {self.largest_epsilon:.4g}; for the median one "
            f"({self.median}) it is {self.median_epsilon:.4g}. Add --unit {self.word} to state ε for a {self.word}."
        )


class TaskFacts(Record):
    """The task of a run: its data, the sizes of its splits, and its classes."""

    example_shape: tuple[int, ...]
    classes: tuple[PrintableText, ...] = Field(min_length=1)
    private: int = Field(ge=1)
    public: int
    test: int
    public_labels_seen: bool
    digests: dict[str, str]
    licence: str
    overlap: dict[str, OverlapCounts]  # "test in private" ...
    largest: Share  # of the test split, in its largest class
    sketch: str  # of the public images (`Hashes.sketch`)
    looks: str | None  # of the public images (`Hashes.looks`); None where nobody looked
    copies: CopyCounts | None  # within the private split; None as above
    # Between public and private images; None where nobody looked, and where there are no public images.
    altered: AlteredCopyCounts | None = Field(default=None, exclude_if=lambda value: value is None)
    units: UnitFacts | None = Field(default=None, exclude_if=lambda value: value is None)  # where the dataset knows
    # Private images that were left out, as a public image equals each. Not written where there are none.
    left_out: int = Field(default=0, ge=0, exclude_if=lambda value: not value)
    processing: dict[str, str] | None  # how each split's images were made, "" where undeclared; None as above
    # Of data that is not the whole as published, by role, like `digests`.
    editions: dict[str, PrintableText] | None = Field(default=None, exclude_if=lambda value: value is None)
    test_units: str | None = Field(default=None, exclude_if=lambda value: value is None)  # see `records.units`
    # Test images by group and class; None where the test split has no groups.
    groups: GroupCounts | None = Field(default=None, exclude_if=lambda value: value is None)
    # What the weights of the extractor have seen; None where it is not stated.
    trained_on: PrintableText | None = Field(default=None, exclude_if=lambda value: value is None)
    # The origin of features that were computed elsewhere; None where this machine computed them.
    made_elsewhere: PrintableText | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _check_group_counts(self) -> TaskFacts:
        if self.groups is not None and (said := find_group_count_error(self.groups, len(self.classes))):
            raise ValueError(said)
        return self

    @property
    def images(self) -> int:
        """The number of private images; `private` is smaller if it counts units."""
        return self.private if self.units is None else self.units.images

    @property
    def edition_names(self) -> tuple[str, ...]:
        """The distinct names of data editions that are not the complete published data, for pages and terminals."""
        return tuple(dict.fromkeys((self.editions or {}).values()))


class ComponentOrigin(Record):
    """The plugin that provides a component, with its distribution and version."""

    plugin: str
    distribution: str
    version: str


class Result(Record):
    """The whole evidence of a run: its spec, guarantee, correct predictions and provenance.

    Metrics, intervals and remarks are computed from it; no file stores them.
    """

    schema_version: Literal[2] = 2
    evidence_digest: str = ""  # of all below but the status, as it was written; see `dpbench.records.checksums`
    # The digest of the file that this one was converted from, by which other records may still name it.
    converted_from: str | None = Field(default=None, pattern="^[0-9a-f]{64}$", exclude_if=lambda value: value is None)
    spec: Spec
    status: Literal["submitted", "disputed", "withdrawn"] = "submitted"
    selection: SelectionRule
    search: Selection | None = None
    settled: dict[str, Any]  # settings that were left to the budget (None, or `auto`), as the run had them
    task: TaskFacts
    privacy: PrivacyGuarantee
    copies_epsilon: float | None  # of the copies of one image that `task.copies` counts; None without, or infinite
    seeds: tuple[SeedResult, ...] = Field(min_length=1)
    seconds: dict[str, Seconds]
    cpu_seconds: dict[str, Seconds]  # see `PhaseProfiler`
    peak_bytes: dict[str, int]
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]

    @model_validator(mode="before")
    @classmethod
    def _check_integrity(cls, content: Any) -> Any:
        """Refuse a file of a later schema version, and a file that was changed after it was written."""
        if isinstance(content, Mapping):
            if (version := content.get("schema_version", 2)) != 2:
                raise MalformedFile("schema_version", f"expected 1 or 2, got {version!r:.20}. Update dpbench")
            if (stated := content.get("evidence_digest")) and stated != evidence_digest(content):
                raise MalformedFile("evidence_digest", "changed after the file was written")
        return content

    @model_validator(mode="after")
    def _check_confusion(self) -> Result:
        classes = len(self.task.classes)
        for seed in self.seeds:
            if seed.matrix is not None and len(seed.matrix) != classes:
                lines = f"{classes} classes in the confusion matrix, got {len(seed.matrix)}"
                raise ValueError(f"seed {seed.seed}: expected a line for each of {lines}")
        return self

    @model_validator(mode="after")
    def _check_group_counts(self) -> Result:
        images = self.task.groups
        for seed in self.seeds:
            if (images is None) != (seed.group_correct is None):
                raise ValueError("expected correct predictions by group in each seed where the task has groups")
            if images and seed.group_correct and (said := find_correct_count_error(images, seed.group_correct)):
                raise ValueError(f"seed {seed.seed}: {said}")
        return self

    def with_evidence_digest(self) -> Result:
        """Return a copy of the result with the digest of its current evidence."""
        return self.model_copy(update={"evidence_digest": evidence_digest(json.loads(self.model_dump_json()))})

    @cached_property
    def digest(self) -> str:
        """The digest of the spec, which is part of the result's name."""
        return self.spec.digest

    @cached_property
    def metrics(self) -> dict[str, Interval]:
        """The mean and interval of every metric that all seeds have."""
        return summarise_metrics(self.seeds)

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The limits of the guarantee, in words."""
        return list_guarantee_limits(self.privacy, self.task.left_out, self.task.made_elsewhere)

    @property
    def settings(self) -> dict[str, Any]:
        """The learner's settings in the run: requested by the user, chosen by a search, or derived from the budget."""
        chosen = (self.search and self.search.chosen) or {}
        return {**self.spec.learner.options, **chosen, **self.settled}

    @cached_property
    def class_accuracies(self) -> tuple[tuple[float, ...], ...]:
        """For each class, its accuracy in each seed that has test images of the class; empty if no seed has any."""
        seeds = [seed.class_accuracy for seed in self.seeds]
        return tuple(
            tuple(value for seed in seeds if number < len(seed) and (value := seed[number]) is not None)
            for number in range(len(self.task.classes))
        )

    @cached_property
    def remarks(self) -> tuple[str, ...]:
        """Warnings to read before the score, such as shared images, unused budget or accuracy at the guessing level."""
        shared = [
            f"{pair.capitalize()}: {said}." for pair, said in find_excess_overlap(self.task.overlap, self.task.images)
        ]
        if self.task.altered is not None and (said := self.task.altered.excess_complaint):
            shared.append(f"Public in private: {said}.")
        return (
            *(shared or self._lookalike_remark()),
            *self._processing_remark(),
            *self._copies_remark(),
            *self._left_out_remark(),
            *self._units_remark(),
            *self._delta_remark(),
            *self._unused_steps_remark(),
            *self._guessing_remark(),
            *self._two_seeds_remark(),
        )

    @property
    def zero_epsilon_remark(self) -> str:
        """The remark on a plan that reads no private data; it counts public near-duplicates of private images."""
        counted = self.task.overlap.get("public in private")
        if counted is None or not counted.near:
            return "ε 0: no private example was read"
        return (
            f"ε 0 by its plan, but {counted.near:,} of {counted.among:,} public images are near-duplicates of private "
            f"ones ({counted.exact:,} identical)"
        )

    def _lookalike_remark(self) -> list[str]:
        """Return a remark if public images resemble private images more often than an honest split usually does."""
        counted, altered = self.task.overlap.get("public in private"), self.task.altered
        remarks = []
        if counted is not None and counted.near > SUSPICIOUS_SHARE * counted.among:
            remarks.append(
                f"{counted.near:,} of {counted.among:,} public images look like a private one ({counted.exact:,} are "
                "identical). Check some of them: ε does not cover what is learned from copies."
            )
        elif altered is not None and altered.found > SUSPICIOUS_SHARE * altered.among:
            remarks.append(
                f"{altered} public or private images may be altered copies of images in the other split. Check some of "
                "them: ε does not cover what is learned from copies."
            )
        return remarks

    def _processing_remark(self) -> list[str]:
        """Return a remark if the processing of private images is not declared."""
        if not self.privacy.sigma or (self.task.processing or {}).get("private", "declared"):
            return []
        return [
            "The dataset does not say how its private images were processed. ε holds only if each was processed on its "
            "own: see 'Add a dataset'."
        ]

    def _copies_remark(self) -> list[str]:
        """Return a remark if the private split has copies of one image: together they have a larger epsilon."""
        copies, epsilon = self.task.copies, self.copies_epsilon
        if copies is None or copies.most < 2 or not self.privacy.sigma or epsilon is None:
            return []
        return [
            f"{copies.images:,} of {copies.among:,} private images are exact copies of another; one image appears "
            f"{copies.most:,} times. Its copies together have ε {epsilon:.4g}."
        ]

    def _left_out_remark(self) -> list[str]:
        """Return a remark if private images were left out as copies of public images."""
        if not self.task.left_out:
            return []
        return [
            f"{self.task.left_out:,} private images equal a public image, pixel by pixel, and were left out. The "
            "guarantee does not cover this number."
        ]

    def _units_remark(self) -> list[str]:
        """Return a remark if epsilon is stated per image, but units with several images have a larger epsilon."""
        units = self.task.units
        if units is None or self.spec.unit or not self.privacy.sigma or not units.remark:
            return []
        return [units.remark]

    def _delta_remark(self) -> list[str]:
        """Return a remark if delta exceeds 1/(2n); a delta of 1/n permits publishing a random row."""
        delta, size = self.privacy.delta, self.task.private
        if not self.privacy.sigma or delta <= 0.5 / size:
            return []
        if delta * size >= 1:
            return [
                f"Delta {delta:g} is at least 1/n (n = {size:,}): a mechanism that publishes one private record whole "
                "would satisfy this guarantee. No board accepts the result."
            ]
        return [
            f"Delta {delta:g} is {delta * size:.0%} of 1/n (n = {size:,}). At 1/n a mechanism may publish a random "
            "row, so use a delta well below it."
        ]

    def _unused_steps_remark(self) -> list[str]:
        """Return a remark on releases that used fewer steps than planned, so that sigma was larger than needed."""
        if not self.privacy.sigma:
            return []
        return [
            f"Release {release.name!r} asked for {least} of its {release.steps} planned steps in a seed: the rest cost "
            "accuracy and bought nothing. Plan only the steps that the fit uses."
            for release in self.privacy.plan
            if (least := min((seed.spent.get(release.name, 0) for seed in self.seeds), default=0)) < release.steps
        ]

    def _guessing_remark(self) -> list[str]:
        """Return a remark if always guessing the largest class is as accurate as this result."""
        accuracy, balanced = self.metrics["accuracy"].mean, self.metrics.get("balanced_accuracy")
        if accuracy > self.task.largest or balanced is None:
            return []
        return [
            f"Accuracy {accuracy:.1%} is not above the largest class's share of the test split, "
            f"{self.task.largest:.1%}: always guessing that class does as well. Balanced accuracy is "
            f"{balanced.mean:.1%} (chance: {1 / len(self.task.classes):.1%})."
        ]

    def _two_seeds_remark(self) -> list[str]:
        """Return a remark if an interval is based on two seeds only."""
        return [TWO_SEEDS_REMARK] if len(self.seeds) == 2 else []

    @property
    def file_name(self) -> str:
        """The file name of this result: learner, dataset, ε and a short digest of the spec."""
        return make_result_name(self.spec, self.digest)

    @property
    def file_names(self) -> tuple[str, str]:
        """The file names that this result may have: its own, and that of versions before 0.3."""
        return self.file_name, make_old_result_name(self.spec, self.digest)

    def write(self, folder: Path) -> Path:
        """Write the result into `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        return storage.write_record(self, folder / self.file_name)

    @classmethod
    def read(cls, file: Path) -> Result:
        """Read a result and check it against the schema.

        Raises:
            DataError: the file cannot be read, or does not fit the schema; the message names it and the first wrong
                field.
        """
        return storage.read_validated_record(cls, file)


def make_result_name(spec: Spec, digest: str | None = None) -> str:
    """Return the file name of a spec's result: learner, dataset, ε and a short digest."""
    return f"{spec.learner.name}-{spec.dataset.name}-eps{spec.epsilon:g}-{(digest or spec.digest)[:8]}.json"


def make_old_result_name(spec: Spec, digest: str) -> str:
    """Return the file name that versions before 0.3 gave to a spec's result."""
    return f"{spec.learner.name}-{spec.dataset.name}-{digest[:16]}.json"


def summarise_metrics(seeds: Sequence[SeedResult]) -> dict[str, Interval]:
    """Return the mean and interval of every metric that all seeds have."""
    columns = {name: [value for seed in seeds if (value := seed.metrics[name]) is not None] for name in METRICS}
    return {name: mean_interval(values) for name, values in columns.items() if len(values) == len(seeds)}


def mean_interval(values: Sequence[float]) -> Interval:
    """Return the mean of some values with its 95% t interval.

    >>> mean_interval([0.5, 0.7]).mean
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
