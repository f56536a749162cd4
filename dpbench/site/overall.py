"""Overall results: each learner's mean distance from the best entry, and the number of boards where it has rank 1."""

from __future__ import annotations

from dataclasses import dataclass

from dpbench.board.index import Index, MeanDistanceFromBest
from dpbench.site import text


@dataclass(frozen=True)
class OverallResult:
    """The result of a learner over all boards."""

    distance: MeanDistanceFromBest
    first_ranks: int  # boards on which an entry of it has rank 1, whatever its settings

    @property
    def points(self) -> str:
        """The distance in points, as text."""
        return f"{self.distance.points:.2f}"

    @property
    def interval(self) -> str:
        """The interval of the distance, as text; empty with a single dataset."""
        low, high = self.distance.low, self.distance.high
        return "" if low is None or high is None else f"{low:.2f} to {high:.2f}"


def list_overall_results(index: Index) -> list[OverallResult]:
    """Return the overall result of each learner that has a distance, in the index's order."""
    return [OverallResult(distance, count_first_ranks(index, distance.learner)) for distance in index.distances]


def count_first_ranks(index: Index, learner: str) -> int:
    """Count the boards on which an entry of a learner has rank 1."""
    return sum(
        any(entry.rank == 1 and entry.learner == learner for entry in found.entries) for found in index.standings
    )


def count_data_sets(index: Index) -> int:
    """Count the datasets of the boards with ranked entries."""
    return len({str(found.board.dataset) for found in index.standings if any(entry.rank for entry in found.entries)})


def describe_distance(overall: OverallResult, data_sets: int) -> str:
    """Describe a learner's distance from the best entry in words.

    >>> mean = MeanDistanceFromBest(learner="a", points=0.5, low=0.1, high=1.2, boards=9, data_sets=4)
    >>> describe_distance(OverallResult(mean, 3), 4)
    '0.50 points (95% interval 0.10 to 1.20, from 4 datasets)'
    """
    found = overall.distance
    among = f"{found.data_sets} of {data_sets}" if found.data_sets < data_sets else str(data_sets)
    interval = f"95% interval {overall.interval}, " if overall.interval else ""
    noun = "dataset" if data_sets == 1 else "datasets"
    return f"{text.format_points(found.points / 100)} ({interval}from {among} {noun})"
