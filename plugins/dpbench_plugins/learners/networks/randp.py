"""DP-RandP, phases II and III: the head first, then the whole network, under one plan with one sigma."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import Budget, Curator, Predict, PublicData, Release, SpecError, Task
from dpbench_plugins.learners.networks.scratch import NetworkLearner

if TYPE_CHECKING:
    import torch

    from dpbench_plugins.learners.networks.training import Phase

# Table 13, CIFAR-10: epsilon, steps of both phases, learning rate of phase III.
TABLE = ((1, 875, 0.4), (2, 1125, 1.0), (3, 1593, 1.0), (4, 1687, 1.2), (6, 1843, 1.2), (8, 2468, 1.6))


@dataclass(frozen=True)
class DPRandP(NetworkLearner):
    """Head, then whole network, from weights that saw no data (Tang et al., NeurIPS 2023, arXiv:2306.06076).

    `weights` is the checkpoint of phase I: a file, or the one that comes with dpbench, which is a small one (see the
    extractor `randp-wrn16-4`); `random` is the cold start of Table 25. It must come from nothing private: no account is
    kept of it. Phase II takes `phase2_steps` with `phase2_learning_rate`, phase III `phase3_steps` with
    `phase3_learning_rate`; all steps share one sigma. 0 steps leave a phase out (Table 24).

    The allocation of section 3.3 is the default: below epsilon `probe_below` all goes to phase II; from there on phase
    II is fixed and phase III grows with epsilon along Table 13, planned as instalments, one for each row of the table
    that epsilon reaches; its steps are the row's total less those of phase II. The learning rate of phase III is that
    of the last row reached.

    `phase2_trains`: the paper says the head; the authors' code trains the final GroupNorm with it, and so does the
    default. Differs from that code: a sample rate of 4,096 / 50,000 as accounted (its loader had to be patched), images
    normalised by constants and not by the private set's statistics, standardised convolutions (theirs are plain,
    though the paper follows De et al.), and the last averaged weights scored, not the best epoch on test.
    """

    name: ClassVar[str] = "dp-randp"
    search_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "phase2_learning_rate": (5.0, 15.0, 25.0),
        "phase3_learning_rate": (0.2, 0.4, 1.0, 1.6),
    }
    paper_space: ClassVar[Mapping[str, Sequence[Any]]] = {
        "phase2_steps": (0, 12, 24, 36, 48, 96, 144, 192, 240),
        "phase3_learning_rate": tuple(sorted({rate for _, _, rate in TABLE})),
    }

    weights: str = "randp-wrn16-4"
    phase2_steps: int = 96
    phase2_learning_rate: float = 15.0
    phase2_trains: Literal["head", "norm+head"] = "norm+head"
    phase3_steps: int | None = None
    phase3_learning_rate: float | None = None
    probe_below: float = 0.5

    def __post_init__(self) -> None:
        """Refuse phases that cannot be."""
        super().__post_init__()
        for name in ("phase2_steps", "phase3_steps"):
            steps = getattr(self, name)
            if steps is not None and steps < 0:
                raise SpecError(f"Expected {name}={steps} >= 0 in learner {self.name!r}; 0 leaves the phase out.")
        for name in ("phase2_learning_rate", "phase3_learning_rate"):
            rate = getattr(self, name)
            if rate is not None and not rate > 0:
                raise SpecError(f"Expected {name}={rate} > 0 in learner {self.name!r}.")
        if not self.phase2_steps and self.phase3_steps == 0:
            raise SpecError(f"Expected steps in phase II or III of learner {self.name!r}, got 0 in both.")
        if self.phase3_steps is None and self.phase2_steps >= TABLE[0][1]:
            raise SpecError(
                f"Expected phase2_steps={self.phase2_steps} below the {TABLE[0][1]} of both phases in learner "
                f"{self.name!r}, or phase3_steps too."
            )

    def check_task(self, task: Task) -> None:
        """Refuse examples that the network or the checkpoint that comes with dpbench cannot read.

        Raises:
            SpecError: says which examples it reads.
        """
        from dpbench_plugins.learners.networks.network_checkpoint import SHIPPED

        super().check_task(task)
        if self.weights in SHIPPED and task.example_shape[0] != 3:
            raise SpecError(
                f"Learner {self.name!r} starts from weights={self.weights}, which read 3 channels, got images of "
                f"{task.example_shape[0]}. Use --extractor pixels:flat=false,mode=RGB, or weights=random."
            )

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Phase II's steps and phase III's instalments, by epsilon."""
        self.check_task(task)
        return [release for phase in self._phases(self._reached(budget.epsilon)) for release in phase.releases]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train through the phases that were planned."""
        reached = sum(name.startswith("phase3") for name in curator.sigma)
        weights = None if self.weights == "random" else self.weights
        return self.train(curator, self._phases(reached), weights, generator)

    def _reached(self, epsilon: float) -> int:
        """Return how many instalments of phase III there are; without phase II, or with own steps, always one."""
        if self.phase3_steps == 0 or (epsilon < self.probe_below and self.phase2_steps and self.phase3_steps is None):
            return 0
        return 1 if self.phase3_steps else max(1, sum(row[0] <= epsilon for row in TABLE))

    def _phases(self, reached: int) -> list[Phase]:
        from dpbench_plugins.learners.networks.training import Phase

        made = []
        if self.phase2_steps:
            releases = [Release("phase2", self.phase2_steps, self.sample_rate)]
            made.append(Phase(self.phase2_trains, self.phase2_learning_rate, releases))
        if reached:
            rate = self.phase3_learning_rate or TABLE[reached - 1][2]
            made.append(Phase("all", rate, self._instalments()[:reached]))
        return made

    def _instalments(self) -> list[Release]:
        if self.phase3_steps:
            return [Release("phase3", self.phase3_steps, self.sample_rate)]
        totals = [self.phase2_steps, *(row[1] for row in TABLE)]
        names = ["phase3", *(f"phase3-from-epsilon-{row[0]}" for row in TABLE[1:])]
        steps = [total - before for before, total in pairwise(totals)]
        return [Release(name, count, self.sample_rate) for name, count in zip(names, steps, strict=True)]
