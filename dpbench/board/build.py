"""Build `leaderboard.json` from results; the same files give the same bytes on every machine.

Numbers in the index are copied from results, or computed by counting, `math.fsum` and division, which IEEE 754 rounds
in only one way. Values that libraries compute (the derived epsilon, the tests behind ranks) are compared, not written.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from dpbench.analysis.paired import collect_ranking_scores, compare_entries
from dpbench.board.distance import compute_mean_distances
from dpbench.board.entry import (
    EntryCandidate,
    make_candidate,
    make_entry,
    select_scored_result,
    unrank_further_entries,
    uses_challenge_seeds,
)
from dpbench.board.exchange import LearningCurve, compute_label_equivalent, find_curve_complaints, read_curve
from dpbench.board.folder import read_boards
from dpbench.board.gap import compute_smallest_gap
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.ranking import RANKING_SENTENCE, compute_sort_value, rank_within_groups
from dpbench.board.stability import measure_winner_stability
from dpbench.board.verify.audits import find_audit, find_audit_complaints
from dpbench.board.verify.challenge_record import FiledResult, find_challenge, find_challenge_complaints
from dpbench.board.verify.checks import CheckedFile
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.released_record import find_released_complaints
from dpbench.board.verify.rerun_record import find_rerun, find_rerun_complaints
from dpbench.board.verify.review import LeaderboardReview, review_leaderboard
from dpbench.board.verify.strays import find_orphan_records
from dpbench.errors import ChecksFailed, DpbenchError, LeaderboardComplaint
from dpbench.records.board import Board
from dpbench.records.challenge import CHALLENGE_COUNT
from dpbench.records.identity import LearnerIdentity, identify_learner, label_learners
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.support.files import write_atomically
from dpbench.support.progress import track

INDEX, SCHEMA = "leaderboard.json", "schema.json"


def verify_leaderboard(root: Path, context: ReviewContext) -> LeaderboardReview:
    """Check a whole leaderboard: results, all their records and curves, and that no board with results was edited.

    Raises:
        DpbenchError: a board cannot be read.
    """
    found = review_leaderboard(root, context)
    strays = list(found.strays) + find_edited_boards(root, read_boards(root))
    strays += find_orphan_records([result.stored for result in found.results], root)
    for result in track(found.results, "Checking records", len(found.results)):
        if result.result is not None:
            for find in (find_rerun_complaints, find_audit_complaints, find_released_complaints):
                strays += find(result.stored, result.result, root)
    filed = _list_filed_results(found, context)
    strays += find_challenge_complaints(filed, root)
    strays += find_curve_complaints(
        root, read_boards(root), [(entry.stored.board or "", entry.result) for entry in filed]
    )
    return dataclasses.replace(found, strays=tuple(strays))


def _list_filed_results(review: LeaderboardReview, context: ReviewContext) -> list[FiledResult]:
    return [
        FiledResult(file.stored, file.result, context.boards[file.stored.board].metric)
        for file in review.results
        if file.result is not None and file.stored.board is not None
    ]


def find_edited_boards(root: Path, boards: dict[str, Board]) -> list[LeaderboardComplaint]:
    """Return a complaint for each board that has changed since `leaderboard.json` listed results for it.

    Without this file there are no complaints. If the file cannot be read, that is the only complaint.
    """
    file = root / INDEX
    if not file.exists():
        return []
    try:
        before = {load["board"]["name"]: load for load in json.loads(file.read_bytes())["standings"]}
        digests = {name: value["digest"] for name, value in before.items() if value["entries"]}
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        said = f"it cannot be read ({type(error).__name__}): restore it, as it tells which boards had results"
        return [LeaderboardComplaint(INDEX, "file", said)]
    said = "a board with results must not change: create a new board"
    return [
        LeaderboardComplaint(f"boards/{name}.toml", "digest", said)
        for name, board in boards.items()
        if digests.get(name, board.digest) != board.digest
    ]


def build_index(root: Path, plugins: Registry) -> Index:
    """Check all results of the leaderboard in `root` and return its index.

    Raises:
        ChecksFailed: a check fails; then no index is made.
        DpbenchError: a board cannot be read.
    """
    known = ReviewContext.read(root, plugins)
    found = verify_leaderboard(root, known)
    if not found.ok:
        raise ChecksFailed("Nothing is built", found.complaints)
    by_board: dict[str, list[CheckedFile]] = defaultdict(list)
    for result in found.results:
        if result.stored.board is not None:
            by_board[result.stored.board].append(result)
    boards = sorted(read_boards(root).items())
    shared = _BoardContext(root, known, plugins, label_learners(_list_learners(found.results)))
    ranked = track(boards, "Ranking boards", len(boards))
    standings = [_make_standing(board, by_board[name], shared) for name, board in ranked]
    return Index(ranking=RANKING_SENTENCE, distances=compute_mean_distances(standings), standings=tuple(standings))


def _list_learners(results: Sequence[CheckedFile]) -> Iterator[LearnerIdentity]:
    return (identify_learner(file.result) for file in results if file.result is not None)


def write_index(index: Index, root: Path) -> Path:
    """Write `leaderboard.json` and its schema; return the path of `leaderboard.json`.

    Raises:
        OutputError: a file cannot be written.
    """
    for name, content in ((SCHEMA, _encode_schema()), (INDEX, index.encode())):
        write_atomically(root / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    return root / INDEX


def is_index_current(index: Index, root: Path) -> bool:
    """Return whether `leaderboard.json` and its schema are exactly the files that `write_index` would write."""
    wanted = {INDEX: index.encode(), SCHEMA: _encode_schema()}
    return all((root / name).is_file() and (root / name).read_bytes() == content for name, content in wanted.items())


def _encode_schema() -> bytes:
    return json.dumps(make_schema(), indent=2, sort_keys=True).encode() + b"\n"


class _SchemaGenerator(GenerateJsonSchema):
    """JSON Schema generator that accepts pydantic's spelling of infinity."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        plain = super().float_schema(schema)
        return plain if "le" in schema or "lt" in schema else {"anyOf": [plain, {"const": "Infinity"}]}


