"""Check that row functions remember nothing: a call changes no object that the function can reach.

A row function that remembers rows can pass them to the learner without clipping or noise. So everything that the
function can reach is read before and after each chunk, and any difference ends the fit.

Covered, on every chunk: closure variables, defaults, attributes, slots, bound objects, `functools.partial` and caches,
containers, tensors and arrays, modules' parameters, gradients and buffers, and generators. They are compared by
identity, length, torch's version counters, and the contents of arrays of up to 16 MiB.
Covered, on chunks that the harness draws at random, always including the first of a release: globals named in the code
of each function that is reached, looked up in that function's module and in modules that its code names; attributes of
classes; data in libraries' modules, if the code names it; the global generators of torch, numpy and, if no other thread
runs, `random`; and the contents of tensors and arrays, every byte up to a mebibyte and a checksum above. On these
chunks rows are also evaluated again: see `spotchecks`. For files, the environment, programs, `ctypes` and output, see
`quiet_room`. Objects made by `ctypes` are refused unread.
Not covered: threads that run already; frames; attributes of libraries' objects (`LIBRARIES`), and library settings that
`reach` does not list; globals and attributes that no code names; state that extension types keep in C; and writes that
a tensor's version counter misses (`.data`, `.numpy()`), between the drawn chunks. Python cannot sandbox malice.
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
from dpbench.privacy.purity.failures import call_without_error_text, describe_exception_type
from dpbench.privacy.purity.reach import Reach, ReachState
from dpbench.privacy.purity.spotchecks import MAP_INTERVALS, QUESTION_INTERVALS, CheckSchedule, make_spot_check

Evaluate = Callable[[Chunk], Any]
Checked = Callable[[object], Tensor]

ADVICE = (
    "A row function may read its rows, their seeds and public values, and remember nothing. Make caches, buffers and "
    "generators before asking, and let what it makes die with it."
)


class RowFunctionGuard:
    """Checks the functions that one fit passes to its curators; a refusal is final, even if the learner catches it.

    A failure is final too, even one for lack of memory: it may depend on a row, and a learner that could react to it
    would learn about this row without noise.
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
            NotPure: the function changed an object that it can reach, or can reach one that cannot be compared.
            NotPerExample: a row's contribution depends on other rows.
            PrivacyError: an earlier question was refused.
        """
        with self.remember_refusals():
            held = self._guard_function(rows, f"A row function of release {release!r}")
            yield from held.check_chunks(chunks, clips, self._moments[release])

    def blocks_of_empty_chunk(self, rows: Evaluate, empty: Chunk, release: str) -> tuple[Contribution, ...]:
        """Call a row function on an empty chunk and return its blocks, whose form, shape and scale are public.

        Raises:
            PrivacyError: the same errors as in `contributions`.
        """
        with self.remember_refusals():
            held = self._guard_function(rows, f"A row function of release {release!r}")
            return held.blocks(empty)

    def labels(
        self, teacher: Callable[[Chunk], Any], shards: Iterable[Chunk], release: str, check_labels: Checked
    ) -> Iterator[Tensor]:
        """Yield a teacher's labels for each shard, checked by `check_labels`.

        Raises:
            NotPure: the teacher changed an object that it can reach, or can reach one that cannot be compared.
            NotPerExample: the teacher gives different labels for the same shard.
            PrivacyError: an earlier question was refused.
        """
        with self.remember_refusals():
            held = self._guard_function(teacher, f"A teacher of release {release!r}")
            yield from held.check_shards(shards, check_labels, self._moments[release])

    def map_rows(
        self, transform: Callable[[Tensor], Tensor], chunks: Iterable[Chunk]
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the blocks of each chunk's transformed rows.

        Raises:
            PrivacyError: the same errors as in `contributions`.
        """
        with self.remember_refusals():
            held = self._guard_function(lambda chunk: transform(chunk.x), "A transform given to map")
            yield from held.check_chunks(chunks, (1.0,), CheckSchedule(MAP_INTERVALS, self._generator))

    def raise_earlier_refusal(self) -> None:
        """Raise the refusal or failure of an earlier question, if there was one.

        Raises:
            DpbenchError: a question was refused, or failed; the error is marked `final`.
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
        self.raise_earlier_refusal()
        try:
            yield
        except DpbenchError as error:
            self._refusal = error.with_traceback(None)
            raise
        except GeneratorExit:  # whoever asks has had enough chunks
            raise
        except BaseException as error:  # an exit or an interruption too; what it says may tell private values
            self._refusal = ComponentFailed(
                f"A question failed: {describe_exception_type(error)}. No other one is answered."
            )
            raise

    def _guard_function(self, function: Evaluate, what: str) -> GuardedFunction:
        held = self._latest.guard_again_if_unchanged(function, what) if self._latest else None
        self._latest = held or GuardedFunction(function, what, Reach(function, thorough=False))
        return self._latest


class GuardedFunction:
    """A row function during one question; its purity is checked at every call."""

    def __init__(self, function: Evaluate, what: str, reach: Reach, reading: ReachState | None = None) -> None:
        self._function, self._what, self._reach = function, what, reach
        self._before = reading or reach.read()

    def guard_again_if_unchanged(self, function: Evaluate, what: str) -> GuardedFunction | None:
        """Guard the same function for a new question with the same reach; None if the function or reach has changed."""
        if function is not self._function:
            return None
        reading = self._reach.read()
        return (
            GuardedFunction(function, what, self._reach, reading) if reading.has_same_referents(self._before) else None
        )

    def check_chunks(
        self, chunks: Iterable[Chunk], clips: Sequence[float], schedule: CheckSchedule
    ) -> Iterator[tuple[Contribution, ...]]:
        """Yield the function's blocks for each chunk; if a check is due, run all checks and evaluate rows again."""
        for chunk in chunks:
            due = schedule.is_due()
            probe = make_spot_check(chunk, clips, schedule.generator) if due else None
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
            NotPerExample: there is not one contribution per row.
        """
        blocks = wrap_blocks(self(chunk, thorough))
        for block in blocks:
            if len(block) != len(chunk):
                raise NotPerExample(
                    f"{self._what} contributed {len(block)} row(s) for a chunk of {len(chunk)}; expected one per "
                    "example, also for an empty chunk."
                )
        return blocks

    def check_shards(self, shards: Iterable[Chunk], check_labels: Checked, schedule: CheckSchedule) -> Iterator[Tensor]:
        """Yield a teacher's labels for each shard.

        If a check is due, call the teacher again on half of the shard and then on the whole shard, where it must give
        the same labels.
        """
        for shard in shards:
            due = schedule.is_due()
            again = shard.take(torch.arange(len(shard), device=shard.y.device)) if due else None
            labels = check_labels(self(shard, thorough=due))
            if again:
                self._check_repeats(again, labels, check_labels)
            yield labels

    def _check_repeats(self, shard: Chunk, labels: Tensor, check_labels: Checked) -> None:
        half = shard.take(torch.arange(-(-len(shard) // 2), device=shard.y.device))
        try:
            self(half)
            same = torch.equal(check_labels(self(shard)), labels)
        finally:
            for each in (half, shard):
                wipe(each.rows, each.y, each.seeds)
        if not same:
            raise NotPerExample(
                f"{self._what} gave different labels when it was called twice on the same shard: it draws from a "
                "generator or keeps state. Create its generators inside it, seeded by shard.seeds."
            )

    def __call__(self, chunk: Chunk, thorough: bool = False) -> Any:
        """Call the function on a chunk, and compare its reach before and after; if `thorough`, run all checks.

        Raises:
            NotPure: an object that the function can reach has changed, or cannot be compared.
            ComponentFailed: the function failed; its error's text, which may hold private values, is omitted.
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
