"""Curators for the laws: one inspects row functions, one keeps questions, one answers by replay or with noise."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dpbench.api import Chunk, Curator, RowFn, Teacher
from dpbench.errors import NotPerExample, PrivacyError
from dpbench.harness.stated import Stated
from dpbench.privacy.core.curator import LedgerCurator, checked_clips
from dpbench.privacy.core.exact.surroundings import own_arithmetic
from dpbench.privacy.core.forms.blocks import blocks_of
from dpbench.privacy.purity.failures import withheld

SHOWN = 32  # rows that are looked at outside a question


@dataclass(frozen=True)
class Put:
    """A question on its way to a real curator."""

    release: str
    rows: RowFn | None  # what each row gives, as a contribution; None of a teacher, who sees whole shards
    ask: Callable[[LedgerCurator], Any]
    clips: tuple[float, ...] = ()
    chunk_size: int | None = None
    public: str = ""  # digest of what else is asked with
    among: Callable[[LedgerCurator], int] | None = None  # how many candidates an answer is chosen from


class _Before(Stated):
    """Stands before a real curator, and puts every question to it in one way."""

    def __init__(self, curator: LedgerCurator) -> None:
        super().__init__(curator.task, curator.sigma)
        self.curator = curator

    def put(self, question: Put) -> Any:
        """Answer."""
        raise NotImplementedError

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Ask the real curator."""
        clips, _ = checked_clips(clip)
        ask = _asking("noisy_sum", rows, release=release, clip=clip, chunk_size=chunk_size)
        return self.put(Put(release, unsaid(rows, release), ask, clips, chunk_size))

    def noisy_choice(
        self, losses: RowFn, *, release: str, project: Tensor | None = None, chunk_size: int | None = None
    ) -> int:
        """Ask the real curator."""
        ask = _asking("noisy_choice", losses, release=release, project=project, chunk_size=chunk_size)
        losses = unsaid(losses, release)
        if project is None:
            rows, public = losses, ""
        else:
            rows, public = in_bytes(losses), digest_of([project])

        def among(curator: LedgerCurator) -> int:
            return int(project.shape[1] if project is not None else losses(some_rows(curator)).shape[1])  # type: ignore[union-attr]

        return int(self.put(Put(release, rows, ask, (), chunk_size, public, among)))

    def noisy_choices(self, votes: RowFn, *, release: str, chunk_size: int | None = None) -> Tensor:
        """Ask the real curator."""
        ask = _asking("noisy_choices", votes, release=release, chunk_size=chunk_size)

        def among(curator: LedgerCurator) -> int:
            return int(getattr(curator.ledger.planned(release), "candidates", 0))

        chosen: Tensor = self.put(Put(release, in_bytes(unsaid(votes, release)), ask, (), chunk_size, "", among))
        return chosen

    def noisy_votes(
        self, teacher: Teacher, queries: Tensor, *, release: str, shards: int, confident: str | None = None,
        threshold: float = 0.0,
    ) -> Tensor:  # fmt: skip
        """Ask the real curator."""
        ask = _asking(
            "noisy_votes", teacher, queries, release=release, shards=shards, confident=confident, threshold=threshold
        )
        public = f"{digest_of([queries])} {shards} {confident} {threshold}"
        counts: Tensor = self.put(Put(release, None, ask, public=public))
        return counts


def _asking(question: str, *given: Any, **named: Any) -> Callable[[LedgerCurator], Any]:
    return lambda curator: getattr(curator, question)(*given, **named)


def unsaid(rows: RowFn, release: str) -> RowFn:
    """Return the row function, of whose failures the type and line are told alone, as a curator tells them."""
    return lambda chunk: withheld(rows, chunk, f"A row function of release {release!r}")


def in_bytes(rows: RowFn) -> RowFn:
    """Return a row function whose whole numbers are told apart by their bytes, (c, 8): none is near another."""

    def apart(chunk: Chunk) -> Tensor:
        index: Any = rows(chunk)
        return index.long().contiguous().view(torch.uint8).reshape(len(index), 8).float()  # type: ignore[no-any-return]

    return apart


def digest_of(tensors: Sequence[Tensor]) -> str:
    """Return the SHA-256 of what tensors hold."""
    held = (tensor.detach().contiguous().cpu().numpy().tobytes() for tensor in tensors)
    return hashlib.sha256(b"".join(held)).hexdigest()


class Watching(_Before):
    """Passes questions on to a real curator, and keeps the answers, the refusals and the broken rows."""

    def __init__(self, curator: LedgerCurator, log: Log | None = None) -> None:
        super().__init__(curator)
        self.log = log or Log()

    def put(self, question: Put) -> Any:
        """Ask the real curator, inspecting the rows of the first three questions."""
        try:
            answer = question.ask(self.curator)
        except PrivacyError as error:
            self.log.refusals.append(str(error))
            raise
        if question.rows is not None and len(self.log.answers) < 3 and not self.log.complaints:
            with own_arithmetic():
                self.log.complaints += _complaints(question.rows, some_rows(self.curator))
        self.log.answers.append(answer)
        self.log.votes |= question.rows is None
        return answer

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Watch the mapped curator too."""
        try:
            return Watching(self.curator.map(transform), self.log)
        except PrivacyError as error:
            self.log.refusals.append(str(error))
            raise


class Log:
    """What a `Watching` curator saw."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.refusals: list[str] = []
        self.complaints: list[str] = []
        self.votes = False  # whether teachers were asked


