"""The table in `explanation/leaderboard.md` that compares learners' distances from the best entry with chance."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np
from scipy.stats import t

from dpbench.board.distance import average_over_families, list_best_default_rows
from dpbench.board.index import Entry, Standing
from dpbench.board.rows import EntryRow

LEARNERS = ("thrift", "public-prior")
MAX_EPSILON = 1.0  # epsilon of the boards that count
DRAW_COUNT = 20_000
DATASET_TITLES = {
    "cifar10": "CIFAR-10", "digits": "digits", "fashion-mnist": "Fashion-MNIST", "gtsrb": "traffic signs",
    "ham10000": "skin lesions", "hf": "CIFAR-100, coarse", "odir": "fundus photographs", "pcam": "PatchCamelyon",
    "pneumonia": "chest X-rays",
}  # fmt: skip

Gaps = dict[str, dict[str, list[float]]]
"""Distances by dataset and family of boards."""


def render_chance_distance_table(standings: Iterable[Standing]) -> str:
    """Return a table by dataset: how far `LEARNERS` are behind the best entry, and how far they would be by chance."""
    shown = [standing for standing in standings if standing.entries and standing.board.epsilon <= MAX_EPSILON]
    heads = [head for name in LEARNERS for head in (f"`{name}`: points behind", "by chance", "boards")]
    lines = [f"| dataset | {' | '.join(heads)} |", f"|---|{'---:|' * len(heads)}"]
    found = [
        [_collect_gaps(shown, name, how) for how in (lambda _, row: 100 * row.distance_behind, compute_chance_distance)]
        for name in LEARNERS
    ]
    for data in sorted({str(standing.board.dataset) for standing in shown}):
        cells = []
        for gaps, lucky in found:
            boards = sum(map(len, gaps[data].values())) if data in gaps else 0
            means = [f"{average_over_families(scores[data]):.2f}" for scores in (gaps, lucky)] if boards else ["", ""]
            cells += [*means, str(boards or "")]
        lines.append(f"| {DATASET_TITLES[data.split(':')[0]]} | {' | '.join(cells)} |")
    cells = []
    for gaps, lucky in found:
        cells += [
            f"**{math.fsum(map(average_over_families, scores.values())) / len(scores):.2f}**"
            for scores in (gaps, lucky)
        ]
        cells.append(f"**{sum(len(family) for families in gaps.values() for family in families.values())}**")
    return "\n".join([*lines, f"| **mean over datasets** | {' | '.join(cells)} |"])


def compute_chance_distance(standing: Standing, row: EntryRow) -> float:
    """Return how far, in points, an entry would be behind the best by chance alone, if no entry were truly better.

    The entry is compared with the ranked entries that read no public labels, or with all if it reads them. Means above
    the entry's own mean are lowered to it. Each mean is then drawn from a normal distribution with the standard error
    of its own entry over seeds. The best of many equally good entries beats any single one, so the distance is above 0.
    """
    metric, entry = standing.board.metric, row.entry
    own = entry.metrics[metric].mean
    group = [
        other for other in standing.entries if other.role == "entry" and (entry.reads_labels or not other.reads_labels)
    ]
    means = np.array([min(entry.metrics[metric].mean, own) for entry in group])
    errors = np.array([_standard_error_over_seeds(entry, standing) for entry in group])
    drawn = means + errors * np.random.default_rng(0).standard_normal((DRAW_COUNT, len(group)))
    return 100 * max(0.0, float(drawn.max(1).mean() - own))


def _standard_error_over_seeds(entry: Entry, standing: Standing) -> float:
    """Return the standard error over seeds of an entry's mean; 0 if all seeds are equal or there is only one."""
    interval, seeds = entry.metrics[standing.board.metric], len(standing.board.seeds)
    if interval.low is None or interval.high is None:
        return 0.0
    return float((interval.high - interval.low) / 2 / t.ppf(0.975, seeds - 1))


def _collect_gaps(standings: list[Standing], learner: str, measure: Callable[[Standing, EntryRow], float]) -> Gaps:
    gaps: Gaps = defaultdict(lambda: defaultdict(list))
    for standing in standings:
        for row in list_best_default_rows(standing):
            if row.entry.learner == learner:
                gaps[str(standing.board.dataset)][standing.board.family].append(measure(standing, row))
    return gaps
