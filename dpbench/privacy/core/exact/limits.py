"""Constants that bound integers and their float factors, shared by the sums in Python and those in compiled loops."""

from __future__ import annotations

ROW_LIMIT = 1e25  # a row of a larger number or norm counts as not finite; a norm overflows float32 above 1.8e19
SMALLEST = 1e-30  # and one with none so large as zero
SLICE = 7  # bits of a slice: a GPU takes numbers as sums of int8 slices times powers of 2^7
SLICES = 3  # slices of numbers that come in float32: 19 bits of the largest
LEFT_LIMIT: int = 127 * 2**SLICE  # two slices hold integers up to this
STEEPEST = 2.0**100  # what a row may be multiplied by: float32 holds it
ROOM = 1 - 2.0**-20  # of a weight: what is left below the clip, see `sums.weights_within`
WIDER = 1 + 2.0**-40  # more than a few float64 roundings
