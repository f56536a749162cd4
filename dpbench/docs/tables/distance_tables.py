"""The table of `explanation/leaderboard.md` that says where a learner's distance from the best comes from."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np
from scipy.stats import t

from dpbench.board.distance import default_rows
from dpbench.board.index import Entry, Standing
from dpbench.board.rows import EntryRow

LEARNERS = ("thrift", "public-prior")
MOST = 1.0  # epsilon of the boards that count
DRAWS = 20_000
TITLES = {
    "cifar10": "CIFAR-10", "digits": "digits", "fashion-mnist": "Fashion-MNIST", "gtsrb": "traffic signs",
    "ham10000": "skin lesions", "pneumonia": "chest X-rays",
}  # fmt: skip

Gaps = dict[str, dict[str, list[float]]]
"""Distances by dataset and family of boards."""


def distance_by_data(standings: Iterable[Standing]) -> str:
    """Return how far learners are behind the best by dataset, and how far they would be if none were better."""
    shown = [standing for standing in standings if standing.entries and standing.board.epsilon <= MOST]
    heads = [head for name in LEARNERS for head in (f"`{name}`: points behind", "by chance", "boards")]
    lines = [f"| dataset | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    found = [[_gaps(shown, name, how) for how in (lambda _, row: 100 * row.behind, by_chance)] for name in LEARNERS]
    for data in sorted({str(standing.board.dataset) for standing in shown}):
        cells = []
        for gaps, lucky in found:
            boards = sum(map(len, gaps[data].values())) if data in gaps else 0
            means = [f"{_mean_of(scores[data]):.2f}" for scores in (gaps, lucky)] if boards else ["", ""]
            cells += [*means, str(boards or "")]
        lines.append(f"| {TITLES[data.split(':')[0]]} | {' | '.join(cells)} |")
    cells = []
    for gaps, lucky in found:
        cells += [f"**{math.fsum(map(_mean_of, scores.values())) / len(scores):.2f}**" for scores in (gaps, lucky)]
        cells.append(f"**{sum(len(family) for families in gaps.values() for family in families.values())}**")
    return "\n".join([*lines, f"| **mean over datasets** | {' | '.join(cells)} |"])


def by_chance(standing: Standing, row: EntryRow) -> float:
    """Return how far an entry would be behind the best of its group, in points, were no mean above its own.

    The mean of each entry that scored more is taken to be this entry's; their errors over seeds stay, and are drawn
    anew. The best of many that are equal is ahead of any one of them.
    """
    metric, entry = standing.board.metric, row.entry
    own = entry.metrics[metric].mean
    group = [
        other for other in standing.entries if other.role == "entry" and (entry.reads_labels or not other.reads_labels)
    ]
    means = np.array([min(entry.metrics[metric].mean, own) for entry in group])
    errors = np.array([_error(entry, standing) for entry in group])
    drawn = means + errors * np.random.default_rng(0).standard_normal((DRAWS, len(group)))
    return 100 * max(0.0, float(drawn.max(1).mean() - own))


def _error(entry: Entry, standing: Standing) -> float:
    """Return the standard error over seeds of an entry's mean; 0 where all seeds are equal or there is one."""
    interval, seeds = entry.metrics[standing.board.metric], len(standing.board.seeds)
    if interval.low is None or interval.high is None:
        return 0.0
    return float((interval.high - interval.low) / 2 / t.ppf(0.975, seeds - 1))


def _gaps(standings: list[Standing], learner: str, how: Callable[[Standing, EntryRow], float]) -> Gaps:
    gaps: Gaps = defaultdict(lambda: defaultdict(list))
    for standing in standings:
        for row in default_rows(standing):
            if row.entry.learner == learner:
                gaps[str(standing.board.dataset)][standing.board.family].append(how(standing, row))
    return gaps


def _mean_of(families: dict[str, list[float]]) -> float:
    """Return the mean over ε within a family, then over families, as `board.distance` takes it."""
    return math.fsum(math.fsum(gaps) / len(gaps) for gaps in families.values()) / len(families)
