"""What all drawn datasets share: sizes, a seed, and splits that are fresh draws of one distribution."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Self

from dpbench import INDEPENDENT_DRAWS, Dataset, Features, SpecError, Split, Splits

if TYPE_CHECKING:
    import numpy as np

    Draw = Callable[[int], tuple[np.ndarray, np.ndarray]]  # n -> x (n, d), y (n,) in {0, 1}

VERSION = 1  # of what is drawn: another number wherever the same options draw otherwise
STREAM = 0x7E08


@dataclass(frozen=True)
class Synthetic(Dataset):
    """A distribution with a target that is drawn with it.

    `n` training and `m` public examples beside them (those of a run come out of both, by --public-fraction), and `test`
    fresh draws on which the error of a hypothesis is measured: its standard error is at most 1 / (2 sqrt(test)).
    Labels are the target's. A share `noise` of those of training is turned: 1 - accuracy is the chance to disagree with
    the target, and the excess error is that times 1 - 2 noise. With `seed` left out, every seed of a run draws a
    distribution and examples of its own, so that the mean over seeds is the mean over samples that a theorem speaks of;
    with a number, all see the same.
    """

    classes: ClassVar[tuple[str, ...]] = ("no", "yes")
    licence: ClassVar[str] = "CC0: drawn at random"
    test_differs: ClassVar[str] = "its labels are without noise"

    n: int = 1000
    m: int = 0
    test: int = 10_000
    noise: float = 0.0
    seed: int | None = None

    def __post_init__(self) -> None:
        """Refuse sizes that are none."""
        if self.n < 1 or self.m < 0 or self.test < 1 or (self.seed or 0) < 0:
            raise SpecError(
                f"Expected n={self.n} >= 1, m={self.m} >= 0, test={self.test} >= 1 and seed={self.seed} >= 0 in "
                f"dataset {self.name!r}."
            )
        check_within(self.name, noise=(0, self.noise, 0.5))

    def drawn(self, seed: int) -> Self:
        """Return this dataset as one seed of a run draws it."""
        return self if self.seed is not None else dataclasses.replace(self, seed=seed)

    def load(self) -> Splits:
        """Draw the target, then train, public and test from streams of their own."""
        import numpy as np

        options = {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
        digest = hashlib.sha256(json.dumps([VERSION, self.name, options], sort_keys=True).encode()).hexdigest()
        world, *streams = (np.random.default_rng([STREAM, self.seed or 0, part]) for part in range(4))
        state = world.bit_generator.state
        splits: list[Split] = []
        for stream, size in zip(streams, (self.n, self.m, self.test), strict=True):
            world.bit_generator.state = state  # the same target for each
            x, y = self.draw(world, stream)(size)
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
    def draw(self, world: np.random.Generator, stream: np.random.Generator) -> Draw:
        """Draw the distribution and its target from `world`; return what draws examples from `stream`."""


def check_within(owner: str, **bounds: tuple[float, float, float]) -> None:
    """Refuse an option that is not between its bounds: name -> (low, value, high), both ends allowed.

    Raises:
        SpecError: one sentence that names the option.
    """
    for name, (low, value, high) in bounds.items():
        if not low <= value <= high:
            raise SpecError(f"Expected {name}={value:g} in [{low:g}, {high:g}] in dataset {owner!r}.")
