"""Targets of small VC dimension at an unknown position, which show how public points help Alon et al.'s learner."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import setting
from dpbench_plugins.theory.datasets.synthetic import SyntheticDataset

if TYPE_CHECKING:
    import numpy as np

    from dpbench_plugins.theory.datasets.synthetic import Draw


@dataclass(frozen=True)
class Thresholds(SyntheticDataset):
    """A threshold on the line; x is uniform on an unknown window [a, 2a] with a = 2^-u and u uniform on [0, 60].

    The label is x >= t, with t uniform on the middle share `middle` of the window. A grid that does not depend on the
    window fails: most windows contain none of a thousand thresholds spread evenly over [0, 1]. The window is as wide as
    its distance from 0, so 32-bit numbers resolve it to 1e-7.
    """

    name = "theory-thresholds"
    citation = "after theorem 4.1 of Alon, Bassily, Moran, Limits of Private Learning, 2019"

    middle: float = setting(0.6, ge=0, le=1, says="share of the window that the threshold lies in")

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw the window and the threshold; return a function that draws examples."""
        import numpy as np

        start = np.float32(2.0 ** -target_rng.uniform(0, 60))
        threshold = start * (1 + 0.5 * (1 + self.middle * target_rng.uniform(-1, 1)))

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            x = (start * (1 + stream.random(n))).astype(np.float32)
            return x[:, None], x >= threshold

        return draw_examples


@dataclass(frozen=True)
class PlaneGaussian(SyntheticDataset):
    """A round Gaussian at an unknown position in the plane, and a target around its centre.

    The centre is uniform on [-1, 1]^2; the standard deviation is `spread`.
    """

    citation = "after Alon, Bassily, Moran, Limits of Private Learning, 2019"

    spread: float = setting(0.001, ge=1e-4, le=1e4, says="standard deviation")

    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw the centre, then the target; return a function that draws examples."""
        centre = target_rng.uniform(-1, 1, 2)
        says = self.target(target_rng)

        def draw_examples(n: int) -> tuple[np.ndarray, np.ndarray]:
            z = stream.standard_normal((n, 2))
            return centre + self.spread * z, says(z)

        return draw_examples

    @abstractmethod
    def target(self, target_rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
        """Draw a yes-or-no function of positions (n, 2) relative to the centre, in standard deviations."""


@dataclass(frozen=True)
class HalfPlane(PlaneGaussian):
    """A line at an unknown angle through the centre of a round Gaussian at an unknown position."""

    name = "theory-halfspace2d"

    def target(self, target_rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
        """Draw the angle."""
        import numpy as np

        angle = target_rng.uniform(0, 2 * np.pi)
        normal = np.array([np.cos(angle), np.sin(angle)])
        return lambda z: z @ normal >= 0


@dataclass(frozen=True)
class Rectangles(PlaneGaussian):
    """An axis-aligned rectangle around the centre of a round Gaussian at an unknown position, holding half of the mass.

    The probability that x is between the rectangle's sides is uniform on [0.6, 0.85]; for y, it is 0.5 divided by this.
    """

    name = "theory-rectangles"

    def target(self, target_rng: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
        """Draw the rectangle's sides."""
        import numpy as np
        from scipy.special import ndtri

        share = target_rng.uniform(0.6, 0.85)
        sides = ndtri((1 + np.array([share, 0.5 / share])) / 2)
        return lambda z: (np.abs(z) <= sides).all(1)
