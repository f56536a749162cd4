"""The curator: it holds the private rows, spends the plan and answers questions.

`LedgerCurator` is the harness's side, made by `binding.bind` alone. A learner receives `privacy.curator.Curator`,
whose attributes lead to no private row. Python code can prevent accidents but not malice (a closure can be opened).
This module imports no torch, because every command imports `mechanisms.table`, which imports this module.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.core.chunk import Chunk, RowFn
from dpbench.privacy.core.closed import is_defined_by_dpbench
from dpbench.privacy.core.plan import Ledger, Planned, Task

if TYPE_CHECKING:
    from dpbench.privacy.core.exact.sums import IntegerSum
    from dpbench.privacy.core.guarding import RowGuard
    from dpbench.privacy.core.randomness import QuestionDraws, Randomness
    from dpbench.privacy.core.rows import PrivateRows
    from dpbench.privacy.core.witness import AuditWitness


@dataclasses.dataclass(frozen=True)
class LedgerCurator:
    """The private rows of a fit with its ledger, sigma and draws; `binding.bind` makes it and states the guarantee.

    Covered: no release answers more questions than planned, and each answer has the privacy that its mechanism's module
    argues for. So all answers together have the (epsilon, delta) that the accountant states for the plan and sigma,
    under add-or-remove-one neighbours.
    Not covered: a learner that extracts this object from closures, or asks from several threads; timing; the size n,
    which is public by declaration; the fact that a run ends with a refusal, which may depend on a row and has no
    noise.
    """

    rows: PrivateRows
    task: Task
    sigma: Mapping[str, float]
    ledger: Ledger
    randomness: Randomness
    guard: RowGuard
    witness: AuditWitness
    mapped: bool = False  # whether `Map` made the rows

    def answer(self, question: Question) -> Any:
        """Spend a question's steps and answer it, or refuse it. This is the only access to private rows.

        Steps are spent first, so that a crash can only overcount.

        Raises:
            PrivacyError: `dpbench.privacy` does not define the question, or an earlier question was refused.
            NotPlanned: a release is not in the plan, has no steps left, or is planned for other questions.
            SpecError, NotPerExample, NotPure, ComponentFailed: see the methods of `Curator`.
        """
        from dpbench.privacy.core.exact.surroundings import disable_torch_modes

        if not is_defined_by_dpbench(type(question)):
            raise PrivacyError(
                f"Expected a question that dpbench defines, got a {type(question).__name__}. Use the methods of "
                "dpbench.Curator, such as noisy_sum."
            )
        question.check(self)
        spent = [self.ledger.spend(name, question.kind) for name in question.releases]
        with disable_torch_modes(), self.guard.remember_refusals():
            return question.compute_answer(self, spent)

    def draws(self, release: str) -> QuestionDraws:
        """Return the draws for the last spent step of a release."""
        return self.randomness.draws(release, self.ledger.spent[release])

    def empty_chunk(self) -> Generator[Chunk, None, None]:
        """Yield an empty chunk: the blocks that row functions return for it are public."""
        import numpy as np

        return self.rows.chunks(np.arange(0), 0, None, self.task.device)

    def chunks_of_all_rows(self, draws: QuestionDraws, limit: int) -> Generator[Chunk, None, None]:
        """Yield all rows, in chunks of at most `limit`."""
        import numpy as np

        return self.rows.chunks(np.arange(len(self.rows)), draws.row_seed_base(), limit, self.task.device)


class Question(ABC):
    """Base class of questions about private rows. The module of each subclass has its privacy argument.

    The constructor refuses arguments that no curator could accept; it reads no rows. `LedgerCurator.answer` checks the
    question and spends its steps.
    """

    kind: ClassVar[type[Planned]]
    """The class that the releases of the question must have in the plan, such as `Release`."""
    chunk_size: int | None = None
    """The number of rows held at once; None lets the mechanism choose."""

    @property
    @abstractmethod
    def releases(self) -> tuple[str, ...]:
        """The names of the releases that pay for the question, one step each, in order; messages name the last one."""

    def check(self, curator: LedgerCurator) -> None:  # noqa: B027  # most have nothing to refuse
        """Refuse a question that this curator cannot answer, before any step is spent.

        Raises:
            SpecError: the question does not fit the curator; the message states why.
        """

    @abstractmethod
    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> Any:
        """Return the answer. `spent` holds the planned releases; one step of each is already spent."""

    @property
    def row_function(self) -> RowFn | None:
        """The row function, which returns contributions or tensors; None if the question does not use one."""
        return None

    @property
    def clip_bounds(self) -> tuple[float, ...]:
        """The clip of each block; empty if the mechanism itself bounds contributions."""
        return ()

    @property
    def public(self) -> tuple[Any, ...]:
        """The public inputs of the question other than its row function and clips, such as a matrix of losses."""
        return ()

    def candidates(self, curator: LedgerCurator) -> int | None:
        """Return the number of candidates to choose among; None if the question is not a choice."""
        return None

    def adapt_to_public_stand_ins(self, weight: float) -> Question:
        """Return the question to ask public stand-ins, each of which represents `weight` private rows."""
        return self

    def scale_answer(self, answer: Any, weight: float) -> Any:
        """Scale an answer from public stand-ins, each representing `weight` private rows, to all private rows."""
        return answer


def check_chunk_size(chunk_size: int | None) -> None:
    """Check that a chunk size is None or a whole number of at least 1.

    Raises:
        SpecError: it is neither.
    """
    if chunk_size is not None and (type(chunk_size) is not int or chunk_size < 1):
        raise SpecError(
            f"Expected chunk_size={chunk_size!r} to be a whole number >= 1: how many rows are held at once."
        )


def sum_chunks(
    chunks: Generator[Chunk, None, None],
    integers: Callable[[Iterable[Chunk]], Iterator[Sequence[IntegerSum]]],
    totals: Sequence[IntegerSum] = (),
) -> list[IntegerSum]:
    """Return the sums of a sample, one per block: `totals` plus the sums that `integers` yields for each chunk.

    If `integers` fails, the chunks are wiped at once, even if a traceback still refers to them.
    """
    found = list(totals)
    with closing(chunks):
        for parts in integers(chunks):
            found = [total + part for total, part in zip(found, parts, strict=True)] if found else [*parts]
    return found
