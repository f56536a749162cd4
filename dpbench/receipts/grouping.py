"""Reduce many Gaussian sums to a few: merge them into costlier or cheaper groups, or keep the costliest sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.plan import Release
from dpbench.receipts.events import Gaussian, Term

MAX_UNGROUPED = 12
"""The largest number of mechanisms that are composed one by one. If there are more, similar ones are merged, into
costlier groups for an upper bound on epsilon and into cheaper groups for a lower bound."""


def are_all_gaussian_sums(terms: Sequence[Term]) -> bool:
    """Return whether all terms are Gaussian sums over Poisson samples or all rows."""
    return all(isinstance(term.leaf, Gaussian) and term.sampler in (None, "poisson") for term in terms)


def group_gaussian_sums(terms: Sequence[Term], cautious: bool) -> list[Term]:
    """Merge Gaussian sums into a few groups that cost more than their sums if `cautious`, and less otherwise.

    A cautious group has the smallest noise and the largest rate of its sums; any other group has the largest noise and
    the smallest rate. Noises and rates in a group differ by at most a factor, which grows until at most `MAX_UNGROUPED`
    groups are left.
    """
    found, factor = [], 1.01
    while len(groups := _bin_sums_by_noise_and_rate(terms, factor)) > MAX_UNGROUPED:
        factor = factor**1.5
    for cell in groups:
        choose: Callable[[Iterable[float]], float] = max if cautious else min
        precision, rate = choose(1 / _find_sigma(term) for term in cell), choose(term.rate for term in cell)
        found.append(Term(Gaussian(sigma=1 / precision), "poisson", rate, sum(term.times for term in cell)))
    return found


def _bin_sums_by_noise_and_rate(terms: Sequence[Term], factor: float) -> list[list[Term]]:
    """Bin the Gaussian sums by noise and rate, on a logarithmic grid with this factor between its lines."""
    found: dict[tuple[int, int], list[Term]] = {}
    for term in terms:
        cell = [math.floor(math.log(value, factor) + 1e-9) for value in (_find_sigma(term), term.rate)]
        found.setdefault((cell[0], cell[1]), []).append(term)
    return [*found.values()]


def _find_sigma(term: Term) -> float:
    return term.leaf.sigma if isinstance(term.leaf, Gaussian) else math.inf


def find_costliest_sums(terms: Sequence[Term]) -> list[Term]:
    """Return the `MAX_UNGROUPED` Gaussian sums that cost most."""
    return sorted(
        terms,
        key=lambda term: accountant.approximate_neighbour_distance([convert_term_to_release(term)], 1.0),
        reverse=True,
    )[:MAX_UNGROUPED]


def convert_term_to_release(term: Term) -> Release:
    """Convert a Gaussian sum to a release of a plan whose base sigma is 1."""
    return Release(term.leaf.kind, term.times, term.rate, _find_sigma(term))
