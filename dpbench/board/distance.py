"""A learner's mean distance from the best entry over all boards, at default settings, in points.

- **Which boards count**: every board on which the learner has a ranked entry with default settings and on which another
  learner is ranked. The distance there is the score of the best ranked entry, whatever its settings, minus the
  learner's score, by the board's metric. A learner that reads no public labels is compared only with entries that read
  none; a learner that reads them is compared with all. The best entry itself has distance 0.
- **How they are averaged**: over ε within a family (boards that differ only in ε), over families within a dataset, and
  then over datasets. So a dataset with many boards weighs no more than one with few.
- **Missing boards** are left out and not filled in: a learner's mean covers the boards where it has an entry, and
  `boards` and `data_sets` count them. A learner that lacks a dataset is listed after the learners that have all
  datasets, because distances on the missing boards could be larger or smaller.
- **The interval** is the 2.5th to the 97.5th percentile of that mean over 10,000 bootstrap samples of datasets. Boards
  of one dataset share images, so they are not independent evidence, however many ε they have. There is no interval for
  a single dataset. With few datasets the interval is rough, and usually too short.

Datasets are distinguished by name and options (`medmnist:name=pathmnist`); the same images under another name count as
another dataset.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from dpbench.board.index import MeanDistanceFromBest, Standing
from dpbench.board.rows import EntryRow, make_board_rows

RESAMPLES = 10_000
TAIL_SHARE = 0.025  # on either side of the interval
DIGITS = 4  # of points: what libraries add in another order differs below

DistancesByDataset = Mapping[str, Mapping[str, Sequence[float]]]
"""Distances in points by dataset and family."""


def compute_mean_distances(standings: Iterable[Standing]) -> tuple[MeanDistanceFromBest, ...]:
    """Return the mean distance of each learner, sorted by number of datasets (most first), then by distance."""
    found = [_average_distances(learner, by_data) for learner, by_data in collect_distances(standings).items()]
    return tuple(sorted(found, key=lambda distance: (-distance.data_sets, distance.points, distance.learner)))


def collect_distances(standings: Iterable[Standing]) -> Mapping[str, DistancesByDataset]:
    """Return the distances of each learner at default settings."""
    gaps: dict[str, dict[str, dict[str, list[float]]]] = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for standing in standings:
        data, family = str(standing.board.dataset), standing.board.family
        for row in list_best_default_rows(standing):
            gaps[row.facts.learner][data][family].append(100 * (row.distance_behind or 0.0))
    return gaps


def average_over_families(families: Mapping[str, Sequence[float]]) -> float:
    """Return the mean distance on a dataset: over ε within each family of boards, then over families."""
    return _compute_exact_mean([_compute_exact_mean(family) for family in families.values()])


def list_best_default_rows(standing: Standing) -> list[EntryRow]:
    """Return each learner's best ranked row with default settings.

    The list is empty if only one learner is ranked.
    """
    ranked = [row for row in make_board_rows(standing) if row.entry.role == "entry"]
    if len({row.facts.learner for row in ranked}) < 2:
        return []
    return list({row.facts.learner: row for row in reversed(ranked) if row.facts.selection == "default"}.values())


def _average_distances(learner: str, gaps: DistancesByDataset) -> MeanDistanceFromBest:
    by_data = [average_over_families(families) for _, families in sorted(gaps.items())]
    low, high = _bootstrap_mean_interval(by_data)
    boards = sum(len(family) for families in gaps.values() for family in families.values())
    points = round(_compute_exact_mean(by_data), DIGITS)
    return MeanDistanceFromBest(
        learner=learner, points=points, low=low, high=high, boards=boards, data_sets=len(by_data)
    )


def _bootstrap_mean_interval(distances_by_dataset: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the percentile bootstrap interval of the mean over datasets; (None, None) for a single dataset."""
    count = len(distances_by_dataset)
    if count < 2:
        return None, None
    rows = np.random.default_rng(0).integers(count, size=(RESAMPLES, count))
    means = np.sort(np.array(distances_by_dataset)[rows].mean(1))
    low, high = means[[int(RESAMPLES * TAIL_SHARE), int(RESAMPLES * (1 - TAIL_SHARE)) - 1]]
    return round(float(low), DIGITS), round(float(high), DIGITS)


def _compute_exact_mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