def make_schema() -> dict[str, Any]:
    """Return the JSON Schema of `leaderboard.json` and of every result."""
    refs, found = models_json_schema(
        [(Index, "serialization"), (Result, "validation")], schema_generator=_SchemaGenerator
    )
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "dpbench leaderboard.json, and results",
        "anyOf": [refs[Index, "serialization"], refs[Result, "validation"]],
        "$defs": found["$defs"],
    }


@dataclass(frozen=True)
class _BoardContext:
    """The data that all boards of a leaderboard share."""

    root: Path
    known: ReviewContext
    plugins: Registry
    labels: Mapping[LearnerIdentity, str]


def _make_standing(board: Board, results: list[CheckedFile], shared: _BoardContext) -> Standing:
    candidates = [_read_candidate(result, board, shared) for result in results]
    challenged = uses_challenge_seeds(candidates)
    seeds = CHALLENGE_COUNT if challenged else len(board.seeds)
    if challenged:
        candidates = unrank_further_entries(candidates, board.metric)
    curve = read_curve(shared.root, board)
    entries = [
        _add_label_equivalent(*_make_scored_entry(candidate, board, challenged, shared), board, curve)
        for candidate in candidates
    ]
    entries.sort(key=lambda pair: (-compute_sort_value(pair[1], board.metric), pair[0].id))
    ranked = [pair for pair in entries if pair[0].role == "entry"]
    scores = [collect_ranking_scores(result, board.metric) for _, result in ranked]
    families = [identify_learner(result).family for _, result in ranked]
    places = rank_within_groups(scores, [entry.reads_labels for entry, _ in ranked], families)
    first = [
        entry.model_copy(update={"rank": rank, "uncorrected_rank": other})
        for (entry, _), (rank, other) in zip(ranked, places, strict=True)
    ]
    first.sort(key=lambda entry: entry.reads_labels)  # stable: each group stays in order
    rest = [entry for entry, _ in entries if entry.role != "entry"]
    labels = bool(first) and first[0].reads_labels  # as all do
    group = [score for score, (entry, _) in zip(scores, ranked, strict=True) if entry.reads_labels is labels]
    tied = sum(entry.rank == 1 and entry.reads_labels is labels for entry in first)
    return Standing(
        board=board,
        digest=board.digest,
        scored="challenge seeds" if challenged else "seeds chosen by the submitter",
        gap=compute_smallest_gap(board, candidates[0].result, seeds) if candidates else None,
        entries=(*first, *rest),
        above=_explain_lead_over_ceiling(entries, board, shared.plugins),
        stability=measure_winner_stability(group, tied),
        **(_collect_task_facts(candidates[0].result) if candidates else _collect_dataset_facts(board, shared.plugins)),
    )


