"""The learner's side of a curator: a learner's only access to private rows. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from dpbench.privacy.core.chunk import Answerer, Chunk, RowFn, Teacher
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.plan import Task

if TYPE_CHECKING:
    from torch import Tensor


@final
class Curator(Answerer):
    """The only access to private rows: it answers noisy questions within the plan.

    Each method below makes a question (a class of `dpbench.privacy`, one per mechanism) and calls `answer`. An audit, a
    search on public data or a law can stand between a learner and its rows: each maps a question to an answer.
    """

    __slots__ = ("_answer", "_sigma", "_task")

    def __init__(self, task: Task, sigma: Mapping[str, float], answer: Callable[[Question], Any]) -> None:
        """Store a task, the noise multipliers, and the function `answer`, which returns a curator for a `Map`."""
        self._task, self._sigma, self._answer = task, dict(sigma), answer

    @property
    def task(self) -> Task:
        """The public facts about the private data."""
        return self._task

    @property
    def sigma(self) -> Mapping[str, float]:
        """The noise multiplier of each planned release (0 when epsilon is infinite)."""
        return self._sigma

    def answer(self, question: Question) -> Any:
        """Return the answer to a question; every other method makes a question and calls this method."""
        return self._answer(question)

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Return the noisy sum of clipped `rows` over one fresh Poisson sample.

        Args:
            rows: maps a `Chunk` to one contribution per row: a tensor (c, ...), `Joined`, `RankOne`, `Scaled`,
                `Residual` or `Blocks`. Row i may read row i of the chunk, `seeds[i]` and public values, nothing else.
                It is first called on an empty chunk (c = 0), which gives the shape and the grid of the answer.
            release: the name of a planned release with steps left; a step is spent before any private row is read.
            clip: L2 bound on one example's contribution; for `Blocks`, one bound per block.
            chunk_size: maximum rows per chunk; it affects memory only, never the distribution of the answer.

        Returns:
            A float32 tensor with the shape of one contribution (a tuple of them for `Blocks`). The noise has std
            ``sigma[release] * clip``, times the square root of the number of blocks.

        Raises:
            NotPlanned: the release is not in the plan, or all its steps are spent.
            SpecError: the clip or the chunk size is invalid, or there is not one clip per block.
            NotPerExample: a row changes when it is evaluated beside other rows, or among fewer; or the contributions of
                a chunk differ in form, shape or scale from those of an empty chunk.
            NotPure: `rows` changed an object that it reaches, or reaches one that cannot be compared (an iterator).
            ComponentFailed: `rows` failed. The error names type and line only, as its text may hold private values.
        """
        from dpbench.privacy.core.sum import Sum

        return self.answer(Sum(rows, release, clip, chunk_size))

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Return a candidate j in [0, N), with chance proportional to exp(-eps0 L_j) and eps0 = 2 / sigma[release].

        Args:
            losses: maps a `Chunk` to each row's loss by each candidate, (c, N) float32, N as over no rows (c = 0).
                An entry is clamped to [0, 1] and rounded to 2^-20; NaN counts as 0. With `project` it returns the cell
                of each row instead, (c,) int64, and a row in no cell of the matrix loses nothing by any candidate.
            release: the name of a planned `Choice` of one part, with steps left; a step is spent first.
            project: a public matrix (cells, N) in [0, 1]: the loss of a row in each cell by each candidate.
            chunk_size: as in `noisy_sum`.

        Raises:
            NotPlanned: the choice is not in the plan, or all its steps are spent.
            SpecError: more candidates than planned, or none; a matrix or a row function's answer that does not fit.
            NotPerExample, NotPure, ComponentFailed: as `noisy_sum` does.
        """
        from dpbench.privacy.mechanisms.choice.question import LeastLoss

        chosen: int = self.answer(LeastLoss(losses, release, project, chunk_size=chunk_size))
        return chosen

    def noisy_choices(
        self, votes: RowFn, *, release: str, part: Callable[[Chunk], Tensor] | None = None,
        chunk_size: int | None = None,
    ) -> Tensor:  # fmt: skip
        """Return a candidate for each part, (parts,) int64 in [0, candidates), each part chosen on its own.

        Part p becomes v with chance proportional to exp(eps0 * votes for v of p), eps0 = 2 / sigma[release]: the
        exponential mechanism over all combinations, where a row loses 1 by each combination without its vote. With
        `part`, rows have losses in place of votes, and the chance is proportional to exp(-eps0 L), where L is the
        total loss of the rows of part p by v. Each row touches one part, so all parts together cost one choice. The
        rows of a unit may touch several parts, and together move all of them by as much as one row may.

        Args:
            votes: maps a `Chunk` to the vote of each row, (c,) int64: p * candidates + v, or any other number, such as
                -1, for no vote. With `part` it returns each row's loss by each candidate of its part, (c, N) float32,
                as `losses` in `noisy_choice`.
            release: the name of a planned `Choice` with steps left; a step is spent first.
            part: maps a `Chunk` to the part that each row touches, (c,) int64 in [0, parts), such as its class; a row
                with any other number, such as -1, loses nothing.
            chunk_size: as in `noisy_sum`.

        Raises:
            NotPlanned, SpecError, NotPerExample, NotPure, ComponentFailed: as `noisy_choice` does.
        """
        from dpbench.privacy.mechanisms.choice.parts import LeastLosses
        from dpbench.privacy.mechanisms.choice.question import Majorities

        if part is None:
            chosen: Tensor = self.answer(Majorities(votes, release, chunk_size=chunk_size))
        else:
            chosen = self.answer(LeastLosses(votes, release, part, chunk_size=chunk_size))
        return chosen

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Return noisy counts of teachers' votes, float32 (m, classes): PATE (Papernot et al. 2017, 2018).

        Each example belongs to one of `shards` shards, by a hash of its content, so equal examples share one. The
        curator calls `teacher` with each shard that is not empty, and adds up one vote per shard and query.

        Args:
            teacher: maps a shard and the queries to labels, (m,) int64; one outside [0, classes) is no vote. It may fit
                anything on the shard. It must remember nothing, and draw only from generators that it makes itself,
                such as one seeded by `shard.seeds`. Gradients are off around it.
            queries: public examples (m, *query_shape).
            release: a planned `Release` of sample rate 1, with steps left. Noise has std sigma[release] * sqrt(2 m).
            shards: the number of shards, at most one per private example.
            confident: another such release. A query is answered if its largest count, with noise of std
                sigma[confident] * sqrt(m), reaches `threshold`; the other rows are NaN. If a queries are answered, the
                noise of the counts has std sigma[release] * sqrt(2 a).
            threshold: the threshold in votes, only with `confident`.

        Raises:
            NotPlanned: a release is not in the plan, or all its steps are spent.
            SpecError: an impossible number of shards or queries, labels of another shape or type, or mapped rows, whose
                last bits may depend on their position: a teacher maps its own shard.
            NotPerExample: the teacher answers differently over the same shard.
            NotPure, ComponentFailed: as `noisy_sum` does, of the teacher.
        """
        from dpbench.privacy.mechanisms.votes import TeacherVotes

        counts: Tensor = self.answer(TeacherVotes(teacher, queries, release, shards, confident, threshold))
        return counts

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Return a curator over the transformed rows, on the same ledger.

        `transform` maps (c, *example_shape) float32 to (c, *new_shape), each row independently and using public values
        only: neighbouring datasets stay neighbouring, so the transform costs no privacy. Use `exact_linear` for matrix
        products: a library's product may round a row differently at another position in a chunk, which epsilon does not
        cover. The transform is applied once, so that a projection makes every later step cheaper. Mapped rows are kept
        in 8 bits, each with a scale of its own (`Chunk.rows`): a quarter of the memory, and integers to add up.

        Raises:
            NotPerExample, NotPure, ComponentFailed: as `noisy_sum` does, of `transform`.
        """
        from dpbench.privacy.core.map import Map

        mapped: Curator = self.answer(Map(transform))
        return mapped


def make_handle(curator: LedgerCurator) -> Curator:
    """Return the learner's handle of a curator, none of whose attributes leads to a private row."""

    def answer(question: Question) -> Any:  # a bound method would carry __self__
        found = curator.answer(question)
        return make_handle(found) if isinstance(found, LedgerCurator) else found

    return Curator(curator.task, curator.sigma, answer)
