"""Upgrade records of earlier versions to the current schema: no other module knows the earlier schemas.

A result of schema 1 stored, beside its evidence, everything that is computed from it (metrics, intervals, class
accuracies, the limits of the guarantee), and a seal with a digest per field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from pydantic import BaseModel, ValidationError

from dpbench.errors import MalformedFile
from dpbench.records.checksums import evidence_digest
from dpbench.records.stated_plan import LATER_LIMITS
from dpbench.records.tolerance import is_close
from dpbench.support.files import canonical_digest
from dpbench.support.validation import first_schema_violation

Content = Mapping[str, Any]


class _StoredInterval(BaseModel):
    mean: float
    low: float | None
    high: float | None


class _StoredPrivacy(BaseModel):
    not_covered: tuple[str, ...] | None = None


class _StoredSeed(BaseModel):
    class_accuracy: tuple[float | None, ...]


class _StoredResult(BaseModel):
    """The values that a schema 1 result stored; a current result computes them."""

    metrics: dict[str, _StoredInterval]
    privacy: _StoredPrivacy
    seeds: tuple[_StoredSeed, ...]


class ComputedResultValues(Protocol):
    """The computed values of a current result (`dpbench.records.result.Result`) that schema 1 stored."""

    @property
    def digest(self) -> str:
        """The digest of the spec."""

    @property
    def not_covered(self) -> tuple[str, ...]:
        """The limits of the guarantee."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """The intervals of metrics by name."""

    @property
    def seeds(self) -> Sequence[Any]:
        """The seeds, with their metrics and class accuracies."""


def upgrade_to_current_schema(content: Any, kind: type) -> Any:
    """Return a record's JSON in the current schema; return content of a current or unknown schema unchanged.

    Args:
        content: the JSON of the file.
        kind: the class of the record.

    Raises:
        MalformedFile: a schema 1 result lacks a required field, or was changed after it was written.
    """
    convert = _UPGRADES.get(kind.__name__)
    return convert(content) if convert is not None and isinstance(content, Mapping) else content


def find_changed_value(content: Content, result: ComputedResultValues) -> str | None:
    """Return the name of the first value that the conversion from schema 1 changed, or None.

    Values computed from counts must be equal to the last digit. Ends of intervals may differ within the tolerance of
    `records.tolerance`, because a library computes them.
    """
    try:
        stored = _StoredResult.model_validate(content)
    except ValidationError as error:
        return first_schema_violation(error).field
    return next((name for name, before, now in _pair_computed_values(content, stored, result) if before != now), None)


def _upgrade_result(content: Content) -> Content:
    if content.get("schema_version", 1) != 1:
        return content
    _check_seal(content)
    made = {"search": None, "copies_epsilon": None, **_drop_fields(content, *_DERIVED_FIELDS), "schema_version": 2}
    if isinstance(task := content.get("task"), Mapping):
        made["task"] = {"looks": None, "copies": None, "processing": None, **task}
    if isinstance(privacy := content.get("privacy"), Mapping):
        made["privacy"] = {"repeats": None, **_drop_fields(privacy, "not_covered")}
    if isinstance(seeds := content.get("seeds"), list):
        made["seeds"] = [_upgrade_seed(seed, f"seeds.{number}.") for number, seed in enumerate(seeds)]
    if content.get("seal"):
        made["converted_from"] = canonical_digest(content["seal"])
        made["evidence_digest"] = evidence_digest(made)
    return made


def _upgrade_seed(seed: Any, where: str) -> Any:
    if not isinstance(seed, Mapping):
        return seed
    _require_fields(seed, _SCORE_FIELDS, where)
    made = {"setting": None, **_drop_fields(seed, *_SCORE_FIELDS, *_COUNTED_FIELDS)}
    return made if seed.get("confusion") else {**made, "stated": {name: seed[name] for name in _SCORE_FIELDS}}


def _upgrade_journal_line(seed: Content) -> Content:
    return _upgrade_seed(seed, "") if "accuracy" in seed else seed


def _upgrade_rerun(content: Content) -> Content:
    """Convert a version 1 re-run, of a single seed, to version 2; set `correct` to None in seeds that lack it."""
    if content.get("schema_version") == 1 and "seeds" not in content:
        seed = {name: content[name] for name in _RERUN_SEED_FIELDS if name in content}
        content = {**_drop_fields(content, *seed), "seeds": [seed], "schema_version": 2}
    if not isinstance(seeds := content.get("seeds"), list):
        return content
    return {**content, "seeds": [{"correct": None, **seed} if isinstance(seed, Mapping) else seed for seed in seeds]}


def _upgrade_audit(content: Content) -> Content:
    """Set the rate, members and units of each sample of an audit to None if the file does not state them."""
    noise = content.get("noise")
    if not isinstance(noise, Mapping) or not isinstance(samples := noise.get("samples"), list):
        return content
    unstated = dict.fromkeys(("rate", "members", "units"))
    whole = [{**unstated, **sample} if isinstance(sample, Mapping) else sample for sample in samples]
    return {**content, "noise": {**noise, "samples": whole}}


def _upgrade_tuning(content: Content) -> Content:
    return {"default": None, "looks": None, **content}


def _upgrade_model_card(content: Content) -> Content:
    if content.get("schema_version", 1) != 1 or not isinstance(privacy := content.get("privacy"), Mapping):
        return content
    said = [re.match(r"that ([\d,]+) private images equal", str(line)) for line in privacy.get("not_covered") or ()]
    count = sum(int(found[1].replace(",", "")) for found in said if found)
    made = {"private_size": None, **content, "schema_version": 2, "privacy": _drop_fields(privacy, "not_covered")}
    return {**made, "left_out": count} if count else made


def _check_seal(content: Content) -> None:
    """Raise MalformedFile if a schema 1 result lacks a required field, or has a seal that does not match."""
    _require_fields(content, ("digest", "metrics", "spec", "privacy", "seeds", "task"), "")
    stated = content.get("seal")
    if not stated:
        return
    found = _compute_seal(content)
    stated = stated if isinstance(stated, Mapping) else {}
    changed = sorted(name for name in {*stated, *found} if stated.get(name) != found.get(name))
    if changed:
        others = f", as were {len(changed) - 1} others" if len(changed) > 1 else ""
        raise MalformedFile(changed[0], f"changed after the file was written: its seal does not fit{others}")


def _compute_seal(content: Content) -> dict[str, str]:
    """Return the digest of each field of a result's JSON, also of nested fields (`privacy.sigma`, `seeds.0`)."""
    seal: dict[str, str] = {}
    for name, value in content.items():
        if name in {"seal", "status"}:
            continue
        parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        inner = {f"{name}.{key}": canonical_digest(part)[:16] for key, part in parts}
        whole = sorted(inner) if inner else value
        seal |= {**inner, name: canonical_digest(whole)[:16]}
    return seal


