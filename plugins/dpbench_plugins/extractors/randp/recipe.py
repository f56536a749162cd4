"""The recipe of a pre-training on images from random processes: everything that decides the weights."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dpbench import SpecError

MILESTONES = (0.775, 0.85, 0.925)  # shares of the steps after which the learning rate is divided by ten
RATES = {"align-uniform": 0.12, "moco": 0.03}  # learning rates for a batch of 256


@dataclass(frozen=True)
class PretrainingRecipe:
    """Contrastive pre-training without data; the defaults are those of Baradad et al. 2021, for 21 million images.

    `generator` makes the images, `canvas` pixels wide; no image is seen twice. `view` is the width in pixels of the
    views that the network is trained on; None is the width at which the network is used. Smaller views are cheaper.
    `precision=bfloat16` lets convolutions and products round, which is faster on hardware that supports it; weights
    stay float32.

    `loss` is alignment and uniformity (Wang and Isola 2020) or `moco` (He et al. 2020) with a `queue` of keys.
    `learning_rate=None` is 0.12 for a batch of 256 (0.03 with `moco`), and proportional to the batch. `probe` names a
    dataset to monitor: every `probe_every` steps a linear classifier on the features is scored on held-out images. The
    score is reported and never used.

    `embed=true` puts the layers of DP-RandP's authors on top of the network: a layer of 4,096 numbers that reads the
    whole last map, and that the checkpoint keeps for a probe; a second layer of 4,096; and the projection. With
    `embed=false`, the projection reads the means of the map.
    """

    generator: Literal["stylegan-oriented", "stylegan-sparse", "stylegan-high-freq", "dead-leaves", "statistical"] = (
        "stylegan-oriented"
    )
    seed: int = 0
    steps: int = 27_000
    batch: int = 768
    loss: Literal["align-uniform", "moco"] = "align-uniform"
    learning_rate: float | None = None
    canvas: int = 64
    view: int | None = None
    precision: Literal["float32", "bfloat16"] = "float32"
    queue: int = 65_536
    embed: bool = False
    probe: Literal["none", "digits", "cifar10"] = "digits"
    probe_every: int = 1000

    def __post_init__(self) -> None:
        """Check that settings are in range, and that `canvas` is a power of two."""
        least = {"seed": 0, "steps": 1, "batch": 2, "queue": 1, "probe_every": 1}
        for name, bound in least.items():
            if getattr(self, name) < bound:
                raise SpecError(f"Expected {name}={getattr(self, name)} >= {bound} to pre-train.")
        if self.learning_rate is not None and not self.learning_rate > 0:
            raise SpecError(f"Expected learning_rate={self.learning_rate} > 0 to pre-train.")
        if self.view is not None and self.view < 8:
            raise SpecError(f"Expected view={self.view} >= 8 pixels to pre-train, or none for the network's own size.")
        if self.canvas < 8 or self.canvas & (self.canvas - 1):
            raise SpecError(f"Expected canvas={self.canvas} to be 8, 16, 32, 64 ...: generators double their images.")

    def rate(self, step: int) -> float:
        """Return the learning rate of a step, counted from 0."""
        start = RATES[self.loss] * self.batch / 256 if self.learning_rate is None else self.learning_rate
        return start * 0.1 ** sum(step >= share * self.steps for share in MILESTONES)
