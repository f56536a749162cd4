"""Fingerprints: outputs of components, which show whether changed code still computes the same. No torch here.

A folder has one record per learner and extractor, packed or not. Each fingerprint is stored once, with every code that
produced it. A code is a pair of digests, one of dpbench's core and one of the component's plugin, as results state them
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
from dpbench.records.packed import record_exists
from dpbench.support.paths import PACKAGE
from dpbench.support.validation import Record

FingerprintKind = Literal["core", "learner", "extractor"]
TOLERANCE = 1e-3
"""Largest root-mean-square difference from the stored scores of a fit, in standard deviations of the stored scores.

Without a processor's vector instructions, scores moved by up to 2.2e-4 (`whitened`, whose student is found by L-BFGS).
"""
FEATURES_TOLERANCE = 1e-2
"""Like `TOLERANCE`, but for the features of an extractor, which may compute in half precision."""
LABELS_TOLERANCE = 0.02
"""Share of the labels that may differ, because rounding decides the class of borderline examples."""
INT16_MAX = 32767


class FitFingerprint(Record):
    """The outcome of a fit: scores of a few test examples, and predicted labels of more examples."""

    scores: str  # base64 of int16, little-endian, in units of `unit`: (examples, classes)
    unit: float
    labels: str  # a character each: the number of the predicted class, in base 36

    @classmethod
    def from_scores(cls, scores: np.ndarray, examples: int) -> FitFingerprint:
        """Return the fingerprint of scores (n, classes); scores are kept for the first `examples` only."""
        kept = scores[:examples].astype(np.float64)
        unit = float(f"{(np.abs(kept).max() or 1.0) / (INT16_MAX - 1):.6g}")
        whole = np.rint(kept / unit).astype("<i2").tobytes()
        labels = "".join(np.base_repr(label, 36).lower() for label in scores.argmax(1))
        return cls(scores=base64.b64encode(whole).decode(), unit=unit, labels=labels)

    def values(self) -> np.ndarray:
        """Return the scores as a one-dimensional array of float64."""
        return np.frombuffer(base64.b64decode(self.scores), "<i2") * self.unit

    def distance(self, other: FitFingerprint) -> float:
        """Return the root-mean-square difference between these scores and another fit's; infinity if shapes differ.

        The unit is the standard deviation of this fit's scores, or their magnitude if they are constant.
        """
        mine, theirs = self.values(), other.values()
        if mine.shape != theirs.shape:
            return math.inf
        apart, spread = float(np.sqrt(np.mean((mine - theirs) ** 2))), float(mine.std())
        return apart / spread if spread else apart / (float(np.abs(mine).max()) or 1.0)

    def agrees(self, other: FitFingerprint, tolerance: float = TOLERANCE) -> bool:
        """Return whether another fit has the same outcome, up to rounding."""
        if len(self.labels) != len(other.labels):
            return False
        moved = sum(mine != theirs for mine, theirs in zip(self.labels, other.labels, strict=True))
        return moved <= max(1, LABELS_TOLERANCE * len(self.labels)) and self.distance(other) <= tolerance


class ComponentBehaviour(Record):
    """The outputs of a component on fixed inputs, or its error message for each input that it refuses."""

    task: str  # of a learner, the fixed task that it was fitted on; of an extractor, its version and its weights
    fits: dict[str, FitFingerprint | str]  # of a learner by epsilon, of an extractor by the kind of images
    not_covered: str = Field(default="", exclude_if=lambda value: not value)  # why there are none

    def agrees(self, other: ComponentBehaviour, tolerance: float = TOLERANCE) -> bool:
        """Return whether another behaviour is the same up to rounding; False if either one is not covered."""
        if self.not_covered or other.not_covered or (self.task, self.fits.keys()) != (other.task, other.fits.keys()):
            return False
        return all(_fits_agree(fit, other.fits[name], tolerance) for name, fit in self.fits.items())


def _fits_agree(first: FitFingerprint | str, second: FitFingerprint | str, tolerance: float) -> bool:
    if isinstance(first, str) or isinstance(second, str):
        return isinstance(first, str) and isinstance(second, str)
    return first.agrees(second, tolerance)


class CodeDigests(Record):
    """The digests of a component's code, as a result states them: of dpbench's core and of the component's plugin."""

    dpbench: str
    plugin: str

    @classmethod
    def from_provenance(cls, provenance: Mapping[str, Any], role: str) -> CodeDigests | None:
        """Read the code from a result's `provenance.code`; return None if it is not recorded."""
        core, plugin = provenance.get("dpbench"), provenance.get(role)
        return cls(dpbench=core, plugin=plugin) if isinstance(core, str) and isinstance(plugin, str) else None


class BehaviourFingerprint(Record):
    """The behaviour of a component with given settings, and every code that shows this behaviour."""

    settings: dict[str, Any]
    codes: tuple[int, ...]  # places in `ComponentFingerprints.codes`
    behaviour: ComponentBehaviour


class ChosenSettings(Record):
    """The settings that a learner chooses from the budget, and every code that chooses them."""

    asked: dict[str, Any]  # None where it is left
    codes: tuple[int, ...]
    chosen: dict[str, Any]  # by the task and the epsilon: settings, or `refused`


