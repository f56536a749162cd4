"""Re-run the seeds of a result, all of them unless the user names some, and compare the outcome with the result.

Plan and sigma are taken from the result, so that another accountant version makes no difference. Settings that followed
from the budget or from a search are taken from the result's record; the search is also repeated, for comparison.
Research randomness repeats to the last bit with the same libraries and processor. Other machines round features, public
statistics and scores differently, which may change single predictions (`verdict`). Secure randomness cannot be
repeated.

A record keeps its evidence: the digest of the result's evidence, and each seed's predictions and correct answers.
`verify` computes the outcome from these again, so a record does not apply to a result that was changed later.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench.board.folder import ResultFile, find_json_object, read_json_object, validate_record
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.board.verify.verdict import (
    compute_agreement,
    describe_tolerance,
    is_reproduced,
    judge_seeds,
    list_compared_scores,
)
from dpbench.errors import DataMissing, LeaderboardComplaint, MalformedFile, NotReproducible, SpecError
from dpbench.records.checksums import compute_seal
from dpbench.records.provenance import current_date
from dpbench.records.rerun import CODE_CLAIM, Rerun, SeedRerun
from dpbench.records.result import Result, SeedResult

if TYPE_CHECKING:
    from dpbench.harness.session import Session


def rerun_path(stored: ResultFile, root: Path) -> Path:
    """Return the path of a result's re-run record."""
    return root / "reruns" / stored.path.parent.name / stored.path.name


def find_rerun(stored: ResultFile, result: Result, root: Path) -> Rerun | None:
    """Return the re-run record of a result; None if it is absent, not sealed, or about another version of it.

    Raises:
        MalformedFile: the record cannot be read.
    """
    record = _read_record(rerun_path(stored, root))
    return record if record and record.seal and record.content == result.evidence_digest else None


def find_rerun_complaints(stored: ResultFile, result: Result, root: Path) -> list[LeaderboardComplaint]:
    """Return complaints about the re-run record of a result: unreadable, changed, or contradicting the result."""
    file = rerun_path(stored, root)
    name = file.relative_to(root).as_posix()
    try:
        record = _read_record(file)
    except MalformedFile as error:
        return [LeaderboardComplaint(name, error.field, error.said)]
    if record is not None and record.digest != result.digest:
        return [LeaderboardComplaint(name, "digest", "the record is of another result: remove it")]
    if record is None or record.content != result.evidence_digest:
        return []
    if record.seal and record.seal != compute_seal(read_json_object(file)):
        return [LeaderboardComplaint(name, "seal", "changed after it was written: run the result again")]
    return [LeaderboardComplaint(name, *complaint) for complaint in check_rerun(record, result)]


def check_rerun(record: Rerun, result: Result) -> FieldComplaints:
    """Yield a complaint if the outcome of a re-run contradicts the result, or its own numbers."""
    seeds = [seed.seed for seed in record.seeds]
    if len({*seeds}) < len(seeds) or not {*seeds} <= {*result.spec.seeds}:
        yield "seeds", f"expected seeds of this result, {', '.join(map(str, result.spec.seeds))}"
    elif judge_seeds(record, result).seeds != record.seeds:
        yield "outcome", "it does not follow from the recorded numbers: run the result again"
    elif wrong := [*_check_code_claims(record, result)]:
        yield from wrong
    elif not record.agrees and result.status not in {"disputed", "withdrawn"}:
        yield "outcome", f"{describe_rerun_differences(record)}: dispute the result, or run it again"


def _check_code_claims(record: Rerun, result: Result) -> FieldComplaints:
    """Yield each claim of equal code that does not follow from the digests of the result and of the record."""
    stated, here = (made.get("code") or {} for made in (result.provenance, record.provenance))
    for check in record.claims:
        role = check.claim.removeprefix(f"{CODE_CLAIM}.")
        if check.is_about_code and check.verdict == "same" and not check.said and stated.get(role) != here.get(role):
            yield check.claim, f"expected the code of the result, {stated.get(role)}, got {here.get(role)}"


