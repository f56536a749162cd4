"""Disjunctions over connected variables: Hu et al.'s definition 4, and blocks with known weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import SpecError, setting
from dpbench_plugins.theory.datasets.synthetic import SyntheticDataset

if TYPE_CHECKING:
    import numpy as np

    from dpbench_plugins.theory.datasets.synthetic import Draw

CITATION = "Hu, Pinto, Sanyal, Yang, Semi-private learning via low dimensional structures, 2023"


@dataclass(frozen=True)
class Disjunction(SyntheticDataset):
    """An example is a random graph on the k literals (yes) or on the d - k other variables (no).

    This is Hu et al.'s definition 4: each edge exists with chance p, and a variable is active unless it is isolated.
    The literals have random positions. In the definition as printed, a graph may have no edge at all; x = 0 then has
    both labels, so no disjunction is accurate. Such graphs are drawn again here.
    """

    name = "theory-disjunction"
    citation = "definition 4 of " + CITATION

    d: int = setting(60, ge=4, le=500, says="variables")
    k: int = setting(20, ge=2, says="literals")
    p: float = setting(0.1, ge=1e-4, le=1, says="chance of an edge")

    def __post_init__(self) -> None:
        """Check that two or more variables are not literals, so that their graphs can have edges."""
        if self.k > self.d - 2:
            raise SpecError(
                f"Expected k={self.k} <= d - 2 = {self.d - 2} in dataset {self.name!r}: two variables are not literals."
            )

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw the positions of the literals; return a function that draws examples."""
        import numpy as np

        places = target_rng.permutation(self.d)
        sides = (places[self.k :], places[: self.k])

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            y = stream.integers(0, 2, n)
            x = np.zeros((n, self.d), np.float32)
            for label, variables in enumerate(sides):
                rows = np.flatnonzero(y == label)
                x[np.ix_(rows, variables)] = _draw_active_vertices(len(rows), len(variables), self.p, stream)
            return x, y

        return draw_examples


def _draw_active_vertices(n: int, vertices: int, p: float, stream: np.random.Generator) -> np.ndarray:
    """Draw n random graphs with at least one edge each; return which vertices are not isolated, (n, vertices)."""
    import numpy as np

    vertex, other = np.triu_indices(vertices, 1)
    active = np.zeros((n, vertices), np.float32)
    left = np.arange(n)
    while len(left):
        rows = left[: max(1, 2**21 // len(vertex))]
        edges = stream.random((len(rows), len(vertex)), np.float32) < p
        row, edge = np.nonzero(edges)
        active[rows[row], vertex[edge]] = 1
        active[rows[row], other[edge]] = 1
        done = rows[edges.any(1)]
        left = left[~np.isin(left, done, assume_unique=True)]
    return active


@dataclass(frozen=True)
class WeightedBlocks(SyntheticDataset):
    """One of `blocks` variables is active, the first with probability 1 - 2 alpha; each has a random label.

    The error of a labelling is the total weight (probability) of the wrongly labelled blocks. Independent private
    coins, one per block at epsilon, are wrong on block z with chance E[sigmoid(-epsilon N_z)], where N_z is the number
    of examples of the block, with mean n w_z. The rate of theorem 1, n of the order of Z / (2 alpha epsilon) log(1 /
    alpha), is that of learning the Z - 1 light blocks.
    """

    name = "theory-blocks"
    citation = "after theorem 1 of " + CITATION

    blocks: int = setting(16, ge=2, le=100_000, says="blocks")
    alpha: float = setting(0.05, ge=0, le=0.5, says="half of the weight of all light blocks")

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw the labels of the blocks; return a function that draws examples."""
        import numpy as np

        labels = target_rng.integers(0, 2, self.blocks)
        light = 2 * self.alpha / (self.blocks - 1)
        weights = np.array([1 - 2 * self.alpha] + [light] * (self.blocks - 1))

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            block = stream.choice(self.blocks, n, p=weights)
            return np.eye(self.blocks, dtype=np.float32)[block], labels[block]

        return draw_examples
