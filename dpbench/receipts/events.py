"""The mechanisms that were applied to the private data, as a tree of events, and as a flat list for accountants.

A leaf is a single release by a mechanism. Its noise is in units of the clip: the bound on how far a row, added or
removed, moves the sum. A replaced row moves the sum by two clips: the accountant takes this into account, and the noise
of the leaf stays in single clips.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from dpbench.errors import SpecError
from dpbench.privacy.core.plan import MOST_STEPS
from dpbench.support.validation import FiniteNumbersRecord

Sampler = Literal["poisson", "fixed-size", "fixed-size-with-replacement"]
WITH_REPLACEMENT: Literal["fixed-size-with-replacement"] = "fixed-size-with-replacement"
"""The sampler whose samples may contain a row several times, even at rate 1."""
MAX_DEPTH, MAX_EVENTS = 50, 10_000
"""The deepest nesting of events, and the largest number of events in a receipt; write equal events as `Repeated`."""
MIN_NOISE, LARGEST_COUNT = 1e-6, 10**12
"""The smallest noise in clips (less protects nobody, and may square to 0), and the largest count (exact as a float)."""
Text = Annotated[
    str, Field(pattern=r"^[^\s\x00-\x1f\x7f-\x9f][^\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]*$", max_length=4_000)
]
"""A single line without control characters, because receipts are printed on terminals."""


class Gaussian(FiniteNumbersRecord):
    """A sum with Gaussian noise, continuous or discrete."""

    kind: Literal["gaussian"] = "gaussian"
    sigma: float = Field(ge=MIN_NOISE, le=1e9, description="standard deviation of the noise, in L2 clips")
    discrete: bool = Field(default=False, description="whether the noise is drawn on integers")


class Laplace(FiniteNumbersRecord):
    """A sum with Laplace noise, continuous or on integers."""

    kind: Literal["laplace"] = "laplace"
    scale: float = Field(ge=MIN_NOISE, le=1e9, description="scale of the noise, in L1 clips")
    discrete: bool = Field(default=False, description="whether the noise is drawn on integers")


class Chosen(FiniteNumbersRecord):
    """A choice by the exponential mechanism, or by report noisy max with Gumbel noise."""

    kind: Literal["choice"] = "choice"
    epsilon: float = Field(gt=0, le=1e4, description="what one choice costs, under the receipt's adjacency")
    candidates: int = Field(ge=2, le=LARGEST_COUNT, description="among how many it is, at most")


class Pure(FiniteNumbersRecord):
    """Any release that is epsilon-DP with delta 0."""

    kind: Literal["pure"] = "pure"
    epsilon: float = Field(gt=0, le=1e4, description="what it costs, under the receipt's adjacency")


class Approximate(FiniteNumbersRecord):
    """Any release of which only epsilon and delta are known."""

    kind: Literal["approximate"] = "approximate"
    epsilon: float = Field(ge=0, le=1e4, description="what it costs, under the receipt's adjacency")
    delta: float = Field(gt=0, lt=1, description="at which epsilon holds")


class Concentrated(FiniteNumbersRecord):
    """Any release that is rho-zCDP."""

    kind: Literal["zcdp"] = "zcdp"
    rho: float = Field(gt=0, le=1e6, description="what it costs, under the receipt's adjacency")


class NonPrivate(FiniteNumbersRecord):
    """A release of private data without noise."""

    kind: Literal["non-private"] = "non-private"
    name: Text = Field(description="what was looked at")


class Sampled(FiniteNumbersRecord):
    """An event on a random sample of the rows; each use draws a new sample."""

    kind: Literal["sampled"] = "sampled"
    sampler: Sampler = Field(description="how the accountant believes the sample was drawn")
    rate: float = Field(gt=0, le=1, description="chance of a row to be in the sample; a chance, not a batch size")
    event: Event = Field(description="what is done to the sample")


class Repeated(FiniteNumbersRecord):
    """The same event several times, each time with new noise and a new sample."""

    kind: Literal["repeated"] = "repeated"
    times: int = Field(ge=1, le=LARGEST_COUNT, description="how often")
    event: Event = Field(description="what is repeated")


class Composed(FiniteNumbersRecord):
    """Several events, one after the other."""

    kind: Literal["composed"] = "composed"
    events: tuple[Event, ...] = Field(max_length=MAX_EVENTS, description="in any order")


class BestOf(FiniteNumbersRecord):
    """The best of a random number of runs of an event (Papernot and Steinke, arXiv 2110.03620)."""

    kind: Literal["best-of"] = "best-of"
    mean: float = Field(gt=1, le=1e6, description="expected number of runs")
    shape: float = Field(ge=0, le=10, description="of the truncated negative binomial; 1 is geometric")
    event: Event = Field(description="one run")


Leaf: TypeAlias = Gaussian | Laplace | Chosen | Pure | Approximate | Concentrated | NonPrivate
Event = Annotated[
    Gaussian
    | Laplace
    | Chosen
    | Pure
    | Approximate
    | Concentrated
    | NonPrivate
    | Sampled
    | Repeated
    | Composed
    | BestOf,
    Field(discriminator="kind"),
]
for _model in (Sampled, Repeated, Composed, BestOf):
    _model.model_rebuild()


@dataclass(frozen=True)
class Term:
    """A mechanism, the sampler of its rows (None for all rows), and the number of its uses."""

    leaf: Leaf
    sampler: Sampler | None = None
    rate: float = 1.0
    times: int = 1


def flatten_to_terms(event: Event) -> list[Term]:
    """Flatten a tree without `best-of` into terms that compose; merge equal terms.

    Several Gaussian sums over the same sample become a single Gaussian sum with smaller noise.

    Raises:
        SpecError: the tree nests too deeply, has too many events or steps, or samples events that no accountant
            supports.
    """
    found: dict[tuple[Leaf, Sampler | None, float], int] = {}
    for number, term in enumerate(_walk_events(event, None, 1.0, 0)):
        if number == MAX_EVENTS:
            raise SpecError(f"Expected at most {MAX_EVENTS:,} events written down. Write what is alike as 'repeated'.")
        key = term.leaf, term.sampler, term.rate
        found[key] = found.get(key, 0) + term.times
    total = sum(found.values())
    if total > MOST_STEPS:
        raise SpecError(f"Expected at most {MOST_STEPS:,} steps in a receipt's events, got {total:,}.")
    return [Term(*key, times) for key, times in found.items()]


def _walk_events(event: Event, sampler: Sampler | None, rate: float, depth: int) -> Iterator[Term]:
    if depth > MAX_DEPTH:
        raise SpecError(f"Expected events nested at most {MAX_DEPTH} deep. Write what is alike as 'repeated'.")
    if isinstance(event, Repeated):
        for term in _walk_events(event.event, sampler, rate, depth + 1):
            yield Term(term.leaf, term.sampler, term.rate, term.times * event.times)
    elif isinstance(event, Composed):
        for part in event.events:
            yield from _walk_events(part, sampler, rate, depth + 1)
    elif isinstance(event, Sampled):
        yield from _flatten_sampled_event(event, depth)
    elif isinstance(event, BestOf):
        raise SpecError("Expected 'best-of' at the top of the events: no accountant supports it inside other events.")
    else:
        yield Term(event, sampler, rate)


def _flatten_sampled_event(event: Sampled, depth: int) -> Iterator[Term]:
    """Yield the events on a sample as a single term; yield nothing if there are no events."""
    inner = [*_walk_events(event.event, None, 1.0, depth + 1)]
    if len(inner) == 1 and inner[0].sampler is None and inner[0].times == 1:
        yield Term(inner[0].leaf, event.sampler, event.rate)
        return
    precision = 0.0
    for term in inner:
        if not isinstance(term.leaf, Gaussian) or term.sampler is not None:
            raise SpecError(
                "Expected one mechanism, or only Gaussian sums, within 'sampled': no accountant supports anything else."
            )
        precision += term.times / term.leaf.sigma**2
    if precision:
        yield Term(Gaussian(sigma=max(MIN_NOISE, precision**-0.5)), event.sampler, event.rate)


def list_noisy_sums(terms: Sequence[Term]) -> list[Term]:
    """Return the noisy sums among the terms (the steps of a loop), or all terms if none is a noisy sum."""
    return [term for term in terms if term.sampler or isinstance(term.leaf, Gaussian | Laplace)] or [*terms]


def list_sigmas(terms: Sequence[Term]) -> set[float]:
    """Return the standard deviations of the Gaussian and Laplace noise, in clips.

    If there is no such noise, return those of Gaussian sums that cost as much as the zCDP terms.
    """
    found = {term.leaf.sigma for term in terms if isinstance(term.leaf, Gaussian)}
    found |= {math.sqrt(2) * term.leaf.scale for term in terms if isinstance(term.leaf, Laplace)}
    return found or {(2 * term.leaf.rho) ** -0.5 for term in terms if isinstance(term.leaf, Concentrated)}
