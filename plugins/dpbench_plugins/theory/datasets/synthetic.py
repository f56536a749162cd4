"""Base class of synthetic datasets: sizes, a seed, and splits that are fresh draws from one distribution."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from dpbench import INDEPENDENT_DRAWS, Dataset, Features, Split, Splits, setting

if TYPE_CHECKING:
    import numpy as np

    Draw = Callable[[int], tuple[np.ndarray, np.ndarray]]  # n -> x (n, d), y (n,) in {0, 1}

VERSION = 1  # of what is drawn: another number wherever the same options draw otherwise
STREAM = 0x7E08


@dataclass(frozen=True)
class SyntheticDataset(Dataset):
    """A random distribution with a random target.

    It has `n` training examples, `m` further public examples (--public-fraction adds a share of the training examples)
    and `test` fresh draws, on which a hypothesis is tested; the standard error of its accuracy is at most 1 / (2
    sqrt(test)). Labels are those of the target. A share `noise` of the training labels is flipped: 1 - accuracy is the
    chance of disagreement with the target, and the excess error is this chance times 1 - 2 noise. Without `seed`, each
    seed of a run draws its own distribution and examples, so the mean over seeds is the mean over samples in a theorem.
    With a `seed`, all seeds of a run share one distribution and its examples.
    """

    classes = ("no", "yes")
    licence = "CC0: drawn at random"
    test_differs = "its labels are without noise"

    n: int = setting(1000, ge=1, says="training examples")
    m: int = setting(0, ge=0, says="public examples beside them")
    test: int = setting(10_000, ge=1, says="test examples")
    noise: float = setting(0.0, ge=0, le=0.5, says="share of the training labels that are turned")
    seed: int | None = setting(None, ge=0, says="seed of the distribution; auto: that of the fit")

    def drawn(self, seed: int) -> Self:
        """Return the dataset that one seed of a run uses: this one if it has a seed, otherwise a copy with `seed`."""
        return self if self.seed is not None else dataclasses.replace(self, seed=seed)

    def load(self) -> Splits:
        """Draw the target, then the training, public and test examples, each from a stream of its own."""
        import numpy as np

        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        digest = hashlib.sha256(json.dumps([VERSION, self.name, options], sort_keys=True).encode()).hexdigest()
        world, *streams = (np.random.default_rng([STREAM, self.seed or 0, part]) for part in range(4))
        state = world.bit_generator.state
        splits: list[Split] = []
        parts = ((self.draw_training, self.n), (self.draw_public, self.m), (self.draw, self.test))
        for stream, (draw, size) in zip(streams, parts, strict=True):
            world.bit_generator.state = state  # the same target for each
            x, y = draw(world, stream)(size)
            turned = stream.random(size) < (self.noise if len(splits) < 2 else 0)
            splits.append(
                Split(
                    Features(np.ascontiguousarray(x, np.float32), INDEPENDENT_DRAWS),
                    np.where(turned, 1 - y, y).astype(np.int64),
                )
            )
        train, public, test = splits
        return Splits(train, test, digest, public if self.m else None)

    @abstractmethod
    def draw(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw distribution and target from `target_rng`; return a function that draws examples from `stream`."""

    def draw_training(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw as `draw` does; a subclass may draw training examples from another distribution than test examples."""
        return self.draw(target_rng, stream)

    def draw_public(self, target_rng: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw as `draw` does; a subclass may draw public examples from another distribution than test examples."""
        return self.draw(target_rng, stream)
