"""Disjunctions from a component graph: public data connects variables, and private labels show which are literals.

For comparison, `literal-counts` works without public data, from one noisy count per variable.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import Budget, Choice, Chunk, Curator, Learner, Predict, PublicData, Release, Task
from dpbench_plugins.theory.learners.common import check_public_examples, check_two_classes, make_binary_scores

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(frozen=True)
class ComponentGraph(Learner):
    """Hu, Pinto, Sanyal, Yang 2023, theorem 1: private coins choose a union of components of the public graph.

    Examples x are in {0, 1}^d (a feature above 1/2 is active), the label is an OR of literals, and no example has both
    active literals and other active variables. Variables that are active together in a public example are connected; a
    disjunction is then a union of the Z components. Theorem 1: m = O(log(2 d^2 / beta) / -log(1 - p)) unlabelled
    examples find all components, where p is the least chance of an edge, and n = O((Z + polylog) / (alpha epsilon))
    labelled examples find the union.

    A private example counts for the component of its first active variable, or for none if no variable is active. The
    number of errors of a union is a sum over components, so the exponential mechanism over all 2^Z unions is exactly Z
    independent coins, in time O(Z): component z is included with chance 1 / (1 + exp(-epsilon (yes_z - no_z))). A coin
    that no example touches is fair, as it is in the mechanism over unions.

    Privacy (add or remove one): epsilon-DP. The graph is public. An example affects one coin, whose log-odds move by
    epsilon at most, so the coins compose in parallel (`Curator.noisy_choices`). This covers the coins and their union.
    If a private example has variables of several components, it counts only for the component of its first active
    variable.

    Differs from the paper: its exp(epsilon q / 2) is for replacing an example; adding or removing an example moves
    losses in one direction only, so the 2 is not needed. As in the paper, the union need not have k literals. All 2^Z
    unions are searched; in the paper's theorem 2, where Z = 2, these are four and not two hypotheses.
    """

    name = "component-graph"
    public = "unlabelled"
    rule_origin = "the theorem"

    def made_for(self) -> str:
        """Return a dataset of disjunctions over random graphs."""
        return "theory-disjunction:n=1500,m=300,test=400,d=30,k=12"

    def plan(self, task: Task, budget: Budget) -> Sequence[Choice]:
        """Plan one coin per component; there are at most as many components as variables."""
        check_two_classes(task, self.name)
        check_public_examples(task, self.name)
        return [Choice("components", candidates=2, parts=_count_variables(task))]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Connect variables that are active in the same public example, then toss a private coin per component."""
        import torch

        component = label_variable_components(active_variables(public.x))  # (d,)

        def votes(chunk: Chunk) -> Tensor:
            on = active_variables(chunk.x)
            # The largest of distinct numbers: the first that is on, wherever a library looks first.
            first = (on * torch.arange(on.shape[1], 0, -1)).argmax(1)
            return torch.where(on.any(1), 2 * component[first] + chunk.y, -1)

        coins = curator.noisy_choices(votes, release="components")  # (d,)
        literal = coins[component].bool()  # (d,)
        return lambda x: make_binary_scores((active_variables(x) & literal).any(1).float() - 0.5)


@dataclass(frozen=True)
class LiteralCounts(Learner):
    """Disjunctions without public data, from one noisy count per variable: the control for `component-graph`.

    Each example in which a variable is active adds 1 to the variable's count if the label is yes, and subtracts 1 if it
    is no. Variables with a noisy count above 0 are taken as literals, because a literal is never active in an example
    with label no. The noise on each of d counts has standard deviation sigma sqrt(d), so all counts are right from
    about n = 2 sigma sqrt(2 d log d) / a examples, where a is the chance that a variable is active. This number grows
    with sqrt(d); for `component-graph`, it grows with the number Z of components.

    Privacy (add or remove one): (epsilon, delta). One Gaussian release; a row has at most d entries of 1 or -1, so its
    norm is at most sqrt(d), the clip. Covered: the counts and the disjunction. Not covered: nothing; the learner reads
    nothing else.
    """

    name = "literal-counts"
    public = "none"
    rule_origin = "the theorem"

    def made_for(self) -> str:
        """Return a dataset of disjunctions over random graphs."""
        return "theory-disjunction:n=1500,m=300,test=400,d=30,k=12"

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one noisy sum of all counts."""
        check_two_classes(task, self.name)
        return [Release("counts")]

    def fit(self, curator: Curator, public: PublicData, generator: torch.Generator) -> Predict:
        """Sum the signed counts of all variables, and keep as literals those whose noisy count is above 0."""

        def signed_rows(chunk: Chunk) -> Tensor:
            return active_variables(chunk.x) * (2 * chunk.y - 1).float().unsqueeze(1)

        counts = curator.noisy_sum(
            signed_rows, release="counts", clip=math.sqrt(_count_variables(curator.task))
        )  # (d,)
        literal = counts > 0
        return lambda x: make_binary_scores((active_variables(x) & literal).any(1).float() - 0.5)


def _count_variables(task: Task) -> int:
    return math.prod(task.example_shape)


def active_variables(x: Tensor) -> Tensor:
    """Return which variables of each row are active, (c, d) bool."""
    return x.flatten(1) > 0.5


def label_variable_components(active: Tensor) -> Tensor:
    """Return the component of each variable, (d,) int64 from 0: variables that are active in one row are connected."""
    import numpy as np
    import torch
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import connected_components

    rows, variables = active.shape
    # A graph of rows and variables, a row beside each variable that is on in it: d + m vertices, no squares.
    row, variable = active.nonzero(as_tuple=True)
    vertices = rows + variables
    graph = csr_matrix((np.ones(len(row)), (row + variables, variable)), (vertices, vertices))
    _, labels = connected_components(graph, directed=False)
    _, component = np.unique(labels[:variables], return_inverse=True)
    return torch.from_numpy(component.astype(np.int64))
