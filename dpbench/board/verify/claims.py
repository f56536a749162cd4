"""Compare the claims of a result other than its scores (task, plan, code, settings) with a re-run.

The verdict on a claim is `same` or `differs`, or `not checked` if this machine cannot check the claim.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dpbench.harness.loaded import digest_code
from dpbench.harness.prepare import PreparedRun
from dpbench.harness.run import compare_splits_of_all_seeds, make_task_facts
from dpbench.harness.session import Session
from dpbench.records.provenance import HARNESS, find_git_source, list_plugin_sources
from dpbench.records.rerun import CODE_CLAIM, ClaimCheck
from dpbench.records.result import Result
from dpbench.records.search import Selection
from dpbench.records.tolerance import is_close
from dpbench.registry.components import build, find_selection_rule
from dpbench.registry.same_code import SAME_CODE, CodeMatch, compare_with_installed_code

TASK_FACTS = (
    "classes", "private", "public", "test", "public_labels_seen", "overlap", "largest", "copies", "sketch", "looks",
    "altered", "groups", "left_out", "editions", "test_units", "trained_on",
    "made_elsewhere",
)  # fmt: skip
"""Fields of a task to compare; the digests of its data and its units are compared before a fit (`harness.rerun`)."""
MAX_CHOICE_LOSS = 0.01
"""How far the stated choice may score below the best setting here: processors round validation scores differently."""
MAX_TRIAL_DIFFERENCE = 0.05
"""How far the stated score of a trial may be from its score here."""


@dataclass(frozen=True)
class PreparedRerun:
    """A result, the run that was prepared from it, and the session that prepared the run."""

    result: Result
    prepared: PreparedRun
    session: Session


def compare_claims(rerun: PreparedRerun) -> tuple[ClaimCheck, ...]:
    """Return a verdict on each claim of a result. The plan is always `same`: preparing the run has confirmed it.

    Raises:
        DpbenchError: the search for settings fails on this machine.
    """
    plan = ClaimCheck(claim="privacy.plan", verdict="same", said="the learner was asked for it again")
    code_, others = tuple(_compare_code_digests(rerun)), (*_compare_task(rerun), _check_settings_origin(rerun))
    if any(check.verdict == "not checked" for check in code_):
        others = tuple(map(_mark_difference_unchecked, others))
    return (plan, *code_, *others)


def _mark_difference_unchecked(claim: ClaimCheck) -> ClaimCheck:
    """Mark a difference as not checked, because other code may honestly count copies or choose settings differently."""
    if claim.verdict != "differs":
        return claim
    return claim.model_copy(update={"verdict": "not checked", "said": f"{claim.said}, by other code"})


def _compare_task(rerun: PreparedRerun) -> Iterator[ClaimCheck]:
    compared = compare_splits_of_all_seeds(rerun.prepared, rerun.result.spec.seeds)
    stated, here = rerun.result.task, make_task_facts(rerun.prepared, compared)
    for name in TASK_FACTS:
        if getattr(stated, name) is not None:
            yield _compare_values(f"task.{name}", getattr(stated, name), getattr(here, name))


def _compare_values(claim: str, stated: Any, recomputed: Any) -> ClaimCheck:
    same = is_close(stated, recomputed) if isinstance(stated, float) else stated == recomputed
    said = "" if same else f"the result states {_shorten(stated)}; here it is {_shorten(recomputed)}"
    return ClaimCheck(claim=claim, verdict="same" if same else "differs", said=said)


def _shorten(value: Any) -> str:
    text = ", ".join(f"{key}: {part}" for key, part in value.items()) if isinstance(value, Mapping) else str(value)
    return text[:200]


def _compare_code_digests(rerun: PreparedRerun) -> Iterator[ClaimCheck]:
    """Compare digests of code or, where they differ, fingerprints.

    Different digests at the same commit contradict the result. At another commit, code without an equal fingerprint is
    not checked.
    """
    stated, here = rerun.result.provenance.get("code"), digest_code(rerun.prepared.parts)
    if not isinstance(stated, Mapping):
        yield ClaimCheck(claim=CODE_CLAIM, verdict="not checked", said="the result states no digests of code")
        return
    differ = [role for role in sorted(stated.keys() | here.keys()) if stated.get(role) != here.get(role)]
    alike = _compare_fingerprints(rerun) if differ else {}
    for role in sorted(stated.keys() | here.keys()):
        claim, there, own = f"{CODE_CLAIM}.{role}", stated.get(role), here.get(role)
        if role not in differ:
            yield ClaimCheck(claim=claim, verdict="same")
            continue
        commits = [
            _find_source_commit(rerun, role, provenance)
            for provenance in (rerun.result.provenance, collect_rerun_provenance(rerun.prepared))
        ]
        said = f"the result states {there}; here it is {own}"
        if commits[0] is not None and commits[0] == commits[1]:
            yield ClaimCheck(claim=claim, verdict="differs", said=f"{said}, at the same commit {commits[0]}")
        elif alike.get(role) in SAME_CODE:
            yield ClaimCheck(claim=claim, verdict="same", said=f"{said}, which has the same {alike[role]}")
        else:
            yield ClaimCheck(claim=claim, verdict="not checked", said=f"{said}, at another commit")


def _compare_fingerprints(rerun: PreparedRerun) -> dict[str, CodeMatch]:
    from dpbench.harness.fingerprints.taking import open_fingerprint_store

    known = open_fingerprint_store(rerun.session.plugins)
    return compare_with_installed_code(rerun.result, rerun.session.plugins, known, same_data=True, choices=False)


def collect_rerun_provenance(prepared: PreparedRun) -> dict[str, Any]:
    """Return machine, versions, commit and code digests of a re-run, and the sources of third-party code."""
    brought = {item.distribution for item in prepared.parts.brought.values()} - {HARNESS}
    sources = {name: found for name in sorted(brought) if (found := find_git_source(name))}
    return {
        **prepared.loaded.provenance,
        "code": digest_code(prepared.parts),
        **({"sources": sources} if sources else {}),
    }


def _find_source_commit(rerun: PreparedRerun, role: str, provenance: Mapping[str, Any]) -> str | None:
    """Return the commit of a role's code; None if it is not recorded, or if the source tree had changes."""
    origin = rerun.result.components.get(role)
    source: Any = provenance
    if origin is not None and origin.distribution != HARNESS:
        source = (list_plugin_sources(provenance) or {}).get(origin.distribution, {})
    return source.get("commit") if source.get("dirty") is False else None


