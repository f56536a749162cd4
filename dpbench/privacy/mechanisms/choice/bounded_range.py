"""What many choices cost together, however later ones follow from earlier answers. Imports no torch.

Theorem. Let V_0(e) = max(0, 1 - exp(e)) and, for an eps0, let B be this map of curves:

    (B V)(e) = max over t in [0, eps0] of p V(e - t) + (1 - p) V(e - t + eps0),
    p = (1 - exp(t - eps0)) / (1 - exp(-eps0)).

The largest hockey-stick divergence at e of k choices of this eps0 is (B^k V_0)(e). That of choices of several eps0, of
Gaussian sums and of other mechanisms, in any order that may follow from answers, is at most that of independent pairs:
those of the other mechanisms, and one with the curve B^k V_0 for each eps0 and its k.

Proof. (1) One choice. Let P and Q be its laws on neighbours, and let V(e), convex in x = exp(e), bound the divergence
of all that follows. After an answer y with log-ratio f = log P(y) / Q(y), what follows is compared at e - f, so the
whole is at most E_P[V(e - f)]. Here u = exp(-f) has mean 1 under P and lies in [exp(-t), exp(eps0 - t)] for some t in
[0, eps0] (bounded range: `choice_plan`). V is convex in u, so this is largest if u takes both ends alone, with chances
p and 1 - p. That is B V, again convex in x, as a maximum of convex functions. Two candidates, of which a row loses 0
and 1, have exactly these laws, with t as their totals say, so the maximum is attained, either way round.

(2) Several. A mechanism with a dominating pair of loss L maps V to (G V)(e) = E[V(e - L)]. Such maps commute, and
B G V <= G B V, as the right side chooses t after L is known. A convex V that falls from 1 to 0 is a mixture of curves
V_0(e - c), and B is sublinear, so B^k V <= G_k V, with G_k the map of a pair whose curve is B^k V_0. Let H be the map
of everything that is left but b choices of this eps0. If one of these comes next, the rest is at most H G_(b-1) V_0 by
induction, and the whole at most B H G_(b-1) V_0 <= H B G_(b-1) V_0 = H B^b V_0 = H G_b V_0. If another mechanism comes
next, its own map is taken out of H in the same way. Blocks of choices are choices under several names.

Sources: Dong, Durfee and Rogers 2020, Optimal Differential Privacy Composition for Exponential Mechanisms and the Cost
of Adaptivity, arXiv 1909.13830, reduce bounded range to these two-point laws and show that adaptive choices cost more
than others. Vadhan and Zhang 2023, Concurrent Composition Theorems for Differential Privacy, arXiv 2207.08335, have (2)
for all interactive mechanisms. The proof above is ours.

Numbers. Curves stand on a lattice of steps eps0 / m. Between its points, a convex curve is at most its chord in x. With
chords, what is maximised between two points is a concave function c1 + c2 u + c0 / u, largest at u^2 = c0 / c2
(`compose_above`). With t at the points alone it is a lower bound (`compose_below`). A curve ends where zCDP leaves
1e-20: above it is constant, and below it follows the chord from x = 0.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

BLOCK = 100
"""The most choices that are composed as one curve; blocks of so many state 0.4% too much for a thousand."""
FEWEST, MOST, POINTS = 16, 64, 160  # lattice steps of an eps0, and of all choices together
WIDEST = 0.1  # a step that needs no halving
TAIL = 46.0  # -log of the divergence at which a curve ends


@dataclass(frozen=True)
class DivergenceCurve:
    """Hockey-stick divergences at e = -last * step, ..., last * step; convex in exp(e)."""

    step: float
    values: np.ndarray

    @property
    def last(self) -> int:
        """The index of the largest e, counted from 0 at the middle."""
        return len(self.values) // 2

    def upper_bound(self, e: np.ndarray) -> np.ndarray:
        """Return an upper bound on the curve at each e, by the chords between the lattice's points."""
        import numpy as np

        end = self.last * self.step
        cell = np.clip(np.floor(e / self.step).astype(int), -self.last, self.last - 1)
        share = np.clip(np.expm1(np.minimum(e, end) - cell * self.step) / math.expm1(self.step), 0, 1)
        left, right = self.values[cell + self.last], self.values[cell + self.last + 1]
        below = 1 - (1 - self.values[0]) * np.exp(np.minimum(e + end, 0))
        bound: np.ndarray = np.where(e < -end, below, left + share * (right - left))
        return bound

    def tail(self) -> np.ndarray:
        """Return P(L > e) between each two points of the lattice, with L the loss of a pair that has this curve."""
        found: np.ndarray = self.values[:-1] - (self.values[1:] - self.values[:-1]) / math.expm1(self.step)
        return found


