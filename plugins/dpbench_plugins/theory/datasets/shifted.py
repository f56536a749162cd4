"""Distributions that break one condition of a theorem by a known amount: shifted public examples, or mixed examples."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import setting
from dpbench_plugins.theory.datasets.graphs import CITATION, Disjunction
from dpbench_plugins.theory.datasets.halfspaces import LowRankHalfspace
from dpbench_plugins.theory.datasets.synthetic import SyntheticDataset

if TYPE_CHECKING:
    import numpy as np

    from dpbench_plugins.theory.datasets.synthetic import Draw


@dataclass(frozen=True)
class ShiftedLowRank(LowRankHalfspace):
    """`theory-lowrank` with public examples from another distribution, at total variation `eta` from the private one.

    With chance eta, a public example is a unit vector along the last tail direction, with a random sign. The private
    distribution gives these two points no weight, so the total variation is eta. All energy of the shift is in one
    direction, the worst case for the public components: the second moment moves by eta there. Third moments stay 0.
    """

    name = "theory-shifted"
    citation = "after definition 4 of Pinto, Hu, Yang, Sanyal, PILLAR, 2023"

    eta: float = setting(0.0, ge=0, le=1, says="total variation between public and private examples")

    def draw_public(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw as `draw` does, then move a share `eta` of the examples to the last tail direction."""
        import numpy as np

        away = self.draw_rotation(copy.deepcopy(target_rng))[-1]
        drawn = self.draw(target_rng, stream)

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            x, y = drawn(n)
            moved = np.flatnonzero(stream.random(n) < self.eta)
            x[moved] = stream.choice([-1, 1], len(moved))[:, None] * away
            return x, y

        return draw_examples


@dataclass(frozen=True)
class DummyThresholds(SyntheticDataset):
    """Thresholds in the reduction of Alon et al. to a semi-private learner: most training examples are dummies.

    A test example is uniform on [a, 2a], a = 2^-u, with the label x >= t, t uniform on the middle 60% of the window; u
    is uniform on [0, octaves]. A dummy is uniform on its own window, drawn from the same distribution; its label is a
    fair coin. A training example is a test example with chance 1 / (100 m), else a dummy (algorithm 3, on n examples);
    all m public examples are dummies (algorithm 4). With octaves=0, dummies and examples have the same window.
    """

    name = "theory-dummies"
    citation = "lemma 4.4, algorithms 2 to 4 of Alon, Bassily, Moran, Limits of Private Learning, 2019"

    octaves: float = setting(0.0, ge=0, le=60, says="octaves that the window may be in")

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw the window and the threshold; return a function that draws test examples."""
        import numpy as np

        start = np.float32(2.0 ** -target_rng.uniform(0, self.octaves))
        threshold = start * (1 + 0.5 * (1 + 0.6 * target_rng.uniform(-1, 1)))

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            x = (start * (1 + stream.random(n))).astype(np.float32)
            return x[:, None], x >= threshold

        return draw_examples

    def draw_public(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Return a function that draws dummies."""
        import numpy as np

        def draw_dummies(n: int) -> tuple[np.ndarray, np.ndarray]:
            start = 2.0 ** -stream.uniform(0, self.octaves, n)
            return (start * (1 + stream.random(n))).astype(np.float32)[:, None], stream.integers(0, 2, n)

        return draw_dummies

    def draw_training(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Return a function that draws dummies or, with probability 1 / (100 m), test examples."""
        import numpy as np

        drawn, draw_dummies = self.draw(target_rng, stream), self.draw_public(target_rng, stream)

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            real = stream.random(n) < 1 / (100 * max(1, self.m))
            (x, y), (other, coins) = drawn(n), draw_dummies(n)
            return np.where(real[:, None], x, other), np.where(real, y, coins)

        return draw_examples


@dataclass(frozen=True)
class IncompatibleDisjunction(Disjunction):
    """`theory-disjunction`, but a share of the examples has both literals and other variables active.

    With chance `mixed`, an example is the union of two, whose labels differ half of the time. So the target has
    compatibility 1 - mixed / 2 (equation 1 of Hu et al.), and still labels every example correctly.
    """

    name = "theory-incompatible"
    citation = "definition 4 and equation 1 of " + CITATION

    mixed: float = setting(0.0, ge=0, le=1, says="share of the examples that are joined with another")

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw as `theory-disjunction` does, then join a share `mixed` of the examples with another example each."""
        import numpy as np

        drawn = super().draw(target_rng, stream)

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            (x, y), (other, label) = drawn(n), drawn(n)
            joined = stream.random(n) < self.mixed
            return np.where(joined[:, None], np.maximum(x, other), x), np.where(joined, np.maximum(y, label), y)

        return draw_examples
