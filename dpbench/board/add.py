"""Submissions: check results from elsewhere and file them as `submitted` under every board that they match."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dpbench.board.entry import SECURE_NOISE_REASON
from dpbench.board.folder import ResultFile, find_json_object, list_results, validate_record
from dpbench.board.history import GitHistory
from dpbench.board.verify.checks import CheckedFile, fill_new_options, find_protocol_differences
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.review import check_against_board, review_files
from dpbench.board.verify.source_code import check_source_code
from dpbench.board.verify.strays import RECORD_PATHS
from dpbench.errors import ChecksFailed, LeaderboardComplaint, MalformedFile, NotReproducible
from dpbench.privacy import MECHANISM
from dpbench.records.packed import record_exists, remove_record
from dpbench.records.provenance import HARNESS, list_plugin_sources
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.registry.components import component_kind_of_role
from dpbench.support.files import write_json
from dpbench.support.paths import PACKAGE


@dataclass(frozen=True)
class AddedResult:
    """The path of a submitted result on a board, and the records that it replaces there."""

    source: Path
    file: str  # relative to the leaderboard's folder
    new: bool  # False: it was there already
    replaces: bool = False  # another result of the same spec
    removed: tuple[Path, ...] = ()  # audit, re-run and challenge seeds of what it replaces


def add_results(files: Sequence[Path], root: Path, plugins: Registry, *, replace: bool = False) -> list[AddedResult]:
    """File results under the boards that they match; a non-private result matches boards of every epsilon.

    With `replace`, a result may replace another result of the same spec. The records of the old result are removed,
    because they do not apply to the new result.

    Raises:
        ChecksFailed: a file fails a check or matches no board; two files are different results of the same spec; or,
            without `replace`, a file's path on a board holds another result of the same spec.
        OutputError: the leaderboard cannot be written.
    """
    submissions = SubmissionChecker(root, ReviewContext.read(root, plugins))
    wrong: list[LeaderboardComplaint] = []
    wanted: list[tuple[AddedResult, dict[str, Any]]] = []
    places: dict[str, tuple[Path, dict[str, Any]]] = {}  # of this call: two files may be results of one spec
    for file in files:
        checked, boards = submissions.match_boards(file)
        wrong += checked.complaints
        if checked.ok and checked.result is not None:
            content = _dump_submitted_content(checked.result)
            held = find_taken_paths(checked.result, boards, root)
            for board in boards:
                target = _make_target_path(board, checked.result, root)
                other, given = places.setdefault(target, (file, content))
                if given != content:
                    said = f"it and {other} are different results with the same spec. Add one of them"
                    wrong.append(LeaderboardComplaint(str(file), "digest", said))
                new = target in held or not record_exists(root / target)
                removed = _list_attached_records(root, board, target) if target in held else ()
                wanted.append((AddedResult(file, target, new, target in held, removed), content))
            if not replace:
                wrong += [LeaderboardComplaint(str(file), "digest", explain_taken_path(target)) for target in held]
    if wrong:
        raise ChecksFailed("Nothing is added", wrong)
    for filed, content in wanted:
        if filed.new:
            write_json(root / filed.file, content)
            for record in filed.removed:
                remove_record(record)
    return [filed for filed, _ in wanted]


def find_taken_paths(result: Result, boards: Sequence[str], root: Path) -> list[str]:
    """Return the result's paths on these boards that already hold another result of its spec, or an unreadable file."""
    content, places = _dump_submitted_content(result), [_make_target_path(board, result, root) for board in boards]
    return [place for place in places if _read_filed_content(root / place) not in (None, content)]


def explain_taken_path(target: str) -> str:
    """Return the complaint that another result with the same spec already has this path."""
    return f"{target} already holds another result with the same spec. Use --replace to overwrite it"


def find_untraceable_plugins(result: Result) -> list[str]:
    """Return a complaint for each plugin whose code cannot be found because the result records no repository for it."""
    sources = list_plugin_sources(result.provenance) or {}
    strangers = {
        (component.distribution, component.version, component.plugin) for component in result.components.values()
    }
    return [
        f"the code of plugin {plugin!r} ({distribution} {version}) cannot be found, unless a package "
        "index has it: its repository is not on record. Install it with pip install git+URL, and run again."
        for distribution, version, plugin in sorted(strangers)
        if distribution != HARNESS and distribution not in sources
    ]


def list_submission_remarks(result: Result) -> list[str]:
    """Return remarks for the submitter of a result: why boards will not rank it, and plugins without a repository."""
    said = find_untraceable_plugins(result)
    distribution, unranked = result.components["learner"].distribution, "boards show this result without a rank"
    if distribution != HARNESS:
        said.append(f"{unranked} until the source of its learner, of {distribution}, is on record and has run here")
    if result.privacy.rng == "secure":
        said.append(f"{unranked}: {SECURE_NOISE_REASON}")
    return said


def _make_target_path(board: str, result: Result, root: Path) -> str:
    """Return a result's path on a board: that of its file there, under its new or old name, or else its new name."""
    paths = [f"results/{board}/{name}" for name in result.file_names]
    return next((path for path in paths if record_exists(root / path)), paths[0])


def _list_attached_records(root: Path, board: str, target: str) -> tuple[Path, ...]:
    stored = ResultFile(root / target, target, board)
    return tuple(file for path in RECORD_PATHS if record_exists(file := path(stored, root)))