def _read_candidate(checked: CheckedFile, board: Board, shared: _BoardContext) -> EntryCandidate:
    """Read a result's re-run, audit and challenge records, if it has any, and return the result's candidate."""
    assert checked.result is not None
    stored, result, root = checked.stored, checked.result, shared.root
    records = find_rerun(stored, result, root), find_audit(stored, root), find_challenge(stored, result, root)
    return make_candidate(checked, board, shared.known, *records)


def _make_scored_entry(
    candidate: EntryCandidate, board: Board, challenged: bool, shared: _BoardContext
) -> tuple[Entry, Result]:
    """Return a candidate's entry, and the result with the seeds that the board scores."""
    label = shared.labels[identify_learner(candidate.result)]
    return make_entry(candidate, board, shared.known, label, challenged), select_scored_result(candidate, challenged)


def _add_label_equivalent(
    entry: Entry, scored: Result, board: Board, curve: LearningCurve | None
) -> tuple[Entry, Result]:
    """Set the number of public labels that an entry is worth, if defined; return the entry and its scored result.

    It is undefined without a learning curve, for entries that read public labels or nothing private, and for ceilings.
    """
    pays_once = entry.reads_private and entry.reads != "features and labels"
    if curve is not None and pays_once and entry.role != "ceiling":
        worth = compute_label_equivalent(curve, collect_ranking_scores(scored, board.metric).per_seed)
        entry = entry.model_copy(update={"worth": worth})
    return entry, scored


def _explain_lead_over_ceiling(entries: Sequence[tuple[Entry, Result]], board: Board, plugins: Registry) -> str:
    """Explain why the best ranked entry is significantly better than the ceiling; "" if it is not or one is missing."""
    ceilings = [pair for pair in entries if pair[0].role == "ceiling"]
    ranked = [pair for pair in entries if pair[0].role == "entry"]
    if not ceilings or not ranked:
        return ""
    (best, result), (ceiling, reference) = ranked[0], ceilings[0]
    gap = best.metrics[board.metric].mean - ceiling.metrics[board.metric].mean
    if (
        gap <= 0
        or not compare_entries(
            collect_ranking_scores(result, board.metric), collect_ranking_scores(reference, board.metric)
        ).is_significant
    ):
        return ""
    differs = plugins.find("dataset", board.dataset.name).cls.test_differs
    metric = board.metric.replace("_", " ")
    aim = f"{ceiling.learner} is fitted for accuracy, and the board ranks by {metric}"
    other = aim if board.metric != "accuracy" else ""
    labels = f"{best.learner} reads public labels, and {ceiling.learner} does not" if best.reads_labels else ""
    why = differs or other or labels or "nothing is on record that would explain it"
    return f"{best.learner} is {100 * gap:.1f} points above {ceiling.learner}, fitted without privacy: {why}."


def _collect_task_facts(result: Result) -> dict[str, Any]:
    task, overlap = result.task, dict(sorted(result.task.overlap.items()))
    return {
        "classes": task.classes, "private": task.private, "public": overlap["public in private"].among,
        "test": task.test, "licence": task.licence, "overlap": overlap, "chance": 1 / len(task.classes),
    }  # fmt: skip


def _collect_dataset_facts(board: Board, plugins: Registry) -> dict[str, Any]:
    """Return the task facts of a board without results: classes and licence as the dataset states them, and sizes of 0.

    If the dataset cannot be built, classes and licence are empty.
    """
    try:
        dataset = plugins.build("dataset", board.dataset.name, board.dataset.options)
        classes, licence = tuple(dataset.classes), str(dataset.licence)
    except DpbenchError:
        classes, licence = (), ""
    chance = 1 / len(classes) if classes else 0.0
    return {"classes": classes, "private": 0, "public": 0, "test": 0, "licence": licence, "chance": chance}
