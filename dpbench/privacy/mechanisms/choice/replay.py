"""The audit of choices: how far a row moves totals and probabilities, and whether draws have these probabilities.

A question is replayed, with a curator from `bind`, on unusual rows, alone and among other rows. The probabilities that
follow from the totals are compared between neighbouring datasets, candidate by candidate. Draws at the stated noise are
compared with their probabilities: in many parts of one question, and in many questions one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from dpbench.privacy.binding import bind
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.plan import Task
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import AuditWitness, ChoiceObservation
from dpbench.privacy.mechanisms.choice.choice_plan import Choice, compute_eps0
from dpbench.privacy.mechanisms.choice.parts import LeastLossChoiceByPart
from dpbench.privacy.mechanisms.choice.question import LeastLossChoice, MajorityChoiceByPart
from dpbench.privacy.mechanisms.replay import (
    MOST_FEATURE_ROWS,
    MOST_IMAGE_ROWS,
    REPLAY,
    ReplaySetup,
    RowInfluence,
    equalise_seeds,
    join_rows,
    take_row,
)

CHUNK_SIZE = 97  # rows of a chunk, where totals are taken in other chunks
DRAWN_PARTS, DRAWN_QUESTIONS = 10_000, 600  # draws that are compared with the law: in one question, and one a question
MOST_VOTES = 20  # votes between candidates, at most

ReplayableChoice = LeastLossChoice | LeastLossChoiceByPart | MajorityChoiceByPart


@dataclass(frozen=True)
class ChoiceCounts:
    """How often each candidate was chosen, and the probability with which the mechanism should choose it."""

    how: str
    found: np.ndarray  # (3,) counts
    chances: np.ndarray  # (3,)


def replay_choice(question: ReplayableChoice, setup: ReplaySetup) -> RowInfluence:
    """Replay a choice over base rows, with and without each of some unusual rows."""
    base = setup.draw_base_rows(MOST_FEATURE_ROWS if setup.features else MOST_IMAGE_ROWS)
    odd = setup.make_unusual_rows(base)
    return _measure_row_influence(question, setup, base, odd)


def replay_test_choice(setup: ReplaySetup) -> RowInfluence:
    """Replay an audit's own choice over all private rows, with the rows' entries as losses."""
    own = replace(setup, planned=Choice(REPLAY, setup.held.example_shape[0]))
    return _measure_row_influence(
        LeastLossChoice(lambda chunk: chunk.x, REPLAY), own, setup.held, setup.make_unusual_rows(setup.held)
    )


def _measure_row_influence(
    question: ReplayableChoice, setup: ReplaySetup, base: PrivateRows, unusual_rows: PrivateRows
) -> RowInfluence:
    moved = RowInfluence(tried=unusual_rows.count)
    without = _total_losses(question, setup, base)
    alone = [_total_losses(question, setup, take_row(unusual_rows, place)) for place in range(unusual_rows.count)]
    whole = _total_losses(question, setup, join_rows(base, unusual_rows), CHUNK_SIZE)
    moved.shift = float(np.abs(whole - without - sum(alone)).max())
    for lost in alone:
        moved.largest = max(moved.largest, float(np.abs(lost).max(1).sum()))
        if lost.min() < 0 < lost.max():
            moved.complaints.append("a row moves totals both ways, which takes twice the noise")
        ratio = (
            np.abs(log_probabilities(without + lost, setup.sigma) - log_probabilities(without, setup.sigma))
            .max(1)
            .sum()
        )
        if not ratio <= compute_eps0(setup.sigma) * (1 + 1e-9):
            moved.complaints.append("the law of neighbours differs by more than eps0")
    return moved


def _total_losses(
    question: ReplayableChoice, setup: ReplaySetup, rows: PrivateRows, chunk_size: int | None = None
) -> np.ndarray:
    """Replay the question over these rows, and return the total losses (parts, N)."""
    seen: list[ChoiceObservation] = []
    planned = setup.planned
    assert isinstance(planned, Choice)
    plan = (Choice(REPLAY, planned.candidates, planned.parts),)
    randomness = Randomness.research(setup.draw_key(), "a replayed choice")
    curator = bind(rows, setup.task, plan, setup.sigma, randomness, AuditWitness(lambda _: None, on_choice=seen.append))
    curator.answer(replace(_equalise_seeds_of_question(question), release=REPLAY, chunk_size=chunk_size))
    found: np.ndarray = seen[0].lost.value().reshape(seen[0].parts, -1).cpu().numpy()
    return found


def _equalise_seeds_of_question(question: ReplayableChoice) -> ReplayableChoice:
    """Return the question with row functions that get the same seed for every row."""
    rows = question.rows
    if isinstance(question, LeastLossChoiceByPart):
        part = question.part
        question = replace(question, part=lambda chunk: part(equalise_seeds(chunk)))
    return replace(question, rows=lambda chunk: rows(equalise_seeds(chunk)))


def log_probabilities(total_losses: np.ndarray, sigma: float) -> np.ndarray:
    """Return the log-probability of each candidate in each part, given total losses (parts, N)."""
    scores = -compute_eps0(sigma) * (total_losses - total_losses.min(1, keepdims=True))
    law: np.ndarray = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return law


def draw_test_choices(sigma: float, task: Task, generator: np.random.Generator) -> Iterator[ChoiceCounts]:
    """Draw among three candidates at this noise, in parts of one question and in many questions; yield the counts."""
    votes = int(np.clip(round(1 / compute_eps0(sigma)), 1, MOST_VOTES))
    chances = np.exp(log_probabilities(-votes * np.arange(3.0)[None], sigma))[0]
    for how, made in (("part by part", _make_part_votes), ("one by one", _make_question_losses)):
        rows, plan = made(votes)
        randomness = Randomness.research(int(generator.integers(2**31)), "the law of a choice")
        yield ChoiceCounts(how, _count_choices(bind(rows, task, (plan,), sigma, randomness), plan), chances)


def _make_part_votes(votes: int) -> tuple[PrivateRows, Choice]:
    """Return rows and a plan: in each part, candidates 0, 1 and 2 get 0, `votes` and 2 * `votes` votes."""
    each = torch.tensor([1] * votes + [2] * 2 * votes)
    cells = (3 * torch.arange(DRAWN_PARTS).unsqueeze(1) + each).flatten()
    return PrivateRows(torch.zeros(len(cells), 1), cells, torch.arange(len(cells))), Choice(REPLAY, 3, DRAWN_PARTS)


def _make_question_losses(votes: int) -> tuple[PrivateRows, Choice]:
    """Return rows and a plan: candidates 0, 1 and 2 have total losses 2 * `votes`, `votes` and 0."""
    y = torch.arange(2 * votes) % 2
    return PrivateRows(torch.zeros(len(y), 1), y, torch.arange(len(y))), Choice(REPLAY, 3, 1, DRAWN_QUESTIONS)


def _count_choices(curator: LedgerCurator, plan: Choice) -> np.ndarray:
    if plan.parts > 1:
        chosen = curator.answer(MajorityChoiceByPart(lambda chunk: chunk.y, REPLAY)).cpu().numpy()
    else:
        lost = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], device=curator.task.device)
        question = LeastLossChoice(lambda chunk: lost[chunk.y], REPLAY)
        chosen = np.array([curator.answer(question) for _ in range(plan.steps)])
    return np.bincount(chosen, minlength=3)
