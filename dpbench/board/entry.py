"""Make the entry of a result on a board: its role, its trust, and the command that repeats it.

A board is ranked by challenge seeds if more entries have a challenge record than are reproduced without one. Entries
without a challenge record are then unranked. Otherwise the board is ranked by the seeds that submitters chose. Only the
project makes challenge and re-run records, so a submission cannot move a board back to the submitters' seeds. Nor can a
single learner whose fits with challenge seeds fail.

A result with a component from a distribution other than dpbench has no rank until the component's source is on record
and has run here: anybody can invent a distribution, its components and their scores.
"""

from __future__ import annotations

import dataclasses
import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, Literal

from dpbench.analysis.rows import collect_result_facts, read_origin
from dpbench.analysis.word import list_unchecked_claims
from dpbench.audit.figures import get_evidence_of_audit
from dpbench.board.index import AuditSummary, ChallengeSummary, Entry, Reads, RerunSummary, Role, Trust
from dpbench.board.ranking import compute_sort_value
from dpbench.board.verify.checks import CheckedFile
from dpbench.board.verify.declarations import list_manual_options
from dpbench.board.verify.expectations import InstalledComponent, ReviewContext
from dpbench.board.verify.verdict import is_reproduced
from dpbench.records.audit import Audit
from dpbench.records.board import Board
from dpbench.records.challenge import Challenge, replace_seeds
from dpbench.records.identity import find_code_digest, find_learner_digest, identify_learner
from dpbench.records.protocol import Protocol
from dpbench.records.provenance import HARNESS, list_plugin_sources
from dpbench.records.rerun import Rerun
from dpbench.records.result import Result
from dpbench.records.spec import format_flags


@dataclass(frozen=True)
class EntryCandidate:
    """A checked result on its board, with its role and the project's re-run, audit and challenge records of it."""

    checked: CheckedFile
    result: Result
    role: Role
    why: str  # it has no rank
    again: Rerun | None  # a re-run that agrees
    audit: Audit | None  # that it passed
    challenge: Challenge | None

    @property
    def reproduced(self) -> bool:
        """Whether a re-run of all seeds by the same code agrees with the result."""
        return self.again is not None and is_reproduced(self.again, self.result)


def make_candidate(
    checked: CheckedFile,
    board: Board,
    context: ReviewContext,
    rerun: Rerun | None,
    audit: Audit | None = None,
    challenge: Challenge | None = None,
) -> EntryCandidate:
    """Make the candidate of a result that passed every check; a re-run that differs and a failed audit are left out."""
    result = checked.result
    assert result is not None and checked.ok
    agrees, passed = rerun if rerun and rerun.agrees else None, audit if audit and audit.passed else None
    role, why = _assign_role(result, board, context)
    found = EntryCandidate(checked, result, role, why, agrees, passed, challenge)
    if role == "entry" and (missing := _explain_foreign_components(found)):
        found = dataclasses.replace(found, role="unranked", why=missing)
    return found


def uses_challenge_seeds(candidates: Sequence[EntryCandidate]) -> bool:
    """Return whether a board is ranked by challenge seeds; the docstring of this module has the rule."""
    entries = [candidate for candidate in candidates if candidate.role == "entry"]
    missing = sum(candidate.reproduced and candidate.challenge is None for candidate in entries)
    return sum(candidate.challenge is not None for candidate in entries) > missing


def unrank_further_entries(candidates: Sequence[EntryCandidate], metric: str) -> list[EntryCandidate]:
    """Among candidates with challenge seeds, unrank all but one per learner and selection rule; return all candidates.

    Each entry has its own challenge seeds, so the best of many entries by challenge seeds would be the one with the
    luckiest noise. The candidate that stays ranked is the best by the submitter's seeds, which were on record first.
    """
    best: dict[tuple[str, ...], EntryCandidate] = {}
    for candidate in sorted(candidates, key=lambda found: -compute_sort_value(found.result, metric)):
        if _has_challenge(candidate):
            best.setdefault(_make_learner_and_rule_key(candidate), candidate)
    return [
        dataclasses.replace(found, role="unranked", why=FURTHER_ENTRY_REASON)
        if _has_challenge(found) and best[_make_learner_and_rule_key(found)] is not found
        else found
        for found in candidates
    ]


def _has_challenge(candidate: EntryCandidate) -> bool:
    return candidate.role == "entry" and candidate.challenge is not None


def _make_learner_and_rule_key(candidate: EntryCandidate) -> tuple[str, ...]:
    learner = identify_learner(candidate.result)
    return learner.name, learner.family, candidate.result.selection


