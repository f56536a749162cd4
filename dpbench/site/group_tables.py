"""Tables of accuracy by group of the test split, for one result or for several side by side."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from dpbench.analysis.columns import NO_VALUE, format_percent_cell
from dpbench.records.groups import (
    MIN_IMAGES,
    GroupColumn,
    GroupPrivacyPrice,
    compute_accuracy_by_group,
    compute_price_by_group,
    find_non_private_counterpart,
)
from dpbench.records.result import Result

OVERALL = "all test images"


@dataclass(frozen=True)
class GroupRow:
    """The row of one group, or of all test images, with a cell for each result."""

    name: str
    images: int
    cells: tuple[str, ...]


@dataclass(frozen=True)
class GroupTable:
    """The table of one grouping of test images, such as by sex."""

    column: str
    enough: int  # test images that a group needs to be compared
    heads: tuple[str, ...]  # one for each result
    rows: tuple[GroupRow, ...]
    gaps: tuple[str, ...]  # between best and worst, in points
    price_heads: tuple[str, ...]  # of the results that stand beside one of the same learner without privacy
    prices: tuple[GroupRow, ...]  # points lost to privacy
    added: tuple[str, ...]  # by the group that loses most, more than overall


def tabulate_groups(results: Sequence[tuple[str, Result]], others: Sequence[Result]) -> list[GroupTable]:
    """Return a table of accuracy for each grouping of the test images, such as by sex.

    Args:
        results: the head and the result of each column. Results without groups are left out, and so are results whose
            groups differ from those of the first.
        others: results to search for non-private results of the same learners.
    """
    grouped = [(head, result) for head, result in results if result.task.groups]
    if not grouped:
        return []
    groups = grouped[0][1].task.groups
    alike = [(head, result) for head, result in grouped if result.task.groups == groups]
    free = [(head, result, found) for head, result in alike if (found := find_non_private_counterpart(result, others))]
    prices = [compute_price_by_group(result, found) for _, result, found in free]
    columns = zip(*(compute_accuracy_by_group(result) for _, result in alike), strict=True)
    return [
        _make_group_table(
            tuple(head for head, _ in alike),
            found,
            tuple(head for head, *_ in free),
            [price[place] for price in prices],
        )
        for place, found in enumerate(columns)
    ]


def _make_group_table(
    heads: tuple[str, ...],
    found: Sequence[GroupColumn],
    price_heads: tuple[str, ...],
    prices: Sequence[GroupPrivacyPrice],
) -> GroupTable:
    lost = [GroupRow(OVERALL, _count_images(found[0]), tuple(_format_points(price.overall) for price in prices))]
    lost += [
        GroupRow(group.name, group.images, tuple(_format_points(price.losses[group.value]) for price in prices))
        for group in found[0].groups
    ]
    return GroupTable(
        found[0].name, MIN_IMAGES, heads, tuple(_make_accuracy_rows(found)),
        tuple(_format_points(column.gap) for column in found),
        price_heads, tuple(lost) if prices else (), tuple(_format_added_loss(price) for price in prices),
    )  # fmt: skip


def _count_images(column: GroupColumn) -> int:
    return sum(group.images for group in column.groups)


def _make_accuracy_rows(found: Sequence[GroupColumn]) -> Iterator[GroupRow]:
    for groups in zip(*(column.groups for column in found), strict=True):
        pairs = zip(found, groups, strict=True)
        cells = tuple(
            format_percent_cell(pair.accuracy) + " (worst)" * (pair == column.worst_group) for column, pair in pairs
        )
        yield GroupRow(groups[0].name, groups[0].images, cells)


def _format_added_loss(price: GroupPrivacyPrice) -> str:
    return NO_VALUE if price.most is None else f"{price.most.name}: {_format_points(price.added_loss)}"


def _format_points(share: float | None) -> str:
    return NO_VALUE if share is None else f"{100 * share:.2f}"
