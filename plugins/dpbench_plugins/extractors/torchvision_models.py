"""Networks of torchvision with the weights that torchvision publishes: the supervised ResNet-50, and any classifier.

Weights are files `<name>-<start of their SHA-256>.pth` in torch's hub cache or in a folder of `DPBENCH_DATA`; otherwise
they are downloaded from download.pytorch.org. The digest in the name is always checked.
"""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench import DataError, DataMissing, Extractor, SpecError, data_folders, hookimpl, setting
from dpbench_plugins.extractors.photographs import crop_photograph, make_normalised_value_table
from dpbench_plugins.extractors.vision import PhotographExtractor
from dpbench_plugins.extractors.weights import (
    digest_file,
    find_first_file,
    load_state_strictly,
    read_state_dict,
    remove_classifier_head,
    torch_cache_folder,
    unknown_name,
)

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor


RESNET50 = ("resnet50", "IMAGENET1K_V1")
RESNET50_FILE = "resnet50-0676ba61.pth"  # so that listing the defaults imports nothing


@dataclass(frozen=True, kw_only=True)
class TorchvisionClassifier(PhotographExtractor):
    """A torchvision classifier without its last layer; `selection` names the model and its weights."""

    def __post_init__(self) -> None:
        """Check that the model takes images of this size."""
        super().__post_init__()
        if self.size or self.views != "one":
            model, meta, (side,) = self.selection[0], self._entry.meta, self._entry.transforms().crop_size
            fixed = model.startswith(("vit_", "maxvit"))
            self.check_image_sizes(side, least=None if fixed else max(meta["min_size"]))

    @property
    @abstractmethod
    def selection(self) -> tuple[str, str]:
        """The names of the model and its weights in torchvision."""

    @property
    def trained_on(self) -> str:  # type: ignore[override]  # the weights decide
        """The training data of the weights; `SWAG` weights were first trained on Instagram images."""
        tag = self.selection[1]
        weights = self._entry.name if tag == "DEFAULT" else tag  # of some models, the default is SWAG
        return "Instagram, ImageNet-1k" if "SWAG" in weights else "ImageNet-1k"

    @cached_property
    def _entry(self) -> Any:
        """The member of torchvision's weights enumeration that `selection` names."""
        from torchvision import models

        model, tag = self.selection
        names = models.list_models(module=models)
        if model not in names:
            raise SpecError(
                f"{unknown_name('model', model, names)} Extractor {self.name!r} takes torchvision's classifiers."
            )
        # Weights without classes cover only the lower layers of a classifier.
        entries = {entry.name: entry for entry in models.get_model_weights(model) if entry.meta["categories"]}
        if tag != "DEFAULT" and tag not in entries:
            raise SpecError(
                f"{unknown_name('tag', tag, [*entries, 'DEFAULT'])} These are torchvision's weights of {model}."
            )
        return models.get_model_weights(model).DEFAULT if tag == "DEFAULT" else entries[tag]

    @cached_property
    def _transform(self) -> Callable[[Image], Tensor]:
        from PIL.Image import Resampling

        recipe = self._entry.transforms()
        (short,), (side,), resample = recipe.resize_size, recipe.crop_size, recipe.interpolation
        if self.size:
            short, side = self.size * short // side, self.size
        values = make_normalised_value_table(recipe.mean, recipe.std)
        return partial(crop_photograph, short=short, side=side, resample=Resampling[resample.name], values=values)

    def present(self) -> bool:
        """Return whether the weights file is on this machine."""
        name = RESNET50_FILE if self.selection == RESNET50 else self._entry.url.rsplit("/", 1)[-1]
        return find_first_file(_list_candidate_paths(name)) is not None

    @cached_property
    def _file(self) -> Path:
        url = self._entry.url
        name = url.rsplit("/", 1)[-1]
        candidates = _list_candidate_paths(name)
        file = find_first_file(candidates) or self._download(candidates[0])
        expected = _parse_digest_prefix(name)
        if not digest_file(file).startswith(expected):
            raise DataError(
                f"Expected {file} to have a SHA-256 that starts with {expected}, as in its name, got "
                f"{digest_file(file)[:12]}. Delete it and download it again from {url}."
            )
        return file

    def _download(self, file: Path) -> Path:
        from urllib.request import Request, urlopen

        import torch

        url, size = self._entry.url, self._entry.meta["_file_size"] * 2**20 / 1e6  # torchvision counts in MiB
        try:
            urlopen(Request(url, method="HEAD"), timeout=10).close()  # torch's own download has no timeout
            file.parent.mkdir(parents=True, exist_ok=True)
            torch.hub.download_url_to_file(url, str(file), _parse_digest_prefix(file.name) or None)
        except (OSError, RuntimeError) as error:
            looked = ", ".join(str(folder) for folder in (file.parent, *data_folders()))
            raise DataMissing(
                f"The weights {file.name} of extractor {self.name!r} are not on this machine (looked in {looked}; "
                f"download failed with {type(error).__name__}). Go online once, or download {url} ({size:.0f} MB) "
                "elsewhere and put it in a folder of DPBENCH_DATA."
            ) from error
        return file

    def weights(self) -> str:
        """Return the SHA-256 of the weights file."""
        return digest_file(self._file)

    def prepare(self, image: Image) -> Tensor:
        """Return (3, h, w) float32, preprocessed as the weights require: resize, centre crop, normalise."""
        return self._transform(image)

    def backbone(self) -> torch.nn.Module:
        """Return the network (c, 3, h, w) -> (c, d)."""
        from torchvision import models

        model, _ = self.selection
        network: torch.nn.Module = models.get_model(
            model, weights=None, **_make_builder_options(model, self._entry.meta)
        )
        load_state_strictly(network, _rename_modules(read_state_dict(self._file), model), self._file)
        if not remove_classifier_head(network):
            raise SpecError(
                f"Expected a last linear layer to remove from model {model!r} of extractor {self.name!r}, found none. "
                "Use a model whose head is linear, such as resnet50, convnext_tiny or vit_b_16."
            )
        return network


