"""The learner's side of a curator: a learner's only access to private rows. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from dpbench.privacy.core.chunk import BaseCurator, Chunk, RowFn, Teacher
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.plan import Task

if TYPE_CHECKING:
    from torch import Tensor


@final
class Curator(BaseCurator):
    """The only access to private rows: it answers noisy questions within the plan.

    Each method below makes a question (an object of a class of `dpbench.privacy`) and passes it to `answer`. An audit,
    a search on public data or a law can replace `answer` with its own function.
    """

    __slots__ = ("_answer", "_sigma", "_task")

    def __init__(self, task: Task, sigma: Mapping[str, float], answer: Callable[[Question], Any]) -> None:
        """Store task, noise multipliers and `answer`, which answers questions (a `MapQuestion` with a curator)."""
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
        """Return the answer to a question; all other methods make a question and call this one."""
        return self._answer(question)

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Return the noisy sum of clipped `rows` over one fresh Poisson sample.

        Args:
            rows: maps a `Chunk` to one contribution per row: a tensor (c, ...), `Joined`, `RankOne`, `Scaled`,
                `Residual` or `Blocks`. Contribution i may depend on row i, `seeds[i]` and public values only. `rows` is
                first called on an empty chunk (c = 0), which determines the shape and the grid of the answer.
            release: the name of a planned release with steps left; a step is spent before any private row is read.
            clip: L2 bound on one example's contribution; for `Blocks`, one bound per block.
            chunk_size: maximum rows per chunk; it affects memory only, never the distribution of the answer.

        Returns:
            A float32 tensor with the shape of one contribution (for `Blocks`, a tuple of tensors). The noise has std
            ``sigma[release] * clip``, times the square root of the number of blocks.

        Raises:
            NotPlanned: the release is not in the plan, or all its steps are spent.
            SpecError: the clip or the chunk size is invalid, or the number of clips and blocks differs.
            NotPerExample: a contribution changes if it is computed together with other rows, or with fewer rows; or the
                contributions of a chunk differ in form, shape or scale from those of an empty chunk.
            NotPure: `rows` changed an object that it can reach, or can reach one that cannot be compared (an iterator).
            ComponentFailed: `rows` failed. Only the error's type and line are shown, as its text may hold private
                values.
        """
        from dpbench.privacy.core.sum import Sum

        return self.answer(Sum(rows, release, clip, chunk_size))

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Return a candidate j in [0, N), with chance proportional to exp(-eps0 L_j) and eps0 = 2 / sigma[release].

        L_j is the total loss of candidate j over all private rows. If sigma[release] is 0, return the first candidate
        with the smallest total.

        Args:
            losses: maps a `Chunk` to each row's loss for each candidate, (c, N) float32, with N as for an empty chunk.
                A loss is clamped to [0, 1] and rounded to 2^-20; NaN counts as 0. With `project`, maps to the cell of
                each row instead, (c,) int64; a row whose cell is not in the matrix has loss 0 for all candidates.
            release: the name of a planned `Choice` of one part, with steps left; a step is spent first, as in
                `noisy_sum`.
            project: a public matrix (cells, N) in [0, 1]: the loss for each candidate of a row in each cell.
            chunk_size: as in `noisy_sum`.

        Raises:
            NotPlanned: the choice is not in the plan, or all its steps are spent.
            SpecError: there are no candidates, or more than planned; or the matrix or the losses have a wrong shape or
                type.
            NotPerExample, NotPure, ComponentFailed: as in `noisy_sum`.
        """
        from dpbench.privacy.mechanisms.choice.question import LeastLossChoice

        chosen: int = self.answer(LeastLossChoice(losses, release, project, chunk_size=chunk_size))
        return chosen

    def noisy_choices(
        self, votes: RowFn, *, release: str, part: Callable[[Chunk], Tensor] | None = None,
        chunk_size: int | None = None,
    ) -> Tensor:  # fmt: skip
        """Return one candidate for each part, (parts,) int64 in [0, candidates), chosen independently by part.

        Part p gets candidate v with chance proportional to exp(eps0 * number of votes for v in p), with eps0 =
        2 / sigma[release]. This is the exponential mechanism over all combinations, where a row's loss is 1 for each
        combination that does not contain its vote. With `part`, rows have losses instead of votes, and the chance is
        proportional to exp(-eps0 L), where L is the total loss for v of the rows in part p. Each row counts in one
        part, so all parts together cost one choice. The rows of a unit may count in several parts, but together they
        move the totals by at most as much as one row can.

        Args:
            votes: maps a `Chunk` to the vote of each row, (c,) int64: p * candidates + v, or any other number, such as
                -1, for no vote. With `part`, maps to each row's loss for each candidate of its part, (c, N) float32,
                like `losses` in `noisy_choice`.
            release: the name of a planned `Choice` with steps left; a step is spent first, as in `noisy_sum`.
            part: maps a `Chunk` to the part of each row, (c,) int64 in [0, parts), such as its class; a row with any
                other number, such as -1, has no loss.
            chunk_size: as in `noisy_sum`.

        Raises:
            NotPlanned, SpecError, NotPerExample, NotPure, ComponentFailed: as in `noisy_choice`.
        """
        from dpbench.privacy.mechanisms.choice.parts import LeastLossChoiceByPart
        from dpbench.privacy.mechanisms.choice.question import MajorityChoiceByPart

        if part is None:
            chosen: Tensor = self.answer(MajorityChoiceByPart(votes, release, chunk_size=chunk_size))
        else:
            chosen = self.answer(LeastLossChoiceByPart(votes, release, part, chunk_size=chunk_size))
        return chosen

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Return noisy counts of teachers' votes, float32 (m, classes): PATE (Papernot et al. 2017, 2018).

        A hash of its content assigns each example to one of `shards` shards, so equal examples are in the same shard.
        The curator calls `teacher` on each shard that is not empty, and counts one vote per shard and query.

        Args:
            teacher: maps a shard and the queries to labels, (m,) int64; a label outside [0, classes) is no vote. It may
                train any model on the shard. It must remember nothing, and use only generators that it makes itself,
                for example seeded by `shard.seeds`. It is called with gradients switched off.
            queries: public examples (m, *query_shape).
            release: a planned `Release` of sample rate 1, with steps left. Noise has std sigma[release] * sqrt(2 m).
            shards: the number of shards, at most one per private example.
            confident: another such release, for answering only queries with a clear majority. A query is answered if
                its largest count, plus noise of std sigma[confident] * sqrt(m), reaches `threshold`; the rows of other
                queries are NaN. If `a` queries are answered, their counts have noise of std sigma[release] * sqrt(2 a).
            threshold: the threshold in votes, only with `confident`.

        Raises:
            NotPlanned: a release is not in the plan, or all its steps are spent.
            SpecError: an impossible number of shards or queries; labels of a wrong shape or type; or a curator from
                `map`, which may round a row differently at another position (let the teacher map its shard instead).
            NotPerExample: the teacher gives different labels for the same shard.
            NotPure, ComponentFailed: as in `noisy_sum`, for the teacher.
        """
        from dpbench.privacy.mechanisms.votes import TeacherVotes

        counts: Tensor = self.answer(TeacherVotes(teacher, queries, release, shards, confident, threshold))
        return counts

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Return a curator over the transformed rows, on the same ledger.

        `transform` maps (c, *example_shape) float32 to (c, *new_shape), each row on its own and with public values
        only. Neighbouring datasets then stay neighbouring, so the transform costs no privacy. Use `exact_linear` for
        matrix products: a library's product may round a row differently at another position in a chunk, which epsilon
        does not cover. The transform is applied once, so a projection makes all later steps faster. Mapped rows are
        stored in 8 bits, each with its own scale (`Chunk.rows`), which takes a quarter of the memory and suits integer
        sums.

        Raises:
            NotPerExample, NotPure, ComponentFailed: as in `noisy_sum`, for `transform`.
        """
        from dpbench.privacy.core.map import MapQuestion

        mapped: Curator = self.answer(MapQuestion(transform))
        return mapped


def make_learner_curator(curator: LedgerCurator) -> Curator:
    """Return the curator that a learner receives; none of its attributes leads to a private row."""

    def answer(question: Question) -> Any:  # a bound method would carry __self__
        found = curator.answer(question)
        return make_learner_curator(found) if isinstance(found, LedgerCurator) else found

    return Curator(curator.task, curator.sigma, answer)
