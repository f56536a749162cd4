"""Votes of teachers on public queries: PATE (Papernot et al., arXiv 1610.05755 and 1802.08908).

Private examples are dealt to t shards, a teacher is fitted on each, and each teacher gives every query a label. The
counts of labels, by query, are answered with Gaussian noise, those of all m queries together as one release.

Sensitivity, under adding or removing one example:

- An example's shard is a hash of its own content (its numbers and its label) under a salt that is drawn without looking
  at any, never its position, so that no other example changes shards. Examples of equal content share one: both are in
  it, or one of them, and still no other shard changes.
- A teacher sees its shard alone: the rows in their order, with seeds that are hashes of their content too. It remembers
  nothing and repeats itself (`purity.guard`), so the labels of all other shards stay what they are. A shard of no rows
  has no teacher and no votes.
- So one shard's labels change, and the counts of one query, whole numbers, move from e_a to e_b, from nothing to e_b or
  from e_a to nothing: by at most sqrt(2) in L2. The counts of m queries move by at most sqrt(2 m); the largest counts
  of m queries, by at most 1 each, sqrt(m) together. Normal noise of std sigma times that is the Gaussian mechanism with
  noise multiplier sigma, as a release of one step and rate 1 is accounted for.
- Which queries are answered follows from a noisy answer already given; the a of them have sensitivity sqrt(2 a).

Covered: the epsilon of plan and sigma, whatever the teachers say. Not covered: a data-dependent epsilon, as of votes
that agree, is itself a function of private data and is never stated; how long teachers take, and one that fails.
A curator whose rows are mapped is refused: a library's product rounds a row by its place in a chunk, and one bit more
or less deals a row to another shard. Teachers map their own shard.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import torch
from torch import Tensor

from dpbench.api import Chunk
from dpbench.errors import SpecError
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.rows import PrivateRows

BITS = 20  # noise comes in steps of 2^-20 votes
BATCH = 1_024  # rows that are hashed at once


@dataclass(frozen=True)
class Dealt:
    """Which shard each private row is in, and its seed: functions of the row's content and the salt."""

    shard: np.ndarray  # (n,) int64 in [0, shards)
    seed: np.ndarray  # (n,) int64

    def shards(self, rows: PrivateRows, device: torch.device) -> Generator[Chunk, None, None]:
        """Yield the shards that are not empty, one at a time, in a buffer that is wiped after each."""
        for number in np.unique(self.shard):
            places = np.flatnonzero(self.shard == number)
            for chunk in rows.chunks(places, 0, len(places), device):
                seeds = torch.from_numpy(self.seed[places]).to(device)
                yield Chunk(chunk.rows, chunk.y, seeds)


def deal(rows: PrivateRows, shards: int, salt: int) -> Dealt:
    """Deal rows to shards by a keyed hash (BLAKE2b) of their bytes."""
    key = salt.to_bytes(8)
    digests = [hashlib.blake2b(content, digest_size=16, key=key).digest() for content in contents(rows)]
    words = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)
    return Dealt((words[:, 0] % np.uint64(shards)).astype(np.int64), (words[:, 1] >> np.uint64(1)).astype(np.int64))


def contents(rows: PrivateRows) -> Generator[bytes, None, None]:
    """Yield the bytes of each row and its label, in order."""
    for chunk in rows.chunks(np.arange(len(rows)), 0, BATCH, torch.device("cpu")):
        held = (chunk.rows,) if isinstance(chunk.rows, Tensor) else chunk.rows.parts
        arrays = [part.numpy() for part in (*held, chunk.y)]
        for place in range(len(chunk)):
            yield b"".join(array[place].tobytes() for array in arrays)


def add(total: Tensor, labels: Tensor) -> None:
    """Add one teacher's votes (m,) to the counts (m, classes); a label that is no class is no vote."""
    valid = ((labels >= 0) & (labels < total.shape[1])).nonzero().squeeze(1)
    total[valid, labels[valid]] += 1


def sum_of(counts: Tensor) -> IntegerSum:
    """Return counts in steps of 2^-20 votes, the grid of their noise."""
    return IntegerSum(counts << BITS, torch.tensor(2.0**-BITS, dtype=torch.float64, device=counts.device))


def counts_spread(queries: int) -> float:
    """Return how far one example moves the counts of so many queries in L2: sqrt(2) each."""
    return math.sqrt(2 * queries)


def largest_spread(queries: int) -> float:
    """Return how far one example moves the largest counts of so many queries in L2: 1 each."""
    return math.sqrt(queries)


def check(
    queries: Tensor, shards: int, size: int, mapped: bool, confident: str | None = None, threshold: float = 0.0
) -> None:
    """Refuse what no teachers could be fitted for, before any private row is read.

    Raises:
        SpecError: no queries, a number of shards outside [1, n], a threshold that no release is compared with, or rows
            that a map may round by their place.
    """
    if mapped:
        raise SpecError(
            "Expected votes over rows as they came, got a curator whose rows are mapped: a map may round a row by its "
            "place, so that one row less would deal others to other shards. Map each shard inside the teacher."
        )
    if not isinstance(queries, Tensor) or queries.ndim < 1 or not len(queries):
        raise SpecError("Expected public queries (m, ...), one or more, for the teachers to vote on.")
    if threshold and confident is None:
        raise SpecError(
            f"Expected a release as confident beside threshold={threshold}, got none: it answers whether votes reach "
            "the threshold. Plan one and name it, or leave the threshold out."
        )
    if not (isinstance(shards, Integral) and 1 <= shards <= size):
        raise SpecError(
            f"Expected shards={shards!r} to be a whole number in [1, {size:,}], the number of private examples: a "
            "teacher needs one to learn from."
        )


def checked_labels(labels: object, queries: int) -> Tensor:
    """Return a teacher's labels, (m,) int64.

    Raises:
        SpecError: they are no whole numbers, one a query.
    """
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or tuple(labels.shape) != (queries,):
        found = f"{labels.dtype} {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise SpecError(f"Expected labels from a teacher, int64 ({queries},), one a query, got {found}.")
    return labels.detach().as_subclass(Tensor).clone()
