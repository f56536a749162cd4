"""Votes of teachers on public queries: PATE (Papernot et al., arXiv 1610.05755 and 1802.08908).

Private examples are assigned to t shards, a teacher is fitted on each, and each teacher labels every query. The answer
is the counts of labels by query, with Gaussian noise; the counts of all m queries together are one release.

Sensitivity, under adding or removing one example:

- An example's shard is a hash of its own content (its entries and its label) with a salt that does not depend on the
  data. It never depends on the example's position, so no other example changes shards. Examples of equal content are in
  the same shard: adding or removing one of them changes no other shard.
- A teacher sees its shard alone: the rows in order, with seeds that are hashes of the rows' content too. It remembers
  nothing and is deterministic (`purity.guard`), so the labels of all other shards stay the same. An empty shard has no
  teacher and no votes.
- So only one shard's labels change. In the counts of one query, its vote moves from class a to class b, appears or
  disappears: a change of at most sqrt(2) in L2. The counts of m queries move by at most sqrt(2 m). The largest counts
  of m queries move by at most 1 each, sqrt(m) together. Normal noise of std sigma times this sensitivity is the
  Gaussian mechanism with noise multiplier sigma, accounted for as a release of one step and rate 1.
- An earlier noisy answer determines which queries are answered; the counts of `a` queries have sensitivity sqrt(2 a).

Covered: the epsilon of plan and sigma, whatever labels teachers give. Not covered: a data-dependent epsilon, for
example when votes agree: it is itself a function of private data and is never stated; the duration of teachers; a
teacher that fails. A curator with mapped rows is refused, because a library's product may round a row differently at
another position in a chunk, and a single changed bit assigns a row to another shard. Teachers map their own shards.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.binding import bind
from dpbench.privacy.core.chunk import Chunk, Teacher
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.noise import add_noise
from dpbench.privacy.core.plan import Planned, Release
from dpbench.privacy.core.randomness import QuestionDraws, Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import AuditWitness, SumObservation
from dpbench.privacy.mechanisms.replay import (
    MOST_IMAGE_ROWS,
    REPLAY,
    ReleasedSum,
    ReplaySetup,
    RowInfluence,
    insert_rows,
    take_row,
)

BITS = 20  # noise comes in steps of 2^-20 votes
BATCH = 1_024  # rows that are hashed at once
MOST_REPLAY_SHARDS, ROWS_PER_SHARD = 8, 4  # of a replay, with so many rows in each
MOST_REMOVED = 6  # rows that are taken away again, one by one: of each, all teachers are fitted anew
MOST_QUERIES = 64  # that are voted on in a replay


@dataclass(frozen=True)
class TeacherVotes(Question):
    """Asks for noisy counts of teachers' votes; see `Curator.noisy_votes`.

    Raises:
        SpecError: no queries, or an impossible threshold or `confident` release.
    """

    kind: ClassVar[type[Planned]] = Release

    teacher: Teacher
    queries: Tensor  # (m, *query_shape), public
    release: str
    shards: int
    confident: str | None = None
    threshold: float = 0.0

    def __post_init__(self) -> None:
        """Check the queries, the threshold and the `confident` release; reads no rows."""
        if not isinstance(self.queries, Tensor) or self.queries.ndim < 1 or not len(self.queries):
            raise SpecError("Expected at least one public query (m, ...) for the teachers to vote on.")
        if self.threshold and self.confident is None:
            raise SpecError(
                f"Expected a release named by confident with threshold={self.threshold}, got none. This release "
                "answers whether the votes reach the threshold. Plan one and pass its name, or leave the threshold out."
            )
        if self.confident == self.release:
            raise SpecError(
                f"Expected two different releases, got {self.release!r} both for the answers and for confident. Plan "
                "two."
            )

    @property
    def releases(self) -> tuple[str, ...]:
        """The release that selects the queries to answer, if there is one, then the release of the counts."""
        return (self.release,) if self.confident is None else (self.confident, self.release)

    def check(self, curator: LedgerCurator) -> None:
        """Refuse impossible numbers of shards, and mapped rows, because a row's rounding may depend on its position."""
        if curator.mapped:
            raise SpecError(
                "Expected votes over unmapped rows, got a curator whose rows are mapped. A map may round a row by its "
                "place, so that removing one row would move others to other shards. Map each shard inside the teacher."
            )
        size = curator.task.size
        if not (isinstance(self.shards, Integral) and 1 <= self.shards <= size):
            raise SpecError(
                f"Expected shards={self.shards!r} to be a whole number in [1, {size:,}], the number of private "
                "examples, because each teacher needs at least one example."
            )

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Tensor:
        """Assign rows to shards, call the teacher on each, count the votes and add noise."""
        for planned in spent:
            if planned.sample_rate < 1:
                raise SpecError(
                    f"Expected sample_rate=1 of votes, got {planned.sample_rate:g} in release {planned.name!r}."
                )
        draws = {name: curator.draws(name) for name in self.releases}
        counts = self._count_votes(
            curator, assign_shards(curator.rows, self.shards, draws[self.release].row_seed_base())
        )
        answered = torch.arange(len(counts), device=counts.device)
        if self.confident is not None:
            spread = largest_count_sensitivity(len(counts))
            largest = _add_noise_to_counts(curator, counts.amax(1), self.confident, spread, draws[self.confident])
            answered = (largest >= self.threshold).nonzero().squeeze(1)
        answers = torch.full(counts.shape, math.nan, device=counts.device)
        if len(answered):
            spread = counts_sensitivity(len(answered))
            answers[answered] = _add_noise_to_counts(
                curator, counts[answered], self.release, spread, draws[self.release]
            )
        return answers

    def _count_votes(self, curator: LedgerCurator, assignment: ShardAssignment) -> Tensor:
        """Call the teacher on each shard and count its votes, (m, classes) int64."""
        device, queries = curator.task.device, self.queries
        counts = torch.zeros(len(queries), curator.task.classes, dtype=torch.int64, device=device)
        teacher = lambda shard: self.teacher(shard, queries)
        with closing(assignment.shards(curator.rows, device)) as shards:
            checked = lambda labels: check_labels(labels, len(queries))
            for labels in curator.guard.labels(teacher, shards, self.release, checked):
                add_votes(counts, labels)
        return counts

    @property
    def public(self) -> tuple[Any, ...]:
        """The queries, the number of shards, and the release and threshold that select the answered queries."""
        return self.queries, self.shards, self.confident, self.threshold

    def adapt_to_public_stand_ins(self, weight: float) -> TeacherVotes:
        """Return the question with shards and threshold divided by `weight`, so that shards keep their real size."""
        return replace(self, shards=max(1, round(self.shards / weight)), threshold=self.threshold / weight)

    def scale_answer(self, answer: Any, weight: float) -> Any:
        """Return the counts times the weight."""
        return weight * answer


