"""Checks of counts by group: the groups of a column add up to the whole test split, class by class.

That each count of correct predictions is at most that of test images is checked where a result is read. Which image is
in which group only the data tell: a re-run counts both again.
"""

from __future__ import annotations

from dpbench.board.verify.expectations import Wrong
from dpbench.records.group_counts import sum_by_class
from dpbench.records.result import Result, SeedResult


def check_groups(result: Result) -> Wrong:
    """Yield columns whose test images do not add up to the test split."""
    kept = next((seed.evidence for seed in result.seeds if seed.evidence), None)
    for column, values in (result.task.groups or {}).items():
        found = sum_by_class(values)
        if kept is not None and found != kept.there:
            yield f"task.groups.{column}", f"expected {kept.there} test images by class in all groups, got {found}"
        elif sum(found) != result.task.test:
            yield f"task.groups.{column}", f"expected {result.task.test} test images in all groups, got {sum(found)}"


def check_group_correct(seed: SeedResult, hits: int | None) -> Wrong:
    """Yield columns whose correct predictions do not add up to the seed's: by class, or in total without evidence."""
    kept = seed.evidence
    for column, values in (seed.group_correct or {}).items():
        found = sum_by_class(values)
        if kept is not None and found != kept.right:
            yield f"group_correct.{column}", f"expected {kept.right} correct by class in all groups, got {found}"
        elif hits is not None and sum(found) != hits:
            yield f"group_correct.{column}", f"expected {hits} correct in all groups, as `correct` has it, got {found}"
