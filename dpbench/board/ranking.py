"""Ranks with honesty: entries that the paired test (`analysis.paired`) cannot tell apart share one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from dpbench.analysis.paired import Scores, compare_entries, correct_bits
from dpbench.records.result import Result
from dpbench.records.tolerance import CLOSE

SENTENCE = (
    "Entries are sorted by the mean of the board's metric over seeds; an entry opens a new rank, its place in that "
    "order (1, 1, 3), where it differs from the best entry of the rank before: a paired two-sided test at 5% over the "
    "same test examples and seeds, by Student's t, whose variance is that over examples plus that over seeds, less "
    "their interaction, which both contain; for metrics other than accuracy, Student's t over paired seeds."
)


def order_of(result: Result, metric: str) -> int:
    """Return what a checked result is sorted by, the larger the better: its correct answers, or its mean in millionths.

    A result that lacks the metric for a seed comes last.
    """
    if metric not in result.metrics:
        return -1
    if metric == "accuracy":
        return sum(int(correct_bits(seed, result.task.test).sum()) for seed in result.seeds)
    return round(result.metrics[metric].mean / CLOSE)


def ranks(entries: Sequence[Scores]) -> list[int]:
    """Return the rank of each of `entries`, which are sorted, best first: one comparison an entry."""
    found: list[int] = []
    rank, leader = 0, None
    for place, entry in enumerate(entries, 1):
        if leader is None or compare_entries(leader, entry).differs:
            rank, leader = place, replace(entry, bits=cache(entry.bits) if entry.bits else None)  # unpacked once
        found.append(rank)
    return found
