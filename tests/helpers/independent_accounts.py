"""Bounds on epsilon from both sides, by code that shares nothing with an accountant: laws of losses, sums over grids.

A bound is `(lower, upper)`. Nothing here imports dpbench's accountants or the libraries that they call.

- `compose`: losses of independent steps, each rounded to a grid and shifted so that its mean is right, are added by
  FFT. The errors of n steps are independent, have mean 0 and lie in a range h, so their sum exceeds
  h sqrt(n log(2 / eta) / 2) with a chance of at most eta (Hoeffding). What falls beside a step's window, what the sum
  wraps around (Chernoff) and the rounding of floats are added to eta. Then delta(e) lies between the delta of the grid
  at e + error, less eta, and that at e - error, more eta.
- `choices`: the value of a game in which t is chosen for each choice, by points of t. Points alone give a lower
  bound. A range that is wider by a step contains that of every t between two points, which gives an upper one.
- `search_above` and `search_below`: a theorem on the curve of one run, and a search that keeps the largest of K normal
  numbers, by integration.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.stats import binom, norm

Bounds = tuple[float, float]
Tail = Callable[[np.ndarray], np.ndarray]
"""A loss -> the chance of a larger one."""
ROUNDING = 1e-13  # of sums by FFT, in probability
SHARE = 1e-4  # of delta, for losses whose rounding errors add up to more than stated
POWERS = 12  # of Chernoff's bound


@dataclass(frozen=True)
class Step:
    """Gaussian noise on a sum that a person moves by K clips, with K binomial: `rows` rows at a sample rate."""

    sigma: float
    rate: float = 1.0
    rows: int = 1
    times: int = 1

    def laws(self) -> tuple[tuple[Tail, float], tuple[Tail, float]]:
        """Return the loss and its mean if the person is there, and if not: all follow from one normal number."""
        shifts = np.arange(self.rows + 1)
        weights = binom.pmf(shifts, self.rows, self.rate)
        x = np.linspace(-40 * self.sigma, self.rows + 40 * self.sigma, 200_001)
        terms = [w * np.exp((2 * k * x - k * k) / (2 * self.sigma**2) - self._scale(x)) for k, w in enumerate(weights)]
        loss = np.log(sum(terms)) + self._scale(x)  # rises with x
        density = norm.pdf(x, 0, self.sigma)

        def there(at: np.ndarray) -> np.ndarray:
            y = np.interp(at, loss, x, left=-np.inf, right=np.inf)
            return np.asarray(sum(w * norm.sf(y, k, self.sigma) for k, w in zip(shifts, weights, strict=True)))

        def absent(at: np.ndarray) -> np.ndarray:
            return np.asarray(norm.cdf(np.interp(-at, loss, x, left=-np.inf, right=np.inf), 0, self.sigma))

        means = (float(np.trapezoid(density * values, x)) for values in (np.exp(loss) * loss, -loss))
        return (there, next(means)), (absent, next(means))

    def rare_loss(self) -> float:
        """Return the loss where the normal number is eight standard deviations beyond all rows."""
        whole = (self.rows / self.sigma) ** 2 / 2 + 8 * self.rows / self.sigma
        rate = -math.expm1(self.rows * math.log1p(-self.rate)) if self.rate < 1 else 1.0
        return whole + math.log(rate + (1 - rate) * math.exp(-whole))

    def _scale(self, x: np.ndarray) -> np.ndarray:
        return np.maximum(0, (2 * self.rows * x - self.rows**2) / (2 * self.sigma**2))


def compose(steps: Sequence[Step], delta: float, size: float) -> Bounds:
    """Return bounds on epsilon, which is about `size`, of independent steps: the larger of both ways round."""
    count = sum(step.times for step in steps)
    error = 0.002 * size
    interval = error / math.sqrt(count / 2 * math.log(2 / (delta * SHARE)))
    end = 3 * size + max(step.rare_loss() for step in steps)
    laws = [step.laws() for step in steps]
    ways = [
        _compose_one_way([law[way] for law in laws], [step.times for step in steps], delta, interval, end)
        for way in (0, 1)
    ]
    return max(low for low, _ in ways) - 1.01 * error, max(high for _, high in ways) + 1.01 * error


def _compose_one_way(
    laws: Sequence[tuple[Tail, float]], times: Sequence[int], delta: float, interval: float, end: float
) -> Bounds:
    """Return epsilon on a grid from -end to end, at delta less and more than all that is lost."""
    half = math.ceil(end / interval)
    grid = np.arange(-half, half) * interval
    powers = np.geomspace(1, 1000, POWERS) / end
    spectrum, shift, lost, moments = np.ones(half + 1, dtype=complex), 0.0, delta * SHARE, np.zeros((2, POWERS))
    for (tail, mean), count in zip(laws, times, strict=True):
        beyond = tail(np.append(grid - interval / 2, grid[-1] + interval / 2))
        mass = -np.diff(beyond)
        lost += count * float(beyond[-1] + 1 - beyond[0])
        shift += count * (mean - float(mass @ grid))
        spectrum *= np.fft.rfft(np.fft.ifftshift(mass)) ** count
        with np.errstate(divide="ignore"):
            logs = np.log(mass)
        moments += count * np.array([[_log_sum(logs + way * power * grid) for power in powers] for way in (1, -1)])
    lost += float(np.exp(np.minimum(moments - powers * end, 0)).min(axis=1).sum()) + ROUNDING
    law = np.maximum(np.fft.fftshift(np.fft.irfft(spectrum, 2 * half)), 0)
    return _epsilon(grid + shift, law, delta + lost), _epsilon(grid + shift, law, delta - lost)


def _log_sum(logs: np.ndarray) -> float:
    top = logs.max()
    return float(top + math.log(np.exp(logs - top).sum()))


def _epsilon(losses: np.ndarray, law: np.ndarray, delta: float) -> float:
    """Return the smallest e at which E (1 - exp(e - L))+ is at most delta; infinite if there is none."""
    if delta <= 0:
        return math.inf
    above = np.append(np.cumsum(law[::-1])[::-1], 0)
    scaled = np.append(np.cumsum((law * np.exp(-np.maximum(losses, -700)))[::-1])[::-1], 0)
    low, high = 0.0, float(losses[-1])
    for _ in range(60):
        middle = (low + high) / 2
        first = int(np.searchsorted(losses, middle))
        low, high = (middle, high) if above[first] - math.exp(middle) * scaled[first] > delta else (low, middle)
    return high


def gaussian_delta(e: float, mu: float) -> float:
    """Return the divergence at e of a normal number whose mean moves by mu standard deviations."""
    return float(norm.cdf(mu / 2 - e / mu) - math.exp(e + norm.logcdf(-mu / 2 - e / mu)))


def solve(delta_at: Callable[[float], float], delta: float, high: float) -> float:
    """Return the smallest e below `high` at which a falling curve is at most delta."""
    low = 0.0
    if delta_at(low) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if delta_at(middle) > delta else (low, middle)
    return high


def choices(eps0: float, count: int, mu: float, delta: float, points: int = 200) -> Bounds:
    """Return bounds on epsilon of so many choices and of normal numbers that a person moves by mu together."""
    found = []
    for wider in (0, 1):  # of t at points, and of a range that covers what lies between
        curve = _value_of_game(eps0 * (1 + wider / points), count, points + wider)
        found.append(solve(partial(_after_sums, curve, mu, wider), delta, curve[0][-1] + 40 * mu))
    return found[0], found[1]


def _value_of_game(eps0: float, count: int, points: int) -> tuple[np.ndarray, np.ndarray]:
    step, last = eps0 / points, count * points
    e = np.arange(-last - points, last + points + 1) * step
    value = -np.expm1(np.minimum(e, 0))
    chances = [-math.expm1(t * step - eps0) / -math.expm1(-eps0) for t in range(points + 1)]
    size = 2 * last + 1
    for _ in range(count):
        moved = [
            p * value[points - t :][:size] + (1 - p) * value[2 * points - t :][:size] for t, p in enumerate(chances)
        ]
        value = value.copy()
        value[points : points + size] = np.max(moved, axis=0)
    return e, value


def _after_sums(curve: tuple[np.ndarray, np.ndarray], mu: float, upwards: int, e: float) -> float:
    points, value = curve
    if not mu:  # the curve is known at points: the next to the right is below it, the next to the left above
        right = min(int(np.searchsorted(points, e)), len(points) - 1)
        return float(value[right - 1 if upwards and right else right])
    edges = np.linspace(mu * mu / 2 - 12 * mu, mu * mu / 2 + 12 * mu, 40_001)
    mass = np.diff(norm.cdf(edges, mu * mu / 2, mu))
    at = np.searchsorted(points, e - (edges[1:] if upwards else edges[:-1]))
    inside = np.clip(at - upwards, 0, len(points) - 1)
    beyond = norm.sf(12) if upwards else 0.0
    return float(mass @ value[inside] + beyond)


def search_above(mu: float, mean: float, shape: float, delta: float) -> float:
    """Return an upper bound on epsilon of a search whose runs are sums that a person moves by mu together.

    It is epsilon at delta / mean of a run, and (1 + shape) log(exp(e1) + odds delta(e1)) for the best e1.
    """
    odds = math.expm1(_log_inverse_gamma(mean, shape))
    points = np.linspace(0, 8 * mu + mu * mu, 2001)
    choice = min(math.log(math.exp(e) + odds * gaussian_delta(e, mu)) for e in points)
    return solve(lambda e: gaussian_delta(e, mu), delta / mean, 40 * mu + mu * mu) + (1 + shape) * choice


def search_below(mu: float, mean: float, shape: float, delta: float) -> float:
    """Return what a search costs at least: it publishes the largest, or the smallest, of K normal numbers."""
    gamma = math.exp(-_log_inverse_gamma(mean, shape))
    x = np.linspace(-12, 12 + mu, 40_001)

    def density(centre: float, way: int) -> np.ndarray:
        before = norm.cdf(way * (x - centre))
        kept: np.ndarray = mean * norm.pdf(x - centre) * (gamma / (1 - (1 - gamma) * before)) ** (1 + shape)
        return kept

    def delta_at(way: int, first: int, e: float) -> float:
        pair = density(0, way), density(mu, way)
        p, q = pair[first], pair[1 - first]
        return float(np.trapezoid(np.maximum(p - math.exp(e) * q, 0), x))

    cases = [(way, first) for way in (1, -1) for first in (0, 1)]
    return max(solve(partial(delta_at, way, first), delta, 40 * mu + mu * mu) for way, first in cases)


def _log_inverse_gamma(mean: float, shape: float) -> float:
    """Return log(1 / gamma) of the truncated negative binomial with this mean."""

    def runs(u: float) -> float:
        return math.expm1(u) * (shape / -math.expm1(-shape * u) if shape else 1 / u)

    low, high = 1e-9, 2 * math.log(mean) + 1e-9
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if runs(middle) < mean else (low, middle)
    return high
