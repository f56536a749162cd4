"""What a learner does, as numbers: by them code is told that computes the same, where its source differs. No torch here.

A folder has one file for each learner. A fingerprint stands there once, with every code that has it: a code is two
digests, that of dpbench's core and that of the learner's plugin, as results state them (`provenance.code`).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from dpbench.records import storage
from dpbench.support.validation import Record

TOLERANCE = 2e-3
"""How far the scores of a fit may be from those that are kept: root mean square, in units of their own deviation."""
LABELS = 0.02
"""Share of the labels that may differ: of examples between two classes, which rounding decides."""
FULL = 32767


class FitPrint(Record):
    """What came of one fit: the scores of some test examples, and the labels of more."""

    scores: str  # base64 of int16, little-endian, in units of `unit`: (examples, classes)
    unit: float
    labels: str  # a character each: the number of the predicted class, in base 36

    @classmethod
    def of(cls, scores: np.ndarray, examples: int) -> FitPrint:
        """Return the print of scores (n, classes), which keeps those of the first `examples`."""
        kept = scores[:examples].astype(np.float64)
        unit = float(f"{(np.abs(kept).max() or 1.0) / (FULL - 1):.6g}")
        whole = np.rint(kept / unit).astype("<i2").tobytes()
        labels = "".join(np.base_repr(label, 36).lower() for label in scores.argmax(1))
        return cls(scores=base64.b64encode(whole).decode(), unit=unit, labels=labels)

    def values(self) -> np.ndarray:
        """Return the scores as one row of float64."""
        return np.frombuffer(base64.b64decode(self.scores), "<i2") * self.unit

    def distance(self, other: FitPrint) -> float:
        """Return how far the scores of another print are from these, as `TOLERANCE` counts; infinite if of other shape.

        Whatever this print is of, its own deviation is the unit: of labels without scores, a constant.
        """
        mine, theirs = self.values(), other.values()
        if mine.shape != theirs.shape:
            return math.inf
        apart, spread = float(np.sqrt(np.mean((mine - theirs) ** 2))), float(mine.std())
        return apart / spread if spread else apart / (float(np.abs(mine).max()) or 1.0)

    def agrees(self, other: FitPrint) -> bool:
        """Return whether another fit came out as this one, up to rounding."""
        if len(self.labels) != len(other.labels):
            return False
        moved = sum(one != another for one, another in zip(self.labels, other.labels, strict=True))
        return moved <= LABELS * len(self.labels) and self.distance(other) <= TOLERANCE


class Behaviour(Record):
    """What one setting of a learner does on the fixed task, at each epsilon; what a fit refuses, in its own words."""

    task: str  # which of the fixed tasks it was fitted on; empty where none can hold the setting
    fits: dict[str, FitPrint | str]  # by epsilon
    not_covered: str = Field(default="", exclude_if=lambda value: not value)  # why there are no fits

    def agrees(self, other: Behaviour) -> bool:
        """Return whether another code does the same, up to rounding; of what is not covered nobody knows."""
        if self.not_covered or other.not_covered or (self.task, self.fits.keys()) != (other.task, other.fits.keys()):
            return False
        return all(_alike(fit, other.fits[epsilon]) for epsilon, fit in self.fits.items())


def _alike(one: FitPrint | str, another: FitPrint | str) -> bool:
    if isinstance(one, str) or isinstance(another, str):
        return isinstance(one, str) and isinstance(another, str)
    return one.agrees(another)


class Code(Record):
    """What a result states of the code that made it, as far as its learner goes."""

    dpbench: str
    learner: str

    @classmethod
    def stated(cls, made: Mapping[str, Any]) -> Code | None:
        """Return the code that a result names in `provenance.code`; None where it does not."""
        core, learner = made.get("dpbench"), made.get("learner")
        return cls(dpbench=core, learner=learner) if isinstance(core, str) and isinstance(learner, str) else None


class Fingerprint(Record):
    """What one setting does, and every code that does it."""

    settings: dict[str, Any]
    codes: tuple[int, ...]  # places in `LearnerFingerprints.codes`
    behaviour: Behaviour


class Choices(Record):
    """What a learner chooses where settings are left to the budget, and every code that chooses it."""

    asked: dict[str, Any]  # None where it is left
    codes: tuple[int, ...]
    chosen: dict[str, Any]  # by the task and the epsilon: settings, or its refusal


class LearnerFingerprints(Record):
    """All that is known of one learner."""

    schema_version: Literal[1] = 1
    learner: str
    codes: tuple[Code, ...] = ()
    prints: tuple[Fingerprint, ...] = ()
    choices: tuple[Choices, ...] = ()

    def same(self, settings: Mapping[str, Any], asked: Mapping[str, Any], first: Code, second: Code) -> bool | None:
        """Return whether two codes do the same with these settings, and choose alike where settings were left open.

        None where no fingerprint of one of them is kept, or the task does not cover the settings.
        """
        pairs = [self._together([one for one in self.prints if one.settings == settings], first, second)]
        if None in asked.values():
            pairs.append(self._together([one for one in self.choices if one.asked == asked], first, second))
        if False in pairs:
            return False
        return None if None in pairs else True

    def _together(self, kept: Iterable[Fingerprint | Choices], first: Code, second: Code) -> bool | None:
        places = [self.codes.index(code) if code in self.codes else -1 for code in (first, second)]
        known: dict[int, Fingerprint | Choices] = {}
        for one in kept:
            if isinstance(one, Fingerprint) and one.behaviour.not_covered:
                continue
            known |= dict.fromkeys(set(places) & set(one.codes), one)
        found = [known.get(place) for place in places]
        return None if None in found else found[0] is found[1]

    def behaviour_of(self, settings: Mapping[str, Any], code: Code) -> Behaviour | None:
        """Return what a code does with these settings, where that is kept."""
        place = self.codes.index(code) if code in self.codes else -1
        found = (one.behaviour for one in self.prints if one.settings == settings and place in one.codes)
        return next(found, None)

    def with_behaviour(self, settings: Mapping[str, Any], behaviour: Behaviour, code: Code) -> LearnerFingerprints:
        """Return the fingerprints with one more: beside the code that does the same, or on its own."""
        kept, place = self._with_code(code)
        prints = list(kept.prints)
        for number, one in enumerate(prints):
            if one.settings == settings and (one.behaviour.agrees(behaviour) or one.behaviour == behaviour):
                prints[number] = one.model_copy(update={"codes": tuple(sorted({*one.codes, place}))})
                break
        else:
            prints.append(Fingerprint(settings=dict(settings), codes=(place,), behaviour=behaviour))
        return kept.model_copy(update={"prints": tuple(prints)})

    def with_choices(self, asked: Mapping[str, Any], chosen: Mapping[str, Any], code: Code) -> LearnerFingerprints:
        """Return the fingerprints with what a code chooses for these settings."""
        kept, place = self._with_code(code)
        choices = list(kept.choices)
        for number, one in enumerate(choices):
            if one.asked == asked and one.chosen == chosen:
                choices[number] = one.model_copy(update={"codes": tuple(sorted({*one.codes, place}))})
                break
        else:
            choices.append(Choices(asked=dict(asked), codes=(place,), chosen=dict(chosen)))
        return kept.model_copy(update={"choices": tuple(choices)})

    def _with_code(self, code: Code) -> tuple[LearnerFingerprints, int]:
        if code in self.codes:
            return self, self.codes.index(code)
        return self.model_copy(update={"codes": (*self.codes, code)}), len(self.codes)

    def write(self, folder: Path) -> Path:
        """Write the file of this learner into `folder`, atomically, and return it.

        Raises:
            OutputError: the folder cannot be written.
        """
        return storage.write(self, folder / f"{self.learner}.json")


def read_fingerprints(folder: Path, learner: str) -> LearnerFingerprints:
    """Return what a folder has of a learner; of one that it lacks, nothing.

    Raises:
        DataError: the file does not fit.
    """
    file = folder / f"{learner}.json"
    return storage.read(LearnerFingerprints, file) if file.is_file() else LearnerFingerprints(learner=learner)


def key_of(settings: Mapping[str, Any]) -> str:
    """Return settings as one text, by which they are found again."""
    return json.dumps(settings, sort_keys=True)
