"""Check all results of a leaderboard: each alone, then its epsilon and plan, then its agreement with its board."""

from __future__ import annotations

import os
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from dpbench.board.folder import ResultFile, list_results
from dpbench.board.verify.checks import CheckedFile, check_result_file
from dpbench.board.verify.declarations import check_settings_source
from dpbench.board.verify.derive import DerivedEpsilon, EpsilonInputs, compare_epsilon, derive_epsilon
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.plan_check import check_learner_plan, find_defaults_version
from dpbench.errors import LeaderboardComplaint
from dpbench.records.identity import identify_learner
from dpbench.records.result import Result
from dpbench.records.tolerance import is_close
from dpbench.support.files import canonical_digest
from dpbench.support.processes import collect_garbage_rarely, process_pool
from dpbench.support.progress import track

MIN_PARALLEL_FILES = 400  # files from which on processes are worth their start
CHUNK_SIZE = 100
SHARED_FACTS = (
    "classes", "private", "test", "licence", "digests", "example_shape", "overlap", "largest", "sketch", "looks",
    "copies", "altered", "processing", "groups", "editions", "left_out", "test_units",
)  # fmt: skip
"""Task fields that all results of a board must share, because they are compared test example by test example."""
LARGEST_CLASS_FIELD = "task.largest"  # the one of them that is no whole number, label or text: see `records.tolerance`
UNIT_FACTS = ("word", "count", "images", "largest", "median")  # the same of units, less what the plan costs them

CheckedPlan = tuple[list[tuple[str, str]], str]
"""Complaints about a result's plan, and the earlier version of its learner by whose rule settings follow."""
Item = TypeVar("Item")
Output = TypeVar("Output")


@dataclass(frozen=True)
class LeaderboardReview:
    """The checked results of a leaderboard in order, and complaints about files that are not results."""

    results: tuple[CheckedFile, ...]
    strays: tuple[LeaderboardComplaint, ...] = ()

    @property
    def complaints(self) -> tuple[LeaderboardComplaint, ...]:
        """All complaints, sorted by file."""
        found = [*self.strays, *(complaint for checked in self.results for complaint in checked.complaints)]
        return tuple(sorted(found, key=lambda complaint: complaint.file))

    @property
    def ok(self) -> bool:
        """Whether there are no complaints."""
        return not self.complaints


def review_leaderboard(root: Path, context: ReviewContext) -> LeaderboardReview:
    """Check every result of the leaderboard in `root`.

    Raises:
        DpbenchError: a board cannot be read.
    """
    stored, strays = list_results(root, dict(context.boards))
    return LeaderboardReview(review_files(stored, context).results, tuple(strays))


def review_files(stored: Sequence[ResultFile], context: ReviewContext) -> LeaderboardReview:
    """Check result files: each alone, then epsilon, plan, and their agreement with one another."""
    collect_garbage_rarely()
    with _provide_map_function(len(stored), _count_cores()) as mapped:
        found = mapped(partial(_check_alone, known=context), stored)
        checked = list(track(found, "Checking results", len(stored)))
        questions = list(dict.fromkeys(file.question for file, _ in checked if file.question is not None))
        plain = [question for question in questions if not question.needs_torch]
        answers = dict(zip(plain, track(mapped(derive_epsilon, plain), "Deriving ε", len(plain)), strict=True))
    slow = [question for question in questions if question.needs_torch]
    left = [file.result for file, plan in checked if plan is None]
    with _provide_map_function(len(stored), 1) as apart:  # torch takes hundreds of megabytes in each process
        answers |= zip(slow, apart(derive_epsilon, slow), strict=True)
        asked = apart(partial(_check_plan, known=context), left)
        plans = iter(list(track(asked, "Asking learners for plans", len(left))))
    whole = [_add_answers(file, answers, plan or next(plans)) for file, plan in checked]
    return LeaderboardReview(tuple(_check_board_agreement(_check_setting_sources(whole), context)))


def check_against_board(file: CheckedFile, board_files: Iterable[CheckedFile], context: ReviewContext) -> CheckedFile:
    """Check that a result agrees with the other results of its board; return it with any complaints."""
    *_, found = _check_board_agreement(_check_setting_sources([*board_files, file]), context)
    return found


@contextmanager
def _provide_map_function(item_count: int, workers: int) -> Iterator[OrderedMapFunction]:
    """Provide a map function over so many other processes, or over this process if there are few files."""
    if item_count < MIN_PARALLEL_FILES:
        yield _SerialMapFunction()
        return
    with process_pool(workers) as pool:
        yield _PoolMapFunction(pool)


class OrderedMapFunction(Protocol):
    """A map function that keeps the order of its items, as `map` does."""

    def __call__(self, work: Callable[[Item], Output], items: Sequence[Item]) -> Iterable[Output]:
        """Yield the output of `work` for each item, in order."""


class _SerialMapFunction:
    def __call__(self, work: Callable[[Item], Output], items: Sequence[Item]) -> Iterable[Output]:
        return map(work, items)


