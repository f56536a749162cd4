"""Results -> `leaderboard.json`: the same bytes from the same files, anywhere, or a refusal that lists what is wrong.

A number in the index is copied from a result, or counted, summed by `math.fsum` and divided, which IEEE 754 rounds in
one way alone. What libraries compute (epsilon derived again, the tests behind ranks) is compared and not written.
"""

from __future__ import annotations

import dataclasses
import json
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core import core_schema

from dpbench.analysis.paired import compare_entries, scores_of
from dpbench.board.distance import distances
from dpbench.board.entry import entry_of
from dpbench.board.exchange import check_curves, curve_of, worth
from dpbench.board.folder import boards_of
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.ranking import SENTENCE, order_of, rank_groups
from dpbench.board.stability import stability
from dpbench.board.verify.audits import check_audits, find_audit
from dpbench.board.verify.checks import CheckedFile
from dpbench.board.verify.expectations import Expectations
from dpbench.board.verify.rerun_record import check_records, find_record
from dpbench.board.verify.review import Review, review
from dpbench.board.verify.strays import find_strays
from dpbench.errors import ChecksFailed, Complaint, DpbenchError
from dpbench.records.board import Board
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.support.files import write_atomically

INDEX, SCHEMA = "leaderboard.json", "schema.json"


def verify_leaderboard(root: Path, known: Expectations) -> Review:
    """Check everything that a leaderboard is made of: results, re-runs, audits, and that no board was edited.

    Raises:
        DpbenchError: a board cannot be read.
    """
    found = review(root, known)
    strays = list(found.strays) + find_edited_boards(root, boards_of(root))
    strays += find_strays([one.stored for one in found.results], root)
    for one in found.results:
        if one.result is not None:
            strays += check_records(one.stored, one.result, root) + check_audits(one.stored, one.result, root)
    filed = [(one.stored.board, one.result) for one in found.results if one.result and one.stored.board]
    strays += check_curves(root, boards_of(root), filed)
    return dataclasses.replace(found, strays=tuple(strays))


def find_edited_boards(root: Path, boards: dict[str, Board]) -> list[Complaint]:
    """Return the boards that changed since `leaderboard.json` was made, although they had results there."""
    file = root / INDEX
    if not file.exists():
        return []
    try:
        before = {one["board"]["name"]: one for one in json.loads(file.read_bytes())["standings"]}
        digests = {name: one["digest"] for name, one in before.items() if one["entries"]}
    except (ValueError, KeyError, TypeError, OSError, RecursionError) as error:
        said = f"it cannot be read ({type(error).__name__}): restore it, as it tells which boards had results"
        return [Complaint(INDEX, "file", said)]
    said = "a board with results must not change: create a new board"
    return [
        Complaint(f"boards/{name}.toml", "digest", said)
        for name, board in boards.items()
        if digests.get(name, board.digest) != board.digest
    ]


def index_of(root: Path, plugins: Registry) -> Index:
    """Check all results of the leaderboard in `root` and return its index.

    Raises:
        ChecksFailed: a check fails; nothing of the leaderboard is shown until it is mended.
        DpbenchError: a board cannot be read.
    """
    known = Expectations.read(root, plugins)
    found = verify_leaderboard(root, known)
    if not found.ok:
        raise ChecksFailed("Nothing is built", found.complaints)
    by_board: dict[str, list[CheckedFile]] = defaultdict(list)
    for one in found.results:
        if one.stored.board is not None:
            by_board[one.stored.board].append(one)
    boards = sorted(boards_of(root).items())
    standings = [_standing(board, by_board[name], known, root, plugins) for name, board in boards]
    return Index(ranking=SENTENCE, distances=distances(standings), standings=tuple(standings))


def encode_index(index: Index) -> bytes:
    """Return an index as the bytes of `leaderboard.json`."""
    return index.model_dump_json(indent=1).encode() + b"\n"


def write(index: Index, root: Path) -> Path:
    """Write `leaderboard.json` and its schema; return the first.

    Raises:
        OutputError: they cannot be written.
    """
    for name, content in ((SCHEMA, _schema_text()), (INDEX, encode_index(index))):
        write_atomically(root / name, lambda file, content=content: file.write(content))  # type: ignore[misc]
    return root / INDEX


def is_current(index: Index, root: Path) -> bool:
    """Return whether `leaderboard.json` and its schema are what `write` would make of them."""
    wanted = {INDEX: encode_index(index), SCHEMA: _schema_text()}
    return all((root / name).is_file() and (root / name).read_bytes() == content for name, content in wanted.items())


def _schema_text() -> bytes:
    return json.dumps(make_schema(), indent=2, sort_keys=True).encode() + b"\n"


