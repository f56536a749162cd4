"""What every curator has that stands before another one: a task and a sigma to state."""

from __future__ import annotations

from collections.abc import Mapping

from dpbench.api import Curator, Task


class Stated(Curator):
    """States the task and the noise multipliers that it is given; a subclass asks the curator behind it."""

    __slots__ = ("_sigma", "_task")

    def __init__(self, task: Task, sigma: Mapping[str, float]) -> None:
        self._task, self._sigma = task, dict(sigma)

    @property
    def task(self) -> Task:
        """What is public about the rows."""
        return self._task

    @property
    def sigma(self) -> Mapping[str, float]:
        """The noise multipliers, as they are stated."""
        return self._sigma