def _dump_submitted_content(result: Result) -> dict[str, Any]:
    return {**json.loads(result.model_dump_json()), "status": "submitted"}


@dataclass
class SubmissionChecker:
    """Checks submitted files in turn, each against the results on its boards and the files checked before it."""

    root: Path
    known: ReviewContext
    _held: dict[str, list[CheckedFile]] = field(default_factory=dict)  # by board

    def match_boards(self, file: Path) -> tuple[CheckedFile, list[str]]:
        """Check a file alone and against each board that it matches; return the checked file and the boards' names.

        There are no names if the file has complaints.
        """
        (alone,) = review_files([ResultFile(file, str(file), filed=False)], self.known).results
        if not alone.ok or alone.result is None:
            return alone, []
        submitted = [*_check_submission(alone.result), *_list_rerun_obstacles(alone.result, self.known)]
        if submitted:
            return alone.with_further_complaints(iter(submitted)), []
        spec = fill_new_options(alone.result.spec, self.known)
        matches = [
            name
            for name, board in self.known.boards.items()
            if not find_protocol_differences(board, spec, alone.result)
        ]
        if not matches:
            return alone.with_further_complaints(_compare_with_nearest_board(alone.result, self.known)), []
        after: dict[str, list[CheckedFile]] = {}
        for board in matches:
            own = {file.name, *alone.result.file_names}
            others = [entry for entry in self._list_checked_results(board) if entry.stored.path.name not in own]
            (placed,) = review_files([ResultFile(file, str(file), board, filed=False)], self.known).results
            if not (placed := check_against_board(placed, others, self.known)).ok:
                return placed, []
            after[board] = [*others, placed]
        self._held |= after
        return alone, matches

    def _list_checked_results(self, board: str) -> list[CheckedFile]:
        """Return the checked results of a board, including the submissions that matched it."""
        if board not in self._held:
            there, _ = list_results(self.root, dict(self.known.boards))
            self._held[board] = [*review_files([file for file in there if file.board == board], self.known).results]
        return self._held[board]


def _check_submission(result: Result) -> Iterator[tuple[str, str]]:
    """Yield a complaint if a submission has a status that only the project assigns, or code that cannot be found."""
    if result.status != "submitted":
        yield "status", f"expected submitted, got {result.status}: only the project disputes or withdraws a result"
    yield from check_source_code(result)
    cloned = (PACKAGE.parent / ".git").exists()  # an installed package can lie in a repository that is not dpbench's
    commit, history = result.provenance.get("commit"), GitHistory.open(PACKAGE.parent) if cloned else None
    if commit is not None and history is not None and not history.has_commit(str(commit)):
        yield (
            "provenance.commit",
            f"expected a published commit of dpbench, got {commit}, which this clone has not",
        )


def _list_rerun_obstacles(result: Result, context: ReviewContext) -> Iterator[tuple[str, str]]:
    """Yield a complaint for each reason why this version cannot re-run a result.

    Without a re-run, nobody could check the result's plan and scores.
    """
    if not result.privacy.uses_current_mechanism:
        yield (
            "privacy.mechanism",
            f"expected {MECHANISM}, or nobody can re-run the result: run its spec with this version",
        )
    for role, origin in result.components.items():
        here = context.installed.get((component_kind_of_role(role), result.spec.roles[role].name))
        if origin.distribution == HARNESS and here is not None and origin.version != here.version:
            if why := _explain_other_code(result, context):
                wanted = f"{here.version}, or a version whose code computes the same"
                yield f"components.{role}.version", f"expected {wanted}, got {origin.version}: {why}"
            return


def _explain_other_code(result: Result, context: ReviewContext) -> str:
    """Explain why the installed code is not known to compute what the code of a result did; "" if it is."""
    from dpbench.harness.rerun import check_installed_components

    if context.plugins is None:
        return "no installed components are known"
    try:
        check_installed_components(result, context.plugins)
    except NotReproducible as error:
        return str(error)
    return ""


def _compare_with_nearest_board(result: Result, context: ReviewContext) -> Iterator[tuple[str, str]]:
    """Yield a complaint for each difference between a result's spec and the board that matches it best.

    If no board has the result's dataset, this is the only complaint.
    """
    spec = fill_new_options(result.spec, context)
    own = {name: board for name, board in context.boards.items() if board.dataset.name == spec.dataset.name}
    found = {name: find_protocol_differences(board, spec, result) for name, board in own.items()}
    if not found:
        yield (
            "spec.dataset",
            f"expected the data of a board, got {str(spec.dataset)[:200]}: no board here is of it. dpbench leaderboard "
            "new writes one",
        )
        return
    name = min(
        found, key=lambda name: (len(found[name]), _epsilon_ratio(context.boards[name].epsilon, spec.epsilon), name)
    )
    for key, expected, got in found[name]:
        yield (
            f"spec.{key}",
            (
                f"expected {expected}, as on the nearest board, {name}, got {got}: it matches no board. Run it with "
                f"--board {name}"
            ),
        )


def _epsilon_ratio(first: float, second: float) -> float:
    """Return the larger of two epsilons divided by the smaller; both may be infinite."""
    return 1.0 if first == second else max(first, second) / min(first, second)


def _read_filed_content(file: Path) -> dict[str, Any] | None:
    try:
        content = find_json_object(file)
        return None if content is None else _dump_submitted_content(validate_record(Result, content))
    except MalformedFile as error:
        return {"unfit": str(error)}