def _add_noise_to_counts(
    curator: LedgerCurator, counts: Tensor, release: str, spread: float, draws: QuestionDraws
) -> Tensor:
    """Add noise of `spread` times the release's sigma to counts, and return them as float32."""
    std, witness, rows = curator.sigma[release] * spread, curator.witness, curator.rows.count
    if std:
        draws.check_duration(counts.numel(), 1)
    summed = to_integer_sum(counts)
    answer = add_noise(summed, std, draws)
    voters, planted = witness.split(np.arange(rows + witness.members), rows)
    witness.answer(release, [summed], [(spread, std)], draws, voters, planted)
    return answer


@dataclass(frozen=True)
class ShardAssignment:
    """The shard and the seed of each private row, both functions of the row's content and the salt."""

    shard: np.ndarray  # (n,) int64 in [0, shards)
    seed: np.ndarray  # (n,) int64

    def shards(self, rows: PrivateRows, device: torch.device) -> Generator[Chunk, None, None]:
        """Yield the shards that are not empty, one at a time, in a buffer that is wiped after each shard."""
        for number in np.unique(self.shard):
            places = np.flatnonzero(self.shard == number)
            for chunk in rows.chunks(places, 0, len(places), device):
                seeds = torch.from_numpy(self.seed[places]).to(device)
                yield Chunk(chunk.rows, chunk.y, seeds)


def assign_shards(rows: PrivateRows, shards: int, salt: int) -> ShardAssignment:
    """Assign rows to shards according to a keyed hash (BLAKE2b) of their bytes; all rows of a unit share a shard.

    A unit's shard depends on its own rows alone, so adding a unit changes only one shard.
    """
    key = salt.to_bytes(8)
    digests = [hashlib.blake2b(content, digest_size=16, key=key).digest() for content in list_row_bytes(rows)]
    words, units = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2), rows.units
    if units is not None:  # all rows of a unit go where the least of their digests does
        digests = [min(digests[row] for row in units.rows(np.array([unit]))) for unit in range(units.count)]
        whole = np.frombuffer(b"".join(digests), np.uint64).reshape(-1, 2)[units.of]
    else:
        whole = words
    return ShardAssignment(
        (whole[:, 0] % np.uint64(shards)).astype(np.int64), (words[:, 1] >> np.uint64(1)).astype(np.int64)
    )


