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
from dpbench.privacy.core.witness import ChoiceObservation, Witness
from dpbench.privacy.mechanisms.choice.choice_plan import Choice, compute_eps0
from dpbench.privacy.mechanisms.choice.parts import LeastLosses
from dpbench.privacy.mechanisms.choice.question import LeastLoss, Majorities
from dpbench.privacy.mechanisms.replay import (
    MOST_FEATURE_ROWS,
    MOST_IMAGE_ROWS,
    REPLAY,
    Neighbours,
    RowInfluence,
    join_rows,
    strip_seeds,
    take_row,
)

CHUNK_SIZE = 97  # rows of a chunk, where totals are taken in other chunks
DRAWN_PARTS, DRAWN_QUESTIONS = 10_000, 600  # draws that are compared with the law: in one question, and one a question
MOST_VOTES = 20  # votes between candidates, at most

ReplayableChoice = LeastLoss | LeastLosses | Majorities


@dataclass(frozen=True)
class ChoiceCounts:
    """How often each candidate was chosen, and the probability with which the mechanism should choose it."""

    how: str
    found: np.ndarray  # (3,) counts
    chances: np.ndarray  # (3,)


def replay(question: ReplayableChoice, near: Neighbours) -> RowInfluence:
    """Replay a choice over the base rows, with and without each of the odd rows."""
    base = near.draw_base(MOST_FEATURE_ROWS if near.features else MOST_IMAGE_ROWS)
    odd = near.make_odd_rows(base)
    return _measure_moves(question, near, base, odd)


def probe(near: Neighbours) -> RowInfluence:
    """Replay an audit's own choice over all private rows, with the rows' entries as losses."""
    own = replace(near, planned=Choice(REPLAY, near.held.example_shape[0]))
    return _measure_moves(LeastLoss(lambda chunk: chunk.x, REPLAY), own, near.held, near.make_odd_rows(near.held))


def _measure_moves(question: ReplayableChoice, near: Neighbours, base: PrivateRows, odd: PrivateRows) -> RowInfluence:
    moved = RowInfluence(tried=odd.count)
    without = _total_losses(question, near, base)
    alone = [_total_losses(question, near, take_row(odd, place)) for place in range(odd.count)]
    whole = _total_losses(question, near, join_rows(base, odd), CHUNK_SIZE)
    moved.shift = float(np.abs(whole - without - sum(alone)).max())
    for lost in alone:
        moved.largest = max(moved.largest, float(np.abs(lost).max(1).sum()))
        if lost.min() < 0 < lost.max():
            moved.complaints.append("a row moves totals both ways, which takes twice the noise")
        ratio = np.abs(log_chances(without + lost, near.sigma) - log_chances(without, near.sigma)).max(1).sum()
        if not ratio <= compute_eps0(near.sigma) * (1 + 1e-9):
            moved.complaints.append("the law of neighbours differs by more than eps0")
    return moved


def _total_losses(
    question: ReplayableChoice, near: Neighbours, rows: PrivateRows, chunk_size: int | None = None
) -> np.ndarray:
    """Replay the question over these rows, and return the total losses (parts, N)."""
    seen: list[ChoiceObservation] = []
    planned = near.planned
    assert isinstance(planned, Choice)
    plan = (Choice(REPLAY, planned.candidates, planned.parts),)
    randomness = Randomness.research(near.draw_key(), "a replayed choice")
    curator = bind(rows, near.task, plan, near.sigma, randomness, Witness(lambda _: None, chose=seen.append))
    curator.answer(replace(_hide_seeds(question), release=REPLAY, chunk_size=chunk_size))
    found: np.ndarray = seen[0].lost.value().reshape(seen[0].parts, -1).cpu().numpy()
    return found


def _hide_seeds(question: ReplayableChoice) -> ReplayableChoice:
    """Return the question with row functions that get the same seed for every row."""
    rows = question.rows
    if isinstance(question, LeastLosses):
        part = question.part
        question = replace(question, part=lambda chunk: part(strip_seeds(chunk)))
    return replace(question, rows=lambda chunk: rows(strip_seeds(chunk)))


def log_chances(lost: np.ndarray, sigma: float) -> np.ndarray:
    """Return the log-probability of each candidate in each part, given total losses (parts, N)."""
    scores = -compute_eps0(sigma) * (lost - lost.min(1, keepdims=True))
    law: np.ndarray = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return law


def draw_from_laws(sigma: float, task: Task, generator: np.random.Generator) -> Iterator[ChoiceCounts]:
    """Draw among three candidates at this noise, in parts of one question and in many questions; yield the counts."""
    votes = int(np.clip(round(1 / compute_eps0(sigma)), 1, MOST_VOTES))
    chances = np.exp(log_chances(-votes * np.arange(3.0)[None], sigma))[0]
    for how, made in (("part by part", _make_part_votes), ("one by one", _make_question_losses)):
        rows, plan = made(votes)
        randomness = Randomness.research(int(generator.integers(2**31)), "the law of a choice")
        yield ChoiceCounts(how, _count_draws(bind(rows, task, (plan,), sigma, randomness), plan), chances)


def _make_part_votes(votes: int) -> tuple[PrivateRows, Choice]:
    """Return rows that give candidates 0, 1 and 2 of each part 0, `votes` and 2 `votes` votes, and the plan."""
    each = torch.tensor([1] * votes + [2] * 2 * votes)
    cells = (3 * torch.arange(DRAWN_PARTS).unsqueeze(1) + each).flatten()
    return PrivateRows(torch.zeros(len(cells), 1), cells, torch.arange(len(cells))), Choice(REPLAY, 3, DRAWN_PARTS)


def _make_question_losses(votes: int) -> tuple[PrivateRows, Choice]:
    """Return rows whose total losses for candidates 0, 1 and 2 are 2 `votes`, `votes` and 0, and the plan."""
    y = torch.arange(2 * votes) % 2
    return PrivateRows(torch.zeros(len(y), 1), y, torch.arange(len(y))), Choice(REPLAY, 3, 1, DRAWN_QUESTIONS)


def _count_draws(curator: LedgerCurator, plan: Choice) -> np.ndarray:
    if plan.parts > 1:
        chosen = curator.answer(Majorities(lambda chunk: chunk.y, REPLAY)).cpu().numpy()
    else:
        lost = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], device=curator.task.device)
        question = LeastLoss(lambda chunk: lost[chunk.y], REPLAY)
        chosen = np.array([curator.answer(question) for _ in range(plan.steps)])
    return np.bincount(chosen, minlength=3)
