"""Settings taken from an earlier tuning or run, on this dataset or another."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dpbench.api import Learner
from dpbench.errors import DataError, SpecError
from dpbench.records.result import Result, Tuning
from dpbench.records.search import Selection, SelectionRule, Source
from dpbench.records.spec import Spec
from dpbench.registry import fields_from

Earlier = Result | Tuning
_SPLIT = {"dataset", "public_dataset", "public_fraction", "split_seed"}
_NO_MATTER = {"search", "seeds", "learner", "secure_rng"}  # a setting is carried across as if it were chosen here


def settings_from(file: Path, learner: Learner) -> tuple[Learner, Earlier]:
    """Return the learner with the settings in `file`, a tuning or a result, and what the file holds.

    Raises:
        DataError: not a result or a tuning.
        SpecError: of another learner, or of a private search, which chooses a setting for each seed.
    """
    earlier = _read(file)
    if earlier.spec.learner.name != learner.name:
        raise SpecError(
            f"Expected settings of learner {learner.name!r} in {file}, got those of {earlier.spec.learner.name!r}."
        )
    options = fields_from(type(learner), _options(earlier), f"learner {learner.name!r} in {file}")
    return dataclasses.replace(learner, **options), earlier  # type: ignore[type-var]


def record(earlier: Earlier, spec: Spec, digests: Mapping[str, str]) -> Selection:
    """Return how settings from an earlier file count for this spec.

    ============================================ ================================= ============================
    the file is about                            rule on record                    private records touched
    ============================================ ================================= ============================
    data other than the private split here       `transfer`                        no
    this very protocol, seeds apart              its own                           as there
    this split, another budget or extractor      `by-hand`                         as there
    this data, split otherwise, or as public     `private-unaccounted`             yes: labels public there
                                                                                   are private here
    ============================================ ================================= ============================

    Settings that nobody chose, a learner's defaults, stay `default`.
    """
    source = Source(
        digest=earlier.digest, dataset=earlier.spec.dataset.name, extractor=earlier.spec.extractor.name,
        epsilon="Infinity" if earlier.spec.epsilon == float("inf") else earlier.spec.epsilon, selection=_rule(earlier),
    )  # fmt: skip
    rule = _relation(earlier, spec, digests)
    search = _search(earlier)
    kept = search or Selection(
        rule=rule, space={}, possible=1, tried=1, draw="none", seed=0, private_touched=False, public_labels=0, chosen={}
    )
    touched = {"transfer": False, "private-unaccounted": True}.get(rule, kept.private_touched)
    changed = {"rule": rule, "source": source, "chosen": _options(earlier), "trials": (), "private_touched": touched}
    return kept.model_copy(update=changed)


def _relation(earlier: Earlier, spec: Spec, digests: Mapping[str, str]) -> SelectionRule:
    rule = _rule(earlier)
    there = earlier.digests if isinstance(earlier, Tuning) else earlier.task.digests
    if rule == "default" or _same(earlier.spec, spec, set(Spec.model_fields) - _NO_MATTER):
        return rule
    if digests["private"] not in there.values():
        return "transfer"
    return "by-hand" if _same(earlier.spec, spec, _SPLIT) else "private-unaccounted"


def _same(one: Spec, other: Spec, fields: set[str]) -> bool:
    return one.model_dump(include=fields) == other.model_dump(include=fields)


def _read(file: Path) -> Earlier:
    try:
        return Tuning.read(file)
    except DataError as first:
        try:
            return Result.read(file)
        except DataError:
            raise DataError(f"Expected a tuning or a result of dpbench in {file}: {first}") from first


def _rule(earlier: Earlier) -> SelectionRule:
    return earlier.selection.rule if isinstance(earlier, Tuning) else earlier.selection


def _search(earlier: Earlier) -> Selection | None:
    return earlier.selection if isinstance(earlier, Tuning) else earlier.search


def _options(earlier: Earlier) -> dict[str, Any]:
    search = _search(earlier)
    if search is not None and search.chosen is None:
        raise SpecError("A private search chooses a setting for each seed; there is no one setting to take from it.")
    return {**earlier.spec.learner.options, **(search.chosen or {} if search else {})}
