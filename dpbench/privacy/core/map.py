"""Transform every row once, at no privacy cost if the bits of each new row depend only on the old row.

Then neighbouring datasets stay neighbouring. `exact_linear` is such a transform. A library's float product may round a
row differently at another position in a chunk, and rounding to 8 bits can turn this into a step of 1/127 of the row's
largest number. With such a product, removing a row may change a few other rows by a step, which epsilon does not cover.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.exact.quantised import quantise
from dpbench.privacy.core.exact.sums import chunk_mismatch_error
from dpbench.privacy.core.ledger_curator import LedgerCurator, Question
from dpbench.privacy.core.plan import Planned, Release
from dpbench.privacy.core.rows import PrivateRows, RowGatherer

MAPPED_BYTES = 2 * 2**20  # of a chunk that is mapped: what a map makes of it on the way is several times as large


@dataclass(frozen=True)
class MapQuestion(Question):
    """Asks for a curator over transformed rows in 8 bits, with the same ledger; spends nothing. See `Curator.map`."""

    kind: ClassVar[type[Planned]] = Release

    transform: Callable[[Tensor], Tensor]

    @property
    def releases(self) -> tuple[str, ...]:
        """The releases that a map spends: none."""
        return ()

    def compute_answer(self, curator: LedgerCurator, spent: Sequence[Any]) -> LedgerCurator:
        """Transform every row once, check that the transform is pure, and return the new curator."""
        rows, guard = curator.rows, curator.guard
        with closing(curator.empty_chunk()) as empty:
            shapes = [block.dense().shape[1:] for (block,) in guard.map_rows(self.transform, empty)]
        gathering = RowGatherer(len(rows))
        chunks = rows.chunks(np.arange(len(rows)), 0, rows.count_rows_per_chunk(MAPPED_BYTES), curator.task.device)
        with closing(chunks):
            for (block,) in guard.map_rows(self.transform, chunks):
                kept = block.dense().to(rows.held.device, torch.float32)
                if [kept.shape[1:]] != shapes:
                    raise chunk_mismatch_error()
                gathering.add(quantise(kept))
        held = gathering.rows()
        task = dataclasses.replace(curator.task, example_shape=tuple(held.shape[1:]))
        made = PrivateRows(held, rows.y, torch.arange(len(rows)), rows.units)
        return dataclasses.replace(curator, rows=made, task=task, mapped=True)
