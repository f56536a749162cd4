"""The Gaussian mechanism: a noisy sum of clipped rows over one Poisson sample, the question that most learners ask.

Sensitivity (add or remove one): a row of the sample moves the integer sum of a block by at most the block's clip
(`forms.contributions`, `exact.sums`), whatever the other rows are. Each divided by its clip, b blocks together move by
at most sqrt(b). A sum has the shape and grid of an empty chunk's sum, so no private row influences them.

Assumption: the bits of row i's contribution depend on row i, its seed and public values alone. dpbench's own row
functions (`core.head`) and `exact_linear` guarantee this; other functions are checked by sampling
(`purity.spotchecks`), which tolerates rounding. A library's float product may round a row differently in a chunk of
another length: then removing a row may also change the last bits of other rows, about 1e-7 of a clip, which epsilon
does not cover.

Units: if rows have units (`rows.Units`), units are sampled, and a unit contributes the mean of its rows' clipped
contributions. Row i of a unit with m rows is clipped to clip / m and its weight is at most 1 / m, both rounded down, so
its integers have norm at most clip / m. By the triangle inequality, a unit moves the sum by at most the clip, however
its rows are cut into chunks. The privacy argument below then holds for units in place of rows.

Privacy: fix which of the other rows are sampled. With chance 1 - sample_rate the extra row is not sampled, and the sums
are equal; otherwise they differ by its integers. With noise of std sigma * clip * sqrt(blocks) on each block, this is
the Poisson-subsampled Gaussian mechanism with sensitivity 1 and noise multiplier sigma, which the accountants compose.
At epsilon = inf, sigma is 0 and no noise is added to the sums.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from numbers import Real
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.chunk import Chunk, RowFn
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms.contributions import Contribution
from dpbench.privacy.core.head import BuiltinRowFunction, as_builtin_row_function
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question, check_chunk_size, sum_chunks
from dpbench.privacy.core.noise import add_drawn_noise, draw_noise
from dpbench.privacy.core.plan import Planned, Release
from dpbench.privacy.core.randomness import QuestionDraws
from dpbench.privacy.core.rows import CHUNK_BYTES, PrivateRows
from dpbench.support.threads import start_in_thread

CLIPS = (1e-9, 1e9)  # inside, `elementwise.TINY` and float32 factors are far from their limits
MANY = 2**14  # numbers whose noise another thread draws while this one sums
SCORES = 2**20  # numbers by row and class that a chunk makes room for: so memory does not grow with the classes


@dataclass(frozen=True)
class Sum(Question):
    """Asks for a noisy sum of the clipped contributions of `rows`; see `Curator.noisy_sum`.

    Raises:
        SpecError: a clip is not a number between the limits of `CLIPS`, or the chunk size is invalid.
    """

    kind: ClassVar[type[Planned]] = Release

    rows: RowFn
    release: str
    clip: float | Sequence[float]
    chunk_size: int | None = None

    def __post_init__(self) -> None:
        """Check the chunk size and the clips, and convert clips to floats."""
        check_chunk_size(self.chunk_size)
        clips, single = check_clips(self.clip)
        object.__setattr__(self, "clip", clips[0] if single else clips)

    @property
    def clips(self) -> tuple[float, ...]:
        """The bounds on a row's contribution, one per block."""
        return self.clip if isinstance(self.clip, tuple) else (self.clip,)

    @property
    def releases(self) -> tuple[str, ...]:
        """The name of the release that pays for the sum."""
        return (self.release,)

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Tensor | tuple[Tensor, ...]:
        """Draw a sample, clip and sum its rows, and add noise."""
        step: Release = spent[0]
        draws, witness, clips = curator.draws(self.release), curator.witness, self.clips
        whole = draws.sample(curator.rows.count + witness.members, step.sample_rate)
        sample, planted = witness.split(whole, curator.rows.count)
        places, shares = curator.rows.expand_units(sample, curator.task.device)
        own = as_builtin_row_function(self.rows)
        nothing = self._sums_of_empty_chunk(curator)
        stds = [curator.sigma[self.release] * math.sqrt(len(clips)) * clip for clip in clips]
        if curator.ledger.spent[self.release] == 1 and any(stds):
            draws.check_duration(sum(summed.total.numel() for summed in nothing), step.steps)
        summing = own.prepare_sum_in_place(curator.rows, places, clips[0], shares) if own else None
        spare = own and nothing[0].total.numel() >= MANY
        noises = start_in_thread(
            lambda: [draw_noise(*each, draws) for each in zip(nothing, stds, strict=True)],
            torch.get_num_threads() if spare else 1,
        )
        totals = [summing()] if summing else self._sum_chunks(curator, own, places, shares, nothing, draws)
        answers = tuple(add_drawn_noise(summed, noise) for summed, noise in zip(totals, noises(), strict=True))
        witness.answer(self.release, totals, [*zip(clips, stds, strict=True)], draws, sample, planted)
        return answers if isinstance(self.clip, tuple) else answers[0]

    def _sum_chunks(
        self, curator: LedgerCurator, own: BuiltinRowFunction | None, places: np.ndarray, shares: Tensor | None,
        nothing: Sequence[IntegerSum], draws: QuestionDraws,
    ) -> list[IntegerSum]:  # fmt: skip
        """Return the clipped sums of a sample, one per block, computed chunk by chunk."""
        clips = self.clips
        limit = self.chunk_size or count_rows_per_chunk(curator.rows, curator.task.classes)
        chunks = curator.rows.chunks(places, None if own else draws.row_seed_base(), limit, curator.task.device)

        def integers(chunks: Iterable[Chunk]) -> Iterator[Sequence[IntegerSum]]:
            of_chunk = make_share_reader(shares)
            if own:
                yield from ([own.clipped_sum(chunk, clips[0], of_chunk(len(chunk)))] for chunk in chunks)
                return
            for blocks in curator.guard.contributions(self.rows, chunks, self.release, clips):
                yield self._integers(blocks, clips, of_chunk)
                del blocks  # or two chunks of rows would be held at once

        with torch.inference_mode(own is not None):  # what it makes is not kept, so torch need not count its versions
            return sum_chunks(chunks, integers, nothing)

    def _sums_of_empty_chunk(self, curator: LedgerCurator) -> list[IntegerSum]:
        """Return the sums of an empty chunk, one per block; the sums of a sample have the same shapes and grids.

        So private rows influence neither the shape of an answer nor the grid to which its noise is rounded.
        """
        if own := as_builtin_row_function(self.rows):
            own.check(curator.task)  # by public shapes: a failure over rows would tell of them
            totals = [own.sum_of_empty_chunk(curator.task.example_shape[0], self.clips[0])]
        else:
            with closing(curator.empty_chunk()) as empty:
                totals = self._integers(
                    curator.guard.blocks_of_empty_chunk(self.rows, next(empty), self.release),
                    self.clips,
                    make_share_reader(None),
                )
        for total in totals:
            total.check_fits_64_bits(curator.rows.count)
        return totals

    def _integers(
        self, blocks: Sequence[Contribution], clips: tuple[float, ...], of_chunk: Callable[[int], Tensor | None]
    ) -> list[IntegerSum]:
        if len(blocks) != len(clips):
            raise SpecError(
                f"Release {self.release!r} contributed {len(blocks)} block(s) with {len(clips)} clip(s); "
                "expected one clip per block."
            )
        shares = of_chunk(len(blocks[0]))
        return [block.clipped_sum(clip, shares) for block, clip in zip(blocks, clips, strict=True)]

    @property
    def row_function(self) -> RowFn:
        """The row function of the sum."""
        return self.rows

    @property
    def clip_bounds(self) -> tuple[float, ...]:
        """The bounds on a row's contribution, one per block."""
        return self.clips

    def scale_answer(self, answer: Any, weight: float) -> Any:
        """Return the answer times the weight."""
        return tuple(part * weight for part in answer) if isinstance(answer, tuple) else answer * weight


