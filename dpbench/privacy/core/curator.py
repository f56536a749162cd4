"""The curator: holds the private rows, spends the plan, answers with noise.

`LedgerCurator` is the harness's side, made by `binding.bind` alone. What a learner receives is its `handle()`: an
object whose attributes lead to no private row. Python cannot stop malice (a closure can be pried open); it can stop
accidents.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from functools import partial
from numbers import Real
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Choice, Chunk, Curator, RowFn, Task, Teacher
from dpbench.errors import SpecError
from dpbench.privacy.core.exact.quantised import quantise
from dpbench.privacy.core.exact.sums import IntegerSum, misfit
from dpbench.privacy.core.exact.surroundings import own_arithmetic
from dpbench.privacy.core.forms.contributions import Contribution
from dpbench.privacy.core.noise import clipped_sum, noised
from dpbench.privacy.core.plan import Ledger
from dpbench.privacy.core.randomness import Draws, Randomness
from dpbench.privacy.core.rows import CHUNK_BYTES, Gathering, PrivateRows
from dpbench.privacy.core.witness import NOBODY, Chosen, Witness
from dpbench.privacy.mechanisms import choice as choices
from dpbench.privacy.mechanisms import votes
from dpbench.privacy.purity.guard import Guard

CLIPS = (1e-9, 1e9)
SCORES = 2**20  # numbers by row and class that a chunk makes room for: so memory does not grow with the classes
MAPPED_BYTES = 2 * 2**20  # of a chunk that is mapped: what a map makes of it on the way is several times as large


@dataclasses.dataclass(frozen=True)
class LedgerCurator:
    """The private rows of one fit, with everything that may touch them; made by `binding.bind`, which see.

    Covered: every answer is a sum over a fresh Poisson sample of contributions clipped to `clip`, plus normal noise of
    std sigma[release] * clip * sqrt(blocks); no release gives more answers than planned. So all answers together have
    the (epsilon, delta) that the accountant states for the plan and sigma, under add-or-remove-one neighbours.
    Not covered: a learner that pries this object out of the handle's closures; timing; the size n, public by
    declaration.
    """

    rows: PrivateRows
    task: Task
    sigma: Mapping[str, float]
    ledger: Ledger
    randomness: Randomness
    guard: Guard
    witness: Witness = NOBODY
    mapped: bool = False  # whether `map` made the rows

    def handle(self) -> Curator:
        """Return what a learner may hold."""
        answers: dict[str, Callable[..., Any]] = {
            "sum": self.noisy_sum, "choice": self.noisy_choice, "choices": self.noisy_choices,
            "votes": self.noisy_votes,
        }  # fmt: skip
        return Handle(self.task, dict(self.sigma), answers, lambda map_: self.map(map_).handle())

    @own_arithmetic()
    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Spend, sample, clip, sum, noise; see `Curator.noisy_sum`. Spending first, a crash can only overcount."""
        _check_chunk_size(chunk_size)
        step = self.ledger.spend(release)
        clips, single = checked_clips(clip)
        draws = self._draws(release)
        whole = draws.sample(len(self.rows) + self.witness.members, step.sample_rate)
        sample, planted = self.witness.split(whole, len(self.rows))
        limit = chunk_size or rows_at_once(self.rows, self.task.classes)
        chunks = self.rows.chunks(sample, draws.row_base(), limit, self.task.device)
        exact = self.sigma[release] > 0  # without noise there is nothing to guarantee
        totals: list[Any] = self._over_none(rows, release, clips) if exact else []
        with self.guard.judging(), closing(chunks):  # wiped at once, whatever a traceback holds
            for blocks in self.guard.contributions(rows, chunks, release, clips):
                paired = _paired(blocks, clips, release)
                sums = [block.integers(bound) if exact else clipped_sum(block, bound) for block, bound in paired]
                totals = [total + part for total, part in zip(totals, sums, strict=True)] if totals else sums
                del blocks, paired  # or two chunks of rows would be held at once
        spread = self.sigma[release] * math.sqrt(len(clips))
        if not exact:
            answers = tuple(total.float() for total in totals)
        else:
            if self.ledger.spent[release] == 1:
                draws.afford(sum(summed.total.numel() for summed in totals), step.steps)
            answers = tuple(noised(summed, spread * bound, draws) for summed, bound in zip(totals, clips, strict=True))
            stds = [(bound, spread * bound) for bound in clips]
            self.witness.answered(release, totals, stds, draws, len(sample), planted)
        return answers[0] if single else answers

    @own_arithmetic()
    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Spend, add up losses, choose; see `Curator.noisy_choice` and `choices`."""
        _check_chunk_size(chunk_size)
        choice = self.ledger.spend_choice(release)
        if choice.parts > 1:
            raise SpecError(f"Release {release!r} is planned with {choice.parts} parts. Ask noisy_choices.")
        draws = self._draws(release)
        if project is None:
            count = self._candidates(losses, choice)
            limit = choices.rows_held(count, chunk_size)
            lost = self._total(losses, release, draws, partial(choices.losses, count=count), limit)
        else:
            matrix = choices.checked(project, choice.candidates)
            counts = self._total(choices.numbered(losses, len(matrix)), release, draws, choices.counts, chunk_size)
            lost = choices.projected(counts, matrix)
        return int(self._chosen(lost, 1, choice, draws))

    @own_arithmetic()
    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Spend, count votes, choose for each part; see `Curator.noisy_choices` and `choices`."""
        _check_chunk_size(chunk_size)
        choice = self.ledger.spend_choice(release)
        draws = self._draws(release)
        cells = choices.numbered(votes, choice.parts * choice.candidates)
        counts = self._total(cells, release, draws, choices.counts, chunk_size)
        return self._chosen(IntegerSum(-counts.total, counts.grid), choice.parts, choice, draws)

    @own_arithmetic()
    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Spend, deal, teach, count, noise; see `Curator.noisy_votes` and `votes`."""
        votes.check(queries, shards, self.task.size, self.mapped, confident, threshold)
        if confident == release:
            raise SpecError(f"Expected another release for confident than {release!r}, which answers. Plan two.")
        names = [name for name in (confident, release) if name is not None]
        for name in names:
            if (rate := self.ledger.spend(name).sample_rate) < 1:
                raise SpecError(f"Expected sample_rate=1 of votes, got {rate:g} in release {name!r}.")
        draws = {name: self._draws(name) for name in names}
        counts = self._counts(teacher, queries, release, votes.deal(self.rows, shards, draws[release].row_base()))
        answered = torch.arange(len(counts), device=counts.device)
        if confident is not None:
            spread = votes.largest_spread(len(counts))
            largest = self._noised(counts.amax(1), confident, spread, draws[confident])
            answered = (largest >= threshold).nonzero().squeeze(1)
        answers = torch.full(counts.shape, math.nan, device=counts.device)
        if len(answered):
            spread = votes.counts_spread(len(answered))
            answers[answered] = self._noised(counts[answered], release, spread, draws[release])
        return answers

    def _draws(self, release: str) -> Draws:
        return self.randomness.draws(release, self.ledger.spent[release])

    def _none(self) -> Generator[Chunk, None, None]:
        return self.rows.chunks(np.arange(0), 0, None, self.task.device)

    def _over_none(self, rows: RowFn, release: str, clips: tuple[float, ...]) -> list[IntegerSum]:
        """Return the sums over no rows, one a block: whatever is added to them has their shapes and grids.

        So no private row has a part in the shape of an answer, or in the grid that its noise is rounded to.
        """
        with self.guard.judging(), closing(self._none()) as none:
            blocks = self.guard.over_none(rows, next(none), release)
            totals = [block.integers(bound) for block, bound in _paired(blocks, clips, release)]
            for total in totals:
                total.expect_room(len(self.rows))
            return totals

    def _candidates(self, losses: RowFn, choice: Choice) -> int:
        """Return among how many a choice is, by losses over no rows: no private row has a part in that number."""
        with self.guard.judging(), closing(self._none()) as none:
            ((block, _),) = _paired(self.guard.over_none(losses, next(none), choice.name), (1.0,), choice.name)
            return choices.counted(block, choice.candidates)

    def _total(
        self, rows: RowFn, release: str, draws: Draws, integers: Callable[[Contribution], IntegerSum], limit: int | None
    ) -> IntegerSum:
        """Return the sum over all rows of what `integers` makes of each chunk of them."""
        limit = min(limit or len(self.rows), self.rows.per_chunk(CHUNK_BYTES))
        chunks = self.rows.chunks(np.arange(len(self.rows)), draws.row_base(), limit, self.task.device)
        total: IntegerSum | None = None
        with self.guard.judging(), closing(chunks):
            for blocks in self.guard.contributions(rows, chunks, release, (1.0,)):
                ((block, _),) = _paired(blocks, (1.0,), release)
                part = integers(block)
                total = part if total is None else total + part
                del blocks, block  # or two chunks of rows would be held at once
        assert total is not None  # there is one chunk at least
        return total

    def _chosen(self, lost: IntegerSum, parts: int, choice: Choice, draws: Draws) -> Tensor:
        """Return the choice for each part, given total losses (parts * N,)."""
        if self.ledger.spent[choice.name] == 1 and self.sigma[choice.name]:
            draws.afford(lost.total.numel(), choice.steps)
        chosen = choices.choose(lost.total.reshape(parts, -1), self.sigma[choice.name], float(lost.grid), draws)
        self.witness.chose(Chosen(choice.name, lost, parts, chosen))
        return chosen

    def _counts(self, teacher: Teacher, queries: Tensor, release: str, dealt: votes.Dealt) -> Tensor:
        """Return the votes of a teacher a shard, (m, classes) int64."""
        counts = torch.zeros(len(queries), self.task.classes, dtype=torch.int64, device=self.task.device)
        shards = dealt.shards(self.rows, self.task.device)
        with self.guard.judging(), closing(shards):
            for labels in self.guard.labels(lambda shard: teacher(shard, queries), shards, release, len(queries)):
                votes.add(counts, labels)
        return counts

    def _noised(self, counts: Tensor, release: str, spread: float, draws: Draws) -> Tensor:
        """Return counts with noise of `spread` times the release's sigma, float32."""
        std = self.sigma[release] * spread
        if not std:
            return counts.float()
        draws.afford(counts.numel(), 1)
        summed = votes.sum_of(counts)
        answer = noised(summed, std, draws)
        _, planted = self.witness.split(np.arange(len(self.rows) + self.witness.members), len(self.rows))
        self.witness.answered(release, [summed], [(spread, std)], draws, len(self.rows), planted)
        return answer

    @own_arithmetic()
    def map(self, transform: Callable[[Tensor], Tensor]) -> LedgerCurator:
        """Transform every row once, held to purity; see `Curator.map`."""
        sample = torch.arange(len(self.rows)).numpy()
        exact = any(self.sigma.values())
        gathering = Gathering(len(self.rows))
        chunks = self.rows.chunks(sample, 0, self.rows.per_chunk(MAPPED_BYTES), self.task.device)
        with self.guard.judging(), closing(self._none()) as none:
            shapes = [block.dense().shape[1:] for (block,) in self.guard.mapped(transform, none)]
        with self.guard.judging(), closing(chunks):
            for (block,) in self.guard.mapped(transform, chunks):
                kept = block.dense().to(self.rows.held.device, torch.float32)
                if [kept.shape[1:]] != shapes:
                    raise misfit()
                gathering.add(quantise(kept) if exact else kept)
        x = gathering.rows()
        task = dataclasses.replace(self.task, example_shape=tuple(x.shape[1:]))
        rows = PrivateRows(x, self.rows.y, torch.arange(len(self.rows)))
        return dataclasses.replace(self, rows=rows, task=task, mapped=True)


