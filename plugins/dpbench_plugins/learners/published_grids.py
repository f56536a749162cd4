"""The grids of PILLAR's experiments (Pinto, Hu, Yang, Sanyal 2023, arXiv:2306.03962), which four learners share."""

from __future__ import annotations

COMPONENTS = (40, 120, 200, 280, 360, 440, 520, 768, 1028, 1284, 1540)
"""The numbers of dimensions in the authors' runs.

The paper prints no list. Its appendix C counts 405 runs, 9 numbers for each of the 45 settings of `LINEAR_GRID`.
The axes of its figures have ticks at 40, 520, 1,284 and 2,048; 2,048 is ResNet-50's number of features (dp-sgd).
"""

LINEAR_GRID = {
    "batch": (128, 512, 1024),
    "learning_rate": (0.01, 0.1, 1.0),
    "steps": (500, 1000, 3000, 5000, 6000),
    "momentum": (0.0,),
    "init": ("uniform",),
}
"""The grid for linear heads: steps, batches and learning rates of appendix B.1, which gives no momentum.

`init` is torch's default, as in the authors' code. That code also has values outside this grid: learning rate 0.001,
20,000 and 40,000 steps, batches of 64 and 256.
"""

LINEAR_SETTINGS = {"batch": 1024, "steps": 1000, "learning_rate": 0.1, "momentum": 0.0, "init": "uniform"}
"""One of the settings of `LINEAR_GRID`. The paper does not print the settings that its search chose."""

PUBLIC_SHARES = (0.001, 0.0001)
"""The public shares of the data for GEP and AdaDPS (appendix B.5).

Section 4.2 states a tenth for all methods with public data.
"""
