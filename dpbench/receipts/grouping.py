"""Reduce many Gaussian sums to few: in groups that cost more or less than the sums, or the costliest sums alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.plan import Release
from dpbench.receipts.events import Gaussian, Term

MOST_UNGROUPED = 12
"""Mechanisms composed as they are. Of more, similar ones are grouped: for the worse, and for the better as a floor."""


def are_gaussian(terms: Sequence[Term]) -> bool:
    """Return whether all terms are Gaussian sums over Poisson samples or all rows."""
    return all(isinstance(term.leaf, Gaussian) and term.sampler in (None, "poisson") for term in terms)


def group_sums(terms: Sequence[Term], cautious: bool) -> list[Term]:
    """Merge Gaussian sums into few groups: with the least noise and largest rate of each if cautious, else the reverse.

    Noises and rates in a group lie within one factor, the smallest factor that gives few enough groups.
    """
    found, factor = [], 1.01
    while len(groups := _bin_terms(terms, factor)) > MOST_UNGROUPED:
        factor = factor**1.5
    for cell in groups:
        choose: Callable[[Iterable[float]], float] = max if cautious else min
        precision, rate = choose(1 / _sigma(term) for term in cell), choose(term.rate for term in cell)
        found.append(Term(Gaussian(sigma=1 / precision), "poisson", rate, sum(term.times for term in cell)))
    return found


def _bin_terms(terms: Sequence[Term], factor: float) -> list[list[Term]]:
    """Return Gaussian sums binned by noise and rate, on a logarithmic grid with this factor."""
    found: dict[tuple[int, int], list[Term]] = {}
    for term in terms:
        cell = [math.floor(math.log(value, factor) + 1e-9) for value in (_sigma(term), term.rate)]
        found.setdefault((cell[0], cell[1]), []).append(term)
    return [*found.values()]


def _sigma(term: Term) -> float:
    return term.leaf.sigma if isinstance(term.leaf, Gaussian) else math.inf


def find_costliest(terms: Sequence[Term]) -> list[Term]:
    """Return the sums that move neighbours furthest apart, as many as can be composed without groups."""
    return sorted(terms, key=lambda term: accountant.neighbour_distance([to_release(term)], 1.0), reverse=True)[
        :MOST_UNGROUPED
    ]


def to_release(term: Term) -> Release:
    """Return a Gaussian sum as a release of a plan whose base sigma is 1."""
    return Release(term.leaf.kind, term.times, term.rate, _sigma(term))
