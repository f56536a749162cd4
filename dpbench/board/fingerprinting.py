"""Take fingerprints of the installed code with all settings of learners and extractors in a leaderboard's results."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbench.errors import DataError
from dpbench.records.fingerprints import (
    CodeDigests,
    ComponentFingerprints,
    FingerprintKind,
    read_fingerprints,
    settings_key,
)
from dpbench.records.packed import list_records, read_record
from dpbench.records.protocol import CONCAT
from dpbench.registry import Registry
from dpbench.registry.same_code import find_installed_code, restore_requested_settings
from dpbench.support import progress

WRITE_EVERY = 10
"""Number of fingerprints after which a file is written; an interruption loses at most this many."""


@dataclass
class DistinctSettings:
    """One component's distinct settings in all results, by key.

    `settings` are the settings that ran. `asked` are the settings as users requested them, None where the learner chose
    from the budget; a result without such a choice is left out.
    """

    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)


def collect_settings(results: Path) -> dict[tuple[FingerprintKind, str], DistinctSettings]:
    """Return the distinct settings of every learner and extractor in the results of a folder, by kind and name.

    The key ("core", "core") is always there, with empty settings.

    Raises:
        DataError: a result cannot be read, or the folder has none.
    """
    found: dict[tuple[FingerprintKind, str], DistinctSettings] = {("core", "core"): DistinctSettings({"": {}})}
    for file in list_records(results):
        content = json.loads(read_record(file))
        spec = content["spec"]
        own = found.setdefault(("learner", spec["learner"]["name"]), DistinctSettings())
        chosen = (content.get("search") or {}).get("chosen") or {}
        settings = {**spec["learner"]["options"], **chosen, **content["settled"]}
        own.settings.setdefault(settings_key(settings), settings)
        if content["settled"]:
            asked = restore_requested_settings(settings, content["settled"])
            own.asked.setdefault(settings_key(asked), asked)
        extractor = spec["extractor"]
        for part in extractor["options"]["of"] if extractor["name"] == CONCAT else [extractor]:
            parts = found.setdefault(("extractor", part["name"]), DistinctSettings())
            parts.settings.setdefault(settings_key(part["options"]), part["options"])
    if len(found) == 1:
        raise DataError(f"Expected results in {results}, found none. Name a leaderboard's folder with --root.")
    return dict(sorted(found.items()))


def refresh_fingerprints(results: Path, folder: Path, plugins: Registry) -> Iterator[ComponentFingerprints]:
    """Take the fingerprints of the installed code that results need and `folder` lacks; yield each component's.

    Existing fingerprints are kept. Components that are not installed are left out. A learner is fitted twice for each
    of its settings, on small data, in about a second.

    Raises:
        DataError: a result or a fingerprint cannot be read.
        OutputError: the folder cannot be written.
    """
    for (kind, name), asked in collect_settings(results).items():
        code = find_installed_code(kind, name, plugins)
        if code is not None:
            yield _refresh_component_fingerprints(read_fingerprints(folder, kind, name), asked, code, folder, plugins)


def _refresh_component_fingerprints(
    kept: ComponentFingerprints, settings_in_use: DistinctSettings, code: CodeDigests, folder: Path, plugins: Registry
) -> ComponentFingerprints:
    from dpbench.harness.fingerprints.taking import compute_auto_settings, take_fingerprint

    left = [settings for settings in settings_in_use.settings.values() if kept.behaviour(settings, code) is None]
    with progress.show_progress_bar(f"Taking fingerprints of {kept.name}", len(left)) as advance:
        for number, settings in enumerate(left):
            kept = kept.with_behaviour(settings, take_fingerprint(kept.kind, kept.name, settings, plugins), code)
            if number % WRITE_EVERY == WRITE_EVERY - 1:
                kept.write(folder)
            advance(1)
    for settings in settings_in_use.asked.values():
        if kept.choice(settings, code) is None:
            kept = kept.with_choices(settings, compute_auto_settings(kept.name, settings, plugins), code)
    kept.write(folder)
    return kept
