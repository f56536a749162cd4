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
from dpbench.audit.attack import draw_members
from dpbench.audit.auditing_curator import FitEvidence, make_auditing_curator
from dpbench.audit.sensitivity import Replays
from dpbench.errors import DpbenchError, LawBroken, PrivacyError
from dpbench.privacy.binding import bind
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.witness import Canaries, Witness
from dpbench.testing.curators import Recorder, Substitute, Watcher, pure_noise, replay
from dpbench.testing.laws import expect
from dpbench.testing.worlds import DELTA, MARGIN, NOISE_KEY, TINY, LearnerSuite, World, replace_half

FALSE_ALARM_RATE = 1e-5  # a law that is kept looks broken once in so many times
CANARY_COUNT = 100  # planted where questions are asked again: their noise is drawn, and nobody guesses


class LearnerLaws(LearnerSuite):
    """Inherit and set `learner`; `example_shape` too if it needs images, and `tail` if it trains a network's end."""

    def test_the_plan_repeats(self) -> None:
        """Settings left to the budget and the plan are functions of task and budget alone, and well formed."""
        settled = [self.subject().settle(*self._task_and_budget()) for _ in range(2)]
        expect(settled[0] == settled[1], f"Settling twice for the same budget gives different settings: {settled}.")
        plans = [check_plan(learner.plan(*self._task_and_budget()), f"learner {learner.name!r}") for learner in settled]
        expect(plans[0] == plans[1], f"Two plans for the same task and budget differ: {plans[0]} and {plans[1]}.")

    def test_no_release_outside_the_plan(self) -> None:
        """Fitting asks for nothing that was not planned."""
        _, watcher, error = self._watched_fit()
        expect(
            not watcher.log.refusals and error is None,
            lambda: f"Fitting was refused: {watcher.log.refusals or error}",
        )

    def test_every_planned_step_is_asked(self) -> None:
        """Every planned step is used: an unused step costs noise all the same. Without noise it costs nothing."""
        predict, watcher, _ = self._watched_fit()
        planned = {release.name: release.steps for release in self._ample_learner().plan(*self._task_and_budget())}
        spent = {} if predict is None or math.isinf(self.ample) else watcher.curator.ledger.spent
        left = [f"{name} ({steps} of {planned[name]})" for name, steps in spent.items() if steps < planned[name]]
        expect(not left, f"Fitting asked for less than it planned: {', '.join(left)}. Plan what is asked.")

    def test_rows_ignore_their_neighbours(self) -> None:
        """A row is the same alone, in any order and beside any others; an empty chunk gives no rows."""
        _, watcher, error = self._watched_fit()
        asked = (
            bool(watcher.log.answers) or error is not None or not self._ample_learner().plan(*self._task_and_budget())
        )
        expect(asked, "Fitting asked the curator nothing of what it planned.")
        refused = [text for text in watcher.log.refusals if "evaluated" in text or "per example" in text]
        expect(not (watcher.log.complaints or refused), lambda: (watcher.log.complaints or refused)[0])
        if watcher.log.answers and not math.isinf(self.ample):
            self._expect_bounded_moves(self._audited_fit())  # beside rows that these worlds lack: huge, or not finite

    def test_choices_follow_their_law(self) -> None:
        """A row moves each loss by 0 to 1 and the law by eps0, losses are pure, and candidates are drawn by the law."""
        planned = not all(use.gaussian for use in self._ample_learner().plan(*self._task_and_budget()))
        if planned and not math.isinf(self.ample):
            ears = self._audited_fit()
            self._expect_bounded_moves(ears)
            wrong = [law for law in ears.noise.laws if law.p < FALSE_ALARM_RATE]
            expect(not wrong, lambda: f"A choice is not drawn by its law: {wrong[0].name} (p {wrong[0].p:.1g}).")

    def test_an_example_has_one_vote(self) -> None:
        """Taking an example away moves one teacher, whose votes are what it said before, or nothing."""
        _, watcher, _ = self._watched_fit()
        if watcher.log.votes and not math.isinf(self.ample):
            self._expect_bounded_moves(self._audited_fit())

    def test_a_blind_curator_teaches_nothing(self) -> None:
        """With noise for answers and for public data, predictions are at chance: there is no other source."""
        world = self._world(0)
        self._first_fit()  # whatever it might keep from there must not help it below
        mean = self._mean_accuracy(lambda seed: self._blind_fit(world, seed), world)
        expect(
            mean < self.chance + MARGIN, f"It scores {mean:.2f} after answers of pure noise; chance is {self.chance}."
        )

    def test_a_tiny_budget_does_not(self) -> None:
        """At epsilon 0.001 with meaningless public data, a learner cannot learn; a reference refuses to plan for it."""
        if self.subject().reference:
            self._expect_no_finite_plan()
            return
        world = dataclasses.replace(self._world(0), public=self._noise_as_public())
        mean = self._mean_accuracy(lambda seed: self._fit(world, TINY, seed), world)
        expect(mean < self.chance + MARGIN, f"It scores {mean:.2f} at epsilon {TINY}; chance is {self.chance}.")

    def test_all_it_learns_comes_from_answers(self) -> None:
        """Replaying one fit's answers over other private data gives the same predictor, to the last bit."""
        world, other = self._world(0), self._world(1)
        predict, watcher, error = self._watched_fit()
        if predict is None:
            raise LawBroken(f"Fitting was refused: {error}")
        elsewhere = Substitute(self._curator(other, self.ample, seed=7), replay(watcher.log.answers))
        again = self._fit_learner(elsewhere.handle(), world.public)
        same = np.array_equal(self._predictions(predict, world), self._predictions(again, world))
        expect(same, "Its predictor depends on private data beyond the curator's answers.")

    def test_questions_follow_answers_alone(self) -> None:
        """Given the same answers over private data that shares half of its rows, a learner asks the same questions."""
        world = self._world(0)
        first = self._record_questions(world)
        other = self._record_questions(replace_half(world), first)
        pairs = zip(first.questions, other.questions, strict=False)
        for number, (record, again) in enumerate(pairs, 1):
            differs = record.difference(again)
            expect(
                differs is None, f"In question {number}, release {record.release!r}, {differs} follows private data."
            )
        expect(len(first.questions) == len(other.questions), "How many questions it asks follows private data.")

    def test_no_private_row_outlives_the_fit(self) -> None:
        """Nothing reachable from the predictor or the learner holds a copy of a private row."""
        world, predict = self._world(0), self._first_fit()
        rows = {row.numpy().tobytes() for row in world.x.flatten(1)}
        for tensor in _reachable_tensors(predict, self.subject()):
            width = len(world.x[0].flatten())
            if tensor.dtype == torch.float32 and tensor.numel() % width == 0:
                held = any(row.numpy().tobytes() in rows for row in tensor.detach().reshape(-1, width))
                expect(not held, "The predictor holds a private row, or the curator that holds them.")

    def test_keeps_nothing_from_one_fit_to_the_next(self) -> None:
        """A fit and its predictor change nothing that a later fit finds: noisy answers beyond its own budget."""
        self._predictions(self._first_fit(), self._world(0))
        left = next((leftover for leftover in self._leftovers if leftover), None)
        expect(left is None, f"Fitting changed {left}, which the next fit finds. Keep what a fit learns in the fit.")

    def _task_and_budget(self) -> tuple[Task, Budget]:
        return self._task(), Budget(self.ample, DELTA)

    def _ample_learner(self) -> Learner:
        return self._settle_learner(self.ample)

    def _expect_no_finite_plan(self) -> None:
        for epsilon in (TINY, 1.0, 1e6):
            try:
                self.subject().plan(self._task(), Budget(epsilon, DELTA))
            except DpbenchError:
                continue
            expect(False, f"It made a plan for epsilon {epsilon:g}; a reference has no guarantee and refuses all.")

    def _blind_fit(self, world: World, seed: int) -> Predict:
        curator = self._curator(world, self.ample, seed)
        blind = Substitute(curator, pure_noise(torch.Generator().manual_seed(seed)))
        return self._fit_learner(blind.handle(), self._noise_as_public(), seed)

    def _record_questions(self, world: World, earlier: Recorder | None = None) -> Recorder:
        curator = self._curator(world, self.ample)
        recorder = Recorder(curator, earlier)
        try:
            self._fit_learner(recorder.handle(), self._world(0).public)
            curator.guard.conclude()
        except PrivacyError as error:
            raise LawBroken(f"Fitting was refused: {error}") from None
        return recorder

    def _audited_fit(self) -> FitEvidence:
        """Return the evidence of an audited fit, whose questions are asked again over other rows."""
        return self._make_once("listened fit", self._run_audited_fit)

    def _run_audited_fit(self) -> FitEvidence:
        world, task = self._world(0), self._task()
        plan, noise = self._plan(self.ample), self._curator(world, self.ample).sigma
        base = noise[plan[0].name] / plan[0].relative_noise
        member, generator = draw_members(CANARY_COUNT, np.random.default_rng(0)), np.random.default_rng(1)
        ears = FitEvidence(
            plan, noise, member, Replays(task, generator), generator,
            lambda number: Randomness.research(1 + number, NOISE_KEY),
        )  # fmt: skip
        witness = Witness(ears.see, Canaries(member))
        curator = bind(world.rows, task, plan, base, Randomness.research(0, NOISE_KEY), witness)
        self._fit_learner(make_auditing_curator(curator, ears), world.public)
        return ears

    def _expect_bounded_moves(self, ears: FitEvidence) -> None:
        found = ears.replays.summarise()
        expect(not found.complaints, lambda: f"Asked again over other rows, {found.complaints[0]}.")
        expect(found.largest <= 1 + 1e-12, f"A row moved an answer by {found.largest:.4g} times what it may.")

    def _watched_fit(self) -> tuple[Predict | None, Watcher, PrivacyError | None]:
        """Return a watched fit: its predictor, its watcher, and the error that refused it."""
        return self._make_once("watched fit", self._run_watched_fit)

    def _run_watched_fit(self) -> tuple[Predict | None, Watcher, PrivacyError | None]:
        world = self._world(0)
        watcher = Watcher(self._curator(world, self.ample))
        try:
            predict = self._fit_learner(watcher.handle(), world.public)
            watcher.curator.guard.conclude()
        except PrivacyError as error:
            return None, watcher, error
        return predict, watcher, None


def _reachable_tensors(*roots: Any) -> list[Tensor]:
    """Return every tensor that can be reached from the roots, except through modules and classes."""
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
