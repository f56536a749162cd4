"""Choose the default delta from the number of private units, and refuse or warn about a large delta.

A guarantee with a delta of 1/n allows a mechanism that publishes the whole record of one unit, drawn at random. So
delta must be well below 1/n. n is the number of private units, which is known once the data is loaded.
"""

from __future__ import annotations

from dpbench.api import Budget, Task
from dpbench.errors import SpecError
from dpbench.records.protocol import Protocol
from dpbench.support import progress

WARNING_SHARE = 0.9  # of 1/n
USUAL_DELTA: float = Protocol.model_fields["delta"].default
"""Default delta for at most 50,000 private units."""


def compute_default_delta(units: int) -> float:
    """Return the default delta for n private units: the smaller of 1e-5 and the largest power of ten up to 1 / (2n).

    >>> compute_default_delta(50_000), compute_default_delta(50_001), compute_default_delta(235_930)
    (1e-05, 1e-06, 1e-06)
    """
    return min(USUAL_DELTA, float(f"1e-{len(str(2 * units - 1))}"))


def check_delta(budget: Budget, task: Task, *, for_board: bool) -> None:
    """Refuse a delta of 1/n or more in a run for a board. In all other cases, warn if delta is near 1/n or larger.

    Raises:
        SpecError: delta is 1/n or more, and the run is for a board.
    """
    if budget.delta * task.size >= 1:
        worth = (
            f"delta={budget.delta:g} is at least 1/n={1 / task.size:.3g} with n={task.size:,} private examples: a "
            "mechanism that publishes one of them whole would satisfy it"
        )
        if for_board:
            raise SpecError(f"No board accepts this run: {worth}. Leave out delta, or set it to auto.")
        progress.print_progress_line(f"{worth}. No board accepts the result.")
    elif budget.delta * task.size > WARNING_SHARE:
        progress.print_progress_line(
            f"delta={budget.delta:g} is just below 1/n={1 / task.size:.3g} with n={task.size:,} private examples: a "
            "mechanism that publishes one of them, drawn at random, nearly meets it. Choose a delta well below 1/n."
        )
