"""Curators for the laws: one that inspects row functions, one that replays answers, one that answers with noise."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from dpbench.api import Chunk, Curator, RowFn, Task
from dpbench.errors import NotPerExample, PrivacyError
from dpbench.privacy.curator import LedgerCurator
from dpbench.privacy.forms.blocks import blocks_of
from dpbench.privacy.forms.contributions import Contribution


class _Before(Curator):
    """Stands before a real curator."""

    def __init__(self, curator: LedgerCurator) -> None:
        self.curator = curator

    @property
    def task(self) -> Task:
        """The real curator's task."""
        return self.curator.task

    @property
    def sigma(self) -> Mapping[str, float]:
        """The real curator's noise multipliers."""
        return self.curator.sigma


class Watching(_Before):
    """Passes questions on to a real curator, and keeps the answers, the refusals and the broken rows."""

    def __init__(self, curator: LedgerCurator, log: Log | None = None) -> None:
        super().__init__(curator)
        self.log = log or Log()

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Ask the real curator, inspecting the rows of the first three questions."""
        watched = _inspected(rows, self.log) if len(self.log.answers) < 3 else rows
        try:
            answer = self.curator.noisy_sum(watched, release=release, clip=clip, chunk_size=chunk_size)
        except PrivacyError as error:
            self.log.refusals.append(str(error))
            raise
        self.log.answers.append(answer)
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


class Answering(_Before):
    """Reads the rows it was given, as a real curator does, but answers with what `answers` makes of the real answer."""

    def __init__(self, curator: LedgerCurator, answers: Callable[[Any], Any]) -> None:
        super().__init__(curator)
        self.answers = answers

    def noisy_sum(
        self, rows: RowFn, *, release: str, clip: float | Sequence[float], chunk_size: int | None = None
    ) -> Any:
        """Run the row function, then answer without it."""
        return self.answers(self.curator.noisy_sum(rows, release=release, clip=clip, chunk_size=chunk_size))

    def map(self, transform: Callable[[Tensor], Tensor]) -> Curator:
        """Map the rows, keep the answers."""
        return Answering(self.curator.map(transform), self.answers)


def replay(answers: Sequence[Any]) -> Callable[[Any], Any]:
    """Return the answers of an earlier fit, in order."""
    earlier: Iterator[Any] = iter(answers)
    return lambda _: _copied(next(earlier))


def pure_noise(generator: torch.Generator) -> Callable[[Any], Any]:
    """Return normal noise of the right shape, whatever the rows were."""

    def noise(answer: Any) -> Any:
        if isinstance(answer, tuple):
            return tuple(noise(part) for part in answer)
        return torch.randn(answer.shape, generator=generator)

    return noise


def _copied(answer: Any) -> Any:
    return tuple(part.clone() for part in answer) if isinstance(answer, tuple) else answer.clone()


def _inspected(rows: RowFn, log: Log) -> RowFn:
    """Evaluate each chunk again: some rows alone, in reverse order, and none at all."""

    def inspected(chunk: Chunk) -> Any:
        kept = chunk.take(torch.arange(len(chunk), device=chunk.y.device))
        whole = rows(chunk)
        if not log.complaints:
            log.complaints += _complaints(rows, kept, blocks_of(whole))
        return whole

    return inspected


def _complaints(rows: RowFn, chunk: Chunk, whole: tuple[Contribution, ...]) -> Iterator[str]:
    picks = [*range(0, len(chunk), max(1, len(chunk) // 4))]
    dense = [block.take(torch.tensor(picks, dtype=torch.int64)).dense().clone() for block in whole]
    try:
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