class ComponentFingerprints(Record):
    """All fingerprints of a learner, an extractor or the core.

    For the core, `CodeDigests.plugin` and settings are empty.
    """

    schema_version: Literal[1] = 1
    kind: FingerprintKind
    name: str
    codes: tuple[CodeDigests, ...] = ()
    prints: tuple[BehaviourFingerprint, ...] = ()
    choices: tuple[ChosenSettings, ...] = ()

    @property
    def tolerance(self) -> float:
        """The largest distance at which two behaviours still agree."""
        return FEATURES_TOLERANCE if self.kind == "extractor" else TOLERANCE

    def has_same_behaviour(self, settings: Mapping[str, Any], first: CodeDigests, second: CodeDigests) -> bool | None:
        """Return whether two codes behave the same with these settings.

        Returns None if a fingerprint of either code is missing or does not cover the settings.
        """
        found = [self.behaviour(settings, code) for code in (first, second)]
        if found[0] is None or found[1] is None or found[0].not_covered or found[1].not_covered:
            return None
        return found[0] is found[1] or found[0].agrees(found[1], self.tolerance)

    def has_same_choices(self, requested: Mapping[str, Any], first: CodeDigests, second: CodeDigests) -> bool | None:
        """Return whether two codes choose the same settings from a budget; True if `requested` leaves no setting open.

        Returns None if it is not recorded what one of the codes chooses.
        """
        if None not in requested.values():
            return True
        found = [self.choice(requested, code) for code in (first, second)]
        return None if None in found else found[0] == found[1]

    def behaviour(self, settings: Mapping[str, Any], code: CodeDigests) -> ComponentBehaviour | None:
        """Return the behaviour of a code with these settings; None if it is not recorded."""
        place, key = self._code_index(code), settings_key(settings)
        found = (kept.behaviour for kept in self.prints if place in kept.codes and settings_key(kept.settings) == key)
        return next(found, None)

    def choice(self, requested: Mapping[str, Any], code: CodeDigests) -> dict[str, Any] | None:
        """Return the settings that a code chose for these requested ones, by task and epsilon; None if not recorded."""
        place, key = self._code_index(code), settings_key(requested)
        return next(
            (kept.chosen for kept in self.choices if place in kept.codes and settings_key(kept.asked) == key), None
        )

    def with_behaviour(
        self, settings: Mapping[str, Any], behaviour: ComponentBehaviour, code: CodeDigests
    ) -> ComponentFingerprints:
        """Return a copy with this behaviour; if a stored fingerprint agrees with it, the code is added to that one."""
        kept, place = self._with_code(code)
        prints = list(kept.prints)
        for number, known in enumerate(prints):
            alike = known.behaviour == behaviour or known.behaviour.agrees(behaviour, self.tolerance)
            if alike and settings_key(known.settings) == settings_key(settings):
                prints[number] = known.model_copy(update={"codes": tuple(sorted({*known.codes, place}))})
                break
        else:
            prints.append(BehaviourFingerprint(settings=dict(settings), codes=(place,), behaviour=behaviour))
        return kept.model_copy(update={"prints": tuple(prints)})

    def with_choices(
        self, requested: Mapping[str, Any], chosen: Mapping[str, Any], code: CodeDigests
    ) -> ComponentFingerprints:
        """Return a copy that also records the settings that a code chose when `requested` was requested."""
        kept, place = self._with_code(code)
        choices = list(kept.choices)
        for number, known in enumerate(choices):
            if settings_key(known.asked) == settings_key(requested) and known.chosen == chosen:
                choices[number] = known.model_copy(update={"codes": tuple(sorted({*known.codes, place}))})
                break
        else:
            choices.append(ChosenSettings(asked=dict(requested), codes=(place,), chosen=dict(chosen)))
        return kept.model_copy(update={"choices": tuple(choices)})

    def _code_index(self, code: CodeDigests) -> int:
        return self.codes.index(code) if code in self.codes else -1

    def _with_code(self, code: CodeDigests) -> tuple[ComponentFingerprints, int]:
        if code in self.codes:
            return self, self._code_index(code)
        return self.model_copy(update={"codes": (*self.codes, code)}), len(self.codes)

    def write(self, folder: Path) -> Path:
        """Write this component's file below `folder`, atomically, and return the file.

        Raises:
            OutputError: the folder cannot be written.
        """
        return storage.write_record(self, _fingerprint_file(folder, self.kind, self.name))


def read_fingerprints(folder: Path, kind: FingerprintKind, name: str) -> ComponentFingerprints:
    """Return a component's fingerprints from a folder; the record is empty if the folder has none.

    Raises:
        DataError: the file does not fit the schema.
    """
    file = _fingerprint_file(folder, kind, name)
    return (
        storage.read_validated_record(ComponentFingerprints, file)
        if record_exists(file)
        else ComponentFingerprints(kind=kind, name=name)
    )


def locate_fingerprint_folder() -> Path:
    """Return the folder of fingerprints in the installed package, or else in the leaderboard."""
    folders = [PACKAGE / "fingerprints", PACKAGE.parent / "leaderboard" / "fingerprints"]
    return next((folder for folder in folders if folder.is_dir()), Path("leaderboard") / "fingerprints")


def _fingerprint_file(folder: Path, kind: FingerprintKind, name: str) -> Path:
    return folder / "core.json" if kind == "core" else folder / f"{kind}s" / f"{name}.json"


def settings_key(settings: Mapping[str, Any]) -> str:
    """Return a lookup key for settings; infinity as a number and as the text "Infinity" give the same key."""
    return json.dumps(settings, sort_keys=True).replace('"Infinity"', "Infinity")
