"""Make the entry of a result on a board: its role, its trust, and the command that repeats it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Literal

from dpbench.analysis.rows import collect_facts, read_origin
from dpbench.analysis.word import list_unchecked_claims
from dpbench.board.index import AuditSummary, Entry, Reads, RerunSummary, Role, Trust
from dpbench.board.verify.checks import CheckedFile
from dpbench.board.verify.expectations import Expectations
from dpbench.board.verify.verdict import is_reproduced
from dpbench.records.audit import Audit
from dpbench.records.board import Board
from dpbench.records.protocol import Protocol
from dpbench.records.rerun import Rerun
from dpbench.records.result import Result
from dpbench.records.spec import format_flags


def make_entry(
    checked: CheckedFile, board: Board, known: Expectations, again: Rerun | None, audit: Audit | None = None
) -> Entry:
    """Return the entry of a result that passed every check, without its rank."""
    result = checked.result
    assert result is not None and checked.ok
    role, why = _assign_role(result, board, known)
    agrees, passed = again if again and again.agrees else None, audit if audit and audit.passed else None
    reproduced = agrees is not None and is_reproduced(agrees, result)
    return Entry(
        id=checked.stored.path.stem, file=checked.stored.file, role=role, rank=None, why=why,
        command=make_repeat_command(result, board, known),
        reads=_find_public_reads(result, known), reads_private=bool(result.privacy.plan),
        trust=_assign_trust(agrees, reproduced, passed), reproduced=reproduced,
        again=_summarize_rerun(agrees, result) if agrees else None,
        author_word=list_unchecked_claims(
            result, _list_confirmed_claims(agrees, reproduced) if agrees else frozenset()
        ),
        audit=_summarize_audit(passed) if passed else None, class_accuracy=_mean_class_accuracy(result),
        **vars(collect_facts(result)),
    )  # fmt: skip


def make_repeat_command(result: Result, board: Board, known: Expectations) -> str:
    """Return the command that repeats a result; the learner's default settings are left out."""
    spec, here = result.spec, known.installed.get(("learner", result.spec.learner.name))
    defaults = here.defaults if here and here.distribution == result.components["learner"].distribution else {}
    own = {name: value for name, value in spec.learner.options.items() if defaults.get(name, ...) != value}
    changes: dict[str, Any] = {"learner": spec.learner.model_copy(update={"options": own}), "unit": spec.unit}
    if spec.search is not None and here and _is_default_space(spec.search.space, here.space):
        changes["search"] = spec.search.model_copy(update={"space": "own"})
    asked = spec.model_copy(update=changes)
    if spec.search is not None and spec.search.rule not in board.selection:  # refused beside --board
        return shlex.join(["dpbench", "run", *format_flags(asked, defaults=True)])
    return shlex.join(["dpbench", "run", "--board", board.name, *format_flags(asked, fixed=Protocol.model_fields)])


def _is_default_space(space: Mapping[str, Any] | str, own: Mapping[str, Any]) -> bool:
    return not isinstance(space, str) and {name: list(values) for name, values in space.items()} == own


def _assign_role(result: Result, board: Board, known: Expectations) -> tuple[Role, str]:
    if result.status in {"disputed", "withdrawn"}:
        return "unranked", f"it is {result.status}"
    if not result.privacy.plan:
        return "control", "it reads no private row: a line, not an entry"
    if math.isinf(result.spec.epsilon):
        return _assign_non_private_role(result, known)
    why = _explain_unranked(result, board)
    return ("unranked", why) if why else ("entry", "")


def _explain_unranked(result: Result, board: Board) -> str:
    if result.privacy.rng == "secure":
        return SECURE_NOISE_REASON
    if result.selection not in board.selection:
        return f"its settings were chosen {_SELECTION_REASONS.get(result.selection, 'by ' + result.selection)}"
    return "" if board.metric in result.metrics else f"it lacks {board.metric} for at least one seed"


def _assign_non_private_role(result: Result, known: Expectations) -> tuple[Role, str]:
    here = known.installed.get(("learner", result.spec.learner.name))
    if here is not None and here.reference:
        return "ceiling", "it has no privacy: a line, not an entry"
    return "unranked", "it has no privacy, and its learner is not a reference"


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


def _find_public_reads(result: Result, known: Expectations) -> Reads:
    """Return the public data that the learner read: features if it declares them, labels if the result states them."""
    if result.task.public_labels_seen:
        return "features and labels"
    here = known.installed.get(("learner", result.spec.learner.name))
    return "nothing" if here is not None and here.public == "none" else "features"


def _assign_trust(again: Rerun | None, reproduced: bool, audit: Audit | None) -> Trust:
    if audit is not None:
        return "audited"
    return "reproduced" if reproduced else "re-run" if again is not None else "submitted"


def _list_confirmed_claims(record: Rerun, reproduced: bool) -> frozenset[str]:
    """Return the claims that a re-run confirmed; digests of code are included only if all of them agree."""
    same = {claim.claim for claim in record.claims if claim.verdict == "same"}
    code = {claim for claim in same if claim.startswith("provenance.code")}
    seen = same if _compare_code(record) == "same" else same - code
    return frozenset(seen | {"seeds"} if reproduced else seen)


def _compare_code(record: Rerun) -> Literal["same", "other", "not compared"]:
    found = [claim.verdict for claim in record.claims if claim.claim.startswith("provenance.code")]
    if not found:
        return "not compared"
    return "same" if all(verdict == "same" for verdict in found) else "other"


def _summarize_rerun(record: Rerun, result: Result) -> RerunSummary:
    machine, cores = (record.provenance.get(name) for name in ("processor", "cores"))
    return RerunSummary(
        seed=record.seeds[-1].seed, outcome=record.outcome, made=read_origin(record.provenance), by=record.by,
        seeds=tuple(seed.seed for seed in record.seeds), of=len(result.seeds), code=_compare_code(record),
        machine=f"{str(machine)[:80]}, {cores} cores" if machine and isinstance(cores, int) else None,
    )  # fmt: skip


def _summarize_audit(audit: Audit) -> AuditSummary:
    found, moved = audit.figures, audit.sensitivity
    return AuditSummary(
        made=read_origin(audit.provenance), seed=audit.seed, noise_low=found.low, noise_high=found.high,
        steinke=found.steinke, mahloujifar=found.mahloujifar, gauss=found.gauss.epsilon if found.gauss else None,
        largest=moved.largest if moved else None, canaries=audit.attack.canaries if audit.attack else 0,
    )  # fmt: skip


def _mean_class_accuracy(result: Result) -> tuple[float | None, ...]:
    return tuple(fmean(values) if values else None for values in result.class_accuracies)
