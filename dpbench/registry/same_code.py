"""Compare the code of a result with the installed code: by digest, or else by fingerprint."""

from __future__ import annotations

import functools
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dpbench.records.fingerprints import (
    CodeDigests,
    ComponentBehaviour,
    ComponentFingerprints,
    FingerprintKind,
    locate_fingerprint_folder,
    read_fingerprints,
)
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.registry import ComponentKind, Registry
from dpbench.registry.components import component_kind_of_role
from dpbench.support.code import DPBENCH, code_digest, core_digest

CodeMatch = Literal["digest", "fingerprint", "data", "differs", "unknown"]
"""The evidence that code is the same: its digest, its fingerprint or, for a dataset, the digests of its data.

`differs`: the fingerprints, or the digests of the data, differ. `unknown`: there is nothing to compare.
"""
SAME_CODE = ("digest", "fingerprint", "data")


@dataclass(frozen=True)
class FingerprintStore:
    """The stored fingerprints in a folder, and fingerprints of the installed code that are taken on demand."""

    folder: Path = field(default_factory=locate_fingerprint_folder)
    take: Callable[[FingerprintKind, str, Mapping[str, Any]], ComponentBehaviour] | None = None
    """Computes a fingerprint of the installed code if none is stored. If `take` is None, comparisons stay unknown."""
    take_choices: Callable[[str, Mapping[str, Any]], dict[str, Any]] | None = None
    _read: dict[tuple[FingerprintKind, str], ComponentFingerprints] = field(default_factory=dict)

    def has_same_behaviour(
        self,
        kind: FingerprintKind,
        name: str,
        settings: Mapping[str, Any],
        stated_code: CodeDigests,
        installed: CodeDigests,
    ) -> bool | None:
        """Return whether two versions of a component's code behave the same; None if that is unknown.

        Raises:
            DataError: a file of fingerprints is not valid.
        """
        kept = self._read_component(kind, name)
        known = kept.behaviour(settings, stated_code)
        if known is None or known.not_covered:
            return None
        if self.take is not None and kept.behaviour(settings, installed) is None:
            self._read[kind, name] = kept = kept.with_behaviour(settings, self.take(kind, name, settings), installed)
        return kept.has_same_behaviour(settings, stated_code, installed)

    def has_same_choices(
        self, name: str, requested: Mapping[str, Any], stated_code: CodeDigests, installed: CodeDigests
    ) -> bool | None:
        """Return whether two versions of a learner choose the same settings from the budget; None if unknown."""
        kept = self._read_component("learner", name)
        if self.take_choices is not None and None in requested.values() and kept.choice(requested, installed) is None:
            self._read["learner", name] = kept = kept.with_choices(
                requested, self.take_choices(name, requested), installed
            )
        return kept.has_same_choices(requested, stated_code, installed)

    def _read_component(self, kind: FingerprintKind, name: str) -> ComponentFingerprints:
        if (kind, name) not in self._read:
            self._read[kind, name] = read_fingerprints(self.folder, kind, name)
        return self._read[kind, name]


@functools.cache
def load_stored_fingerprints() -> FingerprintStore:
    """Return the fingerprints that come with dpbench, read once per process and never extended."""
    return FingerprintStore()


def compare_with_installed_code(
    result: Result, plugins: Registry, fingerprints: FingerprintStore, *, same_data: bool | None, choices: bool = True
) -> dict[str, CodeMatch]:
    """Compare the code of each role of a result, and of dpbench, with the installed code.

    The code of a dataset counts as the same if its data are the same. If the digest of dpbench's core differs, the core
    counts as the same if the learner and every extractor behave the same with both cores, and if both cores give the
    same answers to fixed questions, to the last bit.

    Args:
        result: a result that states digests of code; a role without a stated digest is unknown.
        plugins: the installed components.
        fingerprints: the fingerprints to compare.
        same_data: whether the installed data have the digests that the result states; None if that was not checked.
        choices: whether both codes have to choose the same settings from the budget; False if the caller compares the
            chosen settings themselves, which an earlier version of the learner may have chosen.

    Raises:
        DataError: a file of fingerprints is not valid.
    """
    stated = read_stated_digests(result)
    here = {
        role: find_installed_digest(component_kind_of_role(role), part.name, plugins)
        for role, part in result.spec.roles.items()
    }
    parts = {role: part for role, part in result.spec.roles.items() if role in stated or here[role] is not None}
    found: dict[str, CodeMatch] = {}
    for role, part in parts.items():
        if role not in stated:
            found[role] = "unknown"
        elif here[role] == stated[role] and component_kind_of_role(role) == "dataset":
            found[role] = "digest"
        elif component_kind_of_role(role) == "dataset":
            found[role] = "unknown" if same_data is None else "data" if same_data else "differs"
        else:
            found[role] = _compare_component(result, role, part, plugins, fingerprints, choices)
    if DPBENCH in stated:
        behaving = [found[role] for role in found if component_kind_of_role(role) != "dataset"]
        alike = _compare_core(stated[DPBENCH], plugins, fingerprints)
        found[DPBENCH] = alike if alike == "digest" else _find_weakest_match([*behaving, alike])
    elif core_digest() is not None:
        found[DPBENCH] = "unknown"
    same = {role for role in parts if role in stated and here[role] == stated[role]}  # whatever the core's is
    return {role: "digest" if role in same else value for role, value in found.items()}


