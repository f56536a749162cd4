"""Test exactly whether some direction has no noise, without knowing the direction.

Draw m independent standard normal vectors, and let r_j be the m values of coordinate j minus their projection onto the
values of all coordinates before j. Then |r_j|^2 is chi-square with m - j degrees of freedom, j = 0, 1, ..., and these
are independent (Bartlett 1933). If k directions have no noise, the last k lengths are 0, whatever the directions are.
The test needs more vectors than coordinates: fewer vectors leave some directions empty in any case.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpbench.audit.extremes import SmallestPValue
from dpbench.records.audit import StatisticalCheck

FEWEST_SPARE = 32  # vectors beyond as many as there are coordinates, or an honest length may be near 0 by chance


def check_noise_directions(samples: list[np.ndarray], location: str) -> Iterator[StatisticalCheck]:
    """Yield the test of whether some direction has no noise; `samples` has noise vectors (m, d) for each release."""
    from scipy.special import chdtr, chdtrc

    found = SmallestPValue()
    for vectors in samples:
        m, d = vectors.shape
        if m >= d + FEWEST_SPARE:
            lengths = np.square(np.diag(np.linalg.qr(vectors, mode="r")))
            freedom = m - np.arange(d)
            tails = np.minimum(chdtr(freedom, lengths), chdtrc(freedom, lengths))
            found.add(min(1.0, 2 * float(tails.min())), m, d)
    yield from found.test(f"directions of the noise {location}")
