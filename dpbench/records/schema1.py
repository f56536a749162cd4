"""Records that earlier versions wrote, as records of today: the only file that knows what those had or lacked.

A result of schema 1 held, beside its evidence, what follows from it (metrics, intervals, accuracies by class, what the
guarantee leaves out), and a seal: one digest a field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from dpbench.errors import MalformedFile
from dpbench.records.checksums import evidence_digest
from dpbench.records.tolerance import close
from dpbench.support.files import canonical_digest

Content = Mapping[str, Any]


class Computed(Protocol):
    """What a result of today computes, and one of schema 1 states (`dpbench.records.result.Result`)."""

    @property
    def digest(self) -> str:
        """Of the spec."""

    @property
    def not_covered(self) -> tuple[str, ...]:
        """What the guarantee leaves out."""

    @property
    def metrics(self) -> Mapping[str, Any]:
        """Intervals by name."""

    @property
    def seeds(self) -> Sequence[Any]:
        """Seeds, with metrics and accuracies by class."""


def upgrade(content: Any, kind: type) -> Any:
    """Return the JSON of a record in the form of today; what has that form, or no form that ever was, as it is.

    Args:
        content: of the file.
        kind: what the file is read as.

    Raises:
        MalformedFile: a result lacks a field that all had, or was changed after it was written.
    """
    convert = _BY_KIND.get(kind.__name__)
    return convert(content) if convert is not None and isinstance(content, Mapping) else content


def find_loss(content: Content, result: Computed) -> str | None:
    """Return the first number of a result of schema 1 that differs in what it was converted to; None where none does.

    What is counted is compared to the last digit; ends of intervals, which a library computes, as `records.tolerance`
    says.
    """
    return next((name for name, before, now in _pairs(content, result) if before != now), None)


def _result(content: Content) -> Content:
    if content.get("schema_version", 1) != 1:
        return content
    _check_seal(content)
    made = {"search": None, "copies_epsilon": None, **_without(content, *_DERIVED), "schema_version": 2}
    if isinstance(task := content.get("task"), Mapping):
        made["task"] = {"looks": None, "copies": None, "processing": None, **task}
    if isinstance(privacy := content.get("privacy"), Mapping):
        made["privacy"] = {"repeats": None, **_without(privacy, "not_covered")}
    if isinstance(seeds := content.get("seeds"), list):
        made["seeds"] = [_seed(seed, f"seeds.{number}.") for number, seed in enumerate(seeds)]
    if content.get("seal"):
        made["converted_from"] = canonical_digest(content["seal"])
        made["evidence_digest"] = evidence_digest(made)
    return made


def _seed(seed: Any, where: str) -> Any:
    if not isinstance(seed, Mapping):
        return seed
    _require(seed, _SCORES, where)
    made = {"setting": None, **_without(seed, *_SCORES, *_COUNTED)}
    return made if seed.get("confusion") else {**made, "stated": {name: seed[name] for name in _SCORES}}


def _line_of_journal(seed: Content) -> Content:
    return _seed(seed, "") if "accuracy" in seed else seed


def _rerun(content: Content) -> Content:
    """Return a record of version 1, which was always of one seed, as one of several; older seeds kept no answers."""
    if content.get("schema_version") == 1 and "seeds" not in content:
        seed = {name: content[name] for name in _OF_A_SEED if name in content}
        content = {**_without(content, *seed), "seeds": [seed], "schema_version": 2}
    if not isinstance(seeds := content.get("seeds"), list):
        return content
    return {**content, "seeds": [{"correct": None, **seed} if isinstance(seed, Mapping) else seed for seed in seeds]}


def _audit(content: Content) -> Content:
    """Return an audit whose samples may not say of which rates and units they were."""
    noise = content.get("noise")
    if not isinstance(noise, Mapping) or not isinstance(samples := noise.get("samples"), list):
        return content
    unstated = dict.fromkeys(("rate", "members", "units"))
    whole = [{**unstated, **sample} if isinstance(sample, Mapping) else sample for sample in samples]
    return {**content, "noise": {**noise, "samples": whole}}


def _tuning(content: Content) -> Content:
    return {"default": None, "looks": None, **content}


def _card(content: Content) -> Content:
    if content.get("schema_version", 1) != 1 or not isinstance(privacy := content.get("privacy"), Mapping):
        return content
    said = [re.match(r"that ([\d,]+) private images equal", str(line)) for line in privacy.get("not_covered") or ()]
    count = sum(int(found[1].replace(",", "")) for found in said if found)
    made = {"private_size": None, **content, "schema_version": 2, "privacy": _without(privacy, "not_covered")}
    return {**made, "left_out": count} if count else made


def _check_seal(content: Content) -> None:
    """Refuse a result that lacks what all had, or that its seal does not fit; one that nobody sealed has none."""
    _require(content, ("digest", "metrics", "spec", "privacy", "seeds", "task"), "")
    stated = content.get("seal")
    if not stated:
        return
    found = _seal_of(content)
    stated = stated if isinstance(stated, Mapping) else {}
    changed = sorted(name for name in {*stated, *found} if stated.get(name) != found.get(name))
    if changed:
        others = f", as were {len(changed) - 1} others" if len(changed) > 1 else ""
        raise MalformedFile(changed[0], f"changed after the file was written: its seal does not fit{others}")


def _seal_of(content: Content) -> dict[str, str]:
    """Return field -> digest of a result's JSON; a field of `privacy` is `privacy.sigma`, a seed is `seeds.0`."""
    seal: dict[str, str] = {}
    for name, value in content.items():
        if name in {"seal", "status"}:
            continue
        parts = value.items() if isinstance(value, Mapping) else enumerate(value) if isinstance(value, list) else ()
        inner = {f"{name}.{key}": canonical_digest(part)[:16] for key, part in parts}
        whole = sorted(inner) if inner else value
        seal |= {**inner, name: canonical_digest(whole)[:16]}
    return seal


