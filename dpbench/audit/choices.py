"""Choices: does any row move a loss by more than 1, and are candidates drawn with the chances of the law.

A question of the run is put, through the one constructor, to rows that nobody would expect, alone and among others; the
law that follows from the totals is compared between neighbours, candidate by candidate. What is drawn is compared with
the law at the noise that was stated: many parts at once, and many questions one after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Choice, Chunk, RowFn, Task
from dpbench.audit.sensitivity import BASE, CHUNK, REPLAY, SEED, SMALL, Replays, adversaries, joined, one, some
from dpbench.errors import DpbenchError
from dpbench.privacy.core.binding import bind
from dpbench.privacy.core.curator import LedgerCurator
from dpbench.privacy.core.plan import eps0_of
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import Chosen, Witness
from dpbench.records.audit import Check

PARTS, QUESTIONS = 10_000, 600  # draws that are compared with the law: in one question, and one a question
SPREAD = 20  # votes between candidates, at most
FEWEST = 5  # draws that a candidate of a chi-square test should have


@dataclass(frozen=True)
class Asked:
    """A choice as a learner asked for it."""

    rows: RowFn
    planned: Choice
    sigma: float  # as stated
    project: Tensor | None = None
    parts: bool = False  # whether it was asked for by votes

    def over(self, rows: PrivateRows, task: Task, key: int, chunk_size: int | None = None) -> Chosen:
        """Ask it over other rows."""
        seen: list[Chosen] = []
        plan = (Choice(REPLAY, self.planned.candidates, self.planned.parts),)
        randomness = Randomness.research(key, "a replayed choice")
        curator = bind(rows, task, plan, self.sigma, randomness, Witness(lambda _: None, chose=seen.append))
        if self.parts:
            curator.noisy_choices(self._seedless, release=REPLAY, chunk_size=chunk_size)
        else:
            curator.noisy_choice(self._seedless, release=REPLAY, project=self.project, chunk_size=chunk_size)
        return seen[0]

    def _seedless(self, chunk: Chunk) -> Tensor:
        return self.rows(Chunk(chunk.rows, chunk.y, torch.full_like(chunk.seeds, SEED)))  # type: ignore[return-value]


def replay(asked: Asked, held: PrivateRows, replays: Replays) -> None:
    """Ask a choice over some of these rows and adversarial ones; what is found is added to the record."""
    features = len(held.example_shape) == 1
    base = some(held, BASE if features else SMALL, replays.generator)
    odd = adversaries(base, replays.task.classes, replays.generator, features)
    replays.questions += 1
    try:
        _judge(asked, base, odd, replays)
    except DpbenchError as error:
        replays.complaints.append(f"rows that are odd, but possible, were refused: {error}"[:400])


def probe(replays: Replays) -> None:
    """Ask a choice of the audit's own, whose losses are whatever numbers rows hold."""
    x = torch.from_numpy(replays.generator.normal(size=(BASE, 24))).float()
    y = torch.from_numpy(replays.generator.integers(replays.task.classes, size=BASE))
    base = PrivateRows(x, y, torch.arange(BASE))
    odd = adversaries(base, replays.task.classes, replays.generator, True)
    replays.questions += 1
    _judge(Asked(lambda chunk: chunk.x, Choice(REPLAY, 24), sigma=1.0), base, odd, replays)


def _judge(asked: Asked, base: PrivateRows, odd: PrivateRows, replays: Replays) -> None:
    def ask(rows: PrivateRows, chunk_size: int | None = None) -> np.ndarray:
        return _lost(asked.over(rows, replays.task, int(replays.generator.integers(2**31)), chunk_size))

    without = ask(base)
    alone = [ask(one(odd, place)) for place in range(len(odd))]
    replays.tried += len(odd)
    replays.shift = max(replays.shift, float(np.abs(ask(joined(base, odd), CHUNK) - without - sum(alone)).max()))
    for lost in alone:
        replays.largest = max(replays.largest, float(np.abs(lost).max(1).sum()))
        if lost.min() < 0 < lost.max():
            replays.complaints.append("a row moves totals both ways, which takes twice the noise")
        ratio = np.abs(log_law(without + lost, asked.sigma) - log_law(without, asked.sigma)).max(1).sum()
        if not ratio <= eps0_of(asked.sigma) * (1 + 1e-9):
            replays.complaints.append("the law of neighbours differs by more than eps0")


def _lost(seen: Chosen) -> np.ndarray:
    """Return the total losses (parts, N) of a choice."""
    return seen.lost.value().reshape(seen.parts, -1).cpu().numpy()


def log_law(lost: np.ndarray, sigma: float) -> np.ndarray:
    """Return the logarithms of the chances of each candidate, by part, given total losses (parts, N)."""
    scores = -eps0_of(sigma) * (lost - lost.min(1, keepdims=True))
    law: np.ndarray = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    return law


def laws(release: str, sigma: float, task: Task, generator: np.random.Generator) -> Iterator[Check]:
    """Yield whether three candidates are drawn as often as the law has it at this noise, in both kinds of question."""
    votes = int(np.clip(round(1 / eps0_of(sigma)), 1, SPREAD))
    chances = np.exp(log_law(-votes * np.arange(3.0)[None], sigma))[0]
    for name, draw in (("part by part", _by_parts), ("one by one", _one_by_one)):
        rows, plan = draw(votes)
        key = int(generator.integers(2**31))
        curator = bind(rows, task, (plan,), sigma, Randomness.research(key, "the law of a choice"))
        yield Check(name=f"law of {release!r}, {name}", p=chi_square(_drawn(curator, plan), chances))


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
        chosen = curator.noisy_choices(lambda chunk: chunk.y, release=REPLAY).cpu().numpy()
    else:
        lost = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 0.0]], device=curator.task.device)
        asked = range(plan.steps)
        chosen = np.array([curator.noisy_choice(lambda chunk: lost[chunk.y], release=REPLAY) for _ in asked])
    return np.bincount(chosen, minlength=3)


def chi_square(found: np.ndarray, chances: np.ndarray) -> float:
    """Return the chance of counts as far from what is expected; candidates that few draws should have are one."""
    from scipy.stats import chi2

    expected = chances * found.sum()
    many = expected >= FEWEST
    pairs = [*zip(found[many], expected[many], strict=True), (found[~many].sum(), expected[~many].sum())]
    terms = [(count - mean) ** 2 / max(mean, 1e-3) for count, mean in pairs if count or mean]
    return float(chi2.sf(sum(terms), max(1, len(terms) - 1)))
