"""Networks from the user's own checkpoint files: self-supervised ResNet-50s of solo-learn, MoCo v2 and MoCo v3.

A checkpoint is a file from `torch.save` or a .safetensors file. The keys of its backbone may have any prefix that these
projects use; projectors, predictors, momentum networks, queues and classifiers are dropped; every other key must match.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from dpbench import DataError, DataMissing, Extractor, SpecError, hookimpl, setting
from dpbench_plugins.extractors.photographs import crop_photograph, make_normalised_value_table
from dpbench_plugins.extractors.pixel_values import make_unit_value_table
from dpbench_plugins.extractors.vision import PhotographExtractor
from dpbench_plugins.extractors.weights import (
    candidate_paths,
    digest_file,
    find_first_file,
    load_state_strictly,
    read_state_dict,
    remove_classifier_head,
    unknown_name,
)

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

# The empty prefix comes last: a backbone saved on its own.
PLAIN = ("backbone.", "encoder.", "module.backbone.", "module.encoder.", "module.", "")
MOCO_V2 = ("module.encoder_q.", "encoder_q.")
MOCO_V3 = ("module.base_encoder.", "base_encoder.")
# Parts of pre-training that are not the backbone, recognised by a word in the first part of the key.
DROPPED = re.compile(
    r"(module\.)?[^.]*(fc|head|classifier|proj|pred|prototype|momentum|target|teacher|queue|encoder_k)[^.]*(\.|$)"
)
SIDE = 224  # pixels
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)  # of ImageNet, by channel


@dataclass(frozen=True)
class Backbone(PhotographExtractor):
    """A torchvision network without its last layer, with the weights of the file at `path`.

    `path` is absolute, or relative to the working folder or to a folder of `DPBENCH_DATA`. The digest of the file, not
    its path, identifies the features.
    """

    dimension: ClassVar[int | None] = 2048
    shorthand = "path"
    prefixes: ClassVar[tuple[str, ...]] = PLAIN

    path: str = setting(says="file of the weights")

    @property
    def _architecture(self) -> str:
        return "resnet50"

    @property
    def _expects_normalised_images(self) -> bool:
        return True

    def present(self) -> bool:
        """Return whether the file is on this machine."""
        return find_first_file(candidate_paths(self.path)) is not None

    @cached_property
    def _file(self) -> Path:
        paths = candidate_paths(self.path)
        if file := find_first_file(paths):
            return file
        looked = ", ".join(map(str, paths))
        raise DataMissing(
            f"The checkpoint {self.path} of extractor {self.name!r} is not on this machine (looked for {looked}). "
            f"Download it from its authors and use {self.name}:path=..."
        )

    def weights(self) -> str:
        """Return the SHA-256 of the checkpoint."""
        return digest_file(self._file)

    def prepare(self, image: Image) -> Tensor:
        """Return (3, 224, 224) float32: short side resized to 256 (bilinear), centre crop, pixels scaled by the recipe.

        With another `size`, the ratio 256 / 224 stays the same.
        """
        from PIL.Image import Resampling

        size = self.size or SIDE
        return crop_photograph(image, size * 256 // SIDE, size, Resampling.BILINEAR, self._values)

    @cached_property
    def _values(self) -> Tensor:
        return make_normalised_value_table(MEAN, STD) if self._expects_normalised_images else make_unit_value_table(3)

    def backbone(self) -> torch.nn.Module:
        """Return the network (c, 3, 224, 224) -> (c, d)."""
        from torchvision import models

        network: torch.nn.Module = models.get_model(self._architecture, weights=None)
        if not remove_classifier_head(network):
            raise SpecError(f"Expected a last linear layer to remove from arch {self._architecture!r}, found none.")
        wanted = network.state_dict()
        state = extract_backbone(read_state_dict(self._file), wanted, self.prefixes)
        _check_first_kernel_size(state, wanted, self._file)
        load_state_strictly(network, state, self._file)
        return network


def extract_backbone(state: dict[str, Tensor], wanted: dict[str, Tensor], prefixes: Sequence[str]) -> dict[str, Tensor]:
    """Return the backbone's tensors of a checkpoint, without their prefix.

    The prefix is the one under which most `wanted` keys are found. Known parts of pre-training are dropped. Any other
    key outside the prefix keeps its full name, so that loading refuses it.
    """
    best = max(prefixes, key=lambda prefix: sum(prefix + key in state for key in wanted))
    elsewhere = {key: tensor for key, tensor in state.items() if not key.startswith(best) and not DROPPED.match(key)}
    inside = {key.removeprefix(best): tensor for key, tensor in state.items() if key.startswith(best)}
    return elsewhere | {key: tensor for key, tensor in inside.items() if key in wanted or not DROPPED.match(key)}


def _check_first_kernel_size(state: dict[str, Tensor], wanted: dict[str, Tensor], file: Path) -> None:
    first = state.get("conv1.weight")
    if (
        first is not None
        and "conv1.weight" in wanted
        and first.shape[-1] == 3
        and wanted["conv1.weight"].shape[-1] == 7
    ):
        raise DataError(
            f"Expected a first convolution of 7x7 in {file}, got 3x3: a ResNet for 32x32 images (solo-learn's CIFAR "
            "variant, which also has no max-pooling). Use one trained on ImageNet-size images."
        )


@dataclass(frozen=True)
class Checkpoint(Backbone):
    """The features before the last layer of any torchvision classifier, with weights from a file (ResNet-50: 2,048).

    `recipe` is how pixels are scaled after resizing to 256 and cropping to 224: `imagenet` (normalised by ImageNet's
    mean and std) or `unit` ([0, 1], as in SimCLR's reference code). Licence: that of the file.
    """

    name = "checkpoint"
    dimension = None
    prefixes = (*MOCO_V2, *MOCO_V3, *PLAIN)

    arch: str = setting("resnet50", says="architecture, as torchvision names it")
    recipe: Literal["imagenet", "unit"] = setting("imagenet", says="how pixels are scaled")

    def __post_init__(self) -> None:
        """Check that torchvision has the architecture, and that the architecture takes images of this size."""
        from torchvision import models

        names = models.list_models(module=models)
        if self.arch not in names:
            raise SpecError(
                f"{unknown_name('arch', self.arch, names)} Extractor 'checkpoint' takes torchvision's classifiers."
            )
        super().__post_init__()
        if self.arch.startswith(("vit_", "maxvit")):
            self.check_image_sizes(SIDE, least=None)

    @property
    def _architecture(self) -> str:
        return self.arch

    @property
    def _expects_normalised_images(self) -> bool:
        return self.recipe == "imagenet"


@dataclass(frozen=True)
class ResNet50BYOL(Backbone):
    """The 2,048 pooled features of a ResNet-50 pre-trained by BYOL (Grill et al. 2020, arXiv:2006.07733).

    Use a checkpoint of solo-learn (github.com/vturrisi/solo-learn, MIT), which has the backbone under `backbone.`, or
    under `encoder.` in old files. The licence of the weights is stated on their page.
    """

    name = "resnet50-byol"


@dataclass(frozen=True)
class ResNet50MoCoV2(Backbone):
    """The 2,048 pooled features of a ResNet-50 pre-trained by MoCo v2 (Chen et al. 2020, arXiv:2003.04297).

    Use the authors' moco_v2_800ep_pretrain.pth.tar (github.com/facebookresearch/moco, CC BY-NC 4.0), which has the
    backbone under `module.encoder_q.`, or a checkpoint of solo-learn, which has it under `backbone.`.
    """

    name = "resnet50-mocov2"
    prefixes = (*MOCO_V2, *PLAIN)


@dataclass(frozen=True)
class ResNet50MoCoV3(Backbone):
    """The 2,048 pooled features of a ResNet-50 pre-trained by MoCo v3 (Chen et al. 2021, arXiv:2104.02057).

    Use the authors' r-50-1000ep.pth.tar (github.com/facebookresearch/moco-v3, CC BY-NC 4.0), which has the backbone
    under `module.base_encoder.`, or a checkpoint of solo-learn, which has it under `backbone.`.
    """

    name = "resnet50-mocov3"
    prefixes = (*MOCO_V3, *PLAIN)


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [Checkpoint, ResNet50BYOL, ResNet50MoCoV2, ResNet50MoCoV3]
