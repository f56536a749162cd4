"""The witness of an audit and its canaries: no plugin can use them; only `binding.bind` accepts a witness.

A witness receives the integer sums before noise; together with the answers, these reveal the noise. So a witness is
allowed only in runs whose randomness is published anyway (`research`); `bind` refuses it with any other randomness.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from dpbench.privacy.core.exact.sums import DENSE_BITS, IntegerSum, weights_within
from dpbench.privacy.core.noise import add_noise
from dpbench.privacy.core.randomness import QuestionDraws

EXCESS = 2.0**20  # what a canary would contribute if nobody clipped it, in clips


@dataclass(frozen=True)
class Canaries:
    """An audit's own private examples, numbered after the private rows; the i-th contributes to coordinate i alone.

    Canaries use additional coordinates of each answer, which no learner sees. Their noise is drawn after the
    answer's own, from the same generator, so answers equal those of a run without an audit. A canary's raw contribution
    is `EXCESS` times the clip, and is clipped like that of a row.

    Sensitivity: like a row, each canary moves the sum of a block by at most the block's clip.
    """

    member: np.ndarray  # (m,) bool: which of them are in the data

    @property
    def places(self) -> np.ndarray:
        """The coordinates of the canaries in the data, ascending."""
        return np.flatnonzero(self.member)

    def clipped_sum(self, sampled: np.ndarray, clip: float, device: torch.device) -> IntegerSum:
        """Return the clipped sum (m,) of the canaries at the coordinates `sampled`, on the grid of dense rows."""
        grid = clip * 2.0**-DENSE_BITS
        value = torch.full((len(sampled),), EXCESS * clip, dtype=torch.float64)
        whole = (value * weights_within(value, clip - 0.5 * grid) / grid).round_().to(torch.int64)
        total = torch.zeros(len(self.member), dtype=torch.int64)
        total[torch.from_numpy(sampled)] = whole
        return IntegerSum(total.to(device), torch.tensor(grid, dtype=torch.float64, device=device))


@dataclass(frozen=True)
class SumObservation:
    """The witness's record of one question for a noisy sum."""

    release: str
    sums: tuple[IntegerSum, ...]  # of the private rows, before noise, by block
    drawn: np.ndarray  # private rows, or their units, in the sample: positions, ascending
    sampled: np.ndarray  # coordinates of the canaries in the sample
    padding: tuple[tuple[IntegerSum, Tensor], ...]  # of the canaries, by block: the sum, and its noisy answer (m,)


@dataclass(frozen=True)
class ChoiceObservation:
    """The witness's record of one question for a choice."""

    release: str
    lost: IntegerSum  # total losses of the private rows by each candidate, (parts * N,)
    parts: int
    chosen: Tensor  # (parts,)


@dataclass(frozen=True)
class AuditWitness:
    """Observes every question of one fit, and adds canaries, if any, to the fit's private examples."""

    on_sum: Callable[[SumObservation], None]
    canaries: Canaries | None = None
    on_choice: Callable[[ChoiceObservation], None] = lambda chosen: None

    def split(self, sample: np.ndarray, rows: int) -> tuple[np.ndarray, np.ndarray]:
        """Split a sample into the positions of private rows and the coordinates of sampled canaries."""
        if self.canaries is None:
            return sample, np.empty(0, np.int64)
        count = int(np.searchsorted(sample, rows))
        return sample[:count], self.canaries.places[sample[count:] - rows]

    @property
    def members(self) -> int:
        """The number of canaries in the data."""
        return 0 if self.canaries is None else len(self.canaries.places)

    def answer(
        self, release: str, sums: Sequence[IntegerSum], bounds: Sequence[tuple[float, float]], draws: QuestionDraws,
        drawn: np.ndarray, sampled: np.ndarray,
    ) -> None:  # fmt: skip
        """Pass the observation of a question for a sum to `on_sum`.

        If there are canaries, first add noise to their sum in each block. `bounds` has each block's clip and std.
        """
        padding = []
        for summed, (clip, std) in zip(sums, bounds, strict=True):
            if self.canaries is not None:
                planted = self.canaries.clipped_sum(sampled, clip, summed.grid.device)
                padding.append((planted, add_noise(planted, std, draws)))
        self.on_sum(SumObservation(release, tuple(sums), drawn, sampled, tuple(padding)))


NO_WITNESS = AuditWitness(lambda seen: None)
"""The witness of a fit that is not audited: it ignores everything."""
