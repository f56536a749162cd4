"""Curators for the laws: they inspect row functions, record questions, and replay answers or replace them with noise.

Each proxy stands between the learner and a real curator: it passes questions on and may change the answers.
"""

from __future__ import annotations

import dataclasses
import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from torch import Tensor

from dpbench.api import Chunk, Curator, RowFn
from dpbench.errors import NotPerExample, PrivacyError
from dpbench.privacy.core.exact.surroundings import disable_torch_modes
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.purity.failures import call_without_error_text

MAX_ROWS_SHOWN = 32  # rows that are looked at outside a question


class CuratorProxy(ABC):
    """A curator between a learner and the real curator; every question of the learner passes through `answer`."""

    def __init__(self, curator: LedgerCurator) -> None:
        self.curator = curator

    @abstractmethod
    def answer(self, question: Question) -> Any:
        """Answer a question of the learner."""

    @abstractmethod
    def wrap_mapped_curator(self, mapped: LedgerCurator) -> CuratorProxy:
        """Return the same kind of proxy for the curator of the mapped rows."""

    @final
    def handle(self) -> Curator:
        """Return the curator to give to the learner."""
        return Curator(self.curator.task, self.curator.sigma, self._answer)

    def _answer(self, question: Question) -> Any:
        return self._map_rows(question).handle() if isinstance(question, MapQuestion) else self.answer(question)

    def _map_rows(self, question: MapQuestion) -> CuratorProxy:
        return self.wrap_mapped_curator(self.curator.answer(question))


def guard_row_function(question: Question) -> RowFn | None:
    """Return a question's row function, wrapped so that errors reveal only type and line; None if there is none."""
    rows = question.row_function
    if rows is None:
        return None
    what = f"A row function of release {question.releases[-1]!r}"
    return lambda chunk: call_without_error_text(rows, chunk, what, public=len(chunk) == 0)


def compute_digest(values: Sequence[Any]) -> str:
    """Return a SHA-256 over the content of tensors and the text of all other values."""
    held = (
        thing.detach().contiguous().cpu().numpy().tobytes() if isinstance(thing, Tensor) else f"{thing} ".encode()
        for thing in values
    )
    return hashlib.sha256(b"".join(held)).hexdigest()


class WatchingProxy(CuratorProxy):
    """Passes questions to a real curator, and records answers, refusals and row functions that break a law."""

    def __init__(self, curator: LedgerCurator, log: WatcherLog | None = None) -> None:
        super().__init__(curator)
        self.log = log or WatcherLog()

    def answer(self, question: Question) -> Any:
        """Ask the real curator, and inspect the row functions of the first three questions."""
        answer, rows = self._ask_curator(question), guard_row_function(question)
        if rows is not None and len(self.log.answers) < 3 and not self.log.complaints:
            with disable_torch_modes():
                self.log.complaints += _find_row_complaints(rows, take_first_rows(self.curator))
        self.log.answers.append(answer)
        self.log.votes |= rows is None
        return answer

    def wrap_mapped_curator(self, mapped: LedgerCurator) -> WatchingProxy:
        """Watch the curator of the mapped rows too, with the same log."""
        return WatchingProxy(mapped, self.log)

    def _map_rows(self, question: MapQuestion) -> WatchingProxy:
        return self.wrap_mapped_curator(self._ask_curator(question))

    def _ask_curator(self, question: Question) -> Any:
        try:
            return self.curator.answer(question)
        except PrivacyError as error:
            self.log.refusals.append(str(error))
            raise


