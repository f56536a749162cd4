"""The audit of choices: what a row moves totals and the law by, and whether candidates are drawn as the law has it.

A question is put, through the one constructor, to rows that nobody would expect, alone and among others; the law that
follows from the totals is compared between neighbours, candidate by candidate. What is drawn is to be compared with the
law at the noise that was stated: many parts at once, and many questions one after another.
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
from dpbench.privacy.mechanisms.choice.choice_plan import Choice, eps0_of
from dpbench.privacy.mechanisms.choice.parts import LeastLosses
from dpbench.privacy.mechanisms.choice.question import LeastLoss, Majorities
from dpbench.privacy.mechanisms.replay import BASE, REPLAY, SMALL, Neighbours, RowInfluence, join_rows, one, strip_seeds

CHUNK = 97  # rows of a chunk, where totals are taken in other chunks
PARTS, QUESTIONS = 10_000, 600  # draws that are compared with the law: in one question, and one a question
SPREAD = 20  # votes between candidates, at most

Asked = LeastLoss | LeastLosses | Majorities


@dataclass(frozen=True)
class ChoiceCounts:
    """How often candidates were chosen, and how often they should have been."""

    how: str
    found: np.ndarray  # (3,) counts
    chances: np.ndarray  # (3,)


def replay(question: Asked, near: Neighbours) -> RowInfluence:
    """Ask over the base rows with and without each of the odd ones."""
    base = near.base(BASE if near.features else SMALL)
    odd = near.odd(base)
    return _judged(question, near, base, odd)


def probe(near: Neighbours) -> RowInfluence:
    """Ask a choice of the audit's own, whose losses are whatever numbers rows hold, over all rows that are held."""
    own = replace(near, planned=Choice(REPLAY, near.held.example_shape[0]))
    return _judged(LeastLoss(lambda chunk: chunk.x, REPLAY), own, near.held, near.odd(near.held))


def _judged(question: Asked, near: Neighbours, base: PrivateRows, odd: PrivateRows) -> RowInfluence:
    moved = RowInfluence(tried=odd.count)
    without = _lost(question, near, base)
    alone = [_lost(question, near, one(odd, place)) for place in range(odd.count)]
    whole = _lost(question, near, join_rows(base, odd), CHUNK)
    moved.shift = float(np.abs(whole - without - sum(alone)).max())
    for lost in alone:
        moved.largest = max(moved.largest, float(np.abs(lost).max(1).sum()))
        if lost.min() < 0 < lost.max():
            moved.complaints.append("a row moves totals both ways, which takes twice the noise")
        ratio = np.abs(log_law(without + lost, near.sigma) - log_law(without, near.sigma)).max(1).sum()
        if not ratio <= eps0_of(near.sigma) * (1 + 1e-9):
            moved.complaints.append("the law of neighbours differs by more than eps0")
    return moved


def _lost(question: Asked, near: Neighbours, rows: PrivateRows, chunk_size: int | None = None) -> np.ndarray:
    """Return the total losses (parts, N) over these rows."""
    seen: list[ChoiceObservation] = []
    planned = near.planned
    assert isinstance(planned, Choice)
    plan = (Choice(REPLAY, planned.candidates, planned.parts),)
    randomness = Randomness.research(near.key(), "a replayed choice")
    curator = bind(rows, near.task, plan, near.sigma, randomness, Witness(lambda _: None, chose=seen.append))
    curator.answer(replace(_without_seeds(question), release=REPLAY, chunk_size=chunk_size))
    found: np.ndarray = seen[0].lost.value().reshape(seen[0].parts, -1).cpu().numpy()
    return found


def _without_seeds(question: Asked) -> Asked:
    """Return the question with row functions that read one seed for all rows."""
    rows = question.rows
    if isinstance(question, LeastLosses):
        part = question.part
        question = replace(question, part=lambda chunk: part(strip_seeds(chunk)))
    return replace(question, rows=lambda chunk: rows(strip_seeds(chunk)))


def log_law(lost: np.ndarray, sigma: float) -> np.ndarray:
    """Return the logarithms of the chances of each candidate, by part, given total losses (parts, N)."""
    scores = -eps0_of(sigma) * (lost - lost.min(1, keepdims=True))
    law: np.ndarray = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return law


def laws(sigma: float, task: Task, generator: np.random.Generator) -> Iterator[ChoiceCounts]:
    """Yield how often three candidates are drawn at this noise, in both kinds of question."""
    votes = int(np.clip(round(1 / eps0_of(sigma)), 1, SPREAD))
    chances = np.exp(log_law(-votes * np.arange(3.0)[None], sigma))[0]
    for how, made in (("part by part", _by_parts), ("one by one", _one_by_one)):
        rows, plan = made(votes)
        randomness = Randomness.research(int(generator.integers(2**31)), "the law of a choice")
        yield ChoiceCounts(how, _drawn(bind(rows, task, (plan,), sigma, randomness), plan), chances)


def _by_parts(votes: int) -> tuple[PrivateRows, Choice]:
    """Return rows that vote in every part for candidates 0, 1 and 2: not at all, so often, and twice as often."""
    each = torch.tensor([1] * votes + [2] * 2 * votes)
    cells = (3 * torch.arange(PARTS).unsqueeze(1) + each).flatten()
    return PrivateRows(torch.zeros(len(cells), 1), cells, torch.arange(len(cells))), Choice(REPLAY, 3, PARTS)


def _one_by_one(votes: int) -> tuple[PrivateRows, Choice]:
    """Return rows that lose by candidates 0, 1 and 2: twice as much, so much, and nothing."""
    y = torch.arange(2 * votes) % 2
    return PrivateRows(torch.zeros(len(y), 1), y, torch.arange(len(y))), Choice(REPLAY, 3, 1, QUESTIONS)


def _drawn(curator: LedgerCurator, plan: Choice) -> np.ndarray:
    if plan.parts > 1:
        chosen = curator.answer(Majorities(lambda chunk: chunk.y, REPLAY)).cpu().numpy()
    else:
        lost = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], device=curator.task.device)
        question = LeastLoss(lambda chunk: lost[chunk.y], REPLAY)
        chosen = np.array([curator.answer(question) for _ in range(plan.steps)])
    return np.bincount(chosen, minlength=3)
