"""ScatterNet: wavelet features without training (package kymatio), and a private linear probe on them.

Source of features and probe: Tramèr and Boneh, "Differentially Private Learning Needs Better Features", ICLR 2021
(arXiv:2011.11660).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from math import prod
from typing import TYPE_CHECKING, Any

from dpbench import (
    Budget,
    DataMissing,
    Extractor,
    Learner,
    ProbeLearner,
    PublicData,
    Release,
    SpecError,
    Task,
    effective_size,
    folded,
    hookimpl,
    resize_pixels,
    setting,
)
from dpbench_plugins.extractors.pixel_values import make_unit_value_table

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

DEPTH, ANGLES = 2, 8  # J and L of Tramèr and Boneh: 1 + J L + L^2 J (J - 1) / 2 = 81 coefficients per channel

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, by channel


@dataclass(frozen=True)
class ScatterNet(Extractor):
    """Scattering coefficients with J = 2 and L = 8 (Tramèr and Boneh 2021; Oyallon and Mallat 2015).

    d = channels * 81 * (size / 4 / pool)^2: 15,552 for 32x32 colour images, as in the paper. Images are resized to size
    x size (bilinear); as in the authors' code, colours are normalised by ImageNet's mean and std, and `grey` keeps one
    channel in [0, 1], for sets such as Fashion-MNIST (size=28: 3,969). `pool` averages the coefficients over pool x
    pool positions: 2 gives a quarter of the features. There are no weights; kymatio is BSD-3-Clause. Learner
    `scatternet` adds the paper's group normalisation and linear probe.
    """

    name = "scatternet"
    trained_on = "nothing"

    size: int = setting(32, ge=8, says="side in pixels that images are resized to, a multiple of 4")
    pool: int = setting(1, ge=1, says="positions along a side that are averaged into one")
    grey: bool = setting(False, says="whether one channel is kept")

    def __post_init__(self) -> None:
        """Check that `size` is a multiple of 4, and that `pool` divides `size` / 4."""
        if self.size % 4:
            raise SpecError(f"Expected size={self.size} of extractor 'scatternet' to be a multiple of 4.")
        if self.size // 4 % self.pool:
            raise SpecError(
                f"Expected pool={self.pool} of extractor 'scatternet' to divide size / 4 = {self.size // 4}: it "
                "averages that many positions per side into one."
            )

    def present(self) -> bool:
        """Return whether kymatio is installed, the only thing needed."""
        return find_spec("kymatio") is not None

    def prepare(self, image: Image) -> Tensor:
        """Return (3, size, size) float32, normalised, or (1, size, size) in [0, 1] when `grey`."""
        from PIL.Image import Resampling

        size = self.size, self.size
        return resize_pixels(image, "L" if self.grey else "RGB", size, Resampling.BILINEAR, self._values)

    @cached_property
    def _values(self) -> Tensor:
        import torch

        values = make_unit_value_table(1 if self.grey else 3)
        return values if self.grey else (values - torch.tensor(MEAN)[:, None]) / torch.tensor(STD)[:, None]

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, channels, size, size) -> (c, d)."""
        import torch

        scattering = _import_scattering_2d()(J=DEPTH, L=ANGLES, shape=(self.size, self.size)).to(device)

        def embed(images: Tensor) -> Tensor:  # (c, channels, size, size) -> (c, d)
            with torch.inference_mode():
                found: Tensor = scattering(images.to(device).contiguous()).flatten(1, 2)  # (c, channels * 81, h, w)
                return torch.nn.functional.avg_pool2d(found, self.pool).flatten(1)

        return embed


def _import_scattering_2d() -> Any:
    try:
        with _restore_spherical_harmonics():
            from kymatio.torch import Scattering2D
    except ImportError as error:
        raise DataMissing(
            f"Extractor 'scatternet' needs the package kymatio ({error}). Run: pip install 'dpbench-vision[scatter]'"
        ) from error
    return Scattering2D


@contextmanager
def _restore_spherical_harmonics() -> Iterator[None]:
    """Restore SciPy's `sph_harm` while kymatio is imported.

    SciPy 1.17 removed `sph_harm`; kymatio 0.3.0 imports it for its three-dimensional transform, which is not used here,
    so without `sph_harm` it cannot be imported at all. Pinning an old SciPy for that would be worse.
    """
    from scipy import special

    if getattr(special, "sph_harm", None) is not None:
        yield
        return
    special.sph_harm = lambda m, n, azimuth, polar: special.sph_harm_y(n, m, polar, azimuth)
    try:
        yield
    finally:
        del special.sph_harm


