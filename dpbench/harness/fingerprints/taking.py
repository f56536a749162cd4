"""Take the fingerprint of any component that is installed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpbench.errors import DpbenchError
from dpbench.harness.fingerprints.core import core_bits
from dpbench.harness.fingerprints.extractors import take_features
from dpbench.harness.fingerprints.learners import take_behaviour, take_choices
from dpbench.records.fingerprints import Behaviour, FingerprintKind, fingerprint_folder
from dpbench.registry import Registry
from dpbench.registry.same_code import Fingerprints


def take_fingerprint(kind: FingerprintKind, name: str, settings: Mapping[str, Any], plugins: Registry) -> Behaviour:
    """Return what a component does with these settings: a learner is fitted on a small task, twice.

    Settings that the installed component does not have are not covered.
    """
    if kind == "core":
        return Behaviour(task=core_bits(), fits={})
    try:
        component = plugins.build(kind, name, settings)
    except DpbenchError as error:
        return Behaviour(task="", fits={}, not_covered=str(error))
    return take_behaviour(component, plugins) if kind == "learner" else take_features(component)


def take_open_settings(name: str, asked: Mapping[str, Any], plugins: Registry) -> dict[str, Any]:
    """Return what a learner chooses where `asked` leaves settings open."""
    try:
        return take_choices(plugins.build("learner", name, asked), plugins)
    except DpbenchError as error:
        return {"": str(error)}


def taken_as_asked(plugins: Registry, folder: Path | None = None) -> Fingerprints:
    """Return the fingerprints in a folder, and of the installed code those that are missing there, when asked for."""
    return Fingerprints(
        folder or fingerprint_folder(),
        lambda kind, name, settings: take_fingerprint(kind, name, settings, plugins),
        lambda name, asked: take_open_settings(name, asked, plugins),
    )
