"""Many Gaussian sums as few: grouped for the worse or for the better, or the costliest alone. Pure arithmetic."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.plan import Release
from dpbench.receipts.events import Gaussian, Term

DISTINCT = 12
"""Mechanisms composed as they are. Of more, similar ones are grouped: for the worse, and for the better as a floor."""


def are_gaussian(terms: Sequence[Term]) -> bool:
    """Say whether all are Gaussian sums, over Poisson samples or all rows."""
    return all(isinstance(one.leaf, Gaussian) and one.sampler in (None, "poisson") for one in terms)


def group(terms: Sequence[Term], cautious: bool) -> list[Term]:
    """Return Gaussian sums as few: each group has the least noise and the largest rate in it, or the most and least.

    A group has noises and rates within one factor, which is as small as leaves few enough groups.
    """
    found, factor = [], 1.01
    while len(groups := _cells(terms, factor)) > DISTINCT:
        factor = factor**1.5
    for cell in groups:
        choose: Callable[[Iterable[float]], float] = max if cautious else min
        precision, rate = choose(1 / _noise_of(one) for one in cell), choose(one.rate for one in cell)
        found.append(Term(Gaussian(sigma=1 / precision), "poisson", rate, sum(one.times for one in cell)))
    return found


def _cells(terms: Sequence[Term], factor: float) -> list[list[Term]]:
    """Return Gaussian sums by the powers of a factor between which their noise and their rate are."""
    found: dict[tuple[int, int], list[Term]] = {}
    for term in terms:
        cell = [math.floor(math.log(value, factor) + 1e-9) for value in (_noise_of(term), term.rate)]
        found.setdefault((cell[0], cell[1]), []).append(term)
    return [*found.values()]


def _noise_of(term: Term) -> float:
    return term.leaf.sigma if isinstance(term.leaf, Gaussian) else math.inf


def costliest(terms: Sequence[Term]) -> list[Term]:
    """Return the sums that move neighbours furthest apart, as many as are composed as they are."""
    return sorted(terms, key=lambda one: accountant.distance([as_release(one)], 1.0), reverse=True)[:DISTINCT]


def as_release(term: Term) -> Release:
    """Return a Gaussian sum as a release of a plan whose base sigma is 1."""
    return Release(term.leaf.kind, term.times, term.rate, _noise_of(term))
