"""Features of a network pre-trained on images from random processes, and the entry point of its pre-training."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from dpbench import DataError, DataMissing, SpecError, Trainable, setting
from dpbench_plugins.extractors.pixel_values import convert_image_to_tensor
from dpbench_plugins.extractors.randp.recipe import PretrainingRecipe
from dpbench_plugins.extractors.weights import candidate_paths, digest_file, find_first_file, unknown_name

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor, nn

    from dpbench_plugins.extractors.randp.encoder import Encoder


@dataclass(frozen=True)
class RandPWRN(Trainable):
    """Pooled features of a WRN-16-4 that has seen no data at all (DP-RandP, phase I; Tang et al. 2023).

    `stages=all` concatenates the means of the network's three stages, 64 + 128 + 256 (as appendix G does with blocks of
    a transformer); `last` returns the third stage only, which phase II of DP-RandP uses. `pool=2` averages each
    quadrant of a stage's map, which gives four times as many features. `stages=embedding` returns the 4,096-dimensional
    layer that the paper's linear probe uses (appendix F, Tables 4 and 22); it needs a checkpoint pre-trained with
    `embed=true`. `path` is a checkpoint of `dpbench pretrain`, absolute or relative to the working folder or a folder
    of `DPBENCH_DATA`; None is the one shipped with dpbench. Images are resized to 32x32 and scaled by fixed constants.

    `layer` returns the activations after that residual block instead of features, in half precision, for a learner that
    trains the later blocks (`dp-finetune`), as phase III of DP-RandP trains the whole network.
    """

    name = "randp-wrn16-4"
    licence = "Apache-2.0"  # made by dpbench from random processes
    trained_on = "images of random processes"
    dimension = 448
    recipe = PretrainingRecipe
    network = "wrn-16-4"
    size = 32
    stem = 1  # layers before the first block
    blocks: ClassVar[tuple[tuple[int, int], ...]] = ((64, 1), (64, 1), (128, 2), (128, 2), (256, 4), (256, 4))
    """Width of each residual block, and the side of the image divided by the side of the block's map."""

    path: str | None = setting(None, says="checkpoint of `dpbench pretrain`; auto: the one that comes with dpbench")
    stages: Literal["all", "last", "embedding"] = setting(
        "all", says="stages of the network whose means are features, or the layer on top of it"
    )
    pool: int = setting(1, added=True, ge=1, says="parts along a side that a map is averaged over")
    layer: str | None = setting(
        None, added=True, says="residual block whose activations are returned instead of features"
    )

    def __post_init__(self) -> None:
        """Check that `layer` exists, and that `stages` and `pool` fit `layer`, each other and the network.

        `layer` allows no `stages` and no `pool`, `stages=embedding` allows no `pool`, and `pool` must divide the side
        of the last stage's map.
        """
        if self.layer is not None and self.layer not in self.layers():
            raise SpecError(unknown_name("layer", self.layer, self.layers()))
        if self.layer is not None and (self.stages, self.pool) != ("all", 1):
            raise SpecError(
                f"Expected no stages and no pool with layer={self.layer} in extractor {self.name!r}: activations are "
                "not pooled."
            )
        side = self.size // self.blocks[-1][1]
        if side % self.pool:
            raise SpecError(
                f"Expected pool={self.pool} of extractor {self.name!r} to divide {side}, the side of the "
                "last stage's map: it cuts each map into pool x pool parts."
            )
        if self.stages == "embedding" and self.pool != 1:
            raise SpecError(f"Expected no pool with stages=embedding in extractor {self.name!r}: it reads whole maps.")

    def layers(self) -> Mapping[str, tuple[int, ...]]:
        """Return the shape (channels, height, width) of the activations after each residual block but the last."""
        return {
            f"blocks.{block}": (width, self.size // divisor, self.size // divisor)
            for block, (width, divisor) in enumerate(self.blocks[:-1])
        }

    @property
    def _layer_count(self) -> int:
        """The number of trunk layers up to and including `layer`."""
        return list(self.layers()).index(str(self.layer)) + 1 + self.stem

    def tail(self) -> Callable[[], nn.Module] | None:
        """Return a loader of the blocks after `layer`, the final normalisation and pooling; None without `layer`."""
        return None if self.layer is None else lambda: self._load_encoder().tail(self._layer_count)

    def _candidate_paths(self) -> list[Path]:
        if self.path is None:
            from dpbench_plugins.networks.network_checkpoint import SHIPPED

            return [SHIPPED[self.name]] if self.name in SHIPPED else []
        return candidate_paths(self.path)

    def _file(self) -> Path:
        paths = self._candidate_paths()
        if file := find_first_file(paths):
            return file
        looked = ", ".join(map(str, paths)) or "no path"
        raise DataMissing(
            f"The checkpoint of extractor {self.name!r} is not on this machine (looked for {looked}). Make one "
            f"without any data: dpbench pretrain {self.name} --out FILE.safetensors. Then use {self.name}:path=FILE."
        )

    def present(self) -> bool:
        """Return whether the checkpoint is on this machine."""
        return find_first_file(self._candidate_paths()) is not None

    def weights(self) -> str:
        """Return the SHA-256 of the checkpoint."""
        return digest_file(self._file())

    def prepare(self, image: Image) -> Tensor:
        """Return (3, size, size) float32 in [0, 1]; other sizes are resized (bilinear)."""
        return convert_image_to_tensor(image, self.size, "RGB")

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
        return EncoderFeatures(self._load_encoder(), self.pool, stages=self.stages, layers=layers)

    def _load_encoder(self) -> Encoder:
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
            encoder = load_encoder(self.network, self.size, checkpoint.state)
        except RuntimeError as error:
            reason = str(error).splitlines()[-1].strip()
            raise DataError(f"The weights in {file} do not fit network {self.network!r}: {reason}") from error
        if self.stages == "embedding" and not encoder.has_embedding:
            raise DataError(
                f"The checkpoint {file} has no embedding, which stages=embedding of extractor {self.name!r} reads. "
                f"Make one: dpbench pretrain {self.name}:embed=true --out FILE.safetensors."
            )
        return encoder

    @classmethod
    def pretrain(
        cls, recipe: Any, out: Path, device: torch.device, report: Callable[[str, float], None], *, resume: bool
    ) -> None:
        """Pre-train the network with a `Recipe`; see `dpbench_plugins.extractors.randp.pretraining.pretrain`."""
        from dpbench_plugins.extractors.randp.pretraining import Pretrainer, pretrain
        from dpbench_plugins.extractors.randp.probe import AccuracyProbe

        probe: Callable[[Any], float] = (
            (lambda _: 0.0) if recipe.probe == "none" else AccuracyProbe(recipe.probe, cls().prepare)
        )
        pretrain(Pretrainer(cls.network, cls.size, recipe, device), out, resume, report, probe)


@dataclass(frozen=True)
class RandPDeepWRN(RandPWRN):
    """Pooled features of a WRN-40-4 that has seen no data at all, like `randp-wrn16-4` (Table 12 of Tang et al. 2023).

    Make its checkpoint with `dpbench pretrain`; none comes with dpbench.
    """

    name = "randp-wrn40-4"
    network = "wrn-40-4"
    blocks = tuple((width, width // 64) for width in (64, 128, 256) for _ in range(6))


@dataclass(frozen=True)
class RandPResNet9(RandPWRN):
    """Pooled features of a ResNet-9 that has seen no data at all, like `randp-wrn16-4` (Tables 3 and 16 of the paper).

    `stages=all` concatenates the means before each halving of the resolution, 64 + 128 + 256, and those of the last map
    (256). Make its checkpoint with `dpbench pretrain`; none comes with dpbench.
    """

    name = "randp-resnet9"
    dimension = 704
    network = "resnet-9"
    stem = 0
    blocks = ((64, 1), (128, 2), (128, 2), (256, 4), (256, 8), (256, 8))