def _check_settings_origin(rerun: PreparedRerun) -> ClaimCheck:
    """Check the origin of settings: look up defaults, and repeat a search that used public data."""
    result, rule = rerun.result, rerun.result.selection
    search, claim = result.spec.search, "selection"
    if rule == "private-accounted":
        return ClaimCheck(claim=claim, verdict="same", said="the search is a part of every fit, and was run again")
    if search is not None and rule == "by-hand":
        return _make_unchecked_claim(claim, "set by hand, beside a search")
    if search is not None and rule == "public-validation" and result.search is not None:
        return _compare_searches(result.search, rerun.session.repeat_search(result))
    if result.search is None:
        own = find_selection_rule(build(rerun.session.plugins, "learner", result.spec.learner))
        return (
            _compare_values(claim, rule, own)
            if own == "default" or rule == "default"
            else _make_unchecked_claim(claim, "set by hand")
        )
    source = result.search.source
    said = f"settings of {source.digest[:16]} on {source.dataset}" if source else f"{rule} was not repeated"
    return _make_unchecked_claim(claim, said)


def _make_unchecked_claim(claim: str, explanation: str) -> ClaimCheck:
    return ClaimCheck(claim=claim, verdict="not checked", said=f"{explanation}: the author's word")


def _compare_searches(stated: Selection, repeated: Selection) -> ClaimCheck:
    """Check that two searches tried the same settings with similar scores, and that the stated choice is good here.

    The choice may score at most `MAX_CHOICE_LOSS` below the best setting of the repeated search.
    """
    if stated.rule != repeated.rule:
        return _compare_values("selection", stated.rule, repeated.rule)
    scores = [{_make_setting_key(trial.setting): trial.value for trial in it.trials} for it in (stated, repeated)]
    if scores[0].keys() != scores[1].keys():
        said = "other settings are tried when the search is made again"
        return ClaimCheck(claim="search", verdict="differs", said=said)
    far = [key for key, score in scores[0].items() if not _are_trial_scores_close(score, scores[1][key])]
    if far:
        said = f"setting {far[0][:120]} scores {scores[1][far[0]]} here, and the result states {scores[0][far[0]]}"
        return ClaimCheck(claim="search.trials", verdict="differs", said=said)
    best = max((score for score in scores[1].values() if score is not None), default=0.0)
    chosen = scores[1].get(_make_setting_key(stated.chosen or {}))
    if chosen is None or chosen < best - MAX_CHOICE_LOSS:
        said = f"the result states {_shorten(stated.chosen or {})}, which scores {chosen} here; the best scores {best}"
        return ClaimCheck(claim="search.chosen", verdict="differs", said=said)
    return ClaimCheck(claim="search", verdict="same", said=f"the search was made again, over {len(scores[1])} settings")


def _make_setting_key(setting: Mapping[str, Any]) -> str:
    return json.dumps(setting, sort_keys=True)


def _are_trial_scores_close(stated: float | None, repeated: float | None) -> bool:
    if stated is None or repeated is None:
        return stated is repeated
    return abs(stated - repeated) <= MAX_TRIAL_DIFFERENCE
