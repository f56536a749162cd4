"""Votes: does taking one example away move more than one vote a query, whatever the teacher is."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Release, Teacher
from dpbench.audit.sensitivity import REPLAY, SMALL, Replays, adversaries, joined, one, some
from dpbench.errors import DpbenchError
from dpbench.privacy.core.binding import bind
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import Seen, Witness
from dpbench.privacy.mechanisms.votes import counts_spread

SHARDS, LEAST = 8, 4  # of a replay, with so many rows in each
REMOVED = 6  # rows that are taken away again, one by one: of each, all teachers are fitted anew
QUERIES = 64  # that are voted on


@dataclass(frozen=True)
class Asked:
    """Votes as a learner asked for them."""

    teacher: Teacher
    queries: Tensor
    shards: int

    def over(self, rows: PrivateRows, replays: Replays, key: int) -> IntegerSum:
        """Return the counts over other rows."""
        seen: list[Seen] = []
        randomness = Randomness.research(key, "replayed votes")
        curator = bind(rows, replays.task, (Release(REPLAY),), 1.0, randomness, Witness(seen.append))
        fewer = min(self.shards, SHARDS)
        curator.noisy_votes(self.teacher, self.queries[:QUERIES], release=REPLAY, shards=fewer)
        return seen[0].sums[0]


def replay(asked: Asked, held: PrivateRows, replays: Replays) -> None:
    """Have teachers vote over some of these rows and adversarial ones, with and without; what is found is added."""
    base = some(held, max(SMALL, SHARDS * LEAST), replays.generator)
    odd = adversaries(base, replays.task.classes, replays.generator, len(held.example_shape) == 1)
    replays.questions += 1
    try:
        key = int(replays.generator.integers(2**31))
        without = asked.over(base, replays, key)
        for place in replays.generator.permutation(len(odd))[:REMOVED]:
            _judge(asked.over(_between(base, one(odd, int(place))), replays, key), without, replays)
    except DpbenchError as error:
        replays.complaints.append(f"rows that are odd, but possible, were refused: {error}"[:400])


def _between(rows: PrivateRows, row: PrivateRows) -> PrivateRows:
    """Return the rows with one more in their middle: it moves the positions of half of them."""
    half = len(rows) // 2
    ends = [PrivateRows(rows.held[part], rows.y[part], torch.arange(half)) for part in (slice(half), slice(half, None))]
    return joined(joined(ends[0], row), ends[1])


def _judge(among: IntegerSum, without: IntegerSum, replays: Replays) -> None:
    moved = (among.total - without.total).double() * without.grid  # (m, classes), in votes
    replays.tried += 1
    replays.largest = max(replays.largest, float(moved.norm()) / counts_spread(len(moved)))
    if float(moved.abs().max()) > 1 or float(torch.linalg.vector_norm(moved, dim=1).max()) > np.sqrt(2) + 1e-9:
        replays.complaints.append("an example moved more than one vote of a query")