class Handle(Curator):
    """The learner's side: no attribute of it leads to a private row."""

    __slots__ = ("_ask", "_map", "_sigma", "_task")

    def __init__(
        self,
        task: Task,
        sigma: Mapping[str, float],
        answers: Mapping[str, Callable[..., Any]],
        mapped: Callable[[Callable[[Tensor], Tensor]], Curator],
    ) -> None:
        self._task, self._sigma, self._map = task, sigma, mapped

        def ask(question: str, rows: Any, *others: Any, **keywords: Any) -> Any:  # a bound method would carry __self__
            return answers[question](rows, *others, **keywords)

        self._ask = ask

    @property
    def task(self) -> Task:
        """What is public about the rows behind this handle."""
        return self._task

    @property
    def sigma(self) -> Mapping[str, float]:
        """The noise multiplier of each planned release."""
        return self._sigma

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Tensor | tuple[Tensor, ...]:
        """Ask the curator."""
        answer: Tensor | tuple[Tensor, ...] = self._ask("sum", rows, release=release, clip=clip, chunk_size=chunk_size)
        return answer

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Ask the curator."""
        return int(self._ask("choice", losses, release=release, project=project, chunk_size=chunk_size))

    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Ask the curator."""
        chosen: Tensor = self._ask("choices", votes, release=release, chunk_size=chunk_size)
        return chosen

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Ask the curator."""
        counts: Tensor = self._ask(
            "votes", teacher, queries, release=release, shards=shards, confident=confident, threshold=threshold
        )
        return counts

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Return a handle on the transformed rows, on the same ledger."""
        return self._map(transform)