@dataclass(frozen=True)
class ScatterNetLinear(ProbeLearner):
    """Linear probe by DP-SGD on group-normalised ScatterNet features (Tramèr and Boneh 2021, section 3).

    Each example's features are cut into `groups` runs of whole channels, and each run is normalised to mean 0 and
    variance 1. So every example has about the same norm, and no statistics of other examples are needed. The learner
    takes any extractor whose number of features is a multiple of `groups`. No public data is used.

    Sample rate, clip and momentum are those of the authors' README for the CIFAR-10 probe (batch 8,192 of 50,000, clip
    0.1, momentum 0.9), and so is the number of steps: 360, the 60 epochs for which the README states its noise
    multiplier. The learning rate is the README's 4 if n / sigma is at least 36,000 (50,000 examples, epsilon 3), and
    proportional to n / sigma otherwise; `scatternet:paper` has 4 for any budget, and `paper_space` is the grid of the
    authors' scripts.

    Differs from the authors' code: Poisson samples as the accountant assumes, where theirs shuffles; sigma is
    calibrated to the steps; group normalisation is used for every dataset: the authors' best CIFAR-10 figure normalises
    by noisy means and squares, with a clip read from private norms without accounting for it.
    """

    name = "scatternet"
    public = "none"
    rule_origin = "the authors' code, in proportion to n / sigma"
    search_space = {
        "learning_rate": (1.0, 2.0, 4.0, 8.0),
        "steps": (60, 120, 360),
    }
    paper_space = {
        "batch": (512, 1024, 2048, 4096, 8192, 16_384),
        "learning_rate": (0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
        "groups": (9, 27, 81),
    }

    paper = {"steps": 360, "learning_rate": 4.0}

    sample_rate: float = setting(
        8192 / 50_000, gt=0, le=1, says="chance per example of being in a step, not a batch size"
    )
    clip: float = setting(0.1, gt=0, lt=math.inf, says="L2 bound on the gradient of one example")
    groups: int = setting(27, ge=1, says="runs of channels that are normalised")

    def auto(self, task: Task, budget: Budget) -> Mapping[str, Any]:
        """Return the README's steps, and a learning rate in proportion to n / sigma."""
        share = min(effective_size(task, budget) / 36_000, 1.0)
        return {"steps": 360, "learning_rate": float(f"{4 * share:.3g}")}

    def earlier_auto(self, task: Task, budget: Budget) -> Mapping[str, Mapping[str, Any]]:
        """Return nothing: the rule of `auto` never changed."""
        return {}

    def plan(self, task: Task, budget: Budget) -> Sequence[Release]:
        """Plan one release: the noisy gradient of every step.

        Raises:
            SpecError: the features cannot be cut into `groups` equal runs of two or more.
        """
        width = prod(task.example_shape)
        if width % self.groups or width == self.groups:
            raise SpecError(
                f"Expected groups={self.groups} of learner 'scatternet' to cut the {width} features of an example into "
                "equal runs of two or more. Use --extractor scatternet, or set groups."
            )
        return super().plan(task, budget)

    def features(self, task: Task, public: PublicData, generator: torch.Generator) -> Callable[[Tensor], Tensor]:
        """Return the function that normalises each group of an example's features."""
        return lambda x: normalise_groups(x.flatten(1), self.groups)


def normalise_groups(x: Tensor, groups: int) -> Tensor:
    """Scale each of `groups` runs of every row (c, d) to mean 0 and variance 1, as torch's `group_norm` does.

    Sums are folded, so that a row's bits do not depend on its position in a chunk.
    """
    runs = x.reshape(len(x), groups, x.shape[1] // groups)  # (c, groups, d / groups)
    size = runs.shape[2]
    centred = runs - (folded(runs, 2) / size).unsqueeze(2)
    variance = folded(centred.square(), 2) / size
    return (centred / (variance + 1e-5).sqrt_().unsqueeze(2)).flatten(1)


@hookimpl
def dpbench_learners() -> Sequence[type[Learner]]:
    """Register the learner of this module."""
    return [ScatterNetLinear]


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractor of this module."""
    return [ScatterNet]
