"""Features of a network pre-trained on images from random processes, and how its weights are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dpbench import DataError, DataMissing, SpecError, Trainable, setting
from dpbench_plugins.extractors.pixel_values import read_pixels
from dpbench_plugins.extractors.randp.recipe import Recipe
from dpbench_plugins.extractors.weights import candidate_paths, digest, first_file, unknown_name

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor, nn

    from dpbench_plugins.extractors.randp.encoder import Encoder

LAST = 4  # the side of images to that of the last stage's map


@dataclass(frozen=True)
class RandPWRN(Trainable):
    """Pooled features of a WRN-16-4 that has seen no data at all (DP-RandP, phase I; Tang et al. 2023).

    `stages=all` concatenates the means of the network's three stages, 64 + 128 + 256 (as appendix G does with blocks of
    a transformer); `last` is the third only, which phase II of DP-RandP uses. `pool=2` takes the means of each quarter
    of a stage's map, and so four times as many features. `path` is a checkpoint of `dpbench
    pretrain`, absolute or relative to the working folder or a folder of `DPBENCH_DATA`; None is the one shipped with
    dpbench. Images are resized to 32x32 and scaled by fixed constants.

    `layer` gives the activations after that residual block in place of features, in half precision, for a learner that
    trains the blocks behind it (`dp-finetune`), as phase III of DP-RandP trains the whole network.

    Differs from the paper's Table 4, whose probe uses a layer of 4,096 features on top of the network from its
    pre-training.
    """

    name = "randp-wrn16-4"
    licence = "Apache-2.0"  # made by dpbench from random processes
    trained_on = "images of random processes"
    dimension = 448
    recipe = Recipe
    network = "wrn-16-4"
    size = 32

    path: str | None = setting(None, says="checkpoint of `dpbench pretrain`; auto: the one that comes with dpbench")
    stages: Literal["all", "last"] = setting("all", says="stages of the network whose means are features")
    pool: int = setting(1, added=True, ge=1, says="parts along a side that a map is averaged over")
    layer: str | None = setting(
        None, added=True, says="residual block whose activations are returned instead of features"
    )

    def __post_init__(self) -> None:
        """Check the layer, that it comes without pooling options, and that `pool` divides the map of the last stage."""
        if self.layer is not None and self.layer not in self.layers():
            raise SpecError(unknown_name("layer", self.layer, self.layers()))
        if self.layer is not None and (self.stages, self.pool) != ("all", 1):
            raise SpecError(
                f"Expected no stages and no pool with layer={self.layer} in extractor {self.name!r}: activations are "
                "not pooled."
            )
        if self.size // LAST % self.pool:
            raise SpecError(
                f"Expected pool={self.pool} of extractor {self.name!r} to divide {self.size // LAST}, the side of the "
                "last stage's map: it cuts each map into pool x pool parts."
            )

    def layers(self) -> Mapping[str, tuple[int, ...]]:
        """Return the residual blocks that have blocks after them."""
        widths, side = (64, 64, 128, 128, 256), self.size
        return {
            f"blocks.{block}": (width, side * 64 // width, side * 64 // width) for block, width in enumerate(widths)
        }

    @property
    def _layer_count(self) -> int:
        """The number of trunk layers that the activations have passed: a convolution, and blocks."""
        return list(self.layers()).index(str(self.layer)) + 2

    def tail(self) -> Callable[[], nn.Module] | None:
        """Return a loader of the blocks behind `layer`, the final normalisation and the pooling."""
        return None if self.layer is None else lambda: self._encoder().tail(self._layer_count)

    def _candidates(self) -> list[Path]:
        if self.path is None:
            from dpbench_plugins.networks.network_checkpoint import SHIPPED

            return [SHIPPED[self.name]]
        return candidate_paths(self.path)

    def _file(self) -> Path:
        paths = self._candidates()
        if file := first_file(paths):
            return file
        looked = ", ".join(map(str, paths))
        raise DataMissing(
            f"The checkpoint of extractor {self.name!r} is not on this machine (looked for {looked}). Make one "
            f"without any data: dpbench pretrain {self.name} --out FILE.safetensors. Then use {self.name}:path=FILE."
        )

    def present(self) -> bool:
        """Return whether the checkpoint is on this machine."""
        return first_file(self._candidates()) is not None

    def weights(self) -> str:
        """Return the SHA-256 of the checkpoint."""
        return digest(self._file())

    def prepare(self, image: Image) -> Tensor:
        """Return (3, size, size) float32 in [0, 1]; other sizes are resized (bilinear)."""
        return read_pixels(image, self.size, "RGB")

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        """Return the map (c, 3, size, size) -> (c, features), or to the activations after `layer`.

        Raises:
            DataMissing: there is no checkpoint; the message says how to make one.
            DataError: the checkpoint is of another network or has other shapes.
        """
        import torch

        module = self.as_module().to(device)

        def embed(images: Tensor) -> Tensor:  # (c, 3, size, size) -> (c, features)
            with torch.inference_mode():
                features: Tensor = module(images.to(device))
                return features

        return embed

    def as_module(self) -> nn.Module:
        """Return the map of `open` as a module, in evaluation mode."""
        from dpbench_plugins.extractors.randp.encoder import EncoderFeatures

        layers = None if self.layer is None else self._layer_count
        return EncoderFeatures(self._encoder(), self.pool, every_stage=self.stages == "all", layers=layers)

    def _encoder(self) -> Encoder:
        from dpbench_plugins.extractors.randp.encoder import load_encoder
        from dpbench_plugins.networks.network_checkpoint import Checkpoint

        file = self._file()
        checkpoint = Checkpoint.load(file)
        if checkpoint.network != self.network:
            raise DataError(
                f"Expected a checkpoint of network {self.network!r} in {file}, got one of {checkpoint.network!r}. "
                f"Extractor {self.name!r} reads what dpbench pretrain {self.name} writes."
            )
        try:
            return load_encoder(self.network, self.size, checkpoint.state)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise DataError(f"The weights in {file} do not fit network {self.network!r}: {reason}") from error

    @classmethod
    def pretrain(
        cls, recipe: Any, out: Path, device: torch.device, report: Callable[[str, float], None], *, resume: bool
    ) -> None:
        """Pre-train the network by a `Recipe`; see `dpbench_plugins.extractors.randp.pretraining.pretrain`."""
        from dpbench_plugins.extractors.randp.pretraining import Training, pretrain
        from dpbench_plugins.extractors.randp.probe import Probe

        probe: Callable[[Any], float] = (
            (lambda _: 0.0) if recipe.probe == "none" else Probe(recipe.probe, cls().prepare)
        )
        pretrain(Training(cls.network, cls.size, recipe, device), out, resume, report, probe)
