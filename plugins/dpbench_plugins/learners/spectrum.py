"""The principal components of public features, which several learners build their coordinates from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dpbench import PrincipalComponents, SpecError, Standardise, exact_linear, unit_norm

if TYPE_CHECKING:
    from torch import Tensor

    Transform = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Spectrum:
    """The principal components of public rows; `thrift` and related learners build their feature maps from them."""

    standardise: Standardise
    centre: Tensor  # (d,) float64, of rows of unit norm
    components: PrincipalComponents
    examples: int
    who: str = "thrift"  # reads it, for messages

    def make_whitening_map(self, k: int, whitening: float) -> Transform:
        """Return the map from features (c, *shape) to leading components (c, k), softly whitened, of unit norm or zero.

        Each component is divided by its standard deviation, relative to the largest, to the power `whitening`.

        Raises:
            SpecError: `k` is not below the number of public examples, or exceeds the number of features.
        """
        features, values = len(self.centre), self.components.values
        most = min(self.examples - 1, features)
        if k > most:
            raise SpecError(
                f"Expected k={k} in 1..{most} in learner {self.who!r}: fewer than the {self.examples} public examples, "
                f"and no more than the {features} features. Add --public-fraction or --public-dataset, or set "
                f"{self.who}:k=..."
            )
        relative = (values[-k:] / values[-1].clamp(min=1e-12)).clamp(min=1e-4)
        directions = (self.components.leading(k) * relative.pow(-whitening / 2)).T  # (k, d)
        weight, shift = directions.float(), (-directions @ self.centre).float()
        standardise = self.standardise
        return lambda rows: unit_norm(exact_linear(unit_norm(standardise(rows)), weight, shift))


def compute_spectrum(x: Tensor, learner: str = "thrift") -> Spectrum:
    """Return the `Spectrum` of public features (m, *shape), which are first centred, scaled and brought to unit norm.

    Raises:
        SpecError: there are fewer than two examples, or some features are not finite.
    """
    flat = x.flatten(1)  # (m, d)
    if len(flat) < 2:
        raise SpecError(
            f"Expected at least 2 public examples in learner {learner!r}, got {len(flat)}. Add --public-fraction or "
            "--public-dataset."
        )
    mean, deviation = flat.mean(0), flat.std(0, correction=0)
    if not bool(deviation.isfinite().all()):
        raise SpecError(f"Some public features in learner {learner!r} are not finite. Check the data.")
    # A feature that hardly varies in public may vary in private: it is not blown up.
    scale = deviation.clamp(min=max(0.1 * float(deviation.mean()), 1e-12)).rsqrt()
    standardise = Standardise(-mean * scale, scale)
    units = unit_norm(standardise(x)).double()
    centre = units.mean(0)
    return Spectrum(standardise, centre, PrincipalComponents.of(units - centre, len(units)), len(units), learner)
