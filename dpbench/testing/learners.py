"""The laws of a private learner."""

from __future__ import annotations

import dataclasses
import gc
import math
import types
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Budget, Learner, Predict, Task
from dpbench.audit.attack import draw_canary_membership
from dpbench.audit.auditing_curator import FitEvidence, make_auditing_curator
from dpbench.audit.sensitivity import QuestionReplayer
from dpbench.errors import DpbenchError, LawBroken, PrivacyError
from dpbench.privacy.binding import bind
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.witness import AuditWitness, Canaries
from dpbench.testing.curators import (
    RecordingProxy,
    SubstitutingProxy,
    WatchingProxy,
    make_answer_replayer,
    make_noise_replacer,
)
from dpbench.testing.laws import expect
from dpbench.testing.worlds import (
    CHANCE_MARGIN,
    DELTA,
    NOISE_KEY,
    TINY_EPSILON,
    LearnerSuite,
    TaskData,
    replace_second_half,
)

FALSE_ALARM_RATE = 1e-5  # a law that is kept looks broken once in so many times
CANARY_COUNT = 100  # planted where questions are asked again: their noise is drawn, and nobody guesses


class LearnerLaws(LearnerSuite):
    """The laws of a learner: inherit and set `learner`.

    Also set `example_shape` for a learner of images or activations, and `tail` for a learner that trains a network.
    """

    def test_the_plan_repeats(self) -> None:
        """The plan and the settings chosen from the budget depend on task and budget alone, and are well formed."""
        settled = [self.subject().settle(*self._make_task_and_budget()) for _ in range(2)]
        expect(settled[0] == settled[1], f"Settling twice for the same budget gives different settings: {settled}.")
        plans = [
            check_plan(learner.plan(*self._make_task_and_budget()), f"learner {learner.name!r}") for learner in settled
        ]
        expect(plans[0] == plans[1], f"Two plans for the same task and budget differ: {plans[0]} and {plans[1]}.")

    def test_no_release_outside_the_plan(self) -> None:
        """A fit asks for nothing outside its plan."""
        _, watcher, error = self._cached_watched_fit()
        expect(
            not watcher.log.refusals and error is None,
            lambda: f"Fitting was refused: {watcher.log.refusals or error}",
        )

    def test_every_planned_step_is_asked(self) -> None:
        """A fit uses every planned step, because an unused step costs noise. A fit without noise is not checked."""
        predict, watcher, _ = self._cached_watched_fit()
        planned = {
            release.name: release.steps
            for release in self._settle_learner_at_ample_epsilon().plan(*self._make_task_and_budget())
        }
        spent = {} if predict is None or math.isinf(self.ample_epsilon) else watcher.curator.ledger.spent
        left = [f"{name} ({steps} of {planned[name]})" for name, steps in spent.items() if steps < planned[name]]
        expect(not left, f"Fitting asked for less than it planned: {', '.join(left)}. Plan what is asked.")

    def test_rows_ignore_their_neighbours(self) -> None:
        """A row contributes the same alone, in any order and beside any rows; an empty chunk contributes no rows."""
        _, watcher, error = self._cached_watched_fit()
        asked = (
            bool(watcher.log.answers)
            or error is not None
            or not self._settle_learner_at_ample_epsilon().plan(*self._make_task_and_budget())
        )
        expect(asked, "Fitting asked the curator nothing of what it planned.")
        refused = [text for text in watcher.log.refusals if "evaluated" in text or "per example" in text]
        expect(not (watcher.log.complaints or refused), lambda: (watcher.log.complaints or refused)[0])
        if watcher.log.answers and not math.isinf(self.ample_epsilon):
            self._expect_bounded_sensitivity(
                self._cached_audited_fit()
            )  # beside rows that these worlds lack: huge, or not finite

    def test_choices_follow_their_law(self) -> None:
        """A row's losses depend on the row alone and are from 0 to 1; choices follow the distribution of the mechanism.

        A row then changes the log-probability of each candidate by at most eps0.
        """
        planned = not all(
            use.gaussian for use in self._settle_learner_at_ample_epsilon().plan(*self._make_task_and_budget())
        )
        if planned and not math.isinf(self.ample_epsilon):
            evidence = self._cached_audited_fit()
            self._expect_bounded_sensitivity(evidence)
            wrong = [law for law in evidence.noise.laws if law.p < FALSE_ALARM_RATE]
            expect(not wrong, lambda: f"A choice is not drawn by its law: {wrong[0].name} (p {wrong[0].p:.1g}).")

    def test_an_example_has_one_vote(self) -> None:
        """Removing an example changes the votes of one teacher only, by at most one vote for each query."""
        _, watcher, _ = self._cached_watched_fit()
        if watcher.log.votes and not math.isinf(self.ample_epsilon):
            self._expect_bounded_sensitivity(self._cached_audited_fit())

    def test_a_blind_curator_teaches_nothing(self) -> None:
        """If answers and public data are pure noise, accuracy is at chance: the learner has no other source."""
        world = self._make_task_data(0)
        self._cached_first_fit()  # whatever it might keep from there must not help it below
        mean = self._compute_mean_accuracy(lambda seed: self._fit_on_random_answers(world, seed), world)
        expect(
            mean < self.chance + CHANCE_MARGIN,
            f"It scores {mean:.2f} after answers of pure noise; chance is {self.chance}.",
        )

    def test_a_tiny_budget_stays_at_chance(self) -> None:
        """A learner cannot learn at epsilon 0.001 with random public data; a reference refuses to plan."""
        if self.subject().reference:
            self._expect_refusal_of_finite_epsilon()
            return
        world = dataclasses.replace(self._make_task_data(0), public=self._make_random_public_data())
        mean = self._compute_mean_accuracy(lambda seed: self._fit(world, TINY_EPSILON, seed), world)
        expect(
            mean < self.chance + CHANCE_MARGIN,
            f"It scores {mean:.2f} at epsilon {TINY_EPSILON}; chance is {self.chance}.",
        )

    def test_all_it_learns_comes_from_answers(self) -> None:
        """A fit on other private data that gets the same answers gives the same predictor, to the last bit."""
        world, other = self._make_task_data(0), self._make_task_data(1)
        predict, watcher, error = self._cached_watched_fit()
        if predict is None:
            raise LawBroken(f"Fitting was refused: {error}")
        elsewhere = SubstitutingProxy(
            self._curator(other, self.ample_epsilon, seed=7), make_answer_replayer(watcher.log.answers)
        )
        again = self._fit_learner(elsewhere.handle(), world.public)
        same = np.array_equal(self._predict_scores(predict, world), self._predict_scores(again, world))
        expect(same, "Its predictor depends on private data beyond the curator's answers.")

    def test_questions_follow_answers_alone(self) -> None:
        """A learner that gets the same answers asks the same questions, even if half of the private rows differ."""
        world = self._make_task_data(0)
        first = self._record_questions(world)
        other = self._record_questions(replace_second_half(world), first)
        pairs = zip(first.questions, other.questions, strict=False)
        for number, (record, again) in enumerate(pairs, 1):
            differs = record.difference(again)
            expect(
                differs is None, f"In question {number}, release {record.release!r}, {differs} follows private data."
            )
        expect(len(first.questions) == len(other.questions), "How many questions it asks follows private data.")

    def test_no_private_row_outlives_the_fit(self) -> None:
        """No object that the predictor or the learner reaches holds a copy of a private row."""
        world, predict = self._make_task_data(0), self._cached_first_fit()
        rows = {row.numpy().tobytes() for row in world.x.flatten(1)}
        for tensor in _find_reachable_tensors(predict, self.subject()):
            width = len(world.x[0].flatten())
            if tensor.dtype == torch.float32 and tensor.numel() % width == 0:
                held = any(row.numpy().tobytes() in rows for row in tensor.detach().reshape(-1, width))
                expect(not held, "The predictor holds a private row, or the curator that holds them.")

    def test_keeps_nothing_from_one_fit_to_the_next(self) -> None:
        """A fit and its predictor leave no noisy answers behind; a later fit could use them beyond its own budget."""
        self._predict_scores(self._cached_first_fit(), self._make_task_data(0))
        left = next((leftover for leftover in self._leftover_states if leftover), None)
        expect(left is None, f"Fitting changed {left}, which the next fit finds. Keep what a fit learns in the fit.")

    def _make_task_and_budget(self) -> tuple[Task, Budget]:
        return self._task(), Budget(self.ample_epsilon, DELTA)

    def _settle_learner_at_ample_epsilon(self) -> Learner:
        return self._settle_learner(self.ample_epsilon)

    def _expect_refusal_of_finite_epsilon(self) -> None:
        for epsilon in (TINY_EPSILON, 1.0, 1e6):
            try:
                self.subject().plan(self._task(), Budget(epsilon, DELTA))
            except DpbenchError:
                continue
            expect(False, f"It made a plan for epsilon {epsilon:g}; a reference has no guarantee and refuses all.")

    def _fit_on_random_answers(self, data: TaskData, seed: int) -> Predict:
        curator = self._curator(data, self.ample_epsilon, seed)
        blind = SubstitutingProxy(curator, make_noise_replacer(torch.Generator().manual_seed(seed)))
        return self._fit_learner(blind.handle(), self._make_random_public_data(), seed)

    def _record_questions(self, data: TaskData, earlier: RecordingProxy | None = None) -> RecordingProxy:
        curator = self._curator(data, self.ample_epsilon)
        recorder = RecordingProxy(curator, earlier)
        try:
            self._fit_learner(recorder.handle(), self._make_task_data(0).public)
            curator.guard.raise_earlier_refusal()
        except PrivacyError as error:
            raise LawBroken(f"Fitting was refused: {error}") from None
        return recorder

    def _cached_audited_fit(self) -> FitEvidence:
        """Return the evidence of an audited fit, made once per suite. The audit repeats the questions on other rows."""
        return self._make_once_per_suite("listened fit", self._run_audited_fit)

    def _run_audited_fit(self) -> FitEvidence:
        world, task = self._make_task_data(0), self._task()
        plan, noise = self._plan(self.ample_epsilon), self._curator(world, self.ample_epsilon).sigma
        base = noise[plan[0].name] / plan[0].relative_noise
        member, generator = draw_canary_membership(CANARY_COUNT, np.random.default_rng(0)), np.random.default_rng(1)
        evidence = FitEvidence(
            plan, noise, member, QuestionReplayer(task, generator), generator,
            lambda number: Randomness.research(1 + number, NOISE_KEY),
        )  # fmt: skip
        witness = AuditWitness(evidence.record_sums, Canaries(member))
        curator = bind(world.rows, task, plan, base, Randomness.research(0, NOISE_KEY), witness)
        self._fit_learner(make_auditing_curator(curator, evidence), world.public)
        return evidence

    def _expect_bounded_sensitivity(self, evidence: FitEvidence) -> None:
        found = evidence.replays.summarise()
        expect(not found.complaints, lambda: f"Asked again over other rows, {found.complaints[0]}.")
        expect(found.largest <= 1 + 1e-12, f"A row moved an answer by {found.largest:.4g} times what it may.")

    def _cached_watched_fit(self) -> tuple[Predict | None, WatchingProxy, PrivacyError | None]:
        """Return predictor, watcher and error of a watched fit, made once; if it was refused, the predictor is None."""
        return self._make_once_per_suite("watched fit", self._run_watched_fit)

    def _run_watched_fit(self) -> tuple[Predict | None, WatchingProxy, PrivacyError | None]:
        world = self._make_task_data(0)
        watcher = WatchingProxy(self._curator(world, self.ample_epsilon))
        try:
            predict = self._fit_learner(watcher.handle(), world.public)
            watcher.curator.guard.raise_earlier_refusal()
        except PrivacyError as error:
            return None, watcher, error
        return predict, watcher, None


def _find_reachable_tensors(*roots: Any) -> list[Tensor]:
    """Return every tensor that the roots reach, except through modules and classes."""
    seen: set[int] = set()
    found, open_ends = [], list(roots)
    while open_ends:
        thing = open_ends.pop()
        if id(thing) in seen or isinstance(thing, (type, types.ModuleType)):
            continue
        seen.add(id(thing))
        if isinstance(thing, Tensor):
            found.append(thing)
        elif isinstance(thing, np.ndarray):
            found.append(torch.from_numpy(thing) if thing.dtype == np.float32 else torch.empty(0))
        elif isinstance(thing, types.FunctionType):
            open_ends += [*(cell.cell_contents for cell in thing.__closure__ or ()), *(thing.__defaults__ or ())]
        else:
            open_ends += gc.get_referents(thing)
    return found
