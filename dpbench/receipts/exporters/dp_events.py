"""Read events of dp-accounting, or what an accountant of it has composed."""

from __future__ import annotations

import math
from typing import Any

from pydantic import ValidationError

from dpbench.errors import SpecError
from dpbench.receipts.events import (
    DEEPEST,
    BestOf,
    Composed,
    Concentrated,
    Event,
    Gaussian,
    Laplace,
    NonPrivate,
    Repeated,
    Sampled,
    Sampler,
)
from dpbench.receipts.receipt import Accountant, Adjacency, Batches, Noise, Training, find_version
from dpbench.support.validation import misfit


def from_dp_event(
    event: Any,
    *,
    size: int | None = None,
    accountant: Any = None,
    noise: Noise | None = None,
    batches: Batches | None = None,
) -> Training:
    """Return what a `DpEvent` says was done; of an accountant, all that it has composed.

    Args:
        event: a `DpEvent`; None to read the accountant's own ledger.
        size: rows of the private data.
        accountant: the accountant of dp-accounting that composed it, which knows the adjacency.
        noise: what the noise was relative to, if you know.
        batches: how the loop drew batches, if you know: an event says how they should have been.

    Raises:
        SpecError: an event that receipts do not have.
    """
    read = accountant.ledger if event is None and accountant is not None else event
    relative = _in_clips(accountant)
    try:
        events = convert(read, relative)
    except ValidationError as error:
        raise SpecError(f"Expected an event that makes sense, got {misfit(error)}.") from error
    return Training(
        events=events, size=size, noise=noise, batches=batches, accountant=describe_accountant(accountant),
        libraries={"dp-accounting": find_version("dp-accounting") or "unknown"},
    )  # fmt: skip


def _in_clips(accountant: Any) -> float:
    """Return what a noise multiplier is in clips: Renyi accountants have it relative to what a replaced row moves."""
    from dp_accounting.rdp import RdpAccountant

    replaced = accountant is not None and adjacency_of(accountant) == "replace-one"
    return 2.0 if replaced and isinstance(accountant, RdpAccountant) else 1.0


def adjacency_of(accountant: Any) -> Adjacency:
    """Return the neighbours that an accountant of dp-accounting assumes."""
    known: dict[str, Adjacency] = {"ADD_OR_REMOVE_ONE": "add-or-remove-one", "REPLACE_ONE": "replace-one"}
    return known.get(accountant.neighboring_relation.name, "zero-out")


def describe_accountant(accountant: Any) -> Accountant | None:
    """Return who an accountant of dp-accounting is."""
    if accountant is None:
        return None
    name = type(accountant).__name__.removesuffix("Accountant").lower()
    found = find_version("dp-accounting")
    return Accountant(name=name, library="dp-accounting", version=found, adjacency=adjacency_of(accountant))


def convert(event: Any, relative: float = 1.0, depth: int = 0) -> Event:
    """Return an event of dp-accounting as one of a receipt.

    Args:
        event: the `DpEvent`.
        relative: what its noise multipliers are multiplied by to be in clips.
        depth: how deeply it is nested.

    Raises:
        SpecError: an event that receipts do not have.
    """
    if depth > DEEPEST:
        raise SpecError(f"Expected events nested at most {DEEPEST} deep.")
    return _noisy(event, relative) or _special(event) or _nested(event, relative, depth + 1)


def _noisy(event: Any, relative: float) -> Event | None:
    from dp_accounting import dp_event as dp

    if isinstance(event, dp.GaussianDpEvent | dp.LaplaceDpEvent) and event.noise_multiplier == 0:
        return NonPrivate(name="a sum without noise")
    if isinstance(event, dp.GaussianDpEvent):
        return Gaussian(sigma=event.noise_multiplier * relative)
    if isinstance(event, dp.LaplaceDpEvent):
        return Laplace(scale=event.noise_multiplier * relative)
    if isinstance(event, dp.DiscreteLaplaceDpEvent):
        return Laplace(scale=1 / (event.noise_parameter * event.sensitivity), discrete=True)
    return None


def _special(event: Any) -> Event | None:
    from dp_accounting import dp_event as dp

    if isinstance(event, dp.ZCDpEvent) and not event.xi:
        return Concentrated(rho=event.rho)
    if isinstance(event, dp.NonPrivateDpEvent):
        return NonPrivate(name="a release without noise")
    return Composed(events=()) if isinstance(event, dp.NoOpDpEvent) else None


def _nested(event: Any, relative: float, depth: int) -> Event:
    from dp_accounting import dp_event as dp

    if isinstance(event, dp.ComposedDpEvent):
        return Composed(events=tuple(convert(one, relative, depth) for one in event.events))
    if isinstance(event, dp.SelfComposedDpEvent):
        return Repeated(event=convert(event.event, relative, depth), times=event.count)
    if isinstance(event, dp.PoissonSampledDpEvent):
        return _sampled("poisson", event.sampling_probability, convert(event.event, relative, depth))
    if isinstance(event, dp.SampledWithoutReplacementDpEvent):
        rate = event.sample_size / event.source_dataset_size
        return _sampled("fixed-size", rate, convert(event.event, relative, depth))
    if isinstance(event, dp.SampledWithReplacementDpEvent):
        drawn, rows = event.sample_size, event.source_dataset_size
        rate = -math.expm1(drawn * math.log1p(-1 / rows)) if rows > 1 else 1.0
        return _sampled("fixed-size-with-replacement", rate, convert(event.event, relative, depth))
    if isinstance(event, dp.RepeatAndSelectDpEvent):
        return BestOf(mean=event.mean, shape=event.shape, event=convert(event.event, relative, depth))
    raise SpecError(
        f"Receipts have no {type(event).__name__} of dp-accounting. Write down its cost, as 'zcdp' or 'approximate'."
    )


def _sampled(sampler: Sampler, rate: float, event: Event) -> Event:
    everybody = rate == 1 and sampler != "fixed-size-with-replacement"  # there a row may be in a sample several times
    return event if everybody else Sampled(sampler=sampler, rate=rate, event=event)
