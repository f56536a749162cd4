"""Settings taken from an earlier tuning or run, on this dataset or another."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from dpbench.api import Learner
from dpbench.errors import DataError, SpecError
from dpbench.registry import fields_from
from dpbench.result import Result, Tuning
from dpbench.selection import Selection, SelectionRule, Source
from dpbench.spec import Spec


def settings_from(file: Path, learner: Learner, spec: Spec) -> tuple[Learner, Selection]:
    """Return the learner with the settings in `file`, a tuning or a result, and the record of where they come from.

    The rule on record is `transfer` where the file is about another dataset. Where it is about this one, the file's own
    rule holds if the search was for this very spec, and `by-hand` otherwise.

    Raises:
        DataError: not a result or a tuning.
        SpecError: of another learner, or of a search with private data that nothing accounts for.
    """
    found = _read(file)
    if found.spec.learner.name != learner.name:
        raise SpecError(
            f"Expected settings of learner {learner.name!r} in {file}, got those of {found.spec.learner.name!r}."
        )
    options = {**found.spec.learner.options, **_chosen(found)}
    tuned = dataclasses.replace(learner, **fields_from(type(learner), options, f"learner {learner.name!r} in {file}"))  # type: ignore[type-var]
    rule = _rule(found)
    source = Source(
        digest=found.digest, dataset=found.spec.dataset.name, extractor=found.spec.extractor.name,
        epsilon=_number(found.spec.epsilon), selection=rule,
    )  # fmt: skip
    search = found.selection if isinstance(found, Tuning) else found.search
    kept = search or Selection(
        rule=rule, space={}, possible=1, tried=1, draw="none", seed=0, private_touched=False, public_labels=0,
        chosen=options,
    )  # fmt: skip
    changed = {"rule": _relation(found, spec, rule), "source": source, "chosen": options, "trials": ()}
    return tuned, kept.model_copy(update=changed)


def _read(file: Path) -> Result | Tuning:
    try:
        return Tuning.read(file)
    except DataError as first:
        try:
            return Result.read(file)
        except DataError:
            raise DataError(f"Expected a tuning or a result of dpbench in {file}: {first}") from first


def _rule(found: Result | Tuning) -> SelectionRule:
    return found.selection.rule if isinstance(found, Tuning) else found.selection


def _chosen(found: Result | Tuning) -> dict[str, Any]:
    search = found.selection if isinstance(found, Tuning) else found.search
    if search is None:
        return {}
    if search.chosen is None:
        raise SpecError("A private search chooses a setting for each seed; there is no one setting to take from it.")
    return search.chosen


def _relation(found: Result | Tuning, spec: Spec, rule: SelectionRule) -> SelectionRule:
    if found.spec.dataset.name != spec.dataset.name:
        return "transfer" if rule in {"default", "transfer", "public-validation"} else rule
    same = {"search", "seeds", "learner", "secure_rng"}
    return rule if found.spec.model_dump(exclude=same) == spec.model_dump(exclude=same) else "by-hand"


def _number(epsilon: float) -> Any:
    return "Infinity" if epsilon == float("inf") else epsilon
