"""The options that extractors with a network share: the size of images, their views, and the precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.vision import PhotographExtractor, Views, round_to_bfloat16
from PIL import Image
from torch import Tensor

from dpbench import Extractor, SpecError, registry

CPU = torch.device("cpu")
VIT = "vit_tiny_patch16_224.augreg_in21k_ft_in1k"


@dataclass(frozen=True, kw_only=True)
class Tiny(PhotographExtractor):
    """One convolution, so that features depend on what is left and what is right."""

    name = "tiny"

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image)).permute(2, 0, 1) / 255

    def backbone(self) -> torch.nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(0)
            layers = torch.nn.Conv2d(3, 8, 5), torch.nn.BatchNorm2d(8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1)
            return torch.nn.Sequential(*layers)


def images(n: int = 3, side: int = 40) -> Tensor:
    return torch.rand((n, 3, side, side), generator=torch.Generator().manual_seed(0))


def features(seen: Tensor, views: Views = "one") -> Tensor:
    return Tiny(views=views).open(CPU)(seen)


def built(name: str, options: dict[str, object]) -> Extractor:
    extractor: Extractor = registry.load().build("extractor", name, options)
    return extractor


def test_mirror_is_the_mean_of_an_image_and_its_mirror_image() -> None:
    rows, other = features(images()), features(images().flip(3))
    assert (rows - other).abs().max() > 1e-3
    assert torch.allclose(features(images(), "mirror"), (rows + other) / 2)


def test_scales_is_the_mean_of_an_image_and_a_smaller_one() -> None:
    smaller = torch.nn.functional.interpolate(images(), (30, 30), mode="bicubic", antialias=True)
    assert torch.allclose(features(images(), "scales"), (features(images()) + features(smaller)) / 2)


def test_both_is_the_mean_of_two_scales_and_their_mirror_images() -> None:
    expected = (features(images(), "scales") + features(images().flip(3), "scales")) / 2
    assert torch.allclose(features(images(), "both"), expected)


@pytest.mark.parametrize("views", get_args(Views))
@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_every_image_is_seen_on_its_own(views: Views, precision: str) -> None:
    embed = Tiny(views=views, precision=precision).open(CPU)  # type: ignore[arg-type]
    alone = torch.cat([embed(image[None]) for image in images()])
    assert torch.allclose(embed(images()), alone, atol=1e-5 if precision == "float32" else 1e-2)


def test_bfloat16_comes_as_float32_and_is_near() -> None:
    fast = Tiny(precision="bfloat16").open(CPU)(images())
    assert fast.dtype == torch.float32
    assert 0 < (fast - features(images())).norm() / features(images()).norm() < 0.02


@pytest.mark.parametrize(
    ("name", "options", "sides"),
    [
        ("timm", {"": "resnet18.a1_in1k", "size": 96}, 96),
        ("timm", {"": VIT, "views": "mirror"}, 224),
        ("resnet50-ssl", {"size": 128, "precision": "bfloat16"}, 128),
        ("torchvision", {"": "resnet18", "size": 64, "views": "both"}, 64),
        ("torchvision", {"": "vit_b_16", "size": 224, "views": "mirror"}, 224),
        ("resnet50", {"size": 100}, 100),
        ("checkpoint", {"": "w.pth", "size": 160}, 160),
        ("resnet50-byol", {"": "w.pth", "views": "both"}, 224),
    ],
)
def test_images_have_the_size_that_is_asked_for(name: str, options: dict[str, object], sides: int) -> None:
    assert built(name, options).prepare(Image.new("RGB", (300, 200))).shape == (3, sides, sides)


@pytest.mark.parametrize(
    ("name", "options", "says"),
    [
        ("timm", {"": VIT, "size": 128}, "'timm' takes no other size than 224 pixels, got 128 by size=128"),
        ("timm", {"": VIT, "views": "scales"}, "got 224 and 168 by size=None and views=scales"),
        ("torchvision", {"": "vit_b_16", "size": 96}, "'torchvision' takes no other size than 224 pixels"),
        ("torchvision", {"": "inception_v3", "size": 96, "views": "both"}, "takes 75 pixels or more, got 96 and 72"),
        ("checkpoint", {"": "w.pth", "arch": "vit_b_16", "views": "both"}, "'checkpoint' takes no other size than 224"),
    ],
)
def test_a_size_that_a_network_does_not_take_is_refused(name: str, options: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        built(name, options)


def test_a_processor_without_bfloat16_rounds_what_layers_read_and_return(monkeypatch: pytest.MonkeyPatch) -> None:
    exact = features(images())
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: False)
    rounded = Tiny(precision="bfloat16").open(CPU)(images())
    assert rounded.dtype == torch.float32
    assert 0 < (rounded - exact).norm() / exact.norm() < 0.02
    layer = torch.nn.Linear(64, 5)
    seen, (weight, bias) = (
        torch.randn(3, 64),
        (parameter.detach().bfloat16().float() for parameter in layer.parameters()),
    )
    expected = (seen.bfloat16().float() @ weight.T + bias).bfloat16().float()
    assert torch.equal(round_to_bfloat16(layer)(seen), expected)


def test_many_images_are_seen_a_few_at_once() -> None:
    many = images().repeat(20, 1, 1, 1)
    seen: list[int] = []
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.AdaptiveAvgPool2d(1))
    network.register_forward_pre_hook(lambda _, given: seen.append(len(given[0])))

    class Counted(Tiny):
        def backbone(self) -> torch.nn.Module:
            return network

    embed = Counted().open(CPU)
    wide = torch.nn.functional.interpolate(many, 224)
    assert torch.allclose(embed(wide), torch.cat([embed(image[None]) for image in wide]), atol=1e-5)
    assert max(seen) == 4
