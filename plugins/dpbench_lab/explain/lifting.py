"""Curators that leave out clipping or noise on purpose, for explanations. Their answers have no guarantee."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from dpbench.api import Chunk, Curator
from dpbench.errors import SpecError
from dpbench.privacy.core.forms.blocks import Blocks, wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution, Joined, RankOne, Rows, Scaled
from dpbench.privacy.core.ledger_curator import Question
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.plan import Planned
from dpbench.privacy.core.sum import CLIPS, Sum
from dpbench_lab.explain.explanation import ReleaseSignal

ROUNDING = 0.01  # features in 8 bits, and norms rounded up: a row as long as its clip is not counted as clipped
NORM_RANGES, RATIO = 5, 16.0  # of norms, in clips: rows above 16^4 clips are clipped there


@dataclass(frozen=True)
class Protection:
    """The protections that a curator's answers keep: noise and clipping."""

    noise: bool
    clipping: bool


def lift_protection(curator: Curator, sigma: Mapping[str, float], kept: Protection, noise: torch.Generator) -> Curator:
    """Wrap a curator without noise so that it keeps only some protections, and reports the sigma of the private run.

    A learner therefore cannot distinguish it from the private run's curator. Without clipping, all rows are scaled by
    the same factor, the mean of their clipping factors: a sum keeps about the length for which steps and learning rates
    were chosen, but long rows no longer count for less.

    Guarantee: none. If noise is kept, it is added in floating point, and no sum is exact.
    """

    def answer(question: Question) -> Any:
        if isinstance(question, MapQuestion):
            return lift_protection(curator.answer(question), sigma, kept, noise)
        if not isinstance(question, Sum):
            raise make_sums_only_error(question.releases[-1])
        clips = question.clips
        sums = [*curator.answer(replace(question, clip=clips))] if kept.clipping else _sum_unclipped(curator, question)
        if kept.noise:
            spread = sigma[question.release] * len(clips) ** 0.5
            sums = [
                tensor + _draw_normal_like(tensor, noise) * spread * bound
                for tensor, bound in zip(sums, clips, strict=True)
            ]
        return tuple(sums) if isinstance(question.clip, tuple) else sums[0]

    return Curator(curator.task, sigma, answer)


@dataclass(frozen=True)
class SumRecord:
    """The exact sum of one step, in units of the clip, with facts about its contributions. It is not private."""

    release: str
    entries: int  # of all blocks
    blocks: int
    squared: float  # the squared norm of the sum
    kept: float  # the sum of the squared norms of the clipped contributions
    clipped: float  # how many of them were longer than a clip, by 1% or more
    count: float  # how many there are


def record_sums(curator: Curator, steps: list[SumRecord]) -> Curator:
    """Wrap a curator without noise; append a `SumRecord` to `steps` for each sum that it answers."""

    def answer(question: Question) -> Any:
        if isinstance(question, MapQuestion):
            return record_sums(curator.answer(question), steps)
        if not isinstance(question, Sum):
            return curator.answer(question)
        clips = question.clips

        def append_norms(chunk: Chunk) -> Blocks:
            blocks = wrap_blocks(question.rows(chunk))
            norms = torch.stack([block.norms() / clip for block, clip in zip(blocks, clips, strict=True)], 1)
            kept = norms.nan_to_num(0.0).clamp(max=1).square().sum(1)
            longer = (norms > 1 + ROUNDING).any(1).to(kept)
            return Blocks((*blocks, torch.stack([kept, longer, torch.ones_like(kept)], 1).float()))

        limits = (*clips, (len(clips) ** 2 + 2) ** 0.5)
        *sums, about = curator.answer(replace(question, rows=append_norms, clip=limits))
        squared = math.fsum(
            float((total.double() / clip).square().sum()) for total, clip in zip(sums, clips, strict=True)
        )
        entries = sum(total.numel() for total in sums)
        steps.append(SumRecord(question.release, entries, len(clips), squared, *about.tolist()))
        return tuple(sums) if isinstance(question.clip, tuple) else sums[0]

    return Curator(curator.task, curator.sigma, answer)


