"""Networks of timm whose weights are on the Hugging Face hub: semi-supervised ResNet-50s, and any other by its name.

Weights are `model.safetensors` (or `pytorch_model.bin`) in a folder named after the model below a folder of
`DPBENCH_DATA`, else in the hub's cache, else on the hub (unless HF_HUB_OFFLINE=1).
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench import DataError, DataMissing, Extractor, SpecError, data_folders, hookimpl, setting
from dpbench_plugins.extractors.vision import PhotographExtractor
from dpbench_plugins.extractors.weights import (
    digest_file,
    find_first_file,
    hub_cache_path,
    read_state_dict,
    unknown_name,
)

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

FILES = ("model.safetensors", "pytorch_model.bin")

DATA_OF_TAGS = {
    "in1k": "ImageNet-1k", "in12k": "ImageNet-12k", "in21k": "ImageNet-21k", "in22k": "ImageNet-22k",
    "yfcc100m": "YFCC100M", "ig1b": "Instagram", "laion2b": "LAION-2B", "laion400m": "LAION-400M",
    "datacompxl": "DataComp-1B", "lvd142m": "LVD-142M", "webli": "WebLI", "openai": "image-text pairs of OpenAI",
    "jft": "JFT-300M", "swag": "Instagram", "seer": "Instagram", "ssld": "ImageNet-22k", "m30m": "Merged-30M",
    "m38m": "Merged-38M", "laiona": "LAION-Aesthetic",
}  # fmt: skip
"""The training data that a word in the tag of timm's weights names."""


@dataclass(frozen=True, kw_only=True)
class TimmNetwork(PhotographExtractor):
    """A timm network without its classifier; `selection` names the network."""

    def __post_init__(self) -> None:
        """Check that a network with a fixed input size gets that size."""
        super().__post_init__()
        if (self.size or self.views != "one") and self._entry.fixed_input_size:
            self.check_image_sizes(self._entry.input_size[-1], least=None)

    @property
    @abstractmethod
    def selection(self) -> str:
        """The model's name with the tag of its weights, like resnet50.a1_in1k."""

    @property
    def trained_on(self) -> str:  # type: ignore[override]  # the weights decide
        """The training data that the tag of the weights (such as a1_in1k) names; empty if the tag has no known word."""
        words = self.selection.partition(".")[2].split("_")
        return ", ".join(dict.fromkeys(DATA_OF_TAGS[word] for word in words if word in DATA_OF_TAGS))

    @cached_property
    def _entry(self) -> Any:
        """The configuration that timm stores with the weights."""
        timm = _import_timm()
        names = timm.list_pretrained()
        if self.selection not in names:
            near = timm.list_pretrained(f"{self.selection.partition('.')[0]}.*")[:10] or names
            raise SpecError(
                f"{unknown_name('model', self.selection, near)} Extractor {self.name!r} takes timm's names with the "
                "tag of the weights, like resnet50.a1_in1k."
            )
        entry: Any = timm.get_pretrained_cfg(self.selection)
        if not entry.hf_hub_id:
            raise SpecError(
                f"Expected model {self.selection!r} to be on the Hugging Face hub, but timm has it elsewhere."
            )
        return entry

    @cached_property
    def _transform(self) -> Callable[[Image], Tensor]:
        data = _import_timm().data
        recipe = data.resolve_data_config({"img_size": self.size}, pretrained_cfg=self._entry.to_dict())
        transform: Callable[[Image], Tensor] = data.create_transform(**recipe, is_training=False)
        return transform

    @cached_property
    def _file(self) -> Path:
        return find_first_file(self._candidate_paths()) or self._download()

    @property
    def _hub_id(self) -> str:
        return f"timm/{self.selection}"

    @property
    def _names(self) -> tuple[str, ...]:
        return FILES

    def _candidate_paths(self) -> Iterator[Path]:
        for folder in data_folders():
            for model in (self.selection, self._hub_id):
                yield from (folder / model / name for name in self._names)
        yield from (hub_cache_path(self._hub_id, name) for name in self._names)

    def present(self) -> bool:
        """Return whether the weights file is on this machine."""
        return find_first_file(self._candidate_paths()) is not None

    def _download(self) -> Path:
        import huggingface_hub

        hub_id = self._hub_id
        try:
            stored = {file.rfilename for file in huggingface_hub.HfApi().model_info(hub_id, timeout=5).siblings or ()}
            name = next(name for name in self._names if name in stored)
            return Path(huggingface_hub.hf_hub_download(hub_id, name))
        except Exception as error:  # the hub's client raises many kinds
            looked = ", ".join(str(folder / self.selection) for folder in data_folders())
            raise DataMissing(
                f"The weights of {self.selection} for extractor {self.name!r} are not on this machine (looked for "
                f"{' or '.join(self._names)} in {looked} and in the Hugging Face cache; download failed with "
                f"{type(error).__name__}). Go online once, or download {self._names[0]} "
                f"({_describe_download_size(self.selection)}) from "
                f"https://huggingface.co/{hub_id} into one of these folders."
            ) from error

    def weights(self) -> str:
        """Return the SHA-256 of the weights file."""
        return digest_file(self._file)

    def prepare(self, image: Image) -> Tensor:
        """Return (3, h, w) float32, preprocessed as the weights require: resize, crop, normalise."""
        return self._transform(image.convert("RGB"))

    def backbone(self) -> torch.nn.Module:
        """Return the network (c, 3, h, w) -> (c, d)."""
        state = read_state_dict(self._file)
        try:
            # With its classifier, because only then does timm load strictly: without, missing layers would stay random.
            network: Any = _import_timm().create_model(
                self.selection, pretrained=True, pretrained_cfg_overlay={"state_dict": state}
            )
        except (RuntimeError, KeyError, AttributeError) as error:  # from loading, or from adapting an old file's names
            raise DataError(
                f"Expected the weights of {self.selection} in {self._file}: {' '.join(str(error).split())[:300]} "
                "Check which model the file belongs to."
            ) from error
        network.reset_classifier(0)
        backbone: torch.nn.Module = network
        return backbone


