"""Learners on datasets that had no part in making any learner's rules, beside the other datasets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.stats import rankdata

from dpbench.analysis.draw import make_marker_options, new_figure, render_figure
from dpbench.analysis.palette import QUIET, assign_learner_styles
from dpbench.board.distance import RESAMPLES, TAIL_SHARE, average_over_families, collect_distances
from dpbench.board.index import Standing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

UNSEEN = frozenset({"gtsrb", "hf", "odir", "pcam"})  # no learner's `rule_origin` names them


@dataclass(frozen=True)
class UnseenDataComparison:
    """Mean distances from the best entry, in points, of each learner that has entries on all datasets."""

    learners: tuple[str, ...]  # the nearest to the best on the other datasets first
    seen: np.ndarray  # (learners, datasets)
    unseen: np.ndarray  # (learners, datasets)

    @property
    def correlation(self) -> float:
        """Spearman's rank correlation between the orders of learners on seen and on unseen datasets."""
        return float(_correlate_ranks(*self._kinds))

    def bootstrap_interval(self) -> tuple[float, float]:
        """Return the 95% percentile interval of the correlation over bootstrap samples of datasets of either kind."""
        generator = np.random.default_rng(0)
        drawn = (kind[:, generator.integers(kind.shape[1], size=(RESAMPLES, kind.shape[1]))] for kind in self._kinds)
        low, high = np.quantile(_correlate_ranks(*drawn), (TAIL_SHARE, 1 - TAIL_SHARE), method="inverted_cdf")
        return float(low), float(high)

    @property
    def _kinds(self) -> tuple[np.ndarray, np.ndarray]:
        return self.seen, self.unseen


def compare_orders(standings: Iterable[Standing]) -> UnseenDataComparison:
    """Compare the learners that read no public labels and have entries with default settings on all datasets."""
    shown = [standing for standing in standings if standing.entries]
    data = {str(standing.board.dataset): standing.board.dataset.name in UNSEEN for standing in shown}
    labelled = {entry.learner for standing in shown for entry in standing.entries if entry.reads_labels}
    distances: Mapping[str, Mapping[str, float]] = {
        learner: {name: average_over_families(families) for name, families in by_data.items()}
        for learner, by_data in collect_distances(shown).items()
        if learner not in labelled and len(by_data) == len(data)
    }
    seen, unseen = ([name for name in sorted(data) if data[name] == kind] for kind in (False, True))

    def mean_distance_when_seen(learner: str) -> float:
        return float(np.mean([distances[learner][name] for name in seen]))

    learners = tuple(sorted(distances, key=mean_distance_when_seen))
    kinds = (np.array([[distances[learner][name] for name in kind] for learner in learners]) for kind in (seen, unseen))
    return UnseenDataComparison(learners, *kinds)


def describe_order_comparison(compared: UnseenDataComparison) -> str:
    """Describe Spearman's rank correlation with its interval, for the middle of a sentence."""
    low, high = compared.bootstrap_interval()
    return f"rank correlation {compared.correlation:.2f}, {low:.2f} to {high:.2f}"


def render_order_table(compared: UnseenDataComparison) -> str:
    """Return a table of each learner's mean distance and place on datasets of either kind, and their correlation."""
    means = [kind.mean(1) for kind in (compared.seen, compared.unseen)]
    places = [mean.argsort(kind="stable").argsort(kind="stable") + 1 for mean in means]
    lines = [
        "| learner | points behind on the other data | place | on unseen data | place |",
        "|---|---:|---:|---:|---:|",
    ]
    for row, learner in enumerate(compared.learners):
        cells = [f"{mean[row]:.2f} | {place[row]}" for mean, place in zip(means, places, strict=True)]
        lines.append(f"| `{learner}` | {' | '.join(cells)} |")
    return "\n".join([*lines, f"| *{describe_order_comparison(compared)}* | | | | |"])


def render_order_figure(compared: UnseenDataComparison) -> str:
    """Return the figure as SVG: a point per learner, with its mean distances on datasets of either kind."""
    return render_figure(lambda: _make_figure(compared), "svg").decode()


def _make_figure(compared: UnseenDataComparison) -> Figure:
    figure = new_figure(5.2, 3.9)
    axes = figure.add_subplot()
    styles = assign_learner_styles(compared.learners)
    across, up = compared.seen.mean(1), compared.unseen.mean(1)
    end = 1.1 * max(across.max(), up.max())
    axes.plot([0, end], [0, end], color=QUIET, linewidth=0.8, linestyle=":")
    for learner, x, y in zip(compared.learners, across, up, strict=True):
        axes.plot([x], [y], linestyle="none", label=learner, **make_marker_options(styles[learner], 6))
        axes.annotate(learner, (x, y), xytext=(5, 3), textcoords="offset points", fontsize=7)
    axes.set_xlabel("mean points behind the best: data that rules were chosen on")
    axes.set_ylabel("data that no rule was chosen on")
    return figure


def _correlate_ranks(seen: np.ndarray, unseen: np.ndarray) -> np.ndarray:
    """Return Spearman's correlation of means over the last axis: (learners, ..., datasets) to (...)."""
    ranks = [rankdata(kind.mean(-1), axis=0) for kind in (seen, unseen)]
    first, second = (rank - rank.mean(0) for rank in ranks)
    return np.asarray((first * second).sum(0) / np.sqrt((first**2).sum(0) * (second**2).sum(0)))
