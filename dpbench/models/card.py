"""A model's card: its training data, its fit and its privacy guarantee, as plain data. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from dpbench.analysis.describe import ResultFact, describe_components, describe_guarantee, format_settings
from dpbench.records.group_counts import GroupCounts, find_correct_count_error
from dpbench.records.groups import GroupColumn, compute_accuracy_from_counts, format_group_accuracies
from dpbench.records.protocol import Component
from dpbench.records.result import ComponentOrigin, Result, UnitFacts
from dpbench.records.search import SelectionRule
from dpbench.records.spec import Spec
from dpbench.records.stated_plan import PrivacyGuarantee, list_guarantee_limits
from dpbench.support.untrusted import PrintableText
from dpbench.support.validation import Record


class ExtractorFacts(Record):
    """The extractor of the model's features; a different version or different weights give different features."""

    name: str
    version: str
    weights: str  # digest; empty without weights
    # What the weights have seen; None where it is not stated.
    trained_on: PrintableText | None = Field(default=None, exclude_if=lambda value: value is None)
    # The origin of features that were computed elsewhere; None where this machine computed them.
    made_elsewhere: PrintableText | None = Field(default=None, exclude_if=lambda value: value is None)

    def has_same_features(self, other: ExtractorFacts) -> bool:
        """Return whether name, version and weights are equal.

        The field `trained_on` is not compared, because not every card states it.
        """
        return (self.name, self.version, self.weights) == (other.name, other.version, other.weights)


class TestScore(Record):
    """The predictor's score on the test split; the saved model gives the same scores there, up to rounding."""

    examples: int
    accuracy: float
    predictions: str | None  # SHA-256 of the predicted classes, as in the result
    # Test images and correct predictions by group and class, as in the result; None where there are no groups.
    groups: GroupCounts | None = Field(default=None, exclude_if=lambda value: value is None)
    group_correct: GroupCounts | None = Field(default=None, exclude_if=lambda value: value is None)

    @model_validator(mode="after")
    def _check_group_counts(self) -> TestScore:
        if (self.groups is None) != (self.group_correct is None):
            raise ValueError("expected test images and correct predictions by group, or neither")
        if self.groups and self.group_correct and (said := find_correct_count_error(self.groups, self.group_correct)):
            raise ValueError(said)
        return self

    @property
    def columns(self) -> tuple[GroupColumn, ...]:
        """The accuracy by group for each group column; empty without groups."""
        return (
            compute_accuracy_from_counts(self.groups, [self.group_correct])
            if self.groups and self.group_correct
            else ()
        )


class Card(Record):
    """A model's card: the fit it comes from, its guarantee, its inputs and its outputs."""

    schema_version: Literal[2] = 2
    spec: Spec  # of the run, every option spelled out
    settings: dict[str, Any]  # of the learner, as this fit had them
    selection: SelectionRule
    seed: int
    privacy: PrivacyGuarantee
    private_size: int | None  # private images, or units where epsilon is stated for one; None where it was not kept
    # Public images that the learner reads; None where it was not kept.
    public_size: int | None = Field(default=None, exclude_if=lambda value: value is None)
    # Private images that were left out, as a public image equals each. Not written where there are none.
    left_out: int = Field(default=0, ge=0, exclude_if=lambda value: not value)
    units: UnitFacts | None = Field(default=None, exclude_if=lambda value: value is None)  # where the dataset knows
    classes: tuple[PrintableText, ...]
    mode: str  # of its images, as PIL names it: others are converted
    example_shape: tuple[int, ...]
    extractors: tuple[ExtractorFacts, ...] = Field(min_length=1)
    logits: bool  # whether scores are logits: see `Learner.logits`
    test: TestScore
    licence: str  # of the data
    components: dict[str, ComponentOrigin]
    provenance: dict[str, Any]

    @property
    def extractor(self) -> Component:
        """The extractor with its options."""
        return self.spec.extractor

    @property
    def is_private(self) -> bool:
        """Whether the model may be published as differentially private, with the stated epsilon and delta."""
        return self._find_privacy_objection() is None

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The limits of the guarantee, in words."""
        elsewhere = ", ".join(filter(None, (part.made_elsewhere for part in self.extractors)))
        return list_guarantee_limits(self.privacy, self.left_out, elsewhere)

    @property
    def privacy_statement(self) -> str:
        """The model's privacy guarantee in a sentence or two, or the reason why it must not be published as private."""
        why = self._find_privacy_objection()
        if why is not None:
            return f"Not to be published as private: {why}."
        if not self.privacy.plan:
            return "ε 0: its plan asks for no private example."
        guarantee = f"(ε {self.privacy.epsilon:.4g}, δ {self.privacy.delta:g})"
        of = "the whole search for its settings" if self.privacy.repeats else "this one fit"
        return (
            f"{guarantee}-differentially private for one {self._unit} ({self.privacy.adjacency}), of {of}. Other "
            "fits on the same private data, including other seeds, add to this ε."
        )

    @property
    def _unit(self) -> str:
        return self.spec.unit or "image"

    def _describe_private_data(self) -> str:
        """Describe the number of private images or units, and how a guarantee per image applies to a unit."""
        if self.units is None or not self.spec.unit:
            whole = f"{self.private_size:,} images"
            return f"{whole}. {self.units.remark}" if self.units is not None and self.units.remark else whole
        return f"{self.units.count:,} {self.units.word}s ({self.units.images:,} images)"

    def _find_privacy_objection(self) -> str | None:
        if self.privacy.plan and math.isinf(self.spec.epsilon):
            return "it was fitted without noise"
        if self.selection in {"private-unaccounted", "oracle"}:
            return "its settings were chosen on private data, outside ε"
        if self.privacy.plan and self.privacy.rng == "research":
            return (
                f"anyone who knows seed {self.seed} can subtract its noise (research RNG). Train with --secure-rng to "
                "publish it"
            )
        return None

    def lines(self) -> list[tuple[str, str]]:
        """Return the card as pairs of heading and text."""
        return [(fact.name, fact.text) for fact in self._list_facts()]

    def _list_facts(self) -> Iterator[ResultFact]:
        spec, privacy = self.spec, self.privacy
        yield ResultFact("privacy", (self.privacy_statement,))
        if privacy.sigma:
            yield from describe_guarantee(spec, privacy, self.not_covered, self.private_size)
        if self.private_size is not None and privacy.plan:
            yield ResultFact("private data", (self._describe_private_data(),))
        yield ResultFact("learner", (f"{spec.learner.name}, seed {self.seed}",))
        yield ResultFact("settings", (f"{format_settings(self.settings)} ({self.selection})",))
        yield ResultFact("data", (str(spec.dataset), f"licence: {self.licence}"))
        shape = " x ".join(map(str, self.example_shape))
        yield ResultFact("features", (f"{self.extractor}, images as {self.mode}, {shape}",))
        seen = ", ".join(dict.fromkeys(part.trained_on or "not stated" for part in self.extractors))
        yield ResultFact("weights trained on", (seen,))
        yield ResultFact("classes", (", ".join(self.classes),))
        yield ResultFact("test split", (f"{100 * self.test.accuracy:.2f}% of {self.test.examples:,} images",))
        for column in self.test.columns:
            yield ResultFact(f"test accuracy by {column.name}", (format_group_accuracies(column),))
        yield from describe_components(self.components)
        yield ResultFact("result", (spec.digest,))

    def copy_origin(self, result: Result) -> Self:
        """Return a copy of this card, of a refitted seed, with the spec and the selection rule of the stored result."""
        return self.model_copy(update={"spec": result.spec, "selection": result.selection})