class WatcherLog:
    """The answers, refusals and complaints that a `WatchingProxy` records."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.refusals: list[str] = []
        self.complaints: list[str] = []
        self.votes = False  # whether teachers were asked


@dataclass(frozen=True)
class QuestionRecord:
    """A question of a learner, with a digest of the contributions of those rows that two private datasets share."""

    release: str
    clips: tuple[float, ...]
    chunk_size: int | None
    shapes: tuple[tuple[int, ...], ...]  # of one row's contribution, by block
    shared: str  # digest of the shared rows' contributions
    public: str  # digest of what else it was asked with: a matrix, queries, a number of shards

    def difference(self, other: QuestionRecord) -> str | None:
        """Return the name of the first part in which two questions differ; None if they are equal."""
        named = {"shared": "what rows that both hold contribute", "clips": "the clip", "public": "what it asks with"}
        for field in dataclasses.fields(self):
            if getattr(self, field.name) != getattr(other, field.name):
                return named.get(field.name, f"the {field.name}")
        return None


class RecordingProxy(CuratorProxy):
    """Passes questions to a real curator and records them; replays the answers of an earlier fit while they last."""

    def __init__(self, curator: LedgerCurator, earlier: RecordingProxy | None = None) -> None:
        super().__init__(curator)
        self.questions: list[QuestionRecord] = []
        self.answers: list[Any] = []
        self._earlier = earlier

    def answer(self, question: Question) -> Any:
        """Record the question before the real curator answers it.

        If answering changes the state of a row function, the next record differs.
        """
        blocks: list[Tensor] = []
        if (rows := guard_row_function(question)) is not None:
            with disable_torch_modes():
                blocks = [block.dense() for block in wrap_blocks(rows(take_first_rows(self.curator)))]
        shapes = tuple(tuple(block.shape[1:]) for block in blocks)
        public = compute_digest([type(question).__name__, *question.public])
        asked, size = question.releases[-1], question.chunk_size
        self.questions.append(QuestionRecord(asked, question.clip_bounds, size, shapes, compute_digest(blocks), public))
        answer = self.curator.answer(question)
        if self._earlier is not None and len(self.answers) < len(self._earlier.answers):
            answer = _copy_answer(self._earlier.answers[len(self.answers)])
        self.answers.append(answer)
        return _copy_answer(answer)

    def wrap_mapped_curator(self, mapped: LedgerCurator) -> RecordingProxy:
        """Record the questions to the curator of the mapped rows in the same lists.

        The map itself is not recorded, but the recorded contributions of the rows depend on it.
        """
        asking = RecordingProxy(mapped, self._earlier)
        asking.questions, asking.answers = self.questions, self.answers
        return asking


class SubstitutingProxy(CuratorProxy):
    """Asks a real curator, which reads the rows, but gives the learner what the function `answers` returns instead."""

    def __init__(self, curator: LedgerCurator, answers: Callable[[Any, int | None], Any]) -> None:
        super().__init__(curator)
        self.answers = answers

    def answer(self, question: Question) -> Any:
        """Ask the real curator, then replace its answer."""
        answer = self.curator.answer(question)
        return self.answers(answer, question.candidates(self.curator))

    def wrap_mapped_curator(self, mapped: LedgerCurator) -> SubstitutingProxy:
        """Replace the answers of the curator of the mapped rows, too."""
        return SubstitutingProxy(mapped, self.answers)


def make_answer_replayer(answers: Sequence[Any]) -> Callable[[Any, int | None], Any]:
    """Return a function that replays the answers of an earlier fit in order."""
    earlier: Iterator[Any] = iter(answers)
    return lambda answer, among: _copy_answer(next(earlier))


def make_noise_replacer(generator: torch.Generator) -> Callable[[Any, int | None], Any]:
    """Return a function that replaces each answer with normal noise of its shape, or with a random candidate."""

    def replace_with_noise(answer: Any, choice_count: int | None) -> Any:
        if isinstance(answer, tuple):
            return tuple(replace_with_noise(part, choice_count) for part in answer)
        if choice_count is not None:
            chosen = torch.randint(choice_count, torch.as_tensor(answer).shape, generator=generator)
            return chosen if isinstance(answer, Tensor) else int(chosen)
        return torch.randn(answer.shape, generator=generator)

    return replace_with_noise


def _copy_answer(answer: Any) -> Any:
    if isinstance(answer, tuple):
        return tuple(part.clone() for part in answer)
    return answer.clone() if isinstance(answer, Tensor) else answer


def take_first_rows(curator: LedgerCurator) -> Chunk:
    """Return a chunk of the first private rows (at most `MAX_ROWS_SHOWN`), with a fixed seed for each row."""
    rows, few, device = curator.rows, torch.arange(min(MAX_ROWS_SHOWN, len(curator.rows))), curator.task.device
    seeds = (few + 1) * 0x9E3779B97F4A7C1
    return Chunk(rows.held[rows.index[few]], rows.y[few].to(device), seeds.to(device))


def _find_row_complaints(rows: RowFn, chunk: Chunk) -> Iterator[str]:
    """Evaluate a chunk as a whole, row by row, reversed and empty, and yield a complaint for each contradiction."""
    picks = [*range(0, len(chunk), max(1, len(chunk) // 4))]
    try:
        whole = wrap_blocks(rows(chunk.take(torch.arange(len(chunk)))))
        dense = [block.take(torch.tensor(picks, dtype=torch.int64)).dense().clone() for block in whole]
        for name, order in (("alone", None), ("in reverse order", torch.arange(len(chunk) - 1, -1, -1))):
            again = _evaluate_picked_rows(rows, chunk, picks, order)
            for among, other in zip(dense, again, strict=True):
                if among.shape != other.shape or not torch.allclose(among, other, rtol=1e-3, atol=1e-4, equal_nan=True):
                    yield f"a row changed when evaluated {name}"
        empty = wrap_blocks(rows(chunk.take(torch.arange(0, device=chunk.y.device))))
        if any(len(block) for block in empty):
            yield "an empty chunk gave rows"
    except NotPerExample:
        raise
    except Exception as error:
        yield f"the row function fails on other chunks: {type(error).__name__}: {error}"


def _evaluate_picked_rows(rows: RowFn, chunk: Chunk, picks: list[int], order: Tensor | None) -> list[Tensor]:
    if order is None:
        alone = [wrap_blocks(rows(chunk.take(torch.tensor([i], device=chunk.y.device)))) for i in picks]
        return (
            [torch.cat([contribution[block].dense() for contribution in alone]) for block in range(len(alone[0]))]
            if alone
            else []
        )
    turned = wrap_blocks(rows(chunk.take(order)))
    places = torch.tensor([len(chunk) - 1 - pick for pick in picks], dtype=torch.int64)
    return [block.take(places).dense() for block in turned]