def _pair_computed_values(
    content: Content, stored: _StoredResult, result: ComputedResultValues
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name, the stored value and the current value of each computed value in a schema 1 result."""
    yield "digest", content["digest"], result.digest
    if (stated := stored.privacy.not_covered) is not None:
        yield "not_covered", _leave_out_later_limits(stated), _leave_out_later_limits(result.not_covered)
    yield "metrics", stored.metrics.keys(), result.metrics.keys()
    for name, interval in stored.metrics.items():
        now = result.metrics[name]
        yield f"metrics.{name}.mean", interval.mean, now.mean
        for end in ("low", "high"):
            yield f"metrics.{name}.{end}", True, is_close(getattr(interval, end), getattr(now, end))
    for number, (stated, kept, seed) in enumerate(zip(content["seeds"], stored.seeds, result.seeds, strict=True)):
        for name, value in seed.metrics.items():
            yield f"seeds.{number}.{name}", stated.get(name), value
        yield f"seeds.{number}.class_accuracy", kept.class_accuracy, seed.class_accuracy


def _leave_out_later_limits(limits: Sequence[str]) -> tuple[str, ...]:
    return tuple(limit for limit in limits if limit not in LATER_LIMITS)


def _require_fields(content: Content, names: tuple[str, ...], where: str) -> None:
    for name in names:
        if name not in content:
            raise MalformedFile(f"{where}{name}", "field required")


def _drop_fields(content: Content, *names: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name not in names}


_DERIVED_FIELDS = ("digest", "metrics", "seal")
_SCORE_FIELDS = ("accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "class_accuracy")
_COUNTED_FIELDS = ("class_gap", "ece", "nll", "brier")  # only beside a confusion matrix
_RERUN_SEED_FIELDS = ("seed", "outcome", "accuracy", "predictions", "agreement", "scores")
_UPGRADES: Mapping[str, Callable[[Content], Content]] = {
    "Result": _upgrade_result, "SeedResult": _upgrade_journal_line, "Rerun": _upgrade_rerun,
    "Audit": _upgrade_audit, "Tuning": _upgrade_tuning,
    "Card": _upgrade_model_card,
}  # fmt: skip
