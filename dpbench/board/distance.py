"""The mean distance over all boards of a learner at default settings from the best entry, in points.

- **Which boards count**: every board on which the learner has a ranked entry whose settings are its defaults, and on
  which another learner is ranked. Its distance there is the mean of the best ranked entry that reads no more than it
  does, whatever that one's settings, less its own, by the board's metric: a learner that reads no public labels is
  compared with entries that read none, and one that does with all. The best entry itself has 0.
- **How they are averaged**: over ε within a family (boards that differ in ε alone), over families within a dataset,
  and then over datasets. So a dataset with many boards weighs no more than one with few.
- **What is missing** is left out and not filled in: a learner is held to the boards where it stands, and `boards` and
  `data_sets` say on how many it does. One that lacks a dataset is listed after those that have them all, because
  distances on other boards may be larger or smaller.
- **The interval** is the 2.5th to the 97.5th percentile of that mean over 10,000 bootstrap samples of datasets. Boards
  of one dataset share images, so they are no independent evidence, however many ε they have. There is none with a
  single dataset. With few datasets the interval is rough, and usually too short.

Datasets are told apart by name and options (`medmnist:name=pathmnist`); the same images under another name count as
another.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpbench.board.index import Distance, Standing
from dpbench.board.rows import EntryRow, board_rows

RESAMPLES = 10_000
TAIL_SHARE = 0.025  # on either side of the interval
DIGITS = 4  # of points: what libraries add in another order differs below

Gaps = Mapping[str, Mapping[str, Sequence[float]]]
"""Distances in points by dataset and family."""


def compute_distances(standings: Iterable[Standing]) -> tuple[Distance, ...]:
    """Return the distance of every learner: those on all datasets first, then by distance."""
    gaps: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for standing in standings:
        data, family = str(standing.board.dataset), standing.board.family
        for row in default_rows(standing):
            gaps[row.facts.learner][data][family].append(100 * (row.behind or 0.0))
    found = [_compute_distance(learner, by_data) for learner, by_data in gaps.items()]
    return tuple(sorted(found, key=lambda distance: (-distance.data_sets, distance.points, distance.learner)))


def default_rows(standing: Standing) -> list[EntryRow]:
    """Return each learner's best ranked row with default settings.

    Empty if only one learner is ranked.
    """
    ranked = [row for row in board_rows(standing) if row.entry.role == "entry"]
    if len({row.facts.learner for row in ranked}) < 2:
        return []
    return list({row.facts.learner: row for row in reversed(ranked) if row.facts.selection == "default"}.values())


def _compute_distance(learner: str, gaps: Gaps) -> Distance:
    by_data = [_mean([_mean(family) for family in families.values()]) for _, families in sorted(gaps.items())]
    low, high = _bootstrap_interval(by_data)
    boards = sum(len(family) for families in gaps.values() for family in families.values())
    points = round(_mean(by_data), DIGITS)
    return Distance(learner=learner, points=points, low=low, high=high, boards=boards, data_sets=len(by_data))


def _bootstrap_interval(by_data: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the percentile bootstrap interval of the mean over datasets; (None, None) for a single dataset."""
    count = len(by_data)
    if count < 2:
        return None, None
    rows = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    means = np.sort(np.array(by_data)[rows].mean(1))
    low, high = means[[int(RESAMPLES * TAIL_SHARE), int(RESAMPLES * (1 - TAIL_SHARE)) - 1]]
    return round(float(low), DIGITS), round(float(high), DIGITS)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
