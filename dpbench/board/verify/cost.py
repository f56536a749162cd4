"""Estimate the cost of re-running results, and of their challenge seeds, from the times that they state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dpbench.records.result import Result
from dpbench.support.messages import format_bytes, format_duration

PHASES_PER_RESULT = ("load", "calibrate", "compare")  # phases that a re-run goes through once a result


@dataclass(frozen=True)
class PlannedFits:
    """The fits that are planned for a result."""

    result: Result
    own: int  # seeds of the result
    challenge: int  # challenge seeds
    search: bool  # whether a search on public data is repeated

    @property
    def seconds(self) -> float:
        """The estimated seconds on the machine of the result's author."""
        spent = self.result.seconds
        each = (spent.get("fit", 0.0) + spent.get("score", 0.0)) / max(1, len(self.result.seeds))
        repeated = self.search and self.result.selection == "public-validation"
        searched = spent.get("tune", 0.0) if repeated else 0.0
        once = sum(spent.get(phase, 0.0) for phase in PHASES_PER_RESULT)
        return once + (self.own + self.challenge) * each + searched


def describe_cost(planned_fits: Sequence[PlannedFits]) -> str:
    """Describe the time and the memory that the planned fits take, in two sentences."""
    timed = [fits for fits in planned_fits if "fit" in fits.result.seconds]
    peak = max((max(fits.result.peak_bytes.values(), default=0) for fits in planned_fits), default=0)
    own, challenge = sum(fits.own for fits in planned_fits), sum(fits.challenge for fits in planned_fits)
    seeds = f"{own} seed{'s' * (own != 1)}" if own else ""
    fresh = f"{challenge} challenge seed{'s' * (challenge != 1)}" if challenge else ""
    what = f"{'Re-running' if seeds else 'Running'} {' and '.join(filter(None, (seeds, fresh)))}"
    memory = f" and {format_bytes(peak)} of memory" if peak else ""
    silent = len(planned_fits) - len(timed)
    untold = f" (not counting {silent} whose cost is secret)" if silent else ""
    return (
        f"{what} of {len(planned_fits)} result{'s' * (len(planned_fits) != 1)}: about "
        f"{format_duration(sum(fits.seconds for fits in timed))}{memory}, judging by what their authors recorded"
        f"{untold}. Features that are not in the cache are extracted first."
    )
