"""All results of a leaderboard checked: each on its own, then epsilon and plan, then against others of its board."""

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

from dpbench.board.folder import ResultFile, results_of
from dpbench.board.verify.checks import CheckedFile, check_result_file
from dpbench.board.verify.declarations import check_source
from dpbench.board.verify.derive import EpsilonAnswer, EpsilonQuestion, compare_answer, derive
from dpbench.board.verify.expectations import Expectations
from dpbench.board.verify.plan_check import check_plan_of
from dpbench.errors import Complaint
from dpbench.records.result import Result
from dpbench.records.tolerance import close
from dpbench.support.processes import process_pool

MANY = 400  # files from which on processes are worth their start
CHUNK = 100
SHARED = (
    "classes", "private", "test", "licence", "digests", "example_shape", "overlap", "largest", "sketch", "looks",
    "copies", "processing", "groups", "editions", "left_out",
)  # fmt: skip
"""What results of one board have in common: they are compared test example by test example."""
SHARE = "task.largest"  # the one of them that is no whole number, label or text: see `records.tolerance`
UNITS = ("word", "count", "images", "largest", "median")  # the same of units, less what the plan costs them

One = TypeVar("One")
Other = TypeVar("Other")


@dataclass(frozen=True)
class Review:
    """What was found: results in order, and complaints about what is no result."""

    results: tuple[CheckedFile, ...]
    strays: tuple[Complaint, ...] = ()

    @property
    def complaints(self) -> tuple[Complaint, ...]:
        """Everything that is wrong, by file."""
        found = [*self.strays, *(one for checked in self.results for one in checked.complaints)]
        return tuple(sorted(found, key=lambda one: one.file))

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.complaints


def review(root: Path, known: Expectations) -> Review:
    """Check every result of the leaderboard in `root`.

    Raises:
        DpbenchError: a board cannot be read.
    """
    stored, strays = results_of(root, dict(known.boards))
    return Review(review_of(stored, known).results, tuple(strays))


def review_of(stored: Sequence[ResultFile], known: Expectations) -> Review:
    """Check these results, epsilon and agreement with one another included."""
    with _ordered_map(len(stored)) as mapped:
        checked = list(mapped(partial(check_result_file, known=replace(known, plugins=None)), stored))
        questions = list(dict.fromkeys(one.question for one in checked if one.question is not None))
        answers = dict(zip(questions, mapped(derive, questions), strict=True))
    derived = [_planned(_compared(one, answers), known) for one in checked]
    return Review(tuple(_agreeing(_traced(derived))))


def hold_against(one: CheckedFile, others: Iterable[CheckedFile]) -> CheckedFile:
    """Return a result with what its board's other checked results have against it."""
    *_, found = _agreeing(_traced([*others, one]))
    return found


@contextmanager
def _ordered_map(count: int) -> Iterator[OrderedMap]:
    """Give a map over processes, or over this one where there is little to do."""
    workers = min(_cores(), -(-count // CHUNK))
    if count < MANY or workers < 2:
        yield _SerialMap()
        return
    with process_pool(workers) as pool:
        yield _PoolMap(pool)


class OrderedMap(Protocol):
    """A map that keeps the order."""

    def __call__(self, work: Callable[[One], Other], items: Sequence[One]) -> Iterable[Other]:
        """Yield what `work` makes of each item."""


class _SerialMap:
    def __call__(self, work: Callable[[One], Other], items: Sequence[One]) -> Iterable[Other]:
        return map(work, items)


@dataclass(frozen=True)
class _PoolMap:
    pool: ProcessPoolExecutor

    def __call__(self, work: Callable[[One], Other], items: Sequence[One]) -> Iterable[Other]:
        return self.pool.map(work, items, chunksize=max(1, min(CHUNK, len(items) // 8)))


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def _compared(checked: CheckedFile, answers: dict[EpsilonQuestion, EpsilonAnswer]) -> CheckedFile:
    if checked.result is None or checked.question is None:
        return checked
    return checked.with_complaints(compare_answer(checked.result.privacy, answers[checked.question]))


def _planned(checked: CheckedFile, known: Expectations) -> CheckedFile:
    if checked.result is None or known.plugins is None:
        return checked
    return checked.with_complaints(check_plan_of(checked.result, known.plugins))


def _traced(results: list[CheckedFile]) -> list[CheckedFile]:
    """Look up the run that settings are said to come from, where it is one of these results."""
    known = {one.result.digest: one.result for one in results if one.result is not None}
    return [
        one.with_complaints(check_source(one.result, known[source.digest]))
        if one.result and (source := one.result.search and one.result.search.source) and source.digest in known
        else one
        for one in results
    ]


def _agreeing(results: list[CheckedFile]) -> Iterator[CheckedFile]:
    """Hold results of one board against what most good ones say of their common task; ties go to the first."""
    said: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for one in results:
        if one.ok and one.result is not None and one.stored.board is not None:
            for key, value in _facts(one.result).items():
                said[one.stored.board, key][value] += 1
    common = {where: counted.most_common(1)[0][0] for where, counted in said.items()}
    for one in results:
        board = one.stored.board
        yield one if one.result is None or board is None else one.with_complaints(_odd(one.result, board, common))


def _odd(result: Result, board: str, common: Mapping[tuple[str, str], str]) -> Iterator[tuple[str, str]]:
    for key, stated in _facts(result).items():
        expected = common.get((board, key), stated)
        same = close(float(stated), float(expected)) if key == SHARE else stated == expected
        if not same:
            yield key, f"expected {expected[:200]}, as most results of board {board}, got {stated[:200]}"


def _facts(result: Result) -> dict[str, str]:
    """Return what results of one board have in common, by field; what a result does not state is left out."""
    task = result.task
    found: dict[str, Any] = {f"task.{key}": getattr(task, key) for key in SHARED}
    if task.units is not None:
        found["task.units"] = {key: getattr(task.units, key) for key in UNITS}
    found["seeds.confusion"] = next((one.evidence.there for one in result.seeds if one.evidence), None)
    return {key: str(_in_order(value)) for key, value in found.items() if value is not None}


def _in_order(value: object) -> object:
    return {key: _in_order(part) for key, part in sorted(value.items())} if isinstance(value, dict) else value
