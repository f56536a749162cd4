"""Challenge seeds: fit a filed result with seeds that nobody chose, and check the records of such fits.

The seeds are derived from the digest of the result's evidence and the commit that filed it (`board.history`). Whoever
submits a result fixes its evidence before that commit exists, and the project cannot draw other seeds without rewriting
its published history. The record keeps the evidence of each fit as a result does, so `verify` counts its scores again.

The submitter's own seeds are tested against the challenge seeds. If both are draws of one learner, the difference of
their means lies within a prediction interval (two-sample t, one test example of slack). With Bonferroni's correction,
this holds for all records of a leaderboard together with a chance of 99%. A result outside the interval gets a
complaint. If the score depends on no seed, only the machine can have made the difference, and the tolerance is that
of a re-run on another machine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from dpbench.board.folder import ResultFile, find_json_object, validate_record
from dpbench.board.history import GitHistory
from dpbench.board.verify.expectations import FieldComplaints
from dpbench.board.verify.scores import check_confusion_matrices, check_scores, check_shared_test_split
from dpbench.board.verify.verdict import MAX_ACCURACY_DIFFERENCE
from dpbench.errors import DataMissing, LeaderboardComplaint, MalformedFile, NotReproducible
from dpbench.records.challenge import Challenge, derive_challenge_seeds, replace_seeds
from dpbench.records.checksums import compute_seal
from dpbench.records.identity import find_learner_digest
from dpbench.records.metrics import RankMetric
from dpbench.records.provenance import HARNESS, current_date
from dpbench.records.rerun import CODE_CLAIM
from dpbench.records.result import Result

if TYPE_CHECKING:
    from dpbench.harness.session import Session

FOLDER = "challenges"
MISS_RATE = 0.01  # chance that any honest result of a leaderboard is named


@dataclass(frozen=True)
class FiledResult:
    """A result that is filed on a board, its file, and the board's metric."""

    stored: ResultFile
    result: Result
    metric: RankMetric  # of the board


def challenge_path(stored: ResultFile, root: Path) -> Path:
    """Return the path of the record of a result's challenge seeds."""
    return root / FOLDER / stored.path.parent.name / stored.path.name


def find_challenge(stored: ResultFile, result: Result, root: Path) -> Challenge | None:
    """Return the challenge record of a result; None if it is absent, not sealed, or about another version of it.

    Raises:
        MalformedFile: the record cannot be read.
    """
    content = find_json_object(challenge_path(stored, root))
    record = None if content is None else validate_record(Challenge, content)
    return record if record and record.seal and record.content == result.evidence_digest else None


def find_challenge_complaints(filed: Sequence[FiledResult], root: Path) -> list[LeaderboardComplaint]:
    """Return complaints about all challenge records of a leaderboard, each with its file."""
    found: list[LeaderboardComplaint] = []
    checked: list[tuple[str, FiledResult, Challenge]] = []
    for entry in filed:
        file = challenge_path(entry.stored, root)
        name = file.relative_to(root).as_posix()
        try:
            content = find_json_object(file)
            record = None if content is None else validate_record(Challenge, content)
        except MalformedFile as error:
            found.append(LeaderboardComplaint(name, error.field, error.said))
            continue
        if content is None or record is None:
            continue
        if record.digest == entry.result.digest and record.content != entry.result.evidence_digest:
            continue  # of this result as it was before it was replaced
        if record.seal and record.seal != compute_seal(content):
            found.append(
                LeaderboardComplaint(name, "seal", "changed after it was written: run the challenge seeds again")
            )
            continue
        checked.append((name, entry, record))
    history = GitHistory.open(root) if checked else None
    for name, entry, record in checked:
        wrong = list(check_challenge(record, entry, history)) or list(
            _check_submitter_seeds(record, entry, len(checked))
        )
        found += [LeaderboardComplaint(name, *complaint) for complaint in wrong]
    return found


def check_challenge(record: Challenge, filed: FiledResult, history: GitHistory | None) -> FieldComplaints:
    """Yield a complaint for each statement of a challenge record that contradicts the result, the history or itself.

    The seeds must be those that the result's evidence and the filing commit give, the scores must agree with the
    counts, and a learner of another distribution must have run from the same code. Without a `history`, the filing
    commit and the replaced results are not checked.
    """
    result = filed.result
    if record.digest != result.digest:
        yield "digest", "the record is of another result: remove it"
        return
    stated, expected = (
        tuple(seed.seed for seed in record.seeds),
        derive_challenge_seeds(result.evidence_digest, record.commit),
    )
    if stated != expected:
        yield "seeds", f"expected {expected}, which follow from the result and the commit that filed it, got {stated}"
    if history is not None:
        about = filed.stored.board or "", filed.stored.path.name, result.evidence_digest
        commits = [history.find_filing_commit(*about), history.find_filing_commit(*about, published=True)]
        others = [history.list_replaced_evidence(*about), history.list_replaced_evidence(*about, published=True)]
        if record.replaced not in others:
            yield "replaced", f"expected the {len(others[0])} other results that this history has in its place"
        if record.commit not in commits:
            first = f"expected {commits[0]}, the first" if commits[0] else "expected a"
            yield "commit", f"{first} commit of this history that has the result, got {record.commit}"
    whole = replace_seeds(result, (*result.seeds, *record.seeds))
    yield from check_scores(whole)
    yield from check_shared_test_split(whole)
    yield from check_confusion_matrices(whole)
    theirs, here = find_learner_digest(result.provenance), find_learner_digest(record.provenance)
    if result.components["learner"].distribution != HARNESS and here != theirs:
        yield f"{CODE_CLAIM}.learner", f"expected {theirs!r}, the code of the result, got {here!r}"


