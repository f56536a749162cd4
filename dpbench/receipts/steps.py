"""Describe most training loops: repeated steps of a Gaussian mechanism over samples."""

from __future__ import annotations

from pydantic import ValidationError

from dpbench.errors import SpecError
from dpbench.receipts.events import Event, Gaussian, NonPrivate, Repeated, Sampled, Sampler
from dpbench.support.validation import first_schema_violation


def gaussian_steps(*, sigma: float, steps: int, rate: float = 1.0, sampler: Sampler = "poisson") -> Event:
    """Return `steps` sums with Gaussian noise, each over a new sample; without noise, return non-private releases.

    >>> gaussian_steps(sigma=1.0, steps=10).kind, gaussian_steps(sigma=1.0, steps=10, rate=0.1).event.kind
    ('repeated', 'sampled')

    Args:
        sigma: standard deviation of the noise, in clips.
        steps: number of sums.
        rate: chance of a row to be in a sample.
        sampler: how samples are drawn, if the rate is below 1.

    Raises:
        SpecError: a number is not valid.
    """
    try:
        event: Event = Gaussian(sigma=sigma) if sigma else NonPrivate(name="sums without noise")
        if rate != 1:
            event = Sampled(sampler=sampler, rate=rate, event=event)
        return Repeated(event=event, times=steps)
    except ValidationError as error:
        raise SpecError(f"The values of these steps are not valid: {first_schema_violation(error)}.") from error
