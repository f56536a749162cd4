"""Reduce many Gaussian sums to a few: merge them into costlier or cheaper groups, or keep the costliest sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.plan import Release
from dpbench.receipts.events import Gaussian, Term

MAX_UNGROUPED = 12
"""Mechanisms composed as they are. Of more, similar ones are grouped: for the worse, and for the better as a floor."""


def are_gaussian(terms: Sequence[Term]) -> bool:
    """Return whether all terms are Gaussian sums over Poisson samples or all rows."""
    return all(isinstance(term.leaf, Gaussian) and term.sampler in (None, "poisson") for term in terms)


def group_sums(terms: Sequence[Term], cautious: bool) -> list[Term]:
    """Merge Gaussian sums into a few groups that cost more than their sums if `cautious`, and less otherwise.

    A cautious group has the smallest noise and the largest rate of its sums, another group the reverse. Noises and
    rates in a group lie within a common factor, the smallest factor that gives few enough groups.
    """
    found, factor = [], 1.01
    while len(groups := _bin_terms(terms, factor)) > MAX_UNGROUPED:
        factor = factor**1.5
    for cell in groups:
        choose: Callable[[Iterable[float]], float] = max if cautious else min
        precision, rate = choose(1 / _find_sigma(term) for term in cell), choose(term.rate for term in cell)
        found.append(Term(Gaussian(sigma=1 / precision), "poisson", rate, sum(term.times for term in cell)))
    return found


def _bin_terms(terms: Sequence[Term], factor: float) -> list[list[Term]]:
    """Return the Gaussian sums in bins of similar noise and rate, on a logarithmic grid with this factor."""
    found: dict[tuple[int, int], list[Term]] = {}
    for term in terms:
        cell = [math.floor(math.log(value, factor) + 1e-9) for value in (_find_sigma(term), term.rate)]
        found.setdefault((cell[0], cell[1]), []).append(term)
    return [*found.values()]


def _find_sigma(term: Term) -> float:
    return term.leaf.sigma if isinstance(term.leaf, Gaussian) else math.inf


def find_costliest_sums(terms: Sequence[Term]) -> list[Term]:
    """Return the Gaussian sums that cost most, as many as accountants can compose without grouping."""
    return sorted(terms, key=lambda term: accountant.neighbour_distance([convert_to_release(term)], 1.0), reverse=True)[
        :MAX_UNGROUPED
    ]


def convert_to_release(term: Term) -> Release:
    """Convert a Gaussian sum to a release of a plan whose base sigma is 1."""
    return Release(term.leaf.kind, term.times, term.rate, _find_sigma(term))
