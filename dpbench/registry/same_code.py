"""Whether the code that made a result computes what the installed one does: by digests, and else by fingerprints."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dpbench.records.fingerprints import (
    Behaviour,
    Code,
    ComponentFingerprints,
    FingerprintKind,
    fingerprint_folder,
    read_fingerprints,
)
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.registry import Kind, Registry
from dpbench.registry.components import kind_of
from dpbench.support.code import DPBENCH, code_of, core

Sameness = Literal["digest", "fingerprint", "data", "differs", "unknown"]
"""By what code is known to be the same: its digest, its fingerprint or, of a dataset, the digests of its data.

`differs` if fingerprints differ, `unknown` if there are none to compare.
"""
SAME = ("digest", "fingerprint", "data")


@dataclass(frozen=True)
class Fingerprints:
    """The fingerprints in a folder, and those that are taken as they are asked for."""

    folder: Path = field(default_factory=fingerprint_folder)
    take: Callable[[FingerprintKind, str, Mapping[str, Any]], Behaviour] | None = None
    """Takes one of the installed code, where none is kept; None: what is not kept is unknown."""
    take_choices: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None
    _read: dict[tuple[FingerprintKind, str], ComponentFingerprints] = field(default_factory=dict)

    def same(
        self, kind: FingerprintKind, name: str, settings: Mapping[str, Any], stated: Code, here: Code
    ) -> bool | None:
        """Return whether two codes do the same; None where that is unknown.

        Raises:
            DataError: a file of fingerprints does not fit.
        """
        kept = self._of(kind, name)
        known = kept.behaviour(settings, stated)
        if known is None or known.not_covered:
            return None
        if self.take is not None and kept.behaviour(settings, here) is None:
            self._read[kind, name] = kept = kept.with_behaviour(settings, self.take(kind, name, settings), here)
        return kept.same(settings, stated, here)

    def same_choices(self, name: str, asked: Mapping[str, Any], stated: Code, here: Code) -> bool | None:
        """Return whether two codes of a learner choose alike where settings are left to the budget."""
        kept = self._of("learner", name)
        if self.take_choices is not None and None in asked.values() and kept.chosen(asked, here) is None:
            self._read["learner", name] = kept = kept.with_choices(asked, self.take_choices(name, asked), here)
        return kept.same_choices(asked, stated, here)

    def _of(self, kind: FingerprintKind, name: str) -> ComponentFingerprints:
        if (kind, name) not in self._read:
            self._read[kind, name] = read_fingerprints(self.folder, kind, name)
        return self._read[kind, name]


@functools.cache
def stored_fingerprints() -> Fingerprints:
    """Return the fingerprints that come with dpbench, read once a process; none is taken."""
    return Fingerprints()


def compare_code(
    result: Result, plugins: Registry, known: Fingerprints, *, same_data: bool | None
) -> dict[str, Sameness]:
    """Return by what the code of each role of a result, and of dpbench itself, is known to be the installed one.

    The code of a dataset is the same if its data are. That of the core is, where its digest differs, if the learner
    does the same on it, every extractor does, and the core answers fixed questions to the last bit.

    Args:
        result: a result that states digests of code; a role whose digest it does not state is unknown.
        plugins: what is installed.
        known: fingerprints.
        same_data: whether the data here have the digests that the result states; None if nobody has looked.

    Raises:
        DataError: a file of fingerprints does not fit.
    """
    stated = stated_code(result)
    here = {role: digest_here(kind_of(role), part.name, plugins) for role, part in result.spec.roles.items()}
    parts = {role: part for role, part in result.spec.roles.items() if role in stated or here[role] is not None}
    found: dict[str, Sameness] = {}
    for role, part in parts.items():
        if role not in stated:
            found[role] = "unknown"
        elif here[role] == stated[role] and kind_of(role) == "dataset":
            found[role] = "digest"
        elif kind_of(role) == "dataset":
            found[role] = "unknown" if same_data is None else "data" if same_data else "differs"
        else:
            found[role] = _compare(result, role, part, plugins, known)
    if DPBENCH in stated:
        behaving = [found[role] for role in found if kind_of(role) != "dataset"]
        alike = _core(stated[DPBENCH], plugins, known)
        found[DPBENCH] = alike if alike == "digest" else _weakest([*behaving, alike])
    elif core() is not None:
        found[DPBENCH] = "unknown"
    same = {role for role in parts if role in stated and here[role] == stated[role]}  # whatever the core's is
    return {role: "digest" if role in same else one for role, one in found.items()}


def stated_code(result: Result) -> Mapping[str, str]:
    """Return the digests of code that a result states, by role; what has another form counts as not stated."""
    code = result.provenance.get("code")
    if not isinstance(code, Mapping):
        return {}
    return {role: digest for role, digest in code.items() if isinstance(digest, str)}


def is_same_code(result: Result, plugins: Registry, known: Fingerprints, *, same_data: bool | None) -> bool:
    """Return whether the installed code is known to compute what the code of a result does; see `compare_code`."""
    return all(one in SAME for one in compare_code(result, plugins, known, same_data=same_data).values())


def digest_here(kind: Kind, name: str, plugins: Registry) -> str | None:
    """Return the digest of the installed code of a component; None where it is not installed, or has no files."""
    item = plugins.components[kind].get(name)
    return code_of(item.cls) if item else None


def code_here(kind: FingerprintKind, name: str, plugins: Registry) -> Code | None:
    """Return the code of a component that is installed; None if it is not, or is written in a notebook."""
    made, digest = core(), "" if kind == "core" else digest_here(kind, name, plugins)
    return None if made is None or digest is None else Code(dpbench=made, plugin=digest)


def settings_as_asked(settings: Mapping[str, Any], settled: Container[str]) -> dict[str, Any]:
    """Return settings as they were asked for: None where the budget settled them."""
    return {name: None if name in settled else value for name, value in settings.items()}


def _compare(result: Result, role: str, part: Component, plugins: Registry, known: Fingerprints) -> Sameness:
    kind: FingerprintKind = "learner" if kind_of(role) == "learner" else "extractor"
    stated, here = Code.stated(stated_code(result), role), code_here(kind, part.name, plugins)
    if stated is None or here is None:
        return "unknown"
    if stated == here:
        return "digest"
    if kind == "extractor":
        return _verdict([known.same(kind, part.name, part.options, stated, here)])
    settings = result.settings
    alike = known.same_choices(part.name, settings_as_asked(settings, result.settled), stated, here)
    return _verdict([known.same(kind, part.name, settings, stated, here), alike])


def _core(stated: str, plugins: Registry, known: Fingerprints) -> Sameness:
    here = code_here("core", "core", plugins)
    if here is None:
        return "unknown"
    there = Code(dpbench=stated, plugin="")
    return "digest" if there == here else _verdict([known.same("core", "core", {}, there, here)])


def _verdict(found: list[bool | None]) -> Sameness:
    return "differs" if False in found else "unknown" if None in found else "fingerprint"


def _weakest(found: list[Sameness]) -> Sameness:
    return next(iter(sorted(found, key=["differs", "unknown", "fingerprint", "digest"].index)), "unknown")


def describe(found: Mapping[str, Sameness]) -> Iterator[str]:
    """Yield what is not the same, in words."""
    for role, one in found.items():
        if one not in SAME:
            name = "dpbench" if role == DPBENCH else f"the {role}"
            yield f"{name} {'computes something else' if one == 'differs' else 'is other code without a fingerprint'}"
