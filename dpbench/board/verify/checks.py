"""Check everything in a result file that needs neither data nor plugins, and return a list of complaints.

=========== ========================================================================================
what        how it is checked
=========== ========================================================================================
the file    kind, size, depth, strings, numbers, schema, name, evidence digest (`board.folder`, `records.result`)
the spec    its board's protocol, key by key
privacy     epsilon and its interval by a second accountant, from plan and sigma (`derive_epsilon`); the plan, by asking
            the learner again (`plan_check`), if it is installed
scores      `correct`, confusion matrices, bins and groups count the same test split and the same answers (`scores`)
selection   the rule, the record of the search and the learner's defaults agree
provenance  a clean commit, versions of plugins, overlap of the splits
=========== ========================================================================================

Forged scores that are consistent with one another are caught by re-running a seed (`rerun_record`). Three facts cannot
be checked, so they are the submitter's word: how settings were chosen, the cost of the run, and which of many runs with
secure randomness was submitted.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dpbench.board.folder import ResultFile, read_json_object, validate_record
from dpbench.board.verify.declarations import (
    check_features_origin,
    check_image_copies,
    check_provenance,
    check_settings_selection,
    check_task_facts,
)
from dpbench.board.verify.derive import EpsilonInputs, check_guarantee_bounds, make_epsilon_inputs
from dpbench.board.verify.expectations import FieldComplaints, ReviewContext
from dpbench.board.verify.scores import check_confusion_matrices, check_scores, check_shared_test_split
from dpbench.board.verify.source_code import check_source_code
from dpbench.errors import DpbenchError, LeaderboardComplaint, MalformedFile
from dpbench.privacy.core.accounting.accountant import is_pure_dp
from dpbench.records.board import Board, is_expected_dataset
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.records.spec import Spec
from dpbench.records.tolerance import is_close
from dpbench.registry.components import component_kind_of_role

COMPONENT_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,79}")


@dataclass(frozen=True)
class CheckedFile:
    """A result file after its checks. Epsilon is derived separately, because many results share one derivation."""

    stored: ResultFile
    complaints: tuple[LeaderboardComplaint, ...]
    result: Result | None = None
    question: EpsilonInputs | None = None
    defaults_version: str = ""  # the earlier version of its learner by whose rule settings follow from the budget

    @property
    def ok(self) -> bool:
        """Whether there are no complaints."""
        return not self.complaints

    def with_further_complaints(self, field_complaints: Iterator[tuple[str, str]]) -> CheckedFile:
        """Return a copy of this file with further complaints."""
        more = tuple(LeaderboardComplaint(self.stored.file, *parts) for parts in field_complaints)
        return replace(self, complaints=self.complaints + more)


def check_result_file(stored: ResultFile, known: ReviewContext) -> CheckedFile:
    """Check a result file, but do not derive epsilon or ask the learner for its plan yet."""
    start = CheckedFile(stored, ())
    try:
        result = validate_record(Result, read_json_object(stored.path))
    except MalformedFile as error:
        return start.with_further_complaints(iter([(error.field, error.said)]))
    named = itertools.chain(_check_component_names(result), _check_file_name(stored, result))
    wrong = list(itertools.chain(named, _check_result_content(result), _check_protocol(stored, result, known)))
    wrong += check_provenance(result, known.installed)
    if stored.filed or stored.board is not None:
        wrong += check_source_code(result)
    if stored.board is not None or not stored.filed:  # a figure may have data that every seed draws anew
        wrong += itertools.chain(
            check_image_copies(result), check_shared_test_split(result), check_confusion_matrices(result)
        )
        wrong += check_features_origin(result)
    try:
        impossible = next(check_guarantee_bounds(result.privacy, result.spec.epsilon), None)
        question = None if impossible else make_epsilon_inputs(result)
    except DpbenchError as error:
        question, wrong = None, [*wrong, ("privacy.plan", str(error))]
    return CheckedFile(stored, (), result, question).with_further_complaints(iter(wrong))


def _check_component_names(result: Result) -> FieldComplaints:
    for role, part in result.spec.roles.items():
        if not COMPONENT_NAME.fullmatch(part.name):
            yield f"spec.{role}.name", f"expected lower-case letters, digits, dots and dashes, got {part.name[:80]!r}"


def _check_file_name(stored: ResultFile, result: Result) -> FieldComplaints:
    if stored.filed and stored.path.name not in result.file_names:
        yield "file", f"expected it to be named {result.file_name[:200]!r}, by learner, dataset, ε and digest"


def _check_result_content(result: Result) -> FieldComplaints:
    spec, privacy = result.spec, result.privacy
    if not result.evidence_digest:
        yield "evidence_digest", "expected one, as every result of dpbench has"
    asked = {key: getattr(spec, key) for key in ("delta", "accountant", "adjacency")}
    if is_pure_dp(privacy.releases) and privacy.repeats is None:
        asked["delta"] = 0.0
    for key, expected in asked.items():
        if getattr(privacy, key) != expected:
            yield f"privacy.{key}", f"expected {expected!r}, as the spec, got {getattr(privacy, key)!r}"
    if privacy.rng != ("secure" if spec.secure_rng else "research"):
        yield "privacy.rng", f"expected what the spec asks for (secure_rng={spec.secure_rng}), got {privacy.rng!r}"
    for number, release in enumerate(privacy.plan):
        if not is_close(release.sigma, privacy.sigma * release.relative_noise):
            yield (
                f"privacy.plan.{number}.sigma",
                f"expected sigma * relative_noise = {privacy.sigma * release.relative_noise!r}, got {release.sigma!r}",
            )
    if math.isinf(spec.epsilon) and privacy.sigma != 0:
        yield "privacy.sigma", f"expected 0 without privacy, got {privacy.sigma!r}"
    yield from check_guarantee_bounds(privacy, spec.epsilon)
    yield from check_task_facts(result)
    yield from check_settings_selection(result)
    yield from check_scores(result)


def _check_protocol(stored: ResultFile, result: Result, context: ReviewContext) -> FieldComplaints:
    board = context.boards.get(stored.board or "")
    for key, expected, got in (
        find_protocol_differences(board, fill_new_options(result.spec, context), result) if board else ()
    ):
        yield f"spec.{key}", f"expected {expected}, as board {stored.board}, got {got}"
    if board and result.privacy.repeats and result.privacy.rng == "research":
        yield "privacy.rng", "expected secure with selection private-accounted: the number of runs follows from a seed"


def fill_new_options(spec: Spec, context: ReviewContext) -> Spec:
    """Return a spec with default values for options that its data and extractor have gained since it ran."""
    whole: dict[str, Any] = {}
    for role in ("dataset", "public_dataset", "extractor"):
        part: Component | None = getattr(spec, role)
        whole[role] = part and part.with_parts(
            [_fill_default_options(component, role, context) for component in part.parts]
        )
    return spec.model_copy(update=whole)


def _fill_default_options(part: Component, role: str, context: ReviewContext) -> Component:
    here = context.installed.get((component_kind_of_role(role), part.name))
    return Component(name=part.name, options={**(here.defaults if here else {}), **part.options})


def find_protocol_differences(board: Board, spec: Spec, result: Result | None = None) -> list[tuple[str, str, str]]:
    """Return key, expected value and actual value for each difference between a spec and a board's protocol.

    A result without privacy (epsilon = inf) matches boards of any epsilon: it is a reference, not an entry. The default
    metric, accuracy, is not a difference either: a learner without another metric has aimed for accuracy. If the board
    states digests of its data, these are compared with the digests in `result`, and file paths are not compared.
    """
    wrong = []
    if board.data is not None and result is not None and result.task.digests != board.data:
        wrong.append(("dataset", f"the data with digests {board.data}"[:200], str(result.task.digests)[:200]))
    for key, expected in board.protocol.items():
        got = getattr(spec, key)
        if key in {"dataset", "public_dataset"} and is_expected_dataset(board, got, expected):
            continue
        if got != expected and not (key == "epsilon" and math.isinf(got)) and (key, got) != ("metric", "accuracy"):
            wrong.append((key, str(expected)[:200], str(got)[:200]))
    return wrong
