"""DP-RandP, phases II and III: first the head, then the whole network, in one plan with one sigma."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

from dpbench import Budget, Curator, Predict, PublicData, Release, SpecError, Task, setting
from dpbench_plugins.learners.networks.scratch import NetworkLearner

if TYPE_CHECKING:
    import torch

    from dpbench_plugins.learners.networks.training import Phase

# Table 13, CIFAR-10: epsilon, steps of both phases, learning rate of phase III.
TABLE = ((1, 875, 0.4), (2, 1125, 1.0), (3, 1593, 1.0), (4, 1687, 1.2), (6, 1843, 1.2), (8, 2468, 1.6))


@dataclass(frozen=True)
class DPRandP(NetworkLearner):
    """Train a head, then the whole network, from weights that saw no data (Tang et al. 2023, arXiv:2306.06076).

    `weights` is the checkpoint of phase I: your own file, or the small one that comes with dpbench (see the extractor
    `randp-wrn16-4`). `random` is the cold start of Table 25. The checkpoint must not depend on private data, because
    dpbench does not account for it. Phase II takes `phase2_steps` steps with `phase2_learning_rate`, and phase III
    takes `phase3_steps` steps with `phase3_learning_rate`; all steps share one sigma. 0 steps leave a phase out (Table
    24).

    The default allocation is that of section 3.3. Below an epsilon of `probe_below`, the whole budget goes to phase II.
    From there on, phase II is fixed and phase III grows with epsilon along Table 13. Phase III is planned in
    instalments, one for each row of the table that epsilon reaches. The steps of phase III are the total of the last
    row reached less the steps of phase II, and its learning rate is also that of the last row reached. `paper_space`
    has the steps of phase II of Figure 6 (appendix E) up to 240, and the learning rates of Table 13.

    `phase2_trains` says what phase II trains. The paper trains the head; the authors' code also trains the final
    GroupNorm, and so does the default. Differences from that code: the sample rate is 4,096 / 50,000 as accounted
    (their loader had to be patched); images are normalised by constants and not by statistics of the private set;
    convolutions are standardised (theirs are plain, although the paper follows De et al.); the last averaged weights
    are scored, not the epoch that is best on the test set.
    """

    name = "dp-randp"
    rule_origin = "the paper"
    search_space = {
        "phase2_learning_rate": (5.0, 15.0, 25.0),
        "phase3_learning_rate": (0.2, 0.4, 1.0, 1.6),
    }
    paper_space = {
        "phase2_steps": (0, 12, 24, 36, 48, 96, 144, 192, 240),
        "phase3_learning_rate": tuple(sorted({rate for _, _, rate in TABLE})),
    }

    weights: str = setting("randp-wrn16-4", says="checkpoint of phase I, or random")
    phase2_steps: int = setting(96, ge=0, says="steps of phase II; 0 leaves it out")
    phase2_learning_rate: float = setting(15.0, gt=0, says="learning rate of phase II")
    phase2_trains: Literal["head", "norm+head"] = setting("norm+head", says="parameters that phase II trains")
    phase3_steps: int | None = setting(None, ge=0, says="steps of phase III; 0 leaves it out")
    phase3_learning_rate: float | None = setting(None, gt=0, says="learning rate of phase III")
    probe_below: float = setting(0.5, ge=0, says="epsilon below which there is no phase III")

    def __post_init__(self) -> None:
        """Raise SpecError if phases II and III have no steps, or if phase II alone reaches the default total."""
        if not self.phase2_steps and self.phase3_steps == 0:
            raise SpecError(f"Expected steps in phase II or III of learner {self.name!r}, got 0 in both.")
        if self.phase3_steps is None and self.phase2_steps >= TABLE[0][1]:
            raise SpecError(
                f"Expected phase2_steps={self.phase2_steps} below {TABLE[0][1]}, the default total of phases II and "
                f"III, in learner {self.name!r}. Set fewer steps, or set phase3_steps too."
            )

    def check_task(self, task: Task) -> None:
        """Check that the network, and the checkpoint that comes with dpbench, can read the examples.

        Raises:
            SpecError: the network or the checkpoint cannot; the message says which examples it reads.
        """
        from dpbench_plugins.networks.network_checkpoint import SHIPPED

        super().check_task(task)
        if self.weights in SHIPPED and task.example_shape[0] != 3:
            raise SpecError(
                f"Learner {self.name!r} starts from weights={self.weights}, which read 3 channels, got images of "
                f"{task.example_shape[0]}. Use --extractor pixels:flat=false,mode=RGB, or weights=random."
            )

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan the steps of phase II, and the instalments of phase III that epsilon reaches."""
        self.check_task(task)
        return [
            release
            for phase in self._make_phases(self._count_instalments(budget.epsilon))
            for release in phase.releases
        ]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Train the network in the planned phases."""
        reached = sum(name.startswith("phase3") for name in curator.sigma)
        weights = None if self.weights == "random" else self.weights
        return self.train(curator, self._make_phases(reached), weights, generator)

    def _count_instalments(self, epsilon: float) -> int:
        """Return how many instalments of phase III epsilon reaches: 1 if `phase3_steps` is set, 0 without phase III."""
        if self.phase3_steps == 0 or (epsilon < self.probe_below and self.phase2_steps and self.phase3_steps is None):
            return 0
        return 1 if self.phase3_steps else max(1, sum(row[0] <= epsilon for row in TABLE))

    def _make_phases(self, reached: int) -> list[Phase]:
        from dpbench_plugins.learners.networks.training import Phase

        made = []
        if self.phase2_steps:
            releases = [Release("phase2", self.phase2_steps, self.sample_rate)]
            made.append(Phase(self.phase2_trains, self.phase2_learning_rate, releases))
        if reached:
            rate = self.phase3_learning_rate or TABLE[reached - 1][2]
            made.append(Phase("all", rate, self._make_phase3_releases()[:reached]))
        return made

    def _make_phase3_releases(self) -> list[Release]:
        if self.phase3_steps:
            return [Release("phase3", self.phase3_steps, self.sample_rate)]
        totals = [self.phase2_steps, *(row[1] for row in TABLE)]
        names = ["phase3", *(f"phase3-from-epsilon-{row[0]}" for row in TABLE[1:])]
        steps = [total - before for before, total in pairwise(totals)]
        return [Release(name, count, self.sample_rate) for name, count in zip(names, steps, strict=True)]