@dataclass(frozen=True)
class _PoolMapFunction:
    pool: ProcessPoolExecutor

    def __call__(self, work: Callable[[Item], Output], items: Sequence[Item]) -> Iterable[Output]:
        return self.pool.map(work, items, chunksize=max(1, min(CHUNK_SIZE, len(items) // 8)))


def _count_cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _add_answers(
    checked: CheckedFile, answers: Mapping[EpsilonInputs, DerivedEpsilon], plan: CheckedPlan
) -> CheckedFile:
    """Return a file with the complaints about its epsilon and its plan."""
    if checked.result is not None and checked.question is not None:
        checked = checked.with_further_complaints(compare_epsilon(checked.result.privacy, answers[checked.question]))
    complaints, version = plan
    return replace(checked.with_further_complaints(iter(complaints)), defaults_version=version)


def _check_alone(stored: ResultFile, known: ReviewContext) -> tuple[CheckedFile, CheckedPlan | None]:
    """Check a result file, and its plan if this takes no torch."""
    checked = check_result_file(stored, known)
    apart = checked.result is not None and _may_plan_need_torch(checked.result)
    return checked, None if apart else _check_plan(checked.result, known)


def _may_plan_need_torch(result: Result) -> bool:
    """Return whether a learner's `plan` may need torch: for images and activations, it may build a network."""
    return len(result.task.example_shape) > 1


def _check_plan(result: Result | None, known: ReviewContext) -> CheckedPlan:
    if result is None or known.plugins is None:
        return [], ""
    return [*check_learner_plan(result, known.plugins)], find_defaults_version(result, known.plugins)


def _check_setting_sources(results: list[CheckedFile]) -> list[CheckedFile]:
    """Check settings against the run from which they were taken, if that run is among these results."""
    known = {result.result.digest: result.result for result in results if result.result is not None}
    return [
        result.with_further_complaints(check_settings_source(result.result, known[source.digest]))
        if result.result and (source := result.result.search and result.result.search.source) and source.digest in known
        else result
        for result in results
    ]


def _check_board_agreement(results: list[CheckedFile], context: ReviewContext) -> Iterator[CheckedFile]:
    """Compare each result's task facts with those of the majority on its board; ties go to the first result.

    A second result with the same learner, settings and selection rule gets a complaint: it would only be another draw
    of the noise.
    """
    first: dict[str, str] = {}
    said: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for result in results:
        if result.ok and result.result is not None and result.stored.board is not None:
            for key, value in _collect_shared_facts(result.result).items():
                said[result.stored.board, key][value] += 1
    common = {where: counted.most_common(1)[0][0] for where, counted in said.items()}
    for result in results:
        board = result.stored.board
        if result.result is None or board is None:
            yield result
            continue
        checked = result.with_further_complaints(_find_deviating_facts(result.result, board, common))
        file = result.stored.file
        other = first.setdefault(_identify_entry(result.result, board, context), file) if checked.ok else file
        why = f"{other} has the same learner, settings and rule: a board has one result of them"
        yield checked if other == file else checked.with_further_complaints(iter([("spec", why)]))


def _identify_entry(result: Result, board: str, context: ReviewContext) -> str:
    """Return a key that is unique on a board: learner, settings and selection rule, with defaults filled in."""
    learner, spec = identify_learner(result), result.spec
    here = context.installed.get(("learner", learner.name))
    settings = {**(here.defaults if here else {}), **result.settings}
    facts = [board, learner.name, learner.family, result.selection, spec.metric, str(spec.epsilon), spec.secure_rng]
    repeats = spec.search.model_dump(mode="json") if spec.search and result.privacy.repeats else None
    return canonical_digest([*facts, settings, repeats])


def _find_deviating_facts(
    result: Result, board: str, common: Mapping[tuple[str, str], str]
) -> Iterator[tuple[str, str]]:
    for key, stated in _collect_shared_facts(result).items():
        expected = common.get((board, key), stated)
        same = is_close(float(stated), float(expected)) if key == LARGEST_CLASS_FIELD else stated == expected
        if not same:
            yield key, f"expected {expected[:200]}, as most results of board {board}, got {stated[:200]}"


def _collect_shared_facts(result: Result) -> dict[str, str]:
    """Return the facts that all results of a board must share, by field, without unstated facts."""
    task = result.task
    found: dict[str, Any] = {f"task.{key}": getattr(task, key) for key in SHARED_FACTS}
    if task.units is not None:
        found["task.units"] = {key: getattr(task.units, key) for key in UNIT_FACTS}
    found["seeds.confusion"] = next((seed.evidence.class_sizes for seed in result.seeds if seed.evidence), None)
    return {key: str(_sort_keys_recursively(value)) for key, value in found.items() if value is not None}


def _sort_keys_recursively(value: object) -> object:
    return (
        {key: _sort_keys_recursively(part) for key, part in sorted(value.items())} if isinstance(value, dict) else value
    )
