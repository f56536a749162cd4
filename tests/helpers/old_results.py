"""Results in schema 1, as dpbench 0.2 wrote them: with metrics, accuracies by class and a seal over each field."""

from __future__ import annotations

import json
from typing import Any

from dpbench.records.result import Result
from dpbench.records.schema1 import _compute_seal

SCORES = ("accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1")
COUNTED = ("class_gap", "ece", "nll", "brier")


def old_form(result: Result) -> dict[str, Any]:
    """Return the JSON of a result as an earlier version wrote it, sealed."""
    content: dict[str, Any] = json.loads(result.model_dump_json())
    for name in ("evidence_digest", "converted_from"):
        content.pop(name, None)
    seeds = [_seed(seed, kept) for seed, kept in zip(content["seeds"], result.seeds, strict=True)]
    made = {
        **content, "schema_version": 1, "digest": result.digest, "seeds": seeds,
        "privacy": {**content["privacy"], "not_covered": list(result.not_covered)},
        "metrics": {name: interval.model_dump() for name, interval in result.metrics.items()},
    }  # fmt: skip
    return resealed(json.loads(json.dumps(made)))


def resealed(content: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON with a seal over what it says now."""
    return {**content, "seal": _compute_seal(content)}


def _seed(seed: dict[str, Any], kept: Any) -> dict[str, Any]:
    """Return what an earlier version wrote of a seed; before confusion matrices were kept, four scores alone."""
    counted = {name: kept.metrics[name] for name in COUNTED if kept.metrics[name] is not None}
    scores = {name: kept.metrics[name] for name in SCORES} | {"class_accuracy": kept.class_accuracy}
    return {name: value for name, value in seed.items() if name != "stated"} | scores | counted
