"""ScatterNet: wavelet features that were never trained on anything, by the package kymatio."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, ClassVar

from dpbench import DataMissing, Extractor, SpecError, hookimpl

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

DEPTH, ANGLES = 2, 8  # J and L of Tramèr and Boneh
PATHS = 1 + DEPTH * ANGLES + ANGLES**2 * DEPTH * (DEPTH - 1) // 2  # 81 coefficients a channel and place

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, by channel


@dataclass(frozen=True)
class ScatterNet(Extractor):
    """Scattering coefficients with J = 2 and L = 8 (Tramèr and Boneh, ICLR 2021, arXiv:2011.11660; Oyallon and Mallat).

    d = channels * 81 * (size / 4 / pool)^2: 15,552 for 32x32 colour images, as in the paper. Images become size x size
    (bilinear); as in the authors' code, colours are normalised by ImageNet's mean and std, and `grey` keeps one channel
    in [0, 1], for sets such as Fashion-MNIST (size=28: 3,969).
    `pool` averages the coefficients over pool x pool places: 2 makes features four times smaller. No weights; kymatio
    is BSD-3-Clause. What the paper puts on top (group normalisation, a linear classifier) is a learner's business.
    """

    name: ClassVar[str] = "scatternet"

    size: int = 32
    pool: int = 1
    grey: bool = False

    def __post_init__(self) -> None:
        """Refuse sizes that do not divide."""
        if self.size < 8 or self.size % 4:
            raise SpecError(f"Expected size={self.size} of extractor 'scatternet' to be a multiple of 4, 8 or more.")
        if self.pool < 1 or self.size // 4 % self.pool:
            raise SpecError(
                f"Expected pool={self.pool} of extractor 'scatternet' to divide size / 4 = {self.size // 4}: it "
                "averages that many places a side into one."
            )

    def present(self) -> bool:
        """Say whether kymatio is installed, the only thing needed."""
        return find_spec("kymatio") is not None

    def prepare(self, image: Image) -> Tensor:
        """Return (3, size, size) float32, normalised, or (1, size, size) in [0, 1] when `grey`."""
        import numpy as np
        import torch
        from PIL.Image import Resampling

        image = image.convert("L" if self.grey else "RGB").resize((self.size, self.size), Resampling.BILINEAR)
        pixels = torch.from_numpy(np.array(image)).float() / 255  # (size, size) or (size, size, 3)
        if self.grey:
            return pixels.unsqueeze(0)
        return ((pixels - torch.tensor(MEAN)) / torch.tensor(STD)).permute(2, 0, 1).contiguous()

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, channels, size, size) -> (c, d)."""
        import torch

        scattering = _scattering_2d()(J=DEPTH, L=ANGLES, shape=(self.size, self.size)).to(device)

        def embed(images: Tensor) -> Tensor:  # (c, channels, size, size) -> (c, d)
            with torch.inference_mode():
                found: Tensor = scattering(images.to(device).contiguous()).flatten(1, 2)  # (c, channels * 81, h, w)
                return torch.nn.functional.avg_pool2d(found, self.pool).flatten(1)

        return embed


def _scattering_2d() -> Any:
    try:
        with _old_name_of_spherical_harmonics():
            from kymatio.torch import Scattering2D
    except ImportError as error:
        raise DataMissing(
            f"Extractor 'scatternet' needs the package kymatio ({error}). Run: pip install 'dpbench-vision[scatter]'"
        ) from error
    return Scattering2D


@contextmanager
def _old_name_of_spherical_harmonics() -> Iterator[None]:
    """Give SciPy a function back while kymatio is imported.

    SciPy 1.17 removed `sph_harm`; kymatio 0.3.0 imports it for its three-dimensional transform, which is not used here,
    and so cannot be imported at all. Pinning an old SciPy for that would be worse.
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


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [ScatterNet]
