"""What components do, as numbers: by them code is told that computes the same, where its source differs. No torch here.

A folder has one record for each learner and extractor, packed or not. A fingerprint stands there once, with every code
that has it: a code is two digests, that of dpbench's core and that of the component's plugin, as results state them
(`provenance.code`).
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from pydantic import Field

from dpbench.records import storage
from dpbench.records.packed import is_record
from dpbench.support.paths import PACKAGE
from dpbench.support.validation import Record

FingerprintKind = Literal["core", "learner", "extractor"]
TOLERANCE = 1e-3
"""How far the scores of a fit may be from those that are kept: root mean square, in units of their own deviation.

Without a processor's vector instructions, scores moved by up to 2.2e-4 (`whitened`, whose student is found by L-BFGS).
"""
FEATURES_TOLERANCE = 1e-2
"""The same for the features of an extractor, which may compute in half precision."""
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

    def agrees(self, other: FitPrint, tolerance: float = TOLERANCE) -> bool:
        """Return whether another fit came out as this one, up to rounding."""
        if len(self.labels) != len(other.labels):
            return False
        moved = sum(mine != theirs for mine, theirs in zip(self.labels, other.labels, strict=True))
        return moved <= max(1, LABELS * len(self.labels)) and self.distance(other) <= tolerance


class Behaviour(Record):
    """What a component does on fixed inputs; where it refuses one, its own words."""

    task: str  # of a learner, the fixed task that it was fitted on; of an extractor, its version and its weights
    fits: dict[str, FitPrint | str]  # of a learner by epsilon, of an extractor by the kind of images
    not_covered: str = Field(default="", exclude_if=lambda value: not value)  # why there are none

    def agrees(self, other: Behaviour, tolerance: float = TOLERANCE) -> bool:
        """Return whether another code does the same, up to rounding; of what is not covered nobody knows."""
        if self.not_covered or other.not_covered or (self.task, self.fits.keys()) != (other.task, other.fits.keys()):
            return False
        return all(_alike(fit, other.fits[name], tolerance) for name, fit in self.fits.items())


def _alike(first: FitPrint | str, second: FitPrint | str, tolerance: float) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return isinstance(first, str) and isinstance(second, str)
    return first.agrees(second, tolerance)


class Code(Record):
    """What a result states of the code of a component: the digests of dpbench's core and of its plugin."""

    dpbench: str
    plugin: str

    @classmethod
    def stated(cls, made: Mapping[str, Any], role: str) -> Code | None:
        """Return the code that a result names in `provenance.code`; None where it does not."""
        core, plugin = made.get("dpbench"), made.get(role)
        return cls(dpbench=core, plugin=plugin) if isinstance(core, str) and isinstance(plugin, str) else None


class Fingerprint(Record):
    """What a component does with one choice of settings, and every code that does it."""

    settings: dict[str, Any]
    codes: tuple[int, ...]  # places in `ComponentFingerprints.codes`
    behaviour: Behaviour


class Choices(Record):
    """What a learner chooses where settings are left to the budget, and every code that chooses it."""

    asked: dict[str, Any]  # None where it is left
    codes: tuple[int, ...]
    chosen: dict[str, Any]  # by the task and the epsilon: settings, or `refused`


