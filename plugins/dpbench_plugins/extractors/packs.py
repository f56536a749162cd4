"""Features from a file that another machine computed, so that only one machine needs the large network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dpbench import DataMissing, Extractor, FeaturePack, hookimpl, setting
from dpbench_plugins.extractors.weights import candidate_paths, find_first_file

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor


@dataclass(frozen=True)
class Pack(Extractor):
    """Precomputed features from a feature pack, in half precision; `dpbench features pack` writes packs.

    `path` is absolute, or relative to the working folder or to a folder of `DPBENCH_DATA`. Each image is looked up by
    the digest of its pixels, and an image that is not in the pack is refused. Licence and training data are those on
    the pack's card, which `dpbench features show` prints. dpbench cannot check how the features were computed.
    """

    name = "pack"
    shorthand = "path"

    path: str = setting(says="file of the pack")

    @property
    def trained_on(self) -> str:  # type: ignore[override]  # the pack decides
        """The training data of the network, as the pack's card states it."""
        return self._pack.card.trained_on

    @property
    def made_elsewhere(self) -> str:  # type: ignore[override]  # the pack decides
        """The network that computed the features, and the digest of the pack."""
        return f"{self._pack.card.network} (pack {self._pack.digest})"

    def present(self) -> bool:
        """Return whether the file is on this machine."""
        return find_first_file(candidate_paths(self.path)) is not None

    @cached_property
    def _pack(self) -> FeaturePack:
        paths = candidate_paths(self.path)
        if file := find_first_file(paths):
            return FeaturePack.read(file)
        raise DataMissing(
            f"The feature pack {self.path} is not on this machine (looked for {', '.join(map(str, paths))}). Get it "
            "from whoever made it, or make it: dpbench features pack."
        )

    def weights(self) -> str:
        """Return the SHA-256 of the pack, in place of a digest of the weights, which dpbench does not see."""
        return self._pack.digest

    def prepare(self, image: Image) -> Tensor:
        """Return the features (*example_shape) float16 of an image."""
        import torch

        return torch.from_numpy(self._pack.find(image))

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the identity, because `prepare` has already looked up the features."""
        return lambda features: features


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractor of this module."""
    return [Pack]