def _check_submitter_seeds(record: Challenge, filed: FiledResult, record_count: int) -> FieldComplaints:
    """Yield a complaint if the submitter's and the challenge seeds differ in mean score by more than chance allows."""
    result, metric = filed.result, filed.metric
    if result.status in {"disputed", "withdrawn"} or metric not in result.metrics:
        return
    own, fresh = _collect_seed_scores(record, filed)
    means = [math.fsum(scores) / len(scores) for scores in (own, fresh)]
    half = prediction_interval_half_width(own, fresh, record_count) + 1 / result.task.test
    if len({*own}) == len({*fresh}) == 1:  # no seed to choose; on another processor, predictions tip
        half = max(half, MAX_ACCURACY_DIFFERENCE)
    if abs(means[0] - means[1]) > half:
        yield (
            "seeds",
            f"{result.spec.learner.name} has {metric} {means[0]:.4f} with the submitter's seeds, {means[1]:.4f} with "
            f"challenge seeds; they may differ by {half:.4f} ({1 - MISS_RATE:.0%} for all {record_count} records): "
            "dispute the result",
        )


def prediction_interval_half_width(
    submitter_scores: Sequence[float], challenge_scores: Sequence[float], record_count: int
) -> float:
    """Return half the width of the prediction interval for the difference between two mean scores.

    If all `record_count` records are honest, the chance that any difference lies outside is at most `MISS_RATE`.
    """
    from scipy.special import stdtrit

    freedom = len(submitter_scores) + len(challenge_scores) - 2
    spread = sum(float(np.var(scores)) * len(scores) for scores in (submitter_scores, challenge_scores)) / freedom
    quantile = float(stdtrit(freedom, 1 - MISS_RATE / (2 * max(1, record_count))))
    return quantile * math.sqrt(spread * (1 / len(submitter_scores) + 1 / len(challenge_scores)))


def run_challenge(filed: FiledResult, root: Path, session: Session, by: str | None = None) -> Challenge:
    """Fit a filed result with its challenge seeds and return the record.

    Raises:
        NotReproducible: the result's noise is secure, its filing commit is not in this clone, or it cannot be run here.
        DpbenchError: the run fails here.
    """
    from dpbench.board.verify.claims import collect_rerun_provenance
    from dpbench.harness.fit import fit_and_score_seed

    result, (commit, replaced) = filed.result, _find_published_commit(filed, root)
    prepared = session.rerun(result)
    try:
        fits = tuple(
            fit_and_score_seed(prepared, seed) for seed in derive_challenge_seeds(result.evidence_digest, commit)
        )
    except DataMissing as error:
        raise NotReproducible(str(error)) from error
    except ImportError as error:
        raise NotReproducible(f"A package is missing: {error}.") from error
    return Challenge(
        digest=result.digest, content=result.evidence_digest, commit=commit, replaced=replaced, seeds=fits, by=by,
        provenance={**collect_rerun_provenance(prepared), "date": current_date()},
    )  # fmt: skip


def _find_published_commit(filed: FiledResult, root: Path) -> tuple[str, tuple[str, ...]]:
    """Return the commit of the published main line that filed a result, and the digests of other evidence in its place.

    Raises:
        NotReproducible: the noise is secure, or there is no such commit in this clone.
    """
    if filed.result.privacy.rng == "secure":
        raise NotReproducible("Its noise is secure, so no seed decides it. Boards do not rank it.")
    history = GitHistory.open(root)
    if history is None:
        raise NotReproducible(
            f"{root} has no whole git history, which names the commit that filed it. Use a full clone."
        )
    about = filed.stored.board or "", filed.stored.path.name, filed.result.evidence_digest
    commit = history.find_filing_commit(*about, published=True)
    if commit is None:
        raise NotReproducible("No commit of the published main line has it: challenge seeds follow once it is merged.")
    return commit, history.list_replaced_evidence(*about, published=True)


def summarize_challenge(record: Challenge, filed: FiledResult) -> str:
    """Summarize a challenge record in one line for a terminal."""
    own, fresh = (math.fsum(scores) / len(scores) for scores in _collect_seed_scores(record, filed))
    return f"{filed.metric} {fresh:.6g} with challenge seeds, {own:.6g} with the submitter's"


def _collect_seed_scores(record: Challenge, filed: FiledResult) -> tuple[list[float], list[float]]:
    """Return the scores of the submitter's seeds and of the challenge seeds."""
    own, fresh = ([seed.value(filed.metric) for seed in seeds] for seeds in (filed.result.seeds, record.seeds))
    return own, fresh
