"""Halfspaces with a large margin on nearly low-dimensional data: the setting of PILLAR's theorem."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import SpecError, setting
from dpbench_plugins.theory.datasets.synthetic import SyntheticDataset

if TYPE_CHECKING:
    import numpy as np

    from dpbench_plugins.theory.datasets.synthetic import Draw


@dataclass(frozen=True)
class GaussianMixture(SyntheticDataset):
    """Two Gaussians with means y mu and covariance theta w w^T + sigma^2 I, mu and w orthogonal unit vectors.

    This is PILLAR's example 1, except for the norms: corollary 6 needs |x| to be about 1, so sigma must be at most 1 /
    (4 sqrt(d)), which is the default. The separator is mu; the example says w, but w is orthogonal to mu and contains
    no information on the label. Second moments are mu mu^T + theta w w^T + sigma^2 I, so xi_1 = 0 for theta < 1, and
    the best error is Phi(-1 / sigma).
    """

    name = "theory-gmm"
    citation = "Pinto, Hu, Yang, Sanyal, PILLAR, 2023, example 1"

    d: int = setting(100, ge=2, le=100_000, says="features")
    theta: float = setting(1 / 16, ge=0, le=1e6, says="variance along w")
    sigma: float | None = setting(
        None, ge=0, le=1e6, says="standard deviation in the other directions; auto: 1 / (4 sqrt(d))"
    )

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw mu and w; return a function that draws examples."""
        import numpy as np

        mu, w = np.linalg.qr(target_rng.standard_normal((self.d, 2)))[0].T
        sigma = 0.25 / self.d**0.5 if self.sigma is None else self.sigma

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            y = stream.integers(0, 2, n)
            along = stream.standard_normal((n, 1)) * self.theta**0.5
            return np.outer(2 * y - 1, mu) + along * w + sigma * stream.standard_normal((n, self.d)), y

        return draw_examples


@dataclass(frozen=True)
class LowRankHalfspace(SyntheticDataset):
    """Halfspaces with a margin in nearly k dimensions: a share `tau` of the energy is in the other d - k directions.

    z is normal with variance (1 - tau) / k in k directions (the head) and tau / (d - k) in the others (the tail), given
    that <w*, z> is at least `margin` of its standard deviations away from 0. The sign of <w*, z> is the label. w* =
    sqrt(1 - s^2) e_1 + s e_(k+1), so its xi_k is 1 - sqrt(1 - s^2) if a head direction has more variance than a tail
    direction. Otherwise xi_k is near 1 and the assumption fails. x is z / |z|, rotated at random; |z| is near 1, so the
    margin of definition 3 is near `margin` times the deviation of <w*, z>. (If only the first coordinate had a margin,
    e_1 would give the same labels as this w*, and xi would be 0 for any s.)
    """

    name = "theory-lowrank"
    citation = "after definition 3 of Pinto, Hu, Yang, Sanyal, PILLAR, 2023"

    d: int = setting(100, ge=2, le=100_000, says="features")
    k: int = setting(5, ge=1, says="directions of the head")
    tau: float = setting(0.5, ge=0, le=0.999, says="share of the energy in the tail")
    margin: float = setting(0.5, ge=0, le=5, says="margin, in standard deviations")
    s: float = setting(0.0, ge=0, le=1, says="weight of a tail direction in w*")

    def __post_init__(self) -> None:
        """Check that k < d, so that the head leaves a tail."""
        if self.k >= self.d:
            raise SpecError(
                f"Expected k={self.k} below d={self.d} in dataset {self.name!r}: the other directions are the tail."
            )

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw the rotation; return a function that draws examples."""
        import numpy as np
        from scipy.special import ndtr, ndtri

        turned = self.draw_rotation(target_rng)
        head, tail = (1 - self.tau) / self.k, self.tau / (self.d - self.k)
        deviations = np.sqrt([head] * self.k + [tail] * (self.d - self.k)).astype(np.float32)

        target = np.zeros(self.d, np.float32)
        target[0], target[self.k] = np.sqrt(1 - self.s**2), self.s
        spread = np.linalg.norm(deviations * target)  # of <w*, z>

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            z = stream.standard_normal((n, self.d), np.float32) * deviations
            least = ndtr(self.margin)
            far = ndtri(least + (1 - least) * stream.random(n)) * np.where(stream.random(n) < 0.5, -1, 1)
            z += np.outer(far - z @ target / spread, deviations**2 * target / spread)  # normal, given <w*, z>
            return (z / np.linalg.norm(z, axis=1, keepdims=True)) @ turned, far > 0

        return draw_examples

    def draw_rotation(self, target_rng: np.random.Generator) -> np.ndarray:
        """Draw a rotation (d, d) from Haar's distribution; row j is the image of coordinate direction j."""
        import numpy as np

        q, r = np.linalg.qr(target_rng.standard_normal((self.d, self.d)))
        turned: np.ndarray = (q * np.sign(np.diag(r))).T.astype(np.float32)
        return turned
