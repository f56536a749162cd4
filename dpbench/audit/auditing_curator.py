"""The audit's curator: it wraps the real curator, and answers a learner exactly as in a run without an audit."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch

from dpbench.api import Curator, Planned, Task
from dpbench.audit.attack import CanaryScores
from dpbench.audit.directions import FEWEST_SPARE
from dpbench.audit.noise_log import NoiseLog, StandardisedNoise, extract_noise, standardise_noise
from dpbench.audit.sensitivity import FEATURE_REPLAYS, IMAGE_REPLAYS, QuestionReplayer
from dpbench.privacy.binding import bind
from dpbench.privacy.core.forms.blocks import Blocks
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.sum import Sum
from dpbench.privacy.core.witness import SumObservation
from dpbench.privacy.curator import make_learner_curator
from dpbench.privacy.mechanisms.choice.replay import ChoiceCounts
from dpbench.privacy.mechanisms.replay import ReleasedSum, ReplaySetup
from dpbench.privacy.mechanisms.table import find_question_audit
from dpbench.records.audit import StatisticalCheck

MOST_ANSWERS, MOST_STEPS = 100, 20  # that other seeds are asked for in each release, and how many each at most
MOST_NUMBERS = 4_000_000  # that these answers have together, at most, unless two have more
COPIED_NUMBERS, MOST_COPIES = 750_000, 1_400  # numbers in all copies of an answer that one seed more is asked for
COPIES_PER_STEP = 50  # beyond those that directions take: copies that add at most a third to an audit's time
FEWEST_COORDINATES = (
    400  # coordinates of an answer on which canaries are attacked, too: scores of fewer are not nearly normal
)


class FitEvidence:
    """The evidence of one audited fit: replays, noise and canary scores. All curators of the fit share it."""

    def __init__(
        self, plan: Sequence[Planned], stds: Mapping[str, float], member: np.ndarray, replays: QuestionReplayer,
        generator: np.random.Generator, other_seed_randomness: Callable[[int], Randomness],
    ) -> None:  # fmt: skip
        self.plan = {use.name: use for use in plan}
        self.stds, self.replays, self._elsewhere = stds, replays, other_seed_randomness
        self.noise = NoiseLog(sum(use.steps for use in plan), member)
        self.member, self.scores = member, CanaryScores(member)
        self.own: CanaryScores | None = None
        self.asked = dict.fromkeys(self.plan, 0)
        self._seen: list[SumObservation] = []
        self._generator = generator
        self._again: dict[str, set[int]] = {}

    def record_sums(self, observation: SumObservation) -> None:
        """Keep an observation of the current question, its sums before noise, until its answer is recorded."""
        self._seen.append(observation)

    def has_steps_left(self, question: Question) -> bool:
        """Return whether the curator will answer a question: its releases are all planned for it, with steps left."""
        planned = [self.plan.get(name) for name in question.releases]
        return bool(planned) and all(
            isinstance(release, question.kind) and self.asked[release.name] < release.steps for release in planned
        )

    def replay_question(self, question: Question, rows: PrivateRows) -> None:
        """Count a step; at the first step and at random steps, replay the question on other rows.

        At the first step, also test how often a mechanism of choices picks each candidate.
        """
        for release in question.releases:
            self.asked[release] += 1
        own, planned = find_question_audit(type(question)), self.plan[question.releases[-1]]
        step, sigma = self.asked[planned.name], self.stds[planned.name]
        due = step in self._choose_replay_steps(
            planned.name, len(rows.example_shape) == 1 and not (own and own.is_costly)
        )
        if due and isinstance(question, Sum):
            self.replays.replay(question, planned.sample_rate, rows)
        elif due and own is not None:
            near = ReplaySetup(rows, self.replays.task, planned, sigma, self._generator)
            self.replays.run(partial(own.replay, question), near)
        if step == 1 and own is not None and own.laws is not None:
            drawn = own.laws(sigma, self.replays.task, self._generator)
            self.noise.laws += [
                _test_choice_counts(f"law of {planned.name!r}, {counts.how}", counts) for counts in drawn
            ]

    def record_answer(self, question: Question, rows: PrivateRows, answer: Any) -> None:
        """Record an answer's noise, canary scores and sample; at a release's first answer, also ask other seeds."""
        for seen, released in zip(self._seen, _list_released_sums(question, answer), strict=False):
            planned = self.plan[seen.release]
            self._record_released_sum(seen, released, planned.sample_rate)
            labels = rows.y.numpy() if rows.units is None else None
            self.noise.add_sample(
                seen.release, planned.sample_rate, planned.steps, rows.count, labels, seen.drawn, seen.sampled
            )
            if released.answers and self.asked[seen.release] == 1:
                self._collect_noise_of_other_seeds(
                    seen.release, [tuple(part.shape) for part in released.answers], released.bounds
                )
        self._seen.clear()

    def _record_released_sum(self, observation: SumObservation, released: ReleasedSum, rate: float) -> None:
        release, bounds, sigma = observation.release, released.bounds, self.stds[observation.release]
        spread = sigma * math.sqrt(len(bounds))
        noise = [
            extract_noise(part, summed, spread * bound)
            for part, summed, bound in zip(released.answers, observation.sums, bounds, strict=False)
        ]
        padding = [
            extract_noise(noisy, summed, spread * bound)
            for (summed, noisy), bound in zip(observation.padding, bounds, strict=True)
        ]
        planted = [
            (summed.value() / bound).cpu().numpy()
            for (summed, _), bound in zip(observation.padding, bounds, strict=True)
        ]
        self.noise.add(release, noise, padding, observation.sampled)
        sums = [summed.value().cpu().numpy() for summed, _ in zip(observation.sums, released.answers, strict=False)]
        self.noise.independence.add_sums([draw.noise for draw in noise], sums)
        pairs = zip(padding, planted, strict=True)
        self.scores.add([spread * pair.noise + share for pair, share in pairs], sigma, rate)
        if planted and noise and len(noise) == len(bounds):
            self._score_canaries_on_answer([spread * draw.noise.ravel() for draw in noise], planted, sigma, rate)

    def _score_canaries_on_answer(
        self, noise: Sequence[np.ndarray], planted: Sequence[np.ndarray], sigma: float, rate: float
    ) -> None:
        """Score canaries on the coordinates that the learner sees: each canary's contribution plus noise, in clips.

        Contributions are added here and not to the learner's answer, so that the fit stays the run's fit. The scores
        are valid because noise does not depend on the sum.
        """
        reach = min(len(self.member), *map(len, noise))
        if self.own is None and reach >= FEWEST_COORDINATES:
            self.own = CanaryScores(self.member[:reach])
        if self.own is not None and len(self.own) <= reach:
            own = len(self.own)
            self.own.add([array[:own] + share[:own] for array, share in zip(noise, planted, strict=True)], sigma, rate)

    def _collect_noise_of_other_seeds(
        self, release: str, shapes: Sequence[tuple[int, ...]], clips: tuple[float, ...]
    ) -> None:
        """Ask the same question under other seeds over rows of zeros, so that the answers are pure noise.

        A learner that asks few questions draws little noise; the other seeds draw far more with the same code. One
        further seed answers a single question whose blocks are many copies of the answer, which takes far less time.
        """
        numbers = sum(map(math.prod, shapes))
        answers = max(2, min(MOST_ANSWERS, MOST_NUMBERS // numbers))
        steps = min(self.plan[release].steps, MOST_STEPS)
        seeds = -(-answers // steps)
        for seed in range(seeds):
            found = self._draw_other_seed_noise(release, shapes, clips, seed, steps)
            if seed == 0:
                self.noise.independence.add_noise_of_other_seed(release, [noise.noise[0] for noise in found[0]])
            for blocks in found:
                self.noise.elsewhere.add(release, blocks)
        worthwhile = max(numbers + 2 * FEWEST_SPARE, COPIES_PER_STEP * self.plan[release].steps)
        copies = min(MOST_COPIES, COPIED_NUMBERS // numbers, worthwhile)
        if copies > answers:
            for blocks in self._draw_other_seed_noise(release, shapes, clips, seeds, 1, copies):
                self.noise.elsewhere.add(release, blocks)

    def _draw_other_seed_noise(
        self, release: str, shapes: Sequence[tuple[int, ...]], clips: tuple[float, ...], seed: int, steps: int,
        copies: int = 1,
    ) -> list[list[StandardisedNoise]]:  # fmt: skip
        """Ask under another seed over rows of zeros; return the noise (copies, ...) in each block of each step."""
        nothing = PrivateRows(torch.zeros(1, 1), torch.zeros(1, dtype=torch.int64), torch.arange(1))
        task = Task((1,), self.replays.task.classes, 1, self.replays.task.device)
        zeros = [torch.zeros(1, *shape) for shape in shapes] * copies
        base = self.stds[release] / self.plan[release].relative_noise
        curator = bind(nothing, task, [*self.plan.values()], base, self._elsewhere(seed))
        question = Sum(lambda chunk: Blocks(tuple(part[: len(chunk)] for part in zeros)), release, clips * copies)
        spread = self.stds[release] * math.sqrt(len(clips) * copies)
        return [
            [
                standardise_noise(torch.stack(answer[block :: len(clips)]), spread * clip)
                for block, clip in enumerate(clips)
            ]
            for answer in (curator.answer(question) for _ in range(steps))
        ]

    def _choose_replay_steps(self, release: str, features: bool) -> set[int]:
        if release not in self._again:
            steps = self.plan[release].steps
            drawn = self._generator.integers(1, steps + 1, size=(FEATURE_REPLAYS if features else IMAGE_REPLAYS) - 1)
            self._again[release] = {1, *map(int, drawn)}
        return self._again[release]


def make_auditing_curator(curator: LedgerCurator, evidence: FitEvidence) -> Curator:
    """Wrap a learner's curator for an audit: forward its questions, replay some of them, and record the answers."""
    handle = make_learner_curator(curator)

    def answer(question: Question) -> Any:
        if isinstance(question, MapQuestion):
            mapped: LedgerCurator = curator.answer(question)
            return make_auditing_curator(mapped, evidence)
        if not evidence.has_steps_left(question):
            return handle.answer(question)  # which refuses it
        evidence.replay_question(question, curator.rows)
        found = handle.answer(question)
        evidence.record_answer(question, curator.rows, found)
        return found

    return Curator(curator.task, curator.sigma, answer)


def _list_released_sums(question: Question, answer: Any) -> Sequence[ReleasedSum]:
    if isinstance(question, Sum):
        return (ReleasedSum(answer if isinstance(answer, tuple) else (answer,), question.clips),)
    own = find_question_audit(type(question))
    return own.released(question, answer) if own else ()


def _test_choice_counts(name: str, choices: ChoiceCounts) -> StatisticalCheck:
    """Test how often each candidate was chosen against its probability: binomial tests, Bonferroni-corrected."""
    from scipy.stats import binom

    draws, chances = int(choices.found.sum()), np.clip(choices.chances, 0.0, 1.0)
    tails = np.minimum(binom.cdf(choices.found, draws, chances), binom.sf(choices.found - 1, draws, chances))
    return StatisticalCheck(name=name, p=min(1.0, 2 * len(chances) * float(tails.min())))