@dataclass(frozen=True)
class Question:
    """What a learner asked, and what the rows that two worlds share contributed to it."""

    release: str
    clips: tuple[float, ...]
    chunk_size: int | None
    shapes: tuple[tuple[int, ...], ...]  # of one row's contribution, by block
    shared: str  # digest of the shared rows' contributions
    public: str  # digest of what else it was asked with: a matrix, queries, a number of shards

    def difference(self, other: Question) -> str | None:
        """Say in what two questions differ, None if they do not."""
        named = {"shared": "what rows that both hold contribute", "clips": "the clip", "public": "what it asks with"}
        for field in dataclasses.fields(self):
            if getattr(self, field.name) != getattr(other, field.name):
                return named.get(field.name, f"the {field.name}")
        return None


class Asking(_Before):
    """Passes questions on to a real curator, answers by replay where there is something to replay, keeps them all."""

    def __init__(self, curator: LedgerCurator, earlier: Asking | None = None) -> None:
        super().__init__(curator)
        self.questions: list[Question] = []
        self.answers: list[Any] = []
        self._earlier = earlier

    def put(self, question: Put) -> Any:
        """Look at the question, then ask the real curator: what rows remember of it shows in the next question."""
        blocks: list[Tensor] = []
        if question.rows is not None:
            with own_arithmetic():
                blocks = [block.dense() for block in blocks_of(question.rows(some_rows(self.curator)))]
        shapes = tuple(tuple(block.shape[1:]) for block in blocks)
        self.questions.append(
            Question(question.release, question.clips, question.chunk_size, shapes, digest_of(blocks), question.public)
        )
        answer = question.ask(self.curator)
        if self._earlier is not None and len(self.answers) < len(self._earlier.answers):
            answer = _copied(self._earlier.answers[len(self.answers)])
        self.answers.append(answer)
        return _copied(answer)

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Ask through the mapped curator; what it maps shared rows to shows in what they contribute."""
        mapped = Asking(self.curator.map(transform), self._earlier)
        mapped.questions, mapped.answers = self.questions, self.answers
        return mapped


class Answering(_Before):
    """Reads the rows it was given, as a real curator does, but answers with what `answers` makes of the real answer."""

    def __init__(self, curator: LedgerCurator, answers: Callable[[Any, int | None], Any]) -> None:
        super().__init__(curator)
        self.answers = answers

    def put(self, question: Put) -> Any:
        """Ask the real curator, then answer without it."""
        answer = question.ask(self.curator)
        return self.answers(answer, question.among(self.curator) if question.among else None)

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Map the rows, keep the answers."""
        return Answering(self.curator.map(transform), self.answers)


def replay(answers: Sequence[Any]) -> Callable[[Any, int | None], Any]:
    """Return the answers of an earlier fit, in order."""
    earlier: Iterator[Any] = iter(answers)
    return lambda answer, among: _copied(next(earlier))


def pure_noise(generator: torch.Generator) -> Callable[[Any, int | None], Any]:
    """Return normal noise of the right shape, or any candidate, whatever the rows were."""

    def noise(answer: Any, among: int | None) -> Any:
        if isinstance(answer, tuple):
            return tuple(noise(part, among) for part in answer)
        if among is not None:
            chosen = torch.randint(among, torch.as_tensor(answer).shape, generator=generator)
            return chosen if isinstance(answer, Tensor) else int(chosen)
        return torch.randn(answer.shape, generator=generator)

    return noise


def _copied(answer: Any) -> Any:
    if isinstance(answer, tuple):
        return tuple(part.clone() for part in answer)
    return answer.clone() if isinstance(answer, Tensor) else answer


def some_rows(curator: LedgerCurator) -> Chunk:
    """Return the first private rows of a law's world, with seeds of their own."""
    rows, few, device = curator.rows, torch.arange(min(SHOWN, len(curator.rows))), curator.task.device
    seeds = (few + 1) * 0x9E3779B97F4A7C1
    return Chunk(rows.held[rows.index[few]], rows.y[few].to(device), seeds.to(device))


def _complaints(rows: RowFn, chunk: Chunk) -> Iterator[str]:
    """Evaluate a chunk, then some of its rows alone, all in reverse order, and none."""
    picks = [*range(0, len(chunk), max(1, len(chunk) // 4))]
    try:
        whole = blocks_of(rows(chunk.take(torch.arange(len(chunk)))))
        dense = [block.take(torch.tensor(picks, dtype=torch.int64)).dense().clone() for block in whole]
        for name, order in (("alone", None), ("in reverse order", torch.arange(len(chunk) - 1, -1, -1))):
            again = _again(rows, chunk, picks, order)
            for among, other in zip(dense, again, strict=True):
                if among.shape != other.shape or not torch.allclose(among, other, rtol=1e-3, atol=1e-4, equal_nan=True):
                    yield f"a row changed when evaluated {name}"
        empty = blocks_of(rows(chunk.take(torch.arange(0, device=chunk.y.device))))
        if any(len(block) for block in empty):
            yield "an empty chunk gave rows"
    except NotPerExample:
        raise
    except Exception as error:
        yield f"the row function fails on other chunks: {type(error).__name__}: {error}"


def _again(rows: RowFn, chunk: Chunk, picks: list[int], order: Tensor | None) -> list[Tensor]:
    if order is None:
        alone = [blocks_of(rows(chunk.take(torch.tensor([i], device=chunk.y.device)))) for i in picks]
        return [torch.cat([one[block].dense() for one in alone]) for block in range(len(alone[0]))] if alone else []
    turned = blocks_of(rows(chunk.take(order)))
    places = torch.tensor([len(chunk) - 1 - pick for pick in picks], dtype=torch.int64)
    return [block.take(places).dense() for block in turned]
