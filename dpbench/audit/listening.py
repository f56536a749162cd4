"""Stands between a learner and its curator: what the learner asks and what it is answered are those of a plain run."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Choice, Curator, Planned, RowFn, Task, Teacher
from dpbench.audit import choices, votes
from dpbench.audit.attack import Scores
from dpbench.audit.noise import NoiseLog, standardised
from dpbench.audit.sensitivity import FEW, QUESTIONS, Question, Replays
from dpbench.harness.stated import Stated
from dpbench.privacy.core.binding import bind
from dpbench.privacy.core.curator import LedgerCurator, checked_clips
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import Seen
from dpbench.privacy.mechanisms.votes import counts_spread, largest_spread


class Ears:
    """What all curators of one audited fit share: the three parts, and what was stated."""

    def __init__(
        self, plan: Sequence[Planned], stds: Mapping[str, float], member: np.ndarray, replays: Replays,
        generator: np.random.Generator, elsewhere: Callable[[], Randomness],
    ) -> None:  # fmt: skip
        self.plan = {one.name: one for one in plan}
        self.stds, self.replays, self._elsewhere = stds, replays, elsewhere
        self.noise = NoiseLog(sum(one.steps for one in plan), member)
        self.scores = Scores(member)
        self.asked = dict.fromkeys(self.plan, 0)
        self._seen: list[Seen] = []
        self._generator = generator
        self._again: dict[str, set[int]] = {}

    def see(self, seen: Seen) -> None:
        """Take what the witness tells of the question that is being answered."""
        self._seen.append(seen)

    def before(self, question: Question, release: str, rows: PrivateRows) -> None:
        """Ask the question again over other rows, where its turn has come."""
        step = self.asked[release] = self.asked.get(release, 0) + 1
        if step in self._turns(release, len(rows.example_shape) == 1):
            self.replays.replay(question, rows)

    def after(self, question: Question, release: str, rows: PrivateRows, answer: Any) -> None:
        """Take the noise out of an answer, and what it tells of the canaries."""
        answers = answer if isinstance(answer, tuple) else (answer,)
        self._hear(self._seen.pop(), answers, question.clips, question.rate, len(rows))
        if self.asked[release] == 1:
            self._other_seed(release, [tuple(part.shape) for part in answers], question.clips)

    def _hear(
        self, seen: Seen, answers: Sequence[Tensor], clips: Sequence[float], rate: float, rows: int
    ) -> None:  # fmt: skip
        release = seen.release
        spread = self.stds[release] * math.sqrt(len(clips))
        noise = [
            standardised(part, summed, spread * clip)
            for part, summed, clip in zip(answers, seen.sums, clips, strict=False)
        ]
        padding, shares = [], []
        for (summed, noisy), clip in zip(seen.padding, clips, strict=True):
            padding.append(standardised(noisy, summed, spread * clip))
            shares.append(noisy.double().div_(clip).cpu().numpy())
        self.noise.add(release, noise, padding, seen.sampled)
        self.noise.sampled(release, rate, rows, seen.size, seen.sampled)
        self.scores.add(shares, self.stds[release], rate)

    def before_choice(self, asked: choices.Asked, release: str, rows: PrivateRows) -> None:
        """Ask the choice again over other rows, where its turn has come; and draw from the law, the first time."""
        step = self.asked[release] = self.asked[release] + 1
        if step in self._turns(release, len(rows.example_shape) == 1):
            choices.replay(asked, rows, self.replays)
        if step == 1:
            self.noise.laws += choices.laws(release, self.stds[release], self.replays.task, self._generator)

    def before_votes(self, asked: votes.Asked, releases: Sequence[str], rows: PrivateRows) -> None:
        """Have teachers vote again over other rows, where their turn has come."""
        for release in releases:
            self.asked[release] += 1
        if self.asked[releases[-1]] in self._turns(releases[-1], features=False):
            votes.replay(asked, rows, self.replays)

    def after_votes(self, rows: PrivateRows, answer: Tensor) -> None:
        """Take the noise out of the counts, and what all noise tells of the canaries."""
        answered = answer[~answer.isnan().any(1)]
        for seen in self._seen:
            summed = seen.sums[0].total
            queries = len(summed)
            if summed.ndim > 1:
                self._hear(seen, (answered,), (counts_spread(queries),), 1.0, len(rows))
                if self.asked[seen.release] == 1:
                    self._other_seed(seen.release, [tuple(answered.shape)], (counts_spread(queries),))
            else:  # nobody is told how far the largest counts were from the threshold
                unseen = dataclasses.replace(seen, sums=())
                self._hear(unseen, (), (largest_spread(queries),), 1.0, len(rows))
        self._seen.clear()

    def _other_seed(self, release: str, shapes: Sequence[tuple[int, ...]], clips: tuple[float, ...]) -> None:
        """Have another seed answer the same question over rows that are nothing: its answer is its noise."""
        nothing = PrivateRows(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.arange(1))
        task = Task((1,), self.replays.task.classes, 1, self.replays.task.device)
        zeros = [torch.zeros(1, *shape) for shape in shapes]
        base = self.stds[release] / self.plan[release].relative_noise
        curator = bind(nothing, task, [*self.plan.values()], base, self._elsewhere())
        answer = curator.noisy_sum(
            lambda chunk: Blocks(tuple(part[: len(chunk)] for part in zeros)),
            release=release, clip=clips,
        )  # fmt: skip
        spread = self.stds[release] * math.sqrt(len(clips))
        pairs = zip(answer, clips, strict=True)
        found = [part.double().div_(spread * clip).cpu().numpy() for part, clip in pairs]
        self.noise.independence.other_seed(release, found)

    def _turns(self, release: str, features: bool) -> set[int]:
        if release not in self._again:
            steps = self.plan[release].steps
            drawn = self._generator.integers(1, steps + 1, size=(QUESTIONS if features else FEW) - 1)
            self._again[release] = {1, *map(int, drawn)}
        return self._again[release]


class Listening(Stated):
    """A learner's curator during an audit."""

    def __init__(self, curator: LedgerCurator, ears: Ears) -> None:
        super().__init__(curator.task, curator.sigma)
        self._curator, self._handle, self._ears = curator, curator.handle(), ears

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Ask the real curator, and look at the answer."""
        planned = self._ears.plan.get(release)
        if planned is None or isinstance(planned, Choice) or not self._left(release):
            return self._handle.noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size)  # which refuses it
        clips, single = checked_clips(clip)
        question = Question(rows, clips, single, chunk_size, planned.sample_rate)
        self._ears.before(question, release, self._curator.rows)
        answer = self._handle.noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size)
        self._ears.after(question, release, self._curator.rows, answer)
        return answer

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Ask the real curator, and ask again."""
        self._ask_again(losses, release, project, parts=False)
        return self._handle.noisy_choice(losses, release=release, project=project, chunk_size=chunk_size)

    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Ask the real curator, and ask again."""
        self._ask_again(votes, release, None, parts=True)
        return self._handle.noisy_choices(votes, release=release, chunk_size=chunk_size)

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Ask the real curator, and look at the answer."""
        releases = [name for name in (confident, release) if name is not None]
        planned = all(self._left(name) for name in releases)
        if planned:
            self._ears.before_votes(votes.Asked(teacher, queries, shards), releases, self._curator.rows)
        answer = self._handle.noisy_votes(
            teacher, queries, release=release, shards=shards, confident=confident, threshold=threshold
        )
        if planned:
            self._ears.after_votes(self._curator.rows, answer)
        return answer

    def _ask_again(self, rows: RowFn, release: str, project: Tensor | None, parts: bool) -> None:
        planned = self._ears.plan.get(release)
        if isinstance(planned, Choice) and self._left(release):  # anything else is refused
            asked = choices.Asked(rows, planned, self._ears.stds[release], project, parts)
            self._ears.before_choice(asked, release, self._curator.rows)

    def _left(self, release: str) -> bool:
        planned = self._ears.plan.get(release)
        return planned is not None and self._ears.asked[release] < planned.steps

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Listen to the mapped curator too."""
        return Listening(self._curator.map(transform), self._ears)
