"""Check that row functions remember nothing: everything that a function can reach is the same after a call as before.

What a row function remembers about the rows it saw can reach the learner past every clip and all noise. So everything
that it can reach is read before each chunk and again after it, and any difference ends the fit.

Covered: closure variables, defaults, attributes, slots, bound objects, `functools.partial` and caches, containers,
tensors and arrays, modules' parameters, gradients and buffers, and generators: by identity, length, torch's version
counters and what arrays of up to 16 MiB hold around every chunk. Around the chunks that the harness draws, the first
of a release among them, also globals that the code names, in its own module and those of the functions that it calls;
attributes of classes; data among the attributes that it names of libraries' modules; the global generators of torch,
numpy and, where no other thread runs, `random`; and what tensors and arrays hold: every byte up to a mebibyte, a
checksum above. On those chunks rows are evaluated again, too: see `spotchecks`. What leaves by files, the environment,
programs, `ctypes` or output: see `quiet_room`. What `ctypes` made is refused, unread.
Not covered: threads that run already, frames, attributes of libraries' objects (`LIBRARIES`) and settings of theirs
that `reach` does not list, globals and attributes that no code names; what extension types keep in C beside their
attributes; and what a tensor's version counter does not see (`.data`, `.numpy()`) between the chunks that are drawn.
Python cannot sandbox malice.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dpbench.errors import ComponentFailed, DpbenchError, NotPerExample, NotPure
from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution
from dpbench.privacy.core.rows import wipe
from dpbench.privacy.purity.failures import call_without_error_text, name_exception
from dpbench.privacy.purity.reach import Reach, Reading
from dpbench.privacy.purity.spotchecks import MAP_INTERVALS, QUESTION_INTERVALS, CheckSchedule, make_probe

Evaluate = Callable[[Chunk], Any]
Checked = Callable[[object], Tensor]

ADVICE = (
    "A row function may read its rows, their seeds and public values, and remember nothing. Make caches, buffers and "
    "generators before asking, and let what it makes die with it."
)


class Guard:
    """Judges the functions that one fit passes to its curators; a refusal is final, even if the learner catches it.

    A failure is final as well, also for want of memory: whether a question fails may depend on a row, and no noise
    covers what a learner makes of that.
    """

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._moments = defaultdict[str, CheckSchedule](lambda: CheckSchedule(QUESTION_INTERVALS, generator))
        self._latest: GuardedFunction | None = None
        self._refusal: DpbenchError | None = None

    def contributions(
        self, rows: Evaluate, chunks: Iterable[Chunk], release: str, clips: Sequence[float]
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the blocks that a row function returns for each chunk; they are freed before the next chunk.

        Raises:
            NotPure: the function remembers, or reaches what cannot be compared.
            NotPerExample: a row depends on others.
            PrivacyError: an earlier question was refused.
        """
        with self.remember_refusals():
            held = self._guard_function(rows, f"A row function of release {release!r}")
            yield from held.check_chunks(chunks, clips, self._moments[release])

    def blocks_of_empty_chunk(self, rows: Evaluate, empty: Chunk, release: str) -> tuple[Contribution, ...]:
        """Call a row function on an empty chunk and return its blocks: their form, shape and scale are public.

        Raises:
            PrivacyError: as `contributions` does.
        """
        with self.remember_refusals():
            held = self._guard_function(rows, f"A row function of release {release!r}")
            return held.blocks(empty)

    def labels(
        self, teacher: Callable[[Chunk], Any], shards: Iterable[Chunk], release: str, checked: Checked
    ) -> Iterator[Tensor]:
        """Yield a teacher's labels for each shard, checked by `checked`.

        Raises:
            NotPure: the teacher remembers, or reaches what cannot be compared.
            NotPerExample: the teacher gives different labels for the same shard.
            PrivacyError: an earlier question was refused.
        """
        with self.remember_refusals():
            held = self._guard_function(teacher, f"A teacher of release {release!r}")
            yield from held.check_shards(shards, checked, self._moments[release])

    def map_rows(
        self, transform: Callable[[Tensor], Tensor], chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the blocks of each chunk's transformed rows.

        Raises:
            PrivacyError: as `contributions` does.
        """
        with self.remember_refusals():
            held = self._guard_function(lambda chunk: transform(chunk.x), "A transform given to map")
            yield from held.check_chunks(chunks, (1.0,), CheckSchedule(MAP_INTERVALS, self._generator))

    def conclude(self) -> None:
        """Raise the refusal or failure of an earlier question, if there was one.

        Raises:
            DpbenchError: a question was refused, or failed; it is `final`.
        """
        if self._refusal is not None:
            refusal = type(self._refusal)(*self._refusal.args)
            refusal.final = True
            raise refusal

    @contextmanager
    def remember_refusals(self) -> Iterator[None]:
        """Remember every refusal and failure in this block.

        Raises:
            DpbenchError: an earlier question was refused, or failed.
        """
        self.conclude()
        try:
            yield
        except DpbenchError as error:
            self._refusal = error.with_traceback(None)
            raise
        except GeneratorExit:  # whoever asks has had enough chunks
            raise
        except BaseException as error:  # an exit or an interruption too; what it says may tell private values
            self._refusal = ComponentFailed(f"A question failed: {name_exception(error)}. No other one is answered.")
            raise

    def _guard_function(self, function: Evaluate, what: str) -> GuardedFunction:
        held = self._latest.reuse_reach(function, what) if self._latest else None
        self._latest = held or GuardedFunction(function, what, Reach(function, thorough=False))
        return self._latest


class GuardedFunction:
    """A row function during one question; its purity is checked at every call."""

    def __init__(self, function: Evaluate, what: str, reach: Reach, reading: Reading | None = None) -> None:
        self._function, self._what, self._reach = function, what, reach
        self._before = reading or reach.read()

    def reuse_reach(self, function: Evaluate, what: str) -> GuardedFunction | None:
        """Return a guarded function for another question without a new walk; None if it reaches other objects now."""
        if function is not self._function:
            return None
        reading = self._reach.read()
        return (
            GuardedFunction(function, what, self._reach, reading) if reading.has_same_referents(self._before) else None
        )

    def check_chunks(
        self, chunks: Iterable[Chunk], clips: Sequence[float], moments: CheckSchedule
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the function's blocks for each chunk, and check the chunks that are due."""
        for chunk in chunks:
            due = moments.is_due()
            probe = make_probe(chunk, clips, moments.generator) if due else None
            blocks = self.blocks(chunk, thorough=due)
            if probe:
                probe.keep(blocks)
            yield blocks
            del blocks  # or two chunks of rows would be held at once
            if probe:
                probe.compare(self, self._what)

    def blocks(self, chunk: Chunk, thorough: bool = False) -> tuple[Contribution, ...]:
        """Return the function's blocks for a chunk; see `__call__`.

        Raises:
            NotPerExample: not one contribution per row.
        """
        blocks = wrap_blocks(self(chunk, thorough))
        for block in blocks:
            if len(block) != len(chunk):
                raise NotPerExample(
                    f"{self._what} contributed {len(block)} row(s) for a chunk of {len(chunk)}; expected one per "
                    "example, also for an empty chunk."
                )
        return blocks

    def check_shards(self, shards: Iterable[Chunk], checked: Checked, moments: CheckSchedule) -> Iterator[Tensor]:
        """Yield the function's labels for each shard; if a check is due, call it on another shard and once more."""
        for shard in shards:
            due = moments.is_due()
            again = shard.take(torch.arange(len(shard), device=shard.y.device)) if due else None
            labels = checked(self(shard, thorough=due))
            if again:
                self._check_repeats(again, labels, checked)
            yield labels

    def _check_repeats(self, shard: Chunk, labels: Tensor, checked: Checked) -> None:
        half = shard.take(torch.arange(-(-len(shard) // 2), device=shard.y.device))
        try:
            self(half)
            same = torch.equal(checked(self(shard)), labels)
        finally:
            for each in (half, shard):
                wipe(each.rows, each.y, each.seeds)
        if not same:
            raise NotPerExample(
                f"{self._what} gave different labels when it was called twice on the same shard: it draws from a "
                "generator or keeps state. Create its generators inside it, seeded by shard.seeds."
            )

    def __call__(self, chunk: Chunk, thorough: bool = False) -> Any:
        """Call the function on a chunk; `thorough` compares everything that this module covers.

        Raises:
            NotPure: something that it reaches has changed, or cannot be compared.
            ComponentFailed: it failed; the error omits its text, which may hold private values.
            MemoryError: there was too little memory.
        """
        whole = Reach(self._function, thorough=True, settings=True) if thorough else None
        before = whole.read() if whole else None
        try:
            return call_without_error_text(self._function, chunk, self._what, public=len(chunk) == 0)
        finally:
            after = self._reach.read()
            self._expect(self._reach.find_change(self._before, after))
            self._before = after
            if whole and before:
                self._expect(whole.find_change(before, whole.read()))

    def _expect(self, change: str | None) -> None:
        if change:
            raise NotPure(f"{self._what} changed what it reaches: {change}. {ADVICE}") from None