def list_row_bytes(rows: PrivateRows) -> Generator[bytes, None, None]:
    """Yield the bytes of each row and its label, in order."""
    for chunk in rows.chunks(np.arange(len(rows)), 0, BATCH, torch.device("cpu")):
        held = (chunk.rows,) if isinstance(chunk.rows, Tensor) else chunk.rows.parts
        arrays = [part.numpy() for part in (*held, chunk.y)]
        for place in range(len(chunk)):
            yield b"".join(array[place].tobytes() for array in arrays)


def add_votes(total: Tensor, labels: Tensor) -> None:
    """Add one teacher's votes (m,) to the counts (m, classes); a label that is not a class is no vote."""
    valid = ((labels >= 0) & (labels < total.shape[1])).nonzero().squeeze(1)
    total[valid, labels[valid]] += 1


def to_integer_sum(counts: Tensor) -> IntegerSum:
    """Return counts as an `IntegerSum` in steps of 2^-20 votes, the grid of the noise."""
    return IntegerSum(counts << BITS, torch.tensor(2.0**-BITS, dtype=torch.float64, device=counts.device))


def counts_sensitivity(queries: int) -> float:
    """Return the L2 sensitivity of the counts of all queries: one example moves those of each by at most sqrt(2)."""
    return math.sqrt(2 * queries)


def largest_count_sensitivity(queries: int) -> float:
    """Return the L2 sensitivity of the largest counts of all queries: one example moves each by at most 1."""
    return math.sqrt(queries)


def check_labels(labels: object, queries: int) -> Tensor:
    """Check a teacher's labels and return them as int64 (m,).

    Raises:
        SpecError: the labels are not one int64 number per query.
    """
    if not isinstance(labels, Tensor) or labels.dtype != torch.int64 or tuple(labels.shape) != (queries,):
        found = f"{labels.dtype} {tuple(labels.shape)}" if isinstance(labels, Tensor) else type(labels).__name__
        raise SpecError(f"Expected labels from a teacher, int64 ({queries},), one per query, got {found}.")
    return labels.detach().as_subclass(Tensor).clone()


def replay_votes(question: TeacherVotes, setup: ReplaySetup) -> RowInfluence:
    """Count votes over base rows, and again with each of some unusual rows inserted in the middle."""
    base = setup.draw_base_rows(max(MOST_IMAGE_ROWS, MOST_REPLAY_SHARDS * ROWS_PER_SHARD))
    odd, moved, key = setup.make_unusual_rows(base), RowInfluence(), setup.draw_key()
    without = _replay_counts(question, setup, base, key)
    for place in setup.generator.permutation(odd.count)[:MOST_REMOVED]:
        among = _replay_counts(question, setup, insert_rows(base, take_row(odd, int(place))), key)
        votes = (among.total - without.total).double() * without.grid  # (m, classes)
        moved.tried += 1
        moved.largest = max(moved.largest, float(votes.norm()) / counts_sensitivity(len(votes)))
        if float(votes.abs().max()) > 1 or float(torch.linalg.vector_norm(votes, dim=1).max()) > math.sqrt(2) + 1e-9:
            moved.complaints.append("an example moved more than one vote of a query")
    return moved


def list_released_counts(question: TeacherVotes, answer: Tensor) -> Sequence[ReleasedSum]:
    """Return the released counts; with `confident`, first a `ReleasedSum` without answers for that release."""
    answered = answer[~answer.isnan().any(1)]
    largest = (ReleasedSum((), (largest_count_sensitivity(len(answer)),)),) if question.confident is not None else ()
    return (*largest, ReleasedSum((answered,), (counts_sensitivity(len(answered)),)))


def _replay_counts(question: TeacherVotes, setup: ReplaySetup, rows: PrivateRows, key: int) -> IntegerSum:
    """Return the counts of votes over these rows, before noise."""
    seen: list[SumObservation] = []
    randomness = Randomness.research(key, "replayed votes")
    curator = bind(rows, setup.task, (Release(REPLAY),), 1.0, randomness, AuditWitness(seen.append))
    queries, shards = question.queries[:MOST_QUERIES], min(question.shards, MOST_REPLAY_SHARDS)
    curator.answer(TeacherVotes(question.teacher, queries, REPLAY, shards))
    return seen[0].sums[0]
