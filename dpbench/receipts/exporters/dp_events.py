"""Read an event of dp-accounting, or all events that an accountant of dp-accounting has composed."""

from __future__ import annotations

import math
from typing import Any

from pydantic import ValidationError

from dpbench.errors import SpecError
from dpbench.receipts.events import (
    MAX_DEPTH,
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
from dpbench.receipts.receipt import Accountant, Adjacency, Batches, Noise, Training, find_installed_version
from dpbench.support.validation import first_schema_violation


def from_dp_event(
    event: Any,
    *,
    size: int | None = None,
    accountant: Any = None,
    noise: Noise | None = None,
    batches: Batches | None = None,
) -> Training:
    """Return the training that a `DpEvent` describes, or that an accountant of dp-accounting has composed.

    Args:
        event: a `DpEvent`; None to read the accountant's own ledger.
        size: number of rows of the private data.
        accountant: the accountant of dp-accounting that composed the event; it knows the adjacency.
        noise: the noise and its clip, if you know them.
        batches: how the loop drew batches, if you know: an event states only how they should have been drawn.

    Raises:
        SpecError: receipts cannot express the event.
    """
    read = accountant.ledger if event is None and accountant is not None else event
    relative = _count_clips_per_multiplier(accountant)
    try:
        events = convert_dp_event(read, relative)
    except ValidationError as error:
        raise SpecError(f"Expected an event that makes sense, got {first_schema_violation(error)}.") from error
    return Training(
        events=events, size=size, noise=noise, batches=batches, accountant=make_accountant_record(accountant),
        libraries={"dp-accounting": find_installed_version("dp-accounting") or "unknown"},
    )  # fmt: skip


def _count_clips_per_multiplier(accountant: Any) -> float:
    """Return the noise, in clips, at a noise multiplier of 1: 2 for Renyi accountants under replace-one, else 1."""
    from dp_accounting.rdp import RdpAccountant

    replaced = accountant is not None and read_adjacency(accountant) == "replace-one"
    return 2.0 if replaced and isinstance(accountant, RdpAccountant) else 1.0


def read_adjacency(accountant: Any) -> Adjacency:
    """Return the neighbouring relation that an accountant of dp-accounting assumes."""
    known: dict[str, Adjacency] = {"ADD_OR_REMOVE_ONE": "add-or-remove-one", "REPLACE_ONE": "replace-one"}
    return known.get(accountant.neighboring_relation.name, "zero-out")


def make_accountant_record(accountant: Any) -> Accountant | None:
    """Return the name, version and adjacency of an accountant of dp-accounting; None if there is no accountant."""
    if accountant is None:
        return None
    name = type(accountant).__name__.removesuffix("Accountant").lower()
    found = find_installed_version("dp-accounting")
    return Accountant(name=name, library="dp-accounting", version=found, adjacency=read_adjacency(accountant))


def convert_dp_event(event: Any, relative: float = 1.0, depth: int = 0) -> Event:
    """Convert an event of dp-accounting to an event of a receipt.

    Args:
        event: the `DpEvent`.
        relative: factor that converts its noise multipliers to clips.
        depth: how deeply the event is nested.

    Raises:
        SpecError: receipts cannot express the event.
    """
    if depth > MAX_DEPTH:
        raise SpecError(f"Expected events nested at most {MAX_DEPTH} deep.")
    return (
        _convert_noisy_sum(event, relative)
        or _convert_plain_release(event)
        or _convert_nested_event(event, relative, depth + 1)
    )


def _convert_noisy_sum(event: Any, relative: float) -> Event | None:
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


def _convert_plain_release(event: Any) -> Event | None:
    from dp_accounting import dp_event as dp

    if isinstance(event, dp.ZCDpEvent) and not event.xi:
        return Concentrated(rho=event.rho)
    if isinstance(event, dp.NonPrivateDpEvent):
        return NonPrivate(name="a release without noise")
    return Composed(events=()) if isinstance(event, dp.NoOpDpEvent) else None


def _convert_nested_event(event: Any, relative: float, depth: int) -> Event:
    from dp_accounting import dp_event as dp

    if isinstance(event, dp.ComposedDpEvent):
        return Composed(events=tuple(convert_dp_event(part, relative, depth) for part in event.events))
    if isinstance(event, dp.SelfComposedDpEvent):
        return Repeated(event=convert_dp_event(event.event, relative, depth), times=event.count)
    if isinstance(event, dp.PoissonSampledDpEvent):
        return _wrap_in_sampled("poisson", event.sampling_probability, convert_dp_event(event.event, relative, depth))
    if isinstance(event, dp.SampledWithoutReplacementDpEvent):
        rate = event.sample_size / event.source_dataset_size
        return _wrap_in_sampled("fixed-size", rate, convert_dp_event(event.event, relative, depth))
    if isinstance(event, dp.SampledWithReplacementDpEvent):
        drawn, rows = event.sample_size, event.source_dataset_size
        rate = -math.expm1(drawn * math.log1p(-1 / rows)) if rows > 1 else 1.0
        return _wrap_in_sampled("fixed-size-with-replacement", rate, convert_dp_event(event.event, relative, depth))
    if isinstance(event, dp.RepeatAndSelectDpEvent):
        return BestOf(mean=event.mean, shape=event.shape, event=convert_dp_event(event.event, relative, depth))
    raise SpecError(
        f"Receipts have no {type(event).__name__} of dp-accounting. Write down its cost, as 'zcdp' or 'approximate'."
    )


def _wrap_in_sampled(sampler: Sampler, rate: float, event: Event) -> Event:
    everybody = rate == 1 and sampler != "fixed-size-with-replacement"  # there a row may be in a sample several times
    return event if everybody else Sampled(sampler=sampler, rate=rate, event=event)