def measure_signals(
    steps: Sequence[SumRecord], plan: Sequence[Planned], sigma: Mapping[str, float], size: int, *, units: bool = False
) -> list[ReleaseSignal]:
    """Return the signal and noise in the steps of each release, in order of the plan.

    A Poisson sample adds (1 - rate) times the squares of its clipped contributions to the squared norm of their sum, on
    average; this is subtracted, and the rest is the squared norm of the mean sum. The norms of signal and noise are
    divided by the expected sample size.

    Args:
        steps: the recorded sums, in order.
        plan: the releases.
        sigma: the noise multiplier of each release.
        size: the number of examples, or of units.
        units: whether several rows may belong to one unit. A unit's contribution is the mean of its rows. No row
            function can compute the square of this mean, so sampled releases have no signal.
    """
    found = []
    for release in plan:
        if not (own := [step for step in steps if step.release == release.name]):
            continue
        expected = release.sample_rate * size
        lengths = [max(0.0, step.squared - (1 - release.sample_rate) * step.kept) ** 0.5 / expected for step in own]
        spread = sigma[release.name] * (own[0].blocks * own[0].entries) ** 0.5
        told = release.sample_rate == 1 or not units
        contributed = math.fsum(step.count for step in own)
        found.append(
            ReleaseSignal(
                release=release.name, steps=len(own), entries=own[0].entries,
                clipped=math.fsum(step.clipped for step in own) / contributed if contributed else 0.0,
                first=lengths[0] if told else None, last=lengths[-1] if told else None, noise=spread / expected,
            )
        )  # fmt: skip
    return found


def _sum_unclipped(curator: Curator, question: Sum) -> list[Tensor]:
    """Return unclipped sums, scaled by the mean clipping factor; each range of norms is summed on its own grid."""
    clips, bounds = question.clips, [RATIO**power for power in range(NORM_RANGES)]

    def split_rows_by_norm(chunk: Chunk) -> Blocks:
        blocks = wrap_blocks(question.rows(chunk))
        norms = [block.norms() / clip for block, clip in zip(blocks, clips, strict=True)]
        ends = [
            (low, bound if bound < bounds[-1] else torch.inf)
            for low, bound in zip([-1.0, *bounds], bounds, strict=False)
        ]
        parts = [
            _mask_contribution_rows(block, (low < norm) & (norm <= high))
            for block, norm in zip(blocks, norms, strict=True)
            for low, high in ends
        ]
        factors = [(1 / norm).clamp(max=1).nan_to_num(0.0) for norm in norms]
        return Blocks((*parts, torch.stack([*factors, torch.ones_like(factors[0])], 1)))  # (c, blocks + 1)

    limits = (*(min(clip * bound, CLIPS[1]) for clip in clips for bound in bounds), (len(clips) + 1) ** 0.5)
    *sums, factors = curator.answer(replace(question, rows=split_rows_by_norm, clip=limits))
    count = float(factors[-1])
    return [
        torch.stack(sums[place * NORM_RANGES : (place + 1) * NORM_RANGES]).sum(0)
        * (float(factor) / count if count else 1.0)
        for place, factor in enumerate(factors[:-1])
    ]


def _mask_contribution_rows(block: Contribution, rows: Tensor) -> Contribution:
    """Return the contribution with all rows outside the mask `rows` set to zero."""
    if isinstance(block, Joined):
        return Joined(tuple(_mask_tensor_rows(part, rows) for part in block.parts))
    if isinstance(block, Rows):
        return Rows(_mask_tensor_rows(block.rows, rows))
    if isinstance(block, Scaled):
        return Scaled(_mask_rank_one(block.outer, rows), block.scale)
    outer: Any = block
    return (
        _mask_rank_one(block, rows)
        if isinstance(block, RankOne)
        else replace(outer, outer=_mask_rank_one(outer.outer, rows))
    )


def _mask_rank_one(outer: RankOne, rows: Tensor) -> RankOne:
    return RankOne(_mask_tensor_rows(outer.left, rows), outer.right, outer.bias)


def _mask_tensor_rows(part: Tensor, rows: Tensor) -> Tensor:
    return part.masked_fill(~rows.reshape(-1, *(1,) * (part.ndim - 1)), 0)


def _draw_normal_like(tensor: Tensor, noise: torch.Generator) -> Tensor:
    return torch.randn(tensor.shape, generator=noise).to(tensor.device)


def make_sums_only_error(release: str) -> SpecError:
    """Return the error for a release that asks for something other than sums."""
    return SpecError(
        f"Expected release {release!r} to ask for sums: explain cannot measure the cost of noise in choices or votes. "
        "Compare runs at several epsilons, as in --epsilon 0.1,1,8,inf."
    )