def rerun_seeds(result: Result, seeds: Sequence[int] | None, session: Session, by: str | None = None) -> Rerun:
    """Re-run these seeds of a result, or all seeds if `seeds` is None; return the record of the comparison.

    If `seeds` is None, the result's other claims are compared, too. The last seed runs first, so that state kept from
    earlier fits in the same process shows as a difference.

    Raises:
        NotReproducible: the code, the data or a plugin is not on this machine.
        SpecError: the result does not have a given seed.
        DpbenchError: the run fails here, or its plan or data differ from those of the result.
    """
    from dpbench.board.verify.claims import PreparedRerun, collect_rerun_provenance, compare_claims
    from dpbench.harness.fit import fit_and_score_seed

    stated, prepared = _select_seeds(result, seeds), session.rerun(result)
    try:
        found = [
            _compare_rerun_seed(result, seed, fit_and_score_seed(prepared, seed.seed)) for seed in reversed(stated)
        ]
        whole = seeds is None
        claims = compare_claims(PreparedRerun(result, prepared, session)) if whole else ()
    except DataMissing as error:
        raise NotReproducible(str(error)) from error
    except ImportError as error:
        raise NotReproducible(f"A package is missing: {error}.") from error
    provenance = collect_rerun_provenance(prepared)
    record = Rerun(
        digest=result.digest, content=result.evidence_digest, seeds=tuple(reversed(found)), claims=claims, by=by,
        tolerance=describe_tolerance(result, provenance), provenance={**provenance, "date": current_date()},
    )  # fmt: skip
    return judge_seeds(record, result)


def write_rerun(record: Rerun, stored: ResultFile, root: Path) -> Path:
    """Write a re-run record into the leaderboard and return its file.

    Raises:
        OutputError: it cannot be written.
    """
    return record.write_to(rerun_path(stored, root))


def write_new_rerun(record: Rerun, stored: ResultFile, result: Result, root: Path) -> None:
    """Write a record, unless it agrees and a record of more seeds of the same result already exists.

    Raises:
        OutputError: it cannot be written.
    """
    try:
        there = find_rerun(stored, result, root)
    except MalformedFile:
        there = None
    if not (record.agrees and there is not None and len(there.seeds) > len(record.seeds)):
        write_rerun(record, stored, root)


def summarize_rerun(record: Rerun, result: Result) -> str:
    """Summarize the outcome of a re-run in one line for a terminal."""
    if len(record.seeds) < len(result.seeds):
        (first, *_) = record.seeds
        many = f"{len(record.seeds)} of {len(result.seeds)} seeds"
        return f"seed {first.seed}: {first.outcome}, accuracy {first.accuracy:.6g} (a quick look at {many})"
    if not record.agrees:
        return describe_rerun_differences(record)
    word = "reproduced" if is_reproduced(record, result) else "run again"
    seeds = f"{len(record.seeds)} seeds" if len(record.seeds) > 1 else "the only seed"
    left = [
        f"{claim.claim}: {claim.said}"
        for claim in record.claims
        if claim.verdict == "not checked" and not claim.is_about_code
    ]
    code = [
        claim.claim.rpartition(".")[2]
        for claim in record.claims
        if claim.verdict == "not checked" and claim.is_about_code
    ]
    if code:
        at = result.provenance.get("commit")
        left.append(f"the code ({', '.join(code)}), which is not that of {at}; run it at that commit to compare")
    said = f". Not checked: {'; '.join(left)}" if left else ""
    return f"{word}, {seeds}: {record.outcome}, accuracy {record.accuracy:.6g}{said}"


def describe_rerun_differences(record: Rerun) -> str:
    """Describe the seeds that differ and the claims that are false."""
    false = [f"{claim.claim}: {claim.said}" for claim in record.false_claims]
    differ = [
        f"seed {seed.seed}: differs, accuracy {seed.accuracy:.6g}"
        for seed in record.seeds
        if not _agrees_with_stated_seed(seed)
    ]
    return "; ".join([*differ, *false])


def _agrees_with_stated_seed(rerun: SeedRerun) -> bool:
    return rerun.outcome != "differs"


def _read_record(file: Path) -> Rerun | None:
    content = find_json_object(file)
    return None if content is None else validate_record(Rerun, content)


def _select_seeds(result: Result, seeds: Sequence[int] | None) -> list[SeedResult]:
    unknown = sorted({*(seeds or ())} - {*result.spec.seeds})
    if unknown:
        there = ", ".join(map(str, result.spec.seeds))
        raise SpecError(f"Expected a seed of {result.file_name}, {there}, got {unknown[0]}.")
    return [seed for seed in result.seeds if seeds is None or seed.seed in seeds]


def _compare_rerun_seed(result: Result, stated: SeedResult, rerun_seed: SeedResult) -> SeedRerun:
    same = rerun_seed.predictions == stated.predictions
    return SeedRerun(
        seed=stated.seed, outcome="differs", accuracy=rerun_seed.accuracy, predictions=rerun_seed.predictions,
        correct=None if same else rerun_seed.correct, agreement=compute_agreement(stated, rerun_seed.correct, result),
        scores={name: rerun_seed.metrics[name] for name in list_compared_scores(stated)},
        group_correct=rerun_seed.group_correct if stated.group_correct is not None else None,
    )  # fmt: skip
