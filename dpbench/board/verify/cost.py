"""Estimate the cost of re-running results from the times that they state."""

from __future__ import annotations

from collections.abc import Sequence

from dpbench.records.result import Result
from dpbench.support.messages import bytes_in_words, duration

PHASES_PER_RESULT = ("load", "calibrate", "compare")  # phases that a re-run goes through once a result


def describe_cost(results: Sequence[Result], seed: int | None) -> str:
    """Describe in a sentence the cost of re-running these results, with all of their seeds or with a single seed."""
    timed = [result for result in results if "fit" in result.seconds]
    seconds = sum(estimate_rerun_seconds(result, whole=seed is None) for result in timed)
    fits = sum(len(result.seeds) if seed is None else 1 for result in results)
    peak = max((max(result.peak_bytes.values(), default=0) for result in results), default=0)
    what = f"Re-running {fits} seed{'s' * (fits != 1)} of {len(results)} result{'s' * (len(results) != 1)}"
    memory = f" and {bytes_in_words(peak)} of memory" if peak else ""
    silent = len(results) - len(timed)
    untold = f" (not counting {silent} whose cost is secret)" if silent else ""
    return (
        f"{what}: about {duration(seconds)}{memory}, judging by what their authors recorded{untold}. Features that are "
        "not in the cache are extracted first."
    )


def estimate_rerun_seconds(result: Result, whole: bool) -> float:
    """Estimate a re-run's seconds on the original machine, for all seeds and the search, or for a single seed."""
    spent, fits = result.seconds, len(result.seeds) if whole else 1
    each = (spent.get("fit", 0.0) + spent.get("score", 0.0)) / max(1, len(result.seeds))
    searched = spent.get("tune", 0.0) if whole and result.selection == "public-validation" else 0.0
    return sum(spent.get(phase, 0.0) for phase in PHASES_PER_RESULT) + fits * each + searched
