"""Counts of test images by group and class, as results store them: column (`sex`) -> value (`female`) -> counts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import Annotated

from pydantic import Field

from dpbench.support.untrusted import PrintableText

COLUMN_PATTERN = r"^[a-z][a-z0-9_ -]{0,39}$"
MAX_COLUMNS = 20
MAX_VALUES = 50  # of a column
MAX_VALUE_LENGTH = 60  # characters
UNKNOWN_VALUE = ""  # the value of test images of which a column says nothing

# A count for each class: text, as a confusion matrix is, so that a file holds one line a group.
ClassCounts = Annotated[str, Field(pattern=r"^\d{1,9}( \d{1,9})*$")]
_Values = Annotated[
    dict[Annotated[PrintableText, Field(max_length=MAX_VALUE_LENGTH)], ClassCounts],
    Field(min_length=1, max_length=MAX_VALUES + 1),
]
GroupCounts = Annotated[
    dict[Annotated[str, Field(pattern=COLUMN_PATTERN)], _Values], Field(min_length=1, max_length=MAX_COLUMNS)
]
"""Column -> value -> count per class; the value "" is the unknown group, so a column counts all test images."""


def parse_counts_by_class(line: str) -> tuple[int, ...]:
    """Parse a line of counts by class.

    >>> parse_counts_by_class("12 0 3")
    (12, 0, 3)
    """
    return tuple(map(int, line.split()))


def sum_counts_in_line(line: str) -> int:
    """Return the sum of the counts in a line.

    >>> sum_counts_in_line("12 0 3")
    15
    """
    return sum(parse_counts_by_class(line))


def sum_counts_by_class(values: Mapping[str, str]) -> tuple[int, ...]:
    """Return the counts by class, summed over all values of a column.

    >>> sum_counts_by_class({"female": "1 2", "male": "3 4"})
    (4, 6)
    """
    return tuple(map(sum, zip(*map(parse_counts_by_class, values.values()), strict=True)))


def find_group_count_error(images: Mapping[str, Mapping[str, str]], classes: int) -> str | None:
    """Return a complaint if the counts of test images are inconsistent, or None."""
    if any(len(parse_counts_by_class(line)) != classes for values in images.values() for line in values.values()):
        return f"expected a count for each of {classes} classes in each group"
    if len({sum_counts_by_class(values) for values in images.values()}) > 1:
        return "expected every column to count the same test images"
    return None


def find_correct_count_error(
    images: Mapping[str, Mapping[str, str]], correct: Mapping[str, Mapping[str, str]]
) -> str | None:
    """Return a complaint if the groups differ, or one has more correct predictions than images; else None."""
    for column, value, there, right in _pair_groups(images, correct):
        if len(right) != len(there) or any(hits > count for hits, count in zip(right, there, strict=True)):
            return f"expected at most as many correct predictions as test images in {column} {value!r}"
    named = [{column: values.keys() for column, values in counts.items()} for counts in (images, correct)]
    return None if named[0] == named[1] else "expected the groups that the test images have"


def bound_differing_predictions(
    first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]]
) -> float:
    """Return a lower bound on the number of predictions that differ between two seeds.

    The bound comes from the column with the most differences. It is infinite if the seeds have different groups.
    """
    if {column: values.keys() for column, values in first.items()} != {
        column: values.keys() for column, values in second.items()
    }:
        return math.inf
    by_column = dict.fromkeys(first, 0)
    for column, _, a, b in _pair_groups(first, second):
        by_column[column] += sum(abs(x - y) for x, y in zip_longest(a, b, fillvalue=0))
    return max(by_column.values(), default=0)


def _pair_groups(
    first: Mapping[str, Mapping[str, str]], second: Mapping[str, Mapping[str, str]]
) -> Iterator[tuple[str, str, tuple[int, ...], tuple[int, ...]]]:
    """Yield column, value and both counts by class, for each group that both mappings have."""
    for column in first.keys() & second.keys():
        for value in first[column].keys() & second[column].keys():
            yield (
                column,
                value,
                parse_counts_by_class(first[column][value]),
                parse_counts_by_class(second[column][value]),
            )