def make_share_reader(shares: Tensor | None) -> Callable[[int], Tensor | None]:
    """Return a function that, called with the length of each chunk in turn, returns the shares of the chunk's rows."""
    place = 0

    def read_next_shares(count: int) -> Tensor | None:
        nonlocal place
        place += count
        return None if shares is None else shares[place - count : place]

    return read_next_shares


def count_rows_per_chunk(rows: PrivateRows, scores: int) -> int:
    """Return the number of rows per chunk: as many as fit into `CHUNK_BYTES`, but at most `SCORES` / `scores`.

    `scores` is the number of scores per row. The second limit is never below two, so that rows can be compared.
    """
    return min(rows.count_rows_per_chunk(CHUNK_BYTES), max(2, SCORES // scores))


def check_clips(clip: float | Sequence[float]) -> tuple[tuple[float, ...], bool]:
    """Check the clips; return one clip per block, and whether a single clip was given.

    Raises:
        SpecError: a clip is not a number between the limits of `CLIPS`.
    """
    given = _convert_to_python_number(clip)
    several = isinstance(given, Sequence) and not isinstance(given, str)
    bounds = [_convert_to_python_number(bound) for bound in given] if several else [given]
    for bound in bounds:
        number = isinstance(bound, Real) and not isinstance(bound, bool)
        if not (number and CLIPS[0] <= bound <= CLIPS[1]):
            raise SpecError(
                f"Expected clip={bound!r} to be a number in [{CLIPS[0]:g}, {CLIPS[1]:g}]: the L2 bound on one "
                "example's row, or one for each block."
            )
    return tuple(map(float, bounds)), not several


def _convert_to_python_number(value: Any) -> Any:
    import numpy as np

    return value.tolist() if isinstance(value, (torch.Tensor, np.ndarray, np.generic)) else value
