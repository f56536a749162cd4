"""Take the fingerprints that the results of a leaderboard ask for, of the code that is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbench.errors import DpbenchError
from dpbench.records.fingerprints import Behaviour, Code, LearnerFingerprints, key_of, read_fingerprints
from dpbench.records.packed import find_records, read_record
from dpbench.registry import Registry
from dpbench.support import progress
from dpbench.support.code import code_of, core

EVERY = 20
"""Fingerprints after which a file is written: what an interruption loses at most."""


@dataclass
class Wanted:
    """The settings of one learner that results have: as they ran, and as they were asked for."""

    settings: dict[str, dict[str, Any]] = field(default_factory=dict)
    asked: dict[str, dict[str, Any]] = field(default_factory=dict)


def wanted(results: Path) -> dict[str, Wanted]:
    """Return the settings of every result in a folder, by learner, each once.

    Raises:
        DataError: a record cannot be read.
    """
    found: dict[str, Wanted] = {}
    for file in find_records(results):
        content = json.loads(read_record(file))
        own = found.setdefault(content["spec"]["learner"]["name"], Wanted())
        settings, asked = settings_of(content)
        own.settings.setdefault(key_of(settings), settings)
        if content["settled"]:
            own.asked.setdefault(key_of(asked), asked)
    return dict(sorted(found.items()))


def settings_of(content: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the settings of a result as they ran, and as they were asked for: None where the budget settled them."""
    chosen = (content.get("search") or {}).get("chosen") or {}
    options = {**content["spec"]["learner"]["options"], **chosen}
    settled = content["settled"]
    return {**options, **settled}, {**options, **dict.fromkeys(settled)}


def refresh(results: Path, folder: Path, plugins: Registry) -> Iterator[LearnerFingerprints]:
    """Take every fingerprint that results ask for and `folder` lacks of this code; yield each learner's as it is done.

    What is there already is kept. It fits each setting three times on small data: about a second.

    Raises:
        DataError: a result or a fingerprint cannot be read.
        OutputError: the folder cannot be written.
    """
    for name, asked in wanted(results).items():
        code = code_here(name, plugins)
        if code is not None:
            yield _refresh(read_fingerprints(folder, name), asked, code, folder, plugins)


def code_here(learner: str, plugins: Registry) -> Code | None:
    """Return the code of a learner that is installed; None if it is not, or is written in a notebook."""
    item = plugins.components["learner"].get(learner)
    digests = (core(), item and code_of(item.cls))
    return Code(dpbench=digests[0], learner=digests[1]) if digests[0] and digests[1] else None


def _refresh(
    kept: LearnerFingerprints, asked: Wanted, code: Code, folder: Path, plugins: Registry
) -> LearnerFingerprints:
    from dpbench.harness.fingerprint import take_behaviour, take_choices

    with progress.meter(f"Taking fingerprints of {kept.learner}", len(asked.settings)) as advance:
        for number, settings in enumerate(asked.settings.values()):
            if kept.behaviour_of(settings, code) is None:
                behaviour = _taken(lambda own: take_behaviour(own, plugins), kept.learner, settings, plugins)
                kept = kept.with_behaviour(settings, behaviour, code)
                if number % EVERY == EVERY - 1:
                    kept.write(folder)
            advance(1)
    for open_settings in asked.asked.values():
        learner = plugins.build("learner", kept.learner, open_settings)
        kept = kept.with_choices(open_settings, take_choices(learner, plugins), code)
    kept.write(folder)
    return kept


def _taken(take: Any, name: str, settings: Mapping[str, Any], plugins: Registry) -> Behaviour:
    try:
        return take(plugins.build("learner", name, settings))  # type: ignore[no-any-return]
    except DpbenchError as error:  # settings that this code no longer has
        return Behaviour(task="", fits={}, not_covered=str(error))
