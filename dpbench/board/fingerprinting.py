"""Take the fingerprints that the results of a leaderboard ask for, of the code that is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbench.errors import DataError
from dpbench.records.fingerprints import Code, ComponentFingerprints, Fingerprinted, key_of, read_fingerprints
from dpbench.records.packed import find_records, read_record
from dpbench.records.protocol import CONCAT
from dpbench.registry import Registry
from dpbench.support import progress
from dpbench.support.code import code_of, core

EVERY = 10
"""Fingerprints after which a file is written: what an interruption loses at most."""


@dataclass
class Wanted:
    """The settings of one component that results have: as they ran, and as they were asked for."""

    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)


def wanted(results: Path) -> dict[tuple[Fingerprinted, str], Wanted]:
    """Return the settings of every learner and extractor that the results in a folder have, each once.

    Raises:
        DataError: a record cannot be read, or there is none.
    """
    found: dict[tuple[Fingerprinted, str], Wanted] = {("core", "core"): Wanted({"": {}})}
    for file in find_records(results):
        content = json.loads(read_record(file))
        spec = content["spec"]
        own = found.setdefault(("learner", spec["learner"]["name"]), Wanted())
        settings, asked = _settings(content)
        own.settings.setdefault(key_of(settings), settings)
        if content["settled"]:
            own.asked.setdefault(key_of(asked), asked)
        extractor = spec["extractor"]
        for part in extractor["options"]["of"] if extractor["name"] == CONCAT else [extractor]:
            parts = found.setdefault(("extractor", part["name"]), Wanted())
            parts.settings.setdefault(key_of(part["options"]), part["options"])
    if len(found) == 1:
        raise DataError(f"Expected results in {results}, found none. Name a leaderboard's folder with --root.")
    return dict(sorted(found.items()))


def _settings(content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a result as they ran, and as they were asked for: None where the budget settled them."""
    chosen = (content.get("search") or {}).get("chosen") or {}
    options = {**content["spec"]["learner"]["options"], **chosen}
    settled = content["settled"]
    return {**options, **settled}, {**options, **dict.fromkeys(settled)}


def refresh(results: Path, folder: Path, plugins: Registry) -> Iterator[ComponentFingerprints]:
    """Take every fingerprint that results ask for and `folder` lacks of this code; yield each component's when done.

    What is there already is kept. A learner is fitted twice for each of its settings, on small data: about a second.

    Raises:
        DataError: a result or a fingerprint cannot be read.
        OutputError: the folder cannot be written.
    """
    for (kind, name), asked in wanted(results).items():
        code = code_here(kind, name, plugins)
        if code is not None:
            yield _refresh(read_fingerprints(folder, kind, name), asked, code, folder, plugins)


def code_here(kind: Fingerprinted, name: str, plugins: Registry) -> Code | None:
    """Return the code of a component that is installed; None if it is not, or is written in a notebook."""
    made = core()
    if made is None:
        return None
    if kind == "core":
        return Code(dpbench=made, plugin="")
    item = plugins.components[kind].get(name)
    digest = item and code_of(item.cls)
    return Code(dpbench=made, plugin=digest) if digest else None


def _refresh(
    kept: ComponentFingerprints, asked: Wanted, code: Code, folder: Path, plugins: Registry
) -> ComponentFingerprints:
    from dpbench.harness.fingerprints.taking import take_fingerprint, take_open_settings

    left = [settings for settings in asked.settings.values() if kept.behaviour(settings, code) is None]
    with progress.meter(f"Taking fingerprints of {kept.name}", len(left)) as advance:
        for number, settings in enumerate(left):
            kept = kept.with_behaviour(settings, take_fingerprint(kept.kind, kept.name, settings, plugins), code)
            if number % EVERY == EVERY - 1:
                kept.write(folder)
            advance(1)
    for settings in asked.asked.values():
        if kept.chosen(settings, code) is None:
            kept = kept.with_choices(settings, take_open_settings(kept.name, settings, plugins), code)
    kept.write(folder)
    return kept
