"""Check counts by group: for each column, the groups must add up to the whole test split, class by class.

Whether correct predictions exceed test images is already checked when a result is read. Only the data show the group of
each image, so only a re-run can check which images a group has.
"""

from __future__ import annotations

from dpbench.board.verify.expectations import FieldComplaints
from dpbench.records.group_counts import sum_counts_by_class
from dpbench.records.result import Result, SeedResult


def check_groups(result: Result) -> FieldComplaints:
    """Yield a complaint for each column whose groups do not add up to the test split."""
    kept = next((seed.evidence for seed in result.seeds if seed.evidence), None)
    for column, values in (result.task.groups or {}).items():
        found = sum_counts_by_class(values)
        if kept is not None and found != kept.class_sizes:
            said = f"expected {kept.class_sizes} test images by class in all groups, got {found}"
            yield f"task.groups.{column}", said
        elif sum(found) != result.task.test:
            yield f"task.groups.{column}", f"expected {result.task.test} test images in all groups, got {sum(found)}"


def check_group_correct_counts(seed: SeedResult, hits: int | None) -> FieldComplaints:
    """Yield a complaint for each column whose correct predictions do not add up to those of the seed.

    They are compared by class if the seed has a confusion matrix; otherwise in total, if the number of all correct
    predictions (`hits`) is known.
    """
    kept = seed.evidence
    for column, values in (seed.group_correct or {}).items():
        found = sum_counts_by_class(values)
        if kept is not None and found != kept.correct_counts:
            yield (
                f"group_correct.{column}",
                f"expected {kept.correct_counts} correct by class in all groups, got {found}",
            )
        elif hits is not None and sum(found) != hits:
            yield f"group_correct.{column}", f"expected {hits} correct in all groups, as `correct` has it, got {found}"