class _SchemaGenerator(GenerateJsonSchema):
    """A schema that knows how pydantic spells infinity in JSON."""

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        plain = super().float_schema(schema)
        return plain if "le" in schema or "lt" in schema else {"anyOf": [plain, {"const": "Infinity"}]}


def make_schema() -> dict[str, Any]:
    """Return the JSON Schema that `leaderboard.json` and every result follow."""
    refs, found = models_json_schema(
        [(Index, "serialization"), (Result, "validation")], schema_generator=_SchemaGenerator
    )
    return {
        "$schema": GenerateJsonSchema.schema_dialect,
        "title": "dpbench leaderboard.json, and results",
        "anyOf": [refs[Index, "serialization"], refs[Result, "validation"]],
        "$defs": found["$defs"],
    }


def _standing(board: Board, results: list[CheckedFile], known: Expectations, root: Path, plugins: Registry) -> Standing:
    entries, curve = [], curve_of(root, board)
    for one in results:
        assert one.result is not None
        again, audit = find_record(one.stored, one.result, root), find_audit(one.stored, root)
        entry = entry_of(one, board, known, again, audit)
        pays_once = entry.reads_private and entry.reads != "features and labels"
        if curve is not None and pays_once and entry.role != "ceiling":
            entry = entry.model_copy(update={"worth": worth(curve, scores_of(one.result, board.metric).per_seed)})
        entries.append((entry, one.result))
    entries.sort(key=lambda pair: (-order_of(pair[1], board.metric), pair[0].id))
    ranked = [pair for pair in entries if pair[0].role == "entry"]
    scores = [scores_of(result, board.metric) for _, result in ranked]
    places = rank_groups(scores, [entry.reads_labels for entry, _ in ranked])
    first = [
        entry.model_copy(update={"rank": rank, "uncorrected_rank": other})
        for (entry, _), (rank, other) in zip(ranked, places, strict=True)
    ]
    first.sort(key=lambda entry: entry.reads_labels)  # stable: each group stays in order
    rest = [entry for entry, _ in entries if entry.role != "entry"]
    facts = _facts(results[0].result) if results and results[0].result else _facts_of_none(board, plugins)
    above = _above(entries, board, plugins)
    labels = bool(first) and first[0].reads_labels  # as all do
    group = [one for one, (entry, _) in zip(scores, ranked, strict=True) if entry.reads_labels is labels]
    tied = sum(entry.rank == 1 and entry.reads_labels is labels for entry in first)
    return Standing(
        board=board,
        digest=board.digest,
        entries=(*first, *rest),
        above=above,
        stability=stability(group, tied),
        **facts,
    )


def _above(entries: Sequence[tuple[Entry, Result]], board: Board, plugins: Registry) -> str:
    """Say why the best ranked entry is above the ceiling, where it is by more than the test can be wrong."""
    ceilings = [pair for pair in entries if pair[0].role == "ceiling"]
    ranked = [pair for pair in entries if pair[0].role == "entry"]
    if not ceilings or not ranked:
        return ""
    (best, result), (ceiling, reference) = ranked[0], ceilings[0]
    gap = best.metrics[board.metric].mean - ceiling.metrics[board.metric].mean
    if gap <= 0 or not compare_entries(scores_of(result, board.metric), scores_of(reference, board.metric)).differs:
        return ""
    differs = plugins.find("dataset", board.dataset.name).cls.test_differs
    metric = board.metric.replace("_", " ")
    aim = f"{ceiling.learner} is fitted for accuracy, and the board ranks by {metric}"
    other = aim if board.metric != "accuracy" else ""
    labels = f"{best.learner} reads public labels, and {ceiling.learner} does not" if best.reads_labels else ""
    why = differs or other or labels or "nothing is on record that would explain it"
    return f"{best.learner} is {100 * gap:.1f} points above {ceiling.learner}, fitted without privacy: {why}."


def _facts(result: Result) -> dict[str, Any]:
    task, overlap = result.task, dict(sorted(result.task.overlap.items()))
    return {
        "classes": task.classes, "private": task.private, "public": overlap["public in private"].among,
        "test": task.test, "licence": task.licence, "overlap": overlap, "chance": 1 / len(task.classes),
    }  # fmt: skip


def _facts_of_none(board: Board, plugins: Registry) -> dict[str, Any]:
    """Return what the plugin says of a dataset that nobody has run on yet."""
    try:
        dataset = plugins.build("dataset", board.dataset.name, board.dataset.options)
        classes, licence = tuple(dataset.classes), str(dataset.licence)
    except DpbenchError:
        classes, licence = (), ""
    chance = 1 / len(classes) if classes else 0.0
    return {"classes": classes, "private": 0, "public": 0, "test": 0, "licence": licence, "chance": chance}
