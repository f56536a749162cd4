"""Verify the record of an audit, an attack, a re-run or challenge seeds against the result that it is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from glob import escape
from pathlib import Path
from typing import Any

from dpbench.analysis.released import describe_bound_comparison, describe_shadow_models
from dpbench.audit.evidence import describe_evidence
from dpbench.audit.figures import get_evidence_of_audit
from dpbench.board.folder import ResultFile, read_json_object, validate_record
from dpbench.board.history import GitHistory
from dpbench.board.verify.audits import check_audit, check_audit_statistics
from dpbench.board.verify.challenge_record import FiledResult, check_challenge
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.board.verify.released_record import check_attack_counts, check_released_attack
from dpbench.board.verify.rerun_record import check_rerun
from dpbench.errors import DataError, LeaderboardComplaint, MalformedFile
from dpbench.records.audit import Audit
from dpbench.records.challenge import Challenge
from dpbench.records.checksums import compute_seal
from dpbench.records.released import ReleasedModelAttack
from dpbench.records.rerun import Rerun
from dpbench.records.result import Result
from dpbench.verification.documents import KIND_WORDS, Document, DocumentKind
from dpbench.verification.report import FileReport

VerifiableRecord = Audit | ReleasedModelAttack | Rerun | Challenge
RECORD_CLASSES: dict[DocumentKind, type[VerifiableRecord]] = {
    "audit": Audit, "attack": ReleasedModelAttack, "rerun": Rerun, "challenge": Challenge,
}  # fmt: skip
REPEAT_COMMANDS: dict[DocumentKind, str] = {
    "audit": "dpbench audit RESULT", "attack": "dpbench audit --released RESULT",
    "rerun": "dpbench verify --rerun RESULT", "challenge": "dpbench leaderboard challenge RESULT",
}  # fmt: skip
MAX_PARENTS = 4  # folders above a record in which its result is looked for


def verify_record(document: Document, results: Sequence[Result]) -> FileReport:
    """Check a record's seal, then its content: against its result or, if no result is found, on its own.

    Args:
        document: the record.
        results: the results that the user named together with the record.
    """
    name, kind = str(document.file), document.kind
    try:
        content = read_json_object(document.file)
        record = validate_record(RECORD_CLASSES[kind], content)
    except MalformedFile as error:
        return FileReport(name, KIND_WORDS[kind], (), (), (LeaderboardComplaint(name, error.field, error.said),), ())
    recomputed, wrong = ["its seal"], [*_check_seal(record, content)]
    unchecked = ["that it was made as stated: its counts are the word of whoever made it. " + REPEAT_COMMANDS[kind]]
    named = (result for result in results if result.evidence_digest == record.content)
    result = next(named, None) or _find_result(document.file, record)
    if wrong:
        recomputed = []
    elif result is None:
        unchecked.insert(0, "whether it fits its result, which was not found: name the result too")
        wrong = [*_check_record_alone(record)]
    else:
        wrong = [*_check_record_against_result(record, result, document.file)]
        recomputed.append(f"that it is about {result.file_name}; what follows from its counts and the plan")
    complaints = tuple(LeaderboardComplaint(name, *parts) for parts in wrong)
    stated = () if wrong else (_describe_record(record),)  # what is wrong may be impossible to describe
    return FileReport(name, KIND_WORDS[kind], stated, tuple(recomputed), complaints, tuple(unchecked))


def _check_seal(record: VerifiableRecord, content: Mapping[str, Any]) -> FieldComplaints:
    if not record.seal:
        yield "seal", "missing: a record without one is no evidence"
    elif record.seal != compute_seal(content):
        yield "seal", "changed after it was written"


def _describe_record(record: VerifiableRecord) -> str:
    if isinstance(record, Audit):
        failed, evidence = "; ".join(record.figures.failed), describe_evidence(get_evidence_of_audit(record))
        verdict = f"FAILED: {failed}" if failed else "no part contradicts the guarantee"
        return f"seed {record.seed}, ε {record.epsilon:.4g}, δ {record.delta:g}: {verdict}; evidence: {evidence}"
    if isinstance(record, ReleasedModelAttack):
        return f"{describe_shadow_models(record)}: {describe_bound_comparison(record)}"
    if isinstance(record, Rerun):
        return f"{len(record.seeds)} seeds: {record.outcome}, accuracy {record.accuracy:.6g}"
    return f"{len(record.seeds)} seeds that follow from the result and commit {record.commit[:12]}"


def _find_result(file: Path, record: VerifiableRecord) -> Result | None:
    """Find the result of a record under `results/` of its leaderboard, or in a parent folder; None if not found."""
    for folder in file.absolute().parents[:MAX_PARENTS]:
        filed = folder / "results" / file.parent.name / file.name
        for candidate in (filed, *sorted(folder.glob(f"*-{escape(record.digest[:8])}*.json"))):
            with suppress(DataError):
                if (result := Result.read(candidate)).evidence_digest == record.content:
                    return result
    return None


def _check_record_alone(record: VerifiableRecord) -> FieldComplaints:
    if isinstance(record, Audit):
        return check_audit_statistics(record)
    return check_attack_counts(record) if isinstance(record, ReleasedModelAttack) else iter(())


def _check_record_against_result(record: VerifiableRecord, result: Result, file: Path) -> FieldComplaints:
    if isinstance(record, Audit):
        return check_audit(record, result)
    if isinstance(record, ReleasedModelAttack):
        return check_released_attack(record, result)
    if isinstance(record, Rerun):
        return check_rerun(record, result)
    root, board = file.absolute().parent.parent.parent, file.parent.name
    filed = (root / "results" / board).is_dir()
    stored = ResultFile(root / "results" / board / file.name, result.file_name, board if filed else None, filed)
    return check_challenge(
        record, FiledResult(stored, result, result.spec.metric or "accuracy"), GitHistory.open(root) if filed else None
    )
