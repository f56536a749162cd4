"""Test whether noise leaves out a direction: exact, and for directions that nobody can name in advance.

Of m independent standard normal vectors, let r_j be coordinate j's m numbers less their projection on those of all
coordinates before j. Then |r_j|^2 is chi-square with m - j degrees of freedom, j = 0, 1, ..., and independent for all j
(Bartlett 1933). If k directions have no noise, the last k lengths are 0, whatever the directions are. It takes more
vectors than coordinates: with fewer, some directions are empty by chance.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpbench.audit.extremes import Extreme
from dpbench.records.audit import Check

FEWEST_SPARE = 32  # vectors beyond as many as there are coordinates, or an honest length may be near 0 by chance


def direction_checks(samples: list[np.ndarray], who: str) -> Iterator[Check]:
    """Yield the test of whether noise vectors, (m, d) for each release, leave out a direction."""
    from scipy.special import chdtr, chdtrc

    found = Extreme()
    for vectors in samples:
        m, d = vectors.shape
        if m >= d + FEWEST_SPARE:
            lengths = np.square(np.diag(np.linalg.qr(vectors, mode="r")))
            freedom = m - np.arange(d)
            tails = np.minimum(chdtr(freedom, lengths), chdtrc(freedom, lengths))
            found.add(min(1.0, 2 * float(tails.min())), m, d)
    yield from found.test(f"directions of the noise {who}")
