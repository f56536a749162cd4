"""Cores with wrong samples or sums, and the audits that notice them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from dpbench.privacy.core import randomness
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.records.audit import Part
from dpbench_lab.museum.cores.broken_core import AuditCase, BrokenCore
from dpbench_lab.museum.cores.patch import Replacement
from dpbench_lab.museum.cores.published import KEY, NOISE, SAMPLE, SAMPLED, Honest

FIFTH = "dp-sgd:sample_rate=0.2"
Sample = Callable[[Any, int, float, np.ndarray], np.ndarray]


def make_sample_core(name: str, sample: Sample, part: Part | None = "noise", *, quick: bool = False) -> BrokenCore:
    """Return a core that replaces the sampler: `sample(draws, size, rate, honest_sample)` returns the rows to use."""

    def draw_broken_sample(honest: Honest, draws: Any, size: int, rate: float) -> np.ndarray:
        drawn: np.ndarray = honest(draws, size, rate)
        return drawn if rate == 1 or size < 2 else np.sort(sample(draws, size, rate, drawn))

    return BrokenCore(name, Replacement({SAMPLE: draw_broken_sample}), audits=(AuditCase(FIFTH, part, quick=quick),))


def _make_sample_generator(draws: Any, *key: object) -> np.random.Generator:
    """Return a generator for the samples of one release, determined by `key`."""
    return randomness._stream((*draws._shared[:-1], "samples", *map(str, key)))


def _locate_epoch(draws: Any, rate: float) -> tuple[np.random.Generator, int, int]:
    """Return the generator of this step's epoch, the step's position in it, and the number of steps per epoch."""
    step, steps = int(draws._shared[-1]) - 1, round(1 / rate)
    return _make_sample_generator(draws, "epoch", step // steps), step % steps, steps


def _sample_shuffled_epochs(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    generator, place, steps = _locate_epoch(draws, rate)
    drawn: np.ndarray = np.array_split(generator.permutation(size), steps)[place]
    return drawn


def _assign_rows_to_steps(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    generator, place, steps = _locate_epoch(draws, rate)
    return np.flatnonzero(generator.integers(steps, size=size) == place)


def _repeat_sample(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    return randomness.draw_poisson_sample(size, rate, _make_sample_generator(draws, (int(draws._shared[-1]) + 1) // 2))


def _sample_in_pairs(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    first = honest[honest < size // 2]
    return np.concatenate([2 * first, 2 * first + 1])


def _sample_in_fives(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    rows = (5 * honest[honest < -(-size // 5)][:, None] + np.arange(5)).ravel()
    return rows[rows < size]


def _sample_in_random_pairs(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    order, half = _make_sample_generator(draws, "partners").permutation(size), honest[honest < size // 2]
    return np.concatenate([order[2 * half], order[2 * half + 1]])


def _add_three_rows(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    return np.union1d(honest, np.arange(3))


def _omit_one_row(draws: Any, size: int, rate: float, honest: np.ndarray) -> np.ndarray:
    return np.setdiff1d(honest, [size // 3])


class _SampleSizeLeak:
    """Leaks the size of the last sample, divided by its expected size, through the noise or through the sum."""

    share = 1.0

    def sample(self, honest: Honest, draws: Any, size: int, rate: float) -> np.ndarray:
        drawn: np.ndarray = honest(draws, size, rate)
        self.share = len(drawn) / (size * rate)
        return drawn

    def scale_noise(self, honest: Honest, draws: Any, shape: Sequence[int], std: Any) -> Any:
        return honest(draws, shape, np.asarray(std) * self.share)

    def divide_answer(self, honest: Honest, *given: Any) -> Any:
        answer = honest(*given)
        return answer / self.share if isinstance(answer, Tensor) and self.share else answer


def _widen_later_clips(honest: Honest, question: Any, blocks: Sequence[Any], *given: Any) -> list[IntegerSum]:
    clipped = enumerate(zip(blocks, question.clips, strict=True))
    return [block.clipped_sum(clip * (100 if place else 1)) for place, (block, clip) in clipped]


def _add_chunks_in_bfloat16(honest: Honest, total: IntegerSum, other: IntegerSum) -> IntegerSum:
    return IntegerSum((total.total.bfloat16() + other.total.bfloat16()).to(total.total.dtype), total.grid)


def _count_losses_in_two_parts(honest: Honest, rows: Any, *given: Any) -> IntegerSum:
    found = honest(rows, *given)
    by_part = found.total.reshape(rows.parts, -1)
    return IntegerSum((by_part + by_part.roll(1, 0)).flatten(), found.grid)


_in_noise, _in_sum = _SampleSizeLeak(), _SampleSizeLeak()

SAMPLES = (
    make_sample_core("rows sampled in pairs", _sample_in_pairs, quick=True),
    make_sample_core("samples dealt from shuffled epochs", _sample_shuffled_epochs),
    make_sample_core("samples without replacement within epochs, of binomial size", _assign_rows_to_steps),
    make_sample_core("the same sample twice in a row", _repeat_sample),
    make_sample_core("rows sampled in fives", _sample_in_fives),
    make_sample_core("rows sampled in pairs that were drawn at random", _sample_in_random_pairs),
    make_sample_core("three rows in every sample", _add_three_rows),
    make_sample_core("one row in no sample", _omit_one_row, None),
    BrokenCore(
        "samples at a higher rate than planned",
        Replacement({SAMPLE: lambda honest, draws, size, rate: honest(draws, size, min(1.0, 1.5 * rate))}),
        audits=(AuditCase(SAMPLED),),
    ),
    BrokenCore(
        "the same sample in every step",
        Replacement({KEY: lambda honest, draws, key, shared: honest(draws, key, shared[:-1])}),
        audits=(AuditCase(SAMPLED),),
    ),
    BrokenCore(
        "noise scaled by the size of the sample",
        Replacement({SAMPLE: _in_noise.sample, NOISE: _in_noise.scale_noise}), audits=(AuditCase(FIFTH),),
    ),
    BrokenCore(
        "sums divided by the size of the sample",
        Replacement({SAMPLE: _in_sum.sample, "core.sum:Sum.compute_answer": _in_sum.divide_answer}),
        audits=(AuditCase(SAMPLED, "sensitivity"),),
    ),
    BrokenCore(
        "clips of later blocks ignored", Replacement({"core.sum:Sum._integers": _widen_later_clips}),
        audits=(AuditCase("gep:steps=6,k=20", "sensitivity"),),
    ),
    BrokenCore(
        "chunks added up in bfloat16", Replacement({"core.exact.sums:IntegerSum.__add__": _add_chunks_in_bfloat16}),
        audits=(AuditCase(SAMPLED, "sensitivity"),),
    ),
    BrokenCore(
        "losses in two parts of a choice",
        Replacement({"mechanisms.choice.parts:PartLosses.clipped_sum": _count_losses_in_two_parts}),
        audits=(AuditCase("prototypes:groups=2", "sensitivity"),),
    ),
)  # fmt: skip