def _list_candidate_paths(name: str) -> list[Path]:
    return [folder / name for folder in (torch_cache_folder(), *data_folders())]


def _parse_digest_prefix(name: str) -> str:
    found = re.search(r"-([a-f0-9]{8,})\.", name)
    return found[1] if found else ""


def _make_builder_options(model: str, meta: dict[str, Any]) -> dict[str, Any]:
    """Return the options that torchvision's builders set only when they also load (and unpickle) weights."""
    options: dict[str, Any] = {"num_classes": len(meta["categories"])}
    if model in {"googlenet", "inception_v3"}:
        options |= {"transform_input": True, "aux_logits": True, "init_weights": False}
    elif model.startswith("vit_"):
        options["image_size"] = meta["min_size"][0]
    elif model.startswith("maxvit"):
        options["input_size"] = meta["min_size"]
    return options


def _rename_modules(state: dict[str, Tensor], model: str) -> dict[str, Tensor]:
    if model.startswith("densenet"):  # published with old module names: norm.1 is norm1 today
        return {
            re.sub(r"(denselayer\d+\.(?:norm|relu|conv))\.([12]\.)", r"\1\2", key): value
            for key, value in state.items()
        }
    return state


@dataclass(frozen=True)
class TorchVision(TorchvisionClassifier):
    """The features before the last layer of any torchvision classifier (d = 512 for resnet18, 2,048 for resnet50).

    `tag` is torchvision's name of the weights: IMAGENET1K_V1, IMAGENET1K_V2, IMAGENET1K_SWAG_LINEAR_V1 ... or DEFAULT.
    Licence: torchvision is BSD-3-Clause; the weights may have their own licences, derived from their data (ImageNet:
    non-commercial research; the SWAG weights: CC BY-NC 4.0).
    """

    name = "torchvision"
    shorthand = "model"

    model: str = setting(RESNET50[0], says="classifier, as torchvision names it")
    tag: str = setting(RESNET50[1], says="weights, as torchvision names them")

    def __post_init__(self) -> None:
        """Refuse names that torchvision does not have; the defaults need no import."""
        if self.selection != RESNET50:
            _ = self._entry
        super().__post_init__()

    @property
    def selection(self) -> tuple[str, str]:
        """The names of the model and its weights, as the user gave them."""
        return self.model, self.tag


@dataclass(frozen=True)
class ResNet50(TorchvisionClassifier):
    """The 2,048 pooled features of ResNet-50, supervised on ImageNet-1K: PILLAR's SL.

    Weights: torchvision's IMAGENET1K_V1 (resnet50-0676ba61.pth, 103 MB, 76.1% top-1), trained by torchvision's
    reference script. Licence: torchvision is BSD-3-Clause; ImageNet's terms are non-commercial research. Preprocessing:
    resize the short side to 256 (bilinear), centre crop 224, normalise by ImageNet's mean and std.
    """

    name = "resnet50"
    licence = "BSD-3-Clause; ImageNet: non-commercial research"
    weights_size = 102_530_333
    dimension = 2048

    @property
    def selection(self) -> tuple[str, str]:
        """The names of ResNet-50 and of torchvision's original weights for it."""
        return RESNET50


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [TorchVision, ResNet50]
