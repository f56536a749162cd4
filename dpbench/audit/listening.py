"""Stands between a learner and its curator: what the learner asks and what it is answered are those of a plain run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Curator, Planned, RowFn, Task, Teacher
from dpbench.audit.attack import Scores
from dpbench.audit.noise import NoiseLog, standardised
from dpbench.audit.sensitivity import FEW, QUESTIONS, Question, Replays
from dpbench.privacy.binding import bind
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.forms.blocks import Blocks
from dpbench.privacy.randomness import Randomness
from dpbench.privacy.rows import PrivateRows
from dpbench.privacy.witness import Seen


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
        self._seen: Seen | None = None
        self._generator = generator
        self._again: dict[str, set[int]] = {}

    def see(self, seen: Seen) -> None:
        """Take what the witness tells of the question that is being answered."""
        self._seen = seen

    def before(self, question: Question, release: str, rows: PrivateRows) -> None:
        """Ask the question again over other rows, where its turn has come."""
        step = self.asked[release] = self.asked.get(release, 0) + 1
        if step in self._turns(release, len(rows.example_shape) == 1):
            self.replays.replay(question, rows)

    def after(self, question: Question, release: str, rows: PrivateRows, answer: Any) -> None:
        """Take the noise out of an answer, and what it tells of the canaries."""
        assert self._seen is not None
        seen, self._seen = self._seen, None
        answers = answer if isinstance(answer, tuple) else (answer,)
        spread = self.stds[release] * math.sqrt(len(question.clips))
        noise = [
            standardised(part, summed, spread * clip)
            for part, summed, clip in zip(answers, seen.sums, question.clips, strict=True)
        ]
        padding, shares = [], []
        for (summed, noisy), clip in zip(seen.padding, question.clips, strict=True):
            padding.append(standardised(noisy, summed, spread * clip))
            shares.append(noisy.double().div_(clip).cpu().numpy())
        self.noise.add(release, noise, padding, seen.sampled)
        self.noise.sampled(release, question.rate, len(rows), seen.size, seen.sampled)
        self.scores.add(shares, self.stds[release], question.rate)
        if self.asked[release] == 1:
            self._other_seed(release, [tuple(part.shape) for part in answers], question)

    def _other_seed(self, release: str, shapes: Sequence[tuple[int, ...]], question: Question) -> None:
        """Have another seed answer the same question over rows that are nothing: its answer is its noise."""
        nothing = PrivateRows(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.arange(1))
        task = Task((1,), self.replays.task.classes, 1, self.replays.task.device)
        zeros = [torch.zeros(1, *shape) for shape in shapes]
        base = self.stds[release] / self.plan[release].relative_noise
        curator = bind(nothing, task, [*self.plan.values()], base, self._elsewhere())
        answer = curator.noisy_sum(
            lambda chunk: Blocks(tuple(part[: len(chunk)] for part in zeros)),
            release=release, clip=question.clips,
        )  # fmt: skip
        spread = self.stds[release] * math.sqrt(len(question.clips))
        pairs = zip(answer, question.clips, strict=True)
        found = [part.double().div_(spread * clip).cpu().numpy() for part, clip in pairs]
        self.noise.independence.other_seed(release, found)

    def _turns(self, release: str, features: bool) -> set[int]:
        if release not in self._again:
            steps = self.plan[release].steps
            drawn = self._generator.integers(1, steps + 1, size=(QUESTIONS if features else FEW) - 1)
            self._again[release] = {1, *map(int, drawn)}
        return self._again[release]


class Listening(Curator):
    """A learner's curator during an audit."""

    def __init__(self, curator: LedgerCurator, ears: Ears) -> None:
        self._curator, self._handle, self._ears = curator, curator.handle(), ears

    @property
    def task(self) -> Task:
        """The real curator's task."""
        return self._handle.task

    @property
    def sigma(self) -> Mapping[str, float]:
        """The real curator's noise multipliers."""
        return self._handle.sigma

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Ask the real curator, and look at the answer."""
        planned = self._ears.plan.get(release)
        if planned is None or self._ears.asked.get(release, 0) >= planned.steps:
            return self._handle.noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size)  # which refuses it
        single = isinstance(clip, (int, float))
        clips = (float(clip),) if isinstance(clip, (int, float)) else tuple(map(float, clip))
        question = Question(rows, clips, single, chunk_size, planned.sample_rate)
        self._ears.before(question, release, self._curator.rows)
        answer = self._handle.noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size)
        self._ears.after(question, release, self._curator.rows, answer)
        return answer

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Ask the real curator."""
        return self._handle.noisy_choice(losses, release=release, project=project, chunk_size=chunk_size)

    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Ask the real curator."""
        return self._handle.noisy_choices(votes, release=release, chunk_size=chunk_size)

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Ask the real curator."""
        return self._handle.noisy_votes(
            teacher, queries, release=release, shards=shards, confident=confident, threshold=threshold
        )

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Listen to the mapped curator too."""
        return Listening(self._curator.map(transform), self._ears)