def _import_timm() -> Any:
    try:
        import timm
        import timm.data
    except ImportError as error:
        raise DataMissing(
            f"The networks of timm need the package timm ({error}). Run: pip install 'dpbench-vision[timm]'"
        ) from error
    return timm


def _describe_download_size(model: str) -> str:
    import torch

    try:
        with torch.device("meta"):
            network = _import_timm().create_model(model, pretrained=False)  # without weights: only their number matters
    except (RuntimeError, NotImplementedError):  # a few networks compute with their weights while being built
        return "of unknown size"
    return f"about {sum(weight.numel() for weight in network.parameters()) * 4 / 1e6:.0f} MB"


@dataclass(frozen=True)
class Timm(TimmNetwork):
    """The pooled features of any pre-trained network of timm (d = `num_features`: 2,048 for a ResNet-50).

    `model` is timm's name with its tag, as in `timm.list_pretrained()`. Licence and training data differ by model: see
    its page, https://huggingface.co/timm/<model>.
    """

    name = "timm"
    shorthand = "model"

    model: str = setting(says="name with its tag, such as resnet50.a1_in1k")

    def __post_init__(self) -> None:
        """Refuse names that timm does not have, and sizes that the model does not take."""
        _ = self._entry
        super().__post_init__()

    @property
    def selection(self) -> str:
        """The model's name, as the user gave it."""
        return self.model

    @property
    def _hub_id(self) -> str:
        return str(self._entry.hf_hub_id)

    @property
    def _names(self) -> tuple[str, ...]:
        own = self._entry.hf_hub_filename
        return (own,) if own else FILES


@dataclass(frozen=True)
class ResNet50SSL(TimmNetwork):
    """The 2,048 pooled features of a ResNet-50 semi-supervised on YFCC-100M, then ImageNet-1K: PILLAR's SemiSL.

    Yalniz et al. 2019, arXiv:1905.00546. Weights: timm's resnet50.fb_ssl_yfcc100m_ft_in1k (102 MB), converted from
    facebookresearch/semi-supervised-ImageNet1K-models. Licence: CC BY-NC 4.0.
    """

    name = "resnet50-ssl"
    licence = "CC BY-NC 4.0"
    weights_size = 102_469_840
    dimension = 2048

    @property
    def selection(self) -> str:
        """The name of the paper's SSL weights."""
        return "resnet50.fb_ssl_yfcc100m_ft_in1k"


@dataclass(frozen=True)
class ResNet50SWSL(TimmNetwork):
    """The 2,048 pooled features of a ResNet-50 weakly supervised on a billion tagged images: PILLAR's SemiWeakSL.

    Yalniz et al. 2019, arXiv:1905.00546. Weights: timm's resnet50.fb_swsl_ig1b_ft_in1k (102 MB), converted from
    facebookresearch/semi-supervised-ImageNet1K-models. Licence: CC BY-NC 4.0.
    """

    name = "resnet50-swsl"
    licence = "CC BY-NC 4.0"
    weights_size = 102_469_840
    dimension = 2048

    @property
    def selection(self) -> str:
        """The name of the paper's SWSL weights."""
        return "resnet50.fb_swsl_ig1b_ft_in1k"


@hookimpl
def dpbench_extractors() -> Sequence[type[Extractor]]:
    """Register the extractors of this module."""
    return [Timm, ResNet50SSL, ResNet50SWSL]