def split_in_blocks(steps: int) -> tuple[int, int]:
    """Return how many choices compose as one curve, and how many such curves cover `steps` choices."""
    count = math.ceil(steps / BLOCK)
    return math.ceil(steps / count), count


@functools.lru_cache(64)
def compose_above(eps0: float, steps: int) -> DivergenceCurve:
    """Return an upper bound on the curve of so many choices, near enough that epsilon is within half a percent."""
    import numpy as np

    points = _lattice_steps(eps0, steps)
    curve = _start(eps0, steps, points)
    u = np.exp(-np.arange(points + 1) * curve.step)  # falling, for t = 0, h, ..., eps0
    ratio = math.exp(eps0)
    values = curve.values
    for _ in range(steps):
        wide = _extend(values, curve.step, points)
        best = np.zeros_like(values)
        for cell in range(points):
            low, high = u[cell + 1], u[cell]
            (a1, b1), (a0, b0) = (_shift_curve(wide, points, index, len(values)) for index in (cell + 1, cell))
            slope_a, slope_b = (a0 - a1) / (high - low), (b0 - b1) / (high - low)
            c0, c2 = (b0 - slope_b * high) - (a0 - slope_a * high), ratio * slope_a - slope_b
            with np.errstate(divide="ignore", invalid="ignore"):
                at = np.clip(np.nan_to_num(np.sqrt(np.maximum(c0 / c2, 0)), nan=low, posinf=high), low, high)
            share = (at - low) / (high - low)
            chance = (ratio - 1 / at) / (ratio - 1)
            np.maximum(best, chance * (a1 + share * (a0 - a1)) + (1 - chance) * (b1 + share * (b0 - b1)), out=best)
        values = best
    return DivergenceCurve(curve.step, values)


@functools.lru_cache(64)
def compose_below(eps0: float, steps: int) -> DivergenceCurve:
    """Return a lower bound on the curve of so many choices, exact but for t between the lattice's points."""
    import numpy as np

    points = 2 * _lattice_steps(eps0, steps)
    curve = _start(eps0, steps, points)
    chances = np.expm1(np.arange(points + 1) * curve.step - eps0) / math.expm1(-eps0)
    values = curve.values
    for _ in range(steps):
        wide = _extend(values, curve.step, points)
        wide[-points:] = 0
        pairs = (_shift_curve(wide, points, index, len(values)) for index in range(points + 1))
        values = functools.reduce(
            np.maximum, (p * near + (1 - p) * far for p, (near, far) in zip(chances, pairs, strict=True))
        )
    return DivergenceCurve(curve.step, values)


def _lattice_steps(eps0: float, steps: int) -> int:
    return min(max(FEWEST, math.ceil(eps0 / WIDEST), POINTS // steps), MOST)


def _start(eps0: float, steps: int, points: int) -> DivergenceCurve:
    """Return V_0 on the lattice of a composition."""
    import numpy as np

    rho, step = steps * eps0**2 / 8, eps0 / points
    last = min(steps * points, math.ceil((rho + 2 * math.sqrt(rho * TAIL)) / step))
    return DivergenceCurve(step, -np.expm1(np.minimum(np.arange(-last, last + 1) * step, 0.0)))


def _extend(values: np.ndarray, step: float, points: int) -> np.ndarray:
    """Return a curve with `points` more points on either side."""
    import numpy as np

    below = 1 - (1 - values[0]) * np.exp(np.arange(-points, 0) * step)
    return np.concatenate([below, values, np.full(points, values[-1])])


def _shift_curve(wide: np.ndarray, points: int, index: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the curve at e - t and at e - t + eps0, for t the lattice's point of this index."""
    return wide[points - index :][:count], wide[2 * points - index :][:count]
