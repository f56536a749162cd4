"""The image generators by name. None has seen an image: they are hand-written random processes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from torch import Tensor

from dpbench import SpecError
from dpbench_plugins.extractors.random_images.dead_leaves import DeadLeaves
from dpbench_plugins.extractors.random_images.statistical import StatisticalImages
from dpbench_plugins.extractors.random_images.stylegan import StyleGANImages

Generator = Callable[[Tensor], Tensor]
"""Image numbers (n,) int64 -> (n, 3, size, size) float32 in [0, 1]; image i depends only on the seed and i."""

GENERATORS: Mapping[str, Callable[[int, int], Generator]] = {
    "stylegan-oriented": StyleGANImages,
    "stylegan-sparse": partial(StyleGANImages, variant="sparse"),
    "stylegan-high-freq": partial(StyleGANImages, variant="high-freq"),
    "dead-leaves": DeadLeaves,
    "statistical": StatisticalImages,
}


def make_generator(name: str, seed: int, size: int) -> Generator:
    """Return generator `name` of images of size x size.

    Raises:
        SpecError: no such generator.
    """
    if name not in GENERATORS:
        raise SpecError(f"Unknown generator {name!r}. Available: {', '.join(sorted(GENERATORS))}.")
    return GENERATORS[name](seed, size)