def read_stated_digests(result: Result) -> Mapping[str, str]:
    """Return the code digests that a result states, by role; values that are not text are left out."""
    code = result.provenance.get("code")
    if not isinstance(code, Mapping):
        return {}
    return {role: digest for role, digest in code.items() if isinstance(digest, str)}


def is_same_code(result: Result, plugins: Registry, fingerprints: FingerprintStore, *, same_data: bool | None) -> bool:
    """Return whether the installed code is known to compute what the result's did: `compare_with_installed_code`."""
    return all(
        verdict in SAME_CODE
        for verdict in compare_with_installed_code(result, plugins, fingerprints, same_data=same_data).values()
    )


def find_installed_digest(kind: ComponentKind, name: str, plugins: Registry) -> str | None:
    """Return the digest of a component's installed code; None if it is not installed or has no files."""
    item = plugins.components[kind].get(name)
    return code_digest(item.cls) if item else None


def find_installed_code(kind: FingerprintKind, name: str, plugins: Registry) -> CodeDigests | None:
    """Return the installed code of a component; None if it is not installed or was written in a notebook."""
    made, digest = core_digest(), "" if kind == "core" else find_installed_digest(kind, name, plugins)
    return None if made is None or digest is None else CodeDigests(dpbench=made, plugin=digest)


def restore_requested_settings(settings: Mapping[str, Any], settled: Container[str]) -> dict[str, Any]:
    """Return the settings as requested: None for every setting that was chosen from the budget."""
    return {name: None if name in settled else value for name, value in settings.items()}


def _compare_component(
    result: Result, role: str, part: Component, plugins: Registry, fingerprints: FingerprintStore, choices: bool
) -> CodeMatch:
    kind: FingerprintKind = "learner" if component_kind_of_role(role) == "learner" else "extractor"
    stated, here = (
        CodeDigests.from_provenance(read_stated_digests(result), role),
        find_installed_code(kind, part.name, plugins),
    )
    if stated is None or here is None:
        return "unknown"
    if stated == here:
        return "digest"
    if kind == "extractor":
        return _combine_matches([fingerprints.has_same_behaviour(kind, part.name, part.options, stated, here)])
    settings = result.settings
    alike: bool | None = True
    if choices:
        alike = fingerprints.has_same_choices(
            part.name, restore_requested_settings(settings, result.settled), stated, here
        )
    return _combine_matches([fingerprints.has_same_behaviour(kind, part.name, settings, stated, here), alike])


def _compare_core(stated_digest: str, plugins: Registry, fingerprints: FingerprintStore) -> CodeMatch:
    here = find_installed_code("core", "core", plugins)
    if here is None:
        return "unknown"
    there = CodeDigests(dpbench=stated_digest, plugin="")
    return (
        "digest"
        if there == here
        else _combine_matches([fingerprints.has_same_behaviour("core", "core", {}, there, here)])
    )


def _combine_matches(matches: list[bool | None]) -> CodeMatch:
    return "differs" if False in matches else "unknown" if None in matches else "fingerprint"


def _find_weakest_match(matches: list[CodeMatch]) -> CodeMatch:
    return next(iter(sorted(matches, key=["differs", "unknown", "fingerprint", "digest"].index)), "unknown")


def describe_code_differences(matches: Mapping[str, CodeMatch]) -> Iterator[str]:
    """Describe each role whose code differs or cannot be compared."""
    for role, value in matches.items():
        if value not in SAME_CODE:
            name = "dpbench" if role == DPBENCH else f"the {role}"
            yield f"{name} {'computes something else' if value == 'differs' else 'is other code without a fingerprint'}"