def select_scored_result(candidate: EntryCandidate, challenged: bool) -> Result:
    """Return a candidate's result with the seeds that the board scores.

    These are its challenge seeds if the board is ranked by challenge seeds and the candidate has a record of them;
    otherwise the result is returned unchanged.
    """
    if challenged and candidate.challenge is not None:
        return replace_seeds(candidate.result, candidate.challenge.seeds)
    return candidate.result


def make_entry(candidate: EntryCandidate, board: Board, context: ReviewContext, label: str, challenged: bool) -> Entry:
    """Return the entry of a candidate, without a rank yet; `label` is the displayed name of its learner."""
    result, role, why = candidate.result, candidate.role, candidate.why
    agrees, reproduced, passed = candidate.again, candidate.reproduced, candidate.audit
    scored = select_scored_result(candidate, challenged)
    if challenged and role == "entry" and candidate.challenge is None:
        role, why = "unranked", "its challenge seeds have not been run yet"
    trust, earlier = _assign_trust(agrees, reproduced, passed), candidate.checked.defaults_version
    facts = vars(collect_result_facts(result)) | {
        "learner": label, "status": result.status if result.status in {"disputed", "withdrawn"} else None,
        "metrics": dict(sorted(scored.metrics.items())), "seeds": len(scored.seeds),
    }  # fmt: skip
    return Entry(
        id=candidate.checked.stored.path.stem, file=candidate.checked.stored.file, role=role, rank=None, why=why,
        source=find_learner_digest(result.provenance),
        command=make_repeat_command(result, board, context, earlier_defaults=bool(earlier)),
        defaults_version=earlier,
        reads=_find_public_data_read(result, context), reads_private=bool(result.privacy.plan),
        trust=trust, reproduced=reproduced, again=_summarize_rerun(agrees, result) if agrees else None,
        challenge=_summarize_challenge(candidate, board),
        scored="seeds chosen by the submitter" if scored is result else "challenge seeds",
        author_word=list_unchecked_claims(
            result, _list_confirmed_claims(agrees, reproduced) if agrees else frozenset()
        ),
        audit=_summarize_audit(passed) if passed else None, class_accuracy=_average_class_accuracies(scored),
        **facts,
    )  # fmt: skip


def _explain_foreign_components(candidate: EntryCandidate) -> str:
    """Explain why a result with components of other distributions has no rank yet; "" if nothing prevents a rank."""
    provenance = candidate.result.provenance
    counted = candidate.again if candidate.reproduced else None, candidate.challenge
    ran = [record.provenance for record in counted if record is not None]
    for role, origin in candidate.result.components.items():
        if origin.distribution == HARNESS:
            continue
        whose, digest = f"the source of its {role}, of {origin.distribution},", find_code_digest(provenance, role)
        if origin.distribution not in (list_plugin_sources(provenance) or {}) or not digest:
            return f"{whose} is not on record"
        if all(find_code_digest(made, role) != digest for made in ran):
            return f"{whose} has not run here yet"
    return ""


def _find_installed_learner(result: Result, context: ReviewContext) -> InstalledComponent | None:
    """Return the installed learner of a result; None if it is not installed, or comes from another distribution."""
    here = context.installed.get(("learner", result.spec.learner.name))
    return here if here and here.distribution == result.components["learner"].distribution else None


def make_repeat_command(result: Result, board: Board, context: ReviewContext, *, earlier_defaults: bool = False) -> str:
    """Return the command that repeats a result; settings that equal the learner's current defaults are left out."""
    spec, here = result.spec, _find_installed_learner(result, context)
    defaults = here.defaults if here else {}
    own = {name: value for name, value in spec.learner.options.items() if defaults.get(name, ...) != value}
    own |= result.settled if earlier_defaults else {}
    changes: dict[str, Any] = {"learner": spec.learner.model_copy(update={"options": own}), "unit": spec.unit}
    if spec.search is not None and here and _is_default_search_space(spec.search.space, here.space):
        changes["search"] = spec.search.model_copy(update={"space": "own"})
    asked = spec.model_copy(update=changes)
    if spec.search is not None and spec.search.rule not in board.selection:  # refused beside --board
        return shlex.join(["dpbench", "run", *format_flags(asked, defaults=True)])
    return shlex.join(["dpbench", "run", "--board", board.name, *format_flags(asked, fixed=Protocol.model_fields)])


def _is_default_search_space(space: Mapping[str, Any] | str, default_space: Mapping[str, Any]) -> bool:
    return not isinstance(space, str) and {name: list(values) for name, values in space.items()} == default_space


def _assign_role(result: Result, board: Board, context: ReviewContext) -> tuple[Role, str]:
    if result.status in {"disputed", "withdrawn"}:
        return "unranked", f"it is {result.status}"
    if not result.privacy.plan:
        return "control", "it reads no private row: a line, not an entry"
    if math.isinf(result.spec.epsilon):
        return _assign_non_private_role(result, context)
    why = _explain_unranked(result, board, context)
    return ("unranked", why) if why else ("entry", "")