def rows_at_once(rows: PrivateRows, scores: int) -> int:
    """Return how many rows a chunk has that makes `scores` numbers of each; two, at least, can be compared."""
    return min(rows.per_chunk(CHUNK_BYTES), max(2, SCORES // scores))


def _check_chunk_size(chunk_size: int | None) -> None:
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise SpecError(
            f"Expected chunk_size={chunk_size!r} to be a whole number >= 1: how many rows are held at once."
        )


def checked_clips(clip: float | Sequence[float]) -> tuple[tuple[float, ...], bool]:
    """Return the bounds, one a block, and whether a single one was given; or refuse one that bounds nothing.

    Raises:
        SpecError: a clip that is no number, or not between the limits of `CLIPS`.
    """
    given = _plain(clip)
    several = isinstance(given, Sequence) and not isinstance(given, str)
    bounds = [_plain(bound) for bound in given] if several else [given]
    for bound in bounds:
        number = isinstance(bound, Real) and not isinstance(bound, bool)
        if not (number and CLIPS[0] <= bound <= CLIPS[1]):
            raise SpecError(
                f"Expected clip={bound!r} to be a number in [{CLIPS[0]:g}, {CLIPS[1]:g}]: the L2 bound on one "
                "example's row, or one for each block."
            )
    return tuple(map(float, bounds)), not several


def _plain(given: Any) -> Any:
    return given.tolist() if isinstance(given, (Tensor, np.ndarray, np.generic)) else given


def _paired(
    blocks: tuple[Contribution, ...], clips: tuple[float, ...], release: str
) -> list[tuple[Contribution, float]]:
    if len(blocks) != len(clips):
        raise SpecError(
            f"Release {release!r} contributed {len(blocks)} block(s) with {len(clips)} clip(s); "
            "expected one clip per block."
        )
    return list(zip(blocks, clips, strict=True))
