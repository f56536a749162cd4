"""Ranks: a new rank starts at the first entry that is significantly worse than the best entry of the rank above.

Entries are compared by the paired test of `analysis.paired`. They are sorted by their mean, so an entry of a lower rank
may still be tied with that best entry: a lower rank alone is no significant difference.

A board makes many comparisons, so ranks are corrected for their number. At each rank, the best entry is compared with
every entry below it, and Holm's method keeps the chance of any false difference among these comparisons at 5%. The
uncorrected ranks, in which each comparison is tested by itself, are kept beside them.

The number of comparisons does not depend on how many entries somebody files. A learner counts once, by its best entry;
each further entry of a learner (other settings, another rule) is compared as if it were the learner's only entry, and
further entries of the best entry's own learner are not counted. All learners of one distribution other than dpbench's
count as one (`LearnerIdentity.family`). Otherwise, clones of an entry would make the correction stricter until the
entry tied with the best. Holm's guarantee holds for one entry of each learner. Whoever files variants bears the risk of
the comparisons that are not counted: a false difference can only lower a variant.

Public labels can be worth more than private images, so entries are compared in groups (`rank_within_groups`): entries
that read no public labels with one another, and entries that read them with all entries.

The correction does not cover two effects: the best entry was picked on this same test set (`board.stability`), and test
examples can be dependent although results record no units, such as the frames of one track.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from dpbench.analysis.paired import LEVEL, RankingScores, compare_entries, decode_correct_predictions, holm_correction
from dpbench.records.result import Result
from dpbench.records.tolerance import RELATIVE_TOLERANCE

RANKING_SENTENCE = (
    "Entries are sorted by the mean of the board's metric over seeds. A new rank starts at the first entry that is "
    "significantly worse than the best entry of the rank above (1, 1, 3). Entries that share a rank are statistically "
    "tied with the best of them; a lower rank alone does not mean a significant difference. The test is paired and "
    "two-sided at 5%, over the same test examples, with Holm's correction for comparing that best entry with every "
    "learner below it; further entries of a learner are compared but not counted, and learners of one distribution "
    "other than dpbench's count as one. For accuracy it is Student's t; its variance is the variance over examples "
    "plus that over seeds, minus their interaction, which both contain. For other metrics it is Student's t over pairs "
    "of seeds. Test examples count as independent unless results record the units that they come in, such as lesions; "
    "then units do. Uncorrected ranks leave out Holm's correction. Entries that read no public labels are ranked among "
    "themselves, and entries that read them among all entries of the board. A board is ranked by challenge seeds, "
    "which nobody chose, or else by the seeds that submitters chose; each board says which."
)


def compute_sort_value(result: Result, metric: str) -> int:
    """Return the integer by which results are sorted, largest first.

    For accuracy, it is the number of correct predictions of all seeds; for other metrics, the mean score in millionths.
    A result that lacks the metric for a seed comes last (-1).
    """
    if metric not in result.metrics:
        return -1
    if metric == "accuracy":
        return sum(int(decode_correct_predictions(seed, result.task.test).sum()) for seed in result.seeds)
    return round(result.metrics[metric].mean / RELATIVE_TOLERANCE)


def adjust_by_learner(p: Sequence[float], learners: Sequence[Hashable], best: Hashable = None) -> np.ndarray:
    """Return Holm's adjusted p-values (m,) of comparisons with the best entry, in which each learner counts once.

    A learner counts by its first entry. Each further entry gets the value that it would have in place of the first.
    Entries of `best`, the learner of the best entry, are not counted, and get the value that they would have as an
    additional learner.

    >>> adjust_by_learner([0.02, 0.03, 0.04], ["thrift", "pillar", "pillar"]).tolist()
    [0.04, 0.04, 0.04]
    >>> adjust_by_learner([0.02, 0.03], ["thrift", "pillar"], best="thrift").tolist()
    [0.04, 0.03]
    """
    first = {learner: place for place, learner in reversed(list(enumerate(learners))) if learner != best}
    family = sorted(first.values())
    adjusted = np.empty(len(p))
    adjusted[family] = holm_correction([p[place] for place in family])
    for place in sorted({*range(len(p))} - {*family}):
        others = [p[other] for other in family if other != first.get(learners[place])]
        adjusted[place] = holm_correction([p[place], *others])[0]
    return adjusted


def compute_corrected_ranks(entries: Sequence[RankingScores], learners: Sequence[Hashable] | None = None) -> list[int]:
    """Return each entry's rank, corrected for the number of comparisons; `entries` are sorted, best first.

    At each rank, the best entry is compared once with every entry below it. `learners` gives each entry's learner; a
    learner counts as one comparison (`adjust_by_learner`). By default, every entry counts.
    """
    found: list[int] = []
    keys: Sequence[Any] = range(len(entries)) if learners is None else learners
    while len(found) < len(entries):
        place = len(found)
        best = _cache_correct_bits(entries[place])
        below = [compare_entries(best, entry).p for entry in entries[place + 1 :]]
        p = adjust_by_learner(below, keys[place + 1 :], keys[place])
        worse = np.flatnonzero(p < LEVEL)
        found += [place + 1] * (1 + (int(worse[0]) if len(worse) else len(p)))
    return found


def compute_uncorrected_ranks(entries: Sequence[RankingScores]) -> list[int]:
    """Return each entry's rank without the correction for many comparisons; `entries` are sorted, best first."""
    found: list[int] = []
    rank, best = 0, None
    for place, entry in enumerate(entries, 1):
        if best is None or compare_entries(best, entry).is_significant:
            rank, best = place, _cache_correct_bits(entry)
        found.append(rank)
    return found


def rank_within_groups(
    entries: Sequence[RankingScores], reads_labels: Sequence[bool], learners: Sequence[Hashable] | None = None
) -> list[tuple[int, int]]:
    """Return each entry's rank and uncorrected rank within its group; `entries` are sorted, best first.

    An entry that reads no public labels is ranked among all entries that read none; an entry that reads them, among all
    entries. `learners` is as in `compute_corrected_ranks`.
    """
    keys: Sequence[Any] = range(len(entries)) if learners is None else learners
    places = [place for place, labels in enumerate(reads_labels) if not labels]
    alone = [entries[place] for place in places]
    corrected = compute_corrected_ranks(alone, [keys[place] for place in places])
    among_alone = iter(zip(corrected, compute_uncorrected_ranks(alone), strict=True))
    if len(alone) == len(entries):
        return list(among_alone)
    among_all = zip(compute_corrected_ranks(entries, keys), compute_uncorrected_ranks(entries), strict=True)
    return [found if labels else next(among_alone) for found, labels in zip(among_all, reads_labels, strict=True)]


def _cache_correct_bits(entry: RankingScores) -> RankingScores:
    return replace(entry, bits=cache(entry.bits) if entry.bits else None)