def _explain_unranked(result: Result, board: Board, context: ReviewContext) -> str:
    if result.privacy.rng == "secure":
        return SECURE_NOISE_REASON
    here, rules = _find_installed_learner(result, context), [result.selection]
    if result.spec.search is not None and here is not None and list_manual_options(result, here):
        rules.append("by-hand")  # a private search is ranked only if it chose every setting
    for rule in rules:
        if rule not in board.selection:
            return f"its settings were chosen {_SELECTION_REASONS.get(rule, 'by ' + rule)}"
    return "" if board.metric in result.metrics else f"it lacks {board.metric} for at least one seed"


def _assign_non_private_role(result: Result, context: ReviewContext) -> tuple[Role, str]:
    here = _find_installed_learner(result, context)
    if here is not None and here.reference:
        return "ceiling", "it has no privacy: a line, not an entry"
    return "unranked", "it has no privacy, and its learner is not a reference"


FURTHER_ENTRY_REASON = "another entry of its learner and rule is better by the submitters' seeds"
SECURE_NOISE_REASON = (
    "its noise was secure and cannot be drawn again, so no re-run can tell it from the best of many runs, or from runs "
    "with less noise"
)
_SELECTION_REASONS = {
    "default": "by default, which this board does not rank",
    "by-hand": "by hand; the data used to choose them are not recorded",
    "private-unaccounted": "on private data, outside epsilon",
    "oracle": "on the test split",
}


def _find_public_data_read(result: Result, context: ReviewContext) -> Reads:
    """Return the public data that the learner read.

    Labels count as read if the result says so. Otherwise, the learner read nothing if the installed learner
    declares so, and features if it does not or is not installed.
    """
    if result.task.public_labels_seen:
        return "features and labels"
    here = _find_installed_learner(result, context)
    return "nothing" if here is not None and here.public == "none" else "features"


def _assign_trust(rerun: Rerun | None, reproduced: bool, audit: Audit | None) -> Trust:
    if audit is not None:
        return "audited"
    return "reproduced" if reproduced else "re-run" if rerun is not None else "submitted"


def _list_confirmed_claims(record: Rerun, reproduced: bool) -> frozenset[str]:
    """Return the claims that a re-run confirmed; digests of code are included only if all of them agree."""
    same = {claim.claim for claim in record.claims if claim.verdict == "same"}
    code = {claim.claim for claim in record.claims if claim.is_about_code}
    seen = same if _summarize_code_claims(record) == "same" else same - code
    return frozenset(seen | {"seeds"} if reproduced else seen)


def _summarize_code_claims(record: Rerun) -> Literal["same", "other", "not compared"]:
    found = [claim.verdict for claim in record.claims if claim.is_about_code]
    if not found:
        return "not compared"
    return "same" if all(verdict == "same" for verdict in found) else "other"


def _summarize_rerun(record: Rerun, result: Result) -> RerunSummary:
    machine, cores = (record.provenance.get(name) for name in ("processor", "cores"))
    return RerunSummary(
        seed=record.seeds[-1].seed, outcome=record.outcome, made=read_origin(record.provenance), by=record.by,
        seeds=tuple(seed.seed for seed in record.seeds), of=len(result.seeds), code=_summarize_code_claims(record),
        machine=f"{str(machine)[:80]}, {cores} cores" if machine and isinstance(cores, int) else None,
    )  # fmt: skip


def _summarize_challenge(candidate: EntryCandidate, board: Board) -> ChallengeSummary | None:
    record = candidate.challenge
    if record is None or board.metric not in candidate.result.metrics:
        return None
    return ChallengeSummary(
        commit=record.commit, seeds=tuple(seed.seed for seed in record.seeds), by=record.by,
        replaced=len(record.replaced),
        score=replace_seeds(candidate.result, record.seeds).metrics[board.metric],
        submitter=candidate.result.metrics[board.metric], made=read_origin(record.provenance),
    )  # fmt: skip


def _summarize_audit(audit: Audit) -> AuditSummary:
    found, moved = audit.figures, audit.sensitivity
    return AuditSummary(
        made=read_origin(audit.provenance), seed=audit.seed, earlier_seeds=audit.seeds[:-1],
        evidence=get_evidence_of_audit(audit), noise_low=found.low, noise_high=found.high,
        steinke=found.steinke, mahloujifar=found.mahloujifar, gauss=found.gauss.epsilon if found.gauss else None,
        largest=moved.largest if moved else None, canaries=audit.attack.canaries if audit.attack else 0,
    )  # fmt: skip


def _average_class_accuracies(result: Result) -> tuple[float | None, ...]:
    return tuple(fmean(values) if values else None for values in result.class_accuracies)