def _pairs(content: Content, result: Computed) -> Iterator[tuple[str, Any, Any]]:
    """Yield each number of a result of schema 1: its name, as the file has it, and as it is computed now."""
    yield "digest", content["digest"], result.digest
    yield "not_covered", tuple(content["privacy"].get("not_covered", result.not_covered)), result.not_covered
    yield "metrics", content["metrics"].keys(), result.metrics.keys()
    for name, stated in content["metrics"].items():
        now = result.metrics[name]
        yield f"metrics.{name}.mean", stated["mean"], now.mean
        for end in ("low", "high"):
            yield f"metrics.{name}.{end}", True, close(stated[end], getattr(now, end))
    for number, (stated, seed) in enumerate(zip(content["seeds"], result.seeds, strict=True)):
        for name, value in seed.metrics.items():
            yield f"seeds.{number}.{name}", stated.get(name), value
        yield f"seeds.{number}.class_accuracy", tuple(stated["class_accuracy"]), seed.class_accuracy


def _require(content: Content, names: tuple[str, ...], where: str) -> None:
    for name in names:
        if name not in content:
            raise MalformedFile(f"{where}{name}", "field required")


def _without(content: Content, *names: str) -> dict[str, Any]:
    return {name: value for name, value in content.items() if name not in names}


_DERIVED = ("digest", "metrics", "seal")
_SCORES = ("accuracy", "balanced_accuracy", "worst_class_accuracy", "macro_f1", "class_accuracy")
_COUNTED = ("class_gap", "ece", "nll", "brier")  # only beside a confusion matrix
_OF_A_SEED = ("seed", "outcome", "accuracy", "predictions", "agreement", "scores")
_BY_KIND: Mapping[str, Callable[[Content], Content]] = {
    "Result": _result, "SeedResult": _line_of_journal, "Rerun": _rerun, "Audit": _audit, "Tuning": _tuning,
    "Card": _card,
}  # fmt: skip