class ComponentFingerprints(Record):
    """All that is known of one learner or extractor, or of the core, whose `Code.plugin` and settings are empty."""

    schema_version: Literal[1] = 1
    kind: FingerprintKind
    name: str
    codes: tuple[Code, ...] = ()
    prints: tuple[Fingerprint, ...] = ()
    choices: tuple[Choices, ...] = ()

    @property
    def tolerance(self) -> float:
        """How far two behaviours may be apart."""
        return FEATURES_TOLERANCE if self.kind == "extractor" else TOLERANCE

    def same(self, settings: Mapping[str, Any], first: Code, second: Code) -> bool | None:
        """Return whether two codes do the same with these settings.

        None where no fingerprint of one of them is kept, or none covers the settings.
        """
        found = [self.behaviour(settings, code) for code in (first, second)]
        if found[0] is None or found[1] is None or found[0].not_covered or found[1].not_covered:
            return None
        return found[0] is found[1] or found[0].agrees(found[1], self.tolerance)

    def same_choices(self, asked: Mapping[str, Any], first: Code, second: Code) -> bool | None:
        """Return whether two codes choose alike for settings that are left open; None where that is not kept."""
        if None not in asked.values():
            return True
        found = [self.chosen(asked, code) for code in (first, second)]
        return None if None in found else found[0] == found[1]

    def behaviour(self, settings: Mapping[str, Any], code: Code) -> Behaviour | None:
        """Return what a code does with these settings, where that is kept."""
        place, key = self._place(code), key_of(settings)
        found = (kept.behaviour for kept in self.prints if place in kept.codes and key_of(kept.settings) == key)
        return next(found, None)

    def chosen(self, asked: Mapping[str, Any], code: Code) -> dict[str, Any] | None:
        """Return what a code chooses for these settings, where that is kept."""
        place, key = self._place(code), key_of(asked)
        return next((kept.chosen for kept in self.choices if place in kept.codes and key_of(kept.asked) == key), None)

    def with_behaviour(self, settings: Mapping[str, Any], behaviour: Behaviour, code: Code) -> ComponentFingerprints:
        """Return the fingerprints with one more: beside the code that does the same, or on its own."""
        kept, place = self._with_code(code)
        prints = list(kept.prints)
        for number, known in enumerate(prints):
            alike = known.behaviour == behaviour or known.behaviour.agrees(behaviour, self.tolerance)
            if alike and key_of(known.settings) == key_of(settings):
                prints[number] = known.model_copy(update={"codes": tuple(sorted({*known.codes, place}))})
                break
        else:
            prints.append(Fingerprint(settings=dict(settings), codes=(place,), behaviour=behaviour))
        return kept.model_copy(update={"prints": tuple(prints)})

    def with_choices(self, asked: Mapping[str, Any], chosen: Mapping[str, Any], code: Code) -> ComponentFingerprints:
        """Return the fingerprints with what a code chooses for these settings."""
        kept, place = self._with_code(code)
        choices = list(kept.choices)
        for number, known in enumerate(choices):
            if key_of(known.asked) == key_of(asked) and known.chosen == chosen:
                choices[number] = known.model_copy(update={"codes": tuple(sorted({*known.codes, place}))})
                break
        else:
            choices.append(Choices(asked=dict(asked), codes=(place,), chosen=dict(chosen)))
        return kept.model_copy(update={"choices": tuple(choices)})

    def _place(self, code: Code) -> int:
        return self.codes.index(code) if code in self.codes else -1

    def _with_code(self, code: Code) -> tuple[ComponentFingerprints, int]:
        if code in self.codes:
            return self, self._place(code)
        return self.model_copy(update={"codes": (*self.codes, code)}), len(self.codes)

    def write(self, folder: Path) -> Path:
        """Write the file of this component below `folder`, atomically, and return it.

        Raises:
            OutputError: the folder cannot be written.
        """
        return storage.write(self, _file(folder, self.kind, self.name))


def read_fingerprints(folder: Path, kind: FingerprintKind, name: str) -> ComponentFingerprints:
    """Return what a folder has of a component; of one that it lacks, nothing.

    Raises:
        DataError: the file does not fit.
    """
    file = _file(folder, kind, name)
    return storage.read(ComponentFingerprints, file) if is_record(file) else ComponentFingerprints(kind=kind, name=name)


def fingerprint_folder() -> Path:
    """Return the folder of fingerprints that comes with dpbench, or the leaderboard's: beside the package, or here."""
    folders = [PACKAGE / "fingerprints", PACKAGE.parent / "leaderboard" / "fingerprints"]
    return next((folder for folder in folders if folder.is_dir()), Path("leaderboard") / "fingerprints")


def _file(folder: Path, kind: FingerprintKind, name: str) -> Path:
    return folder / "core.json" if kind == "core" else folder / f"{kind}s" / f"{name}.json"


def key_of(settings: Mapping[str, Any]) -> str:
    """Return settings as one text, by which they are found again; records spell infinity as text."""
    return json.dumps(settings, sort_keys=True).replace('"Infinity"', "Infinity")
