"""Check whether a loop adds as much noise as its receipt states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dpbench.receipts.events import Term, list_sigmas
from dpbench.receipts.receipt import Batches, Noise

RELATIVE_TOLERANCE = 0.01
"""Relative difference that is allowed for rates and noise: loaders round rates, and some exporters measure noise."""
SIGNIFICANT_BITS = {"bfloat16": 8, "float16": 11}
"""Number types that are too coarse for noise, with their significant bits."""


def find_noise_faults(noise: Noise, batches: Batches | None, terms: Sequence[Term]) -> Iterator[str]:
    """Yield a sentence for each reason why a step's noise is smaller than the events state, too coarse or unknown."""
    sigmas = list_sigmas(terms)
    if bits := SIGNIFICANT_BITS.get(noise.dtype or ""):
        yield (
            f"noise was added in {noise.dtype}, which keeps {bits} bits: a sum of 1,000 clips is rounded to steps of "
            f"{2.0 ** (10 - bits):g}, and smaller noise is lost. Add it in float32 or finer."
        )
    if not sigmas:
        yield "the loop added noise to a sum, but the events have no noisy sum."
    elif noise.sigma is None:
        yield "noise was added to a mean, but without noise.divisor its size cannot be checked. State noise.divisor."
    else:
        yield from _find_divisor_faults(noise, batches)
        if noise.sigma < (stated := min(sigmas)) * (1 - RELATIVE_TOLERANCE):
            added = f"noise of std {noise.std:g} on a {noise.added_to} of rows clipped to {noise.clip:g}"
            if noise.second:
                added += f", beside {noise.second.name} with sigma {noise.second.sigma:g},"
            yield f"{added} is {noise.sigma:.4g} clips, but the events have sigma {stated:.4g}."


def _find_divisor_faults(noise: Noise, batches: Batches | None) -> Iterator[str]:
    if noise.added_to == "sum" or noise.divisor is None or batches is None:
        return
    if batches.normalised_by == "nothing":
        yield "noise was added to a mean, but the receipt says that sums were not divided."
    elif (
        batches.normalised_by != "constant" and batches.size and noise.divisor > batches.size * (1 + RELATIVE_TOLERANCE)
    ):
        yield (
            f"noise was added to a mean of batches of {batches.size:g} rows, so their sum was not divided by "
            f"{noise.divisor:g}."
        )
