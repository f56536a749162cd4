"""The extractor of random processes: what it reads, what it refuses, and the laws."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from dpbench_plugins.extractors.randp.encoder import load_encoder, make_random_encoder
from dpbench_plugins.extractors.randp.extractor import RandPDeepWRN, RandPResNet9, RandPWRN
from dpbench_plugins.networks.network_checkpoint import SHIPPED, Checkpoint
from dpbench_plugins.networks.views import normalise_pixels
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import group_norm

from dpbench import DataError, DataMissing, SpecError, registry
from dpbench.testing import ExtractorLaws
from tests.helpers.randp import CPU, Tiny, tensors, trained
from tests.helpers.weights import save_encoder

NAME = "randp-tiny.safetensors"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("randp")
    trained(made / NAME)
    return made


@pytest.fixture(autouse=True)
def where_it_is_looked_for(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(folder))


class TestRandP(ExtractorLaws):
    """The laws, of the registered class with the smallest network."""

    extractor = RandPWRN(path=NAME)

    @pytest.fixture(autouse=True)
    def small(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(RandPWRN, "network", Tiny.network)
        monkeypatch.setattr(RandPWRN, "size", Tiny.size)


def picture(size: int = 16) -> Image.Image:
    return Image.effect_noise((size, size), 80).convert("RGB")


def features(extractor: RandPWRN, image: Image.Image) -> Tensor:
    return extractor.open(CPU)(extractor.prepare(image)[None])


def test_features_are_those_of_the_exported_weights(folder: Path) -> None:
    image, extractor = picture(), Tiny(path=NAME)
    encoder = load_encoder("tiny", 16, tensors(folder / NAME))
    found = features(extractor, image)
    assert found.shape == (1, Tiny.dimension)
    last = encoder.features(extractor.prepare(image)[None])
    assert torch.equal(found[:, -last.shape[1] :], last)
    assert torch.equal(features(Tiny(path=NAME, stages="last"), image), last)


def test_every_stage_is_read_before_the_resolution_halves() -> None:
    encoder = make_random_encoder("wrn-16-4", 32, 0, CPU).requires_grad_(False)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    found = encoder.stages(images)
    assert found.shape == (2, 64 + 128 + 256)
    layers, x = list(encoder.trunk.children()), normalise_pixels(images)  # a convolution, six blocks, ReLU
    for part, columns in ((layers[:3], slice(0, 64)), (layers[3:5], slice(64, 192))):
        x = torch.nn.Sequential(*part)(x)
        assert torch.allclose(found[:, columns], group_norm(x.relu(), 16).mean((2, 3)))


def test_pooling_takes_the_means_of_equal_parts_of_every_stage() -> None:
    encoder = make_random_encoder("wrn-16-4", 32, 0, CPU).requires_grad_(False)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    whole, parts = encoder.stages(images), encoder.stages(images, 2)
    assert parts.shape == (2, 4 * 448)
    assert torch.allclose(parts.view(2, 448, 4).mean(2), whole, atol=1e-5)
    assert torch.equal(parts[:, -4 * 256 :], encoder.features(images, 2))
    last = encoder.norm(encoder.trunk(normalise_pixels(images)))  # (2, 256, 8, 8)
    assert torch.allclose(parts[:, -2], last[:, -1, 4:, :4].mean((1, 2)), atol=1e-5)


@pytest.mark.parametrize("pool", [3, 16])
def test_parts_that_a_map_does_not_have_are_refused(pool: int) -> None:
    with pytest.raises(SpecError, match=f"Expected pool={pool} of extractor 'randp-wrn16-4' to divide 8"):
        RandPWRN(pool=pool)


def test_another_checkpoint_has_another_digest_and_other_features(folder: Path) -> None:
    other = trained(folder / "other.safetensors", seed=1)
    image = picture()
    assert Tiny(path=NAME).weights() != Tiny(path=str(other)).weights()
    assert not torch.allclose(features(Tiny(path=NAME), image), features(Tiny(path=str(other)), image), atol=1e-3)


def test_images_of_any_size_are_resized() -> None:
    assert Tiny(path=NAME).prepare(picture(50)).shape == (3, 16, 16)
    same = picture(16)
    kept = (Tiny(path=NAME).prepare(same) * 255).round().byte()[:, 3, 5]
    assert tuple(kept.tolist()) == same.getpixel((5, 3))


def test_the_one_that_is_registered_reads_32x32_with_a_wrn_16_4() -> None:
    built = registry.load().build("extractor", "randp-wrn16-4", {})
    assert isinstance(built, RandPWRN)
    assert (built.network, built.dimension) == ("wrn-16-4", 448)
    assert built.prepare(picture(40)).shape == (3, 32, 32)


@pytest.mark.parametrize("layer", ["blocks.1", "blocks.4"])
def test_activations_and_the_tail_behind_them_give_the_features_of_the_whole(layer: str) -> None:
    images = torch.rand(3, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    cut = RandPWRN(layer=layer)
    activations = cut.open(CPU)(images)
    assert activations.shape[1:] == cut.layers()[layer] and activations.dtype == torch.float16
    load = cut.tail()
    assert load is not None
    torch.testing.assert_close(
        load()(activations.float()), RandPWRN(stages="last").open(CPU)(images), rtol=0.02, atol=0.02
    )


@pytest.mark.parametrize(
    ("cls", "layer", "activations"),
    [(RandPDeepWRN, "blocks.11", (128, 16, 16)), (RandPResNet9, "blocks.2", (128, 16, 16))],
)
def test_other_networks_have_layers_tails_and_stages(
    cls: type[RandPWRN], layer: str, activations: tuple[int, ...], tmp_path: Path
) -> None:
    file = tmp_path / "weights.safetensors"
    save_encoder(cls.network, file)
    images = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    cut = cls(path=str(file), layer=layer)
    found, load = cut.open(CPU)(images), cut.tail()
    assert found.shape[1:] == cut.layers()[layer] == activations and load is not None
    whole = cls(path=str(file), stages="last").open(CPU)(images)
    torch.testing.assert_close(load()(found.float()), whole, rtol=0.02, atol=0.02)
    assert cls(path=str(file)).open(CPU)(images).shape == (2, cls.dimension)
    assert cls(path=str(file)).as_module()(images).shape == (2, cls.dimension)
    assert not cls().present()
    with pytest.raises(DataMissing, match=rf"looked for no path.*dpbench pretrain {cls.name} --out"):
        cls().weights()


def test_the_embedding_reads_the_whole_map(tmp_path: Path, folder: Path) -> None:
    file, image = trained(tmp_path / "embedding.safetensors", embed=True, steps=2), picture()
    state = tensors(file)
    assert not any(name.startswith("projection.") for name in state)
    found = features(Tiny(path=str(file), stages="embedding"), image)
    encoder = load_encoder("tiny", 16, state)
    flat = encoder.norm(encoder.trunk(normalise_pixels(Tiny().prepare(image)[None]))).flatten(1)
    linear = flat @ state["embedding.1.weight"].float().T
    scale, shift = (state[f"embedding.2.{name}"].float() for name in ("weight", "bias"))
    torch.testing.assert_close(found, group_norm(linear, 16, scale, shift).relu(), rtol=1e-4, atol=1e-4)
    assert found.shape == (1, 4096)
    assert features(Tiny(path=str(file)), image).shape == (1, Tiny.dimension)
    with pytest.raises(DataError, match=r"has no embedding, which stages=embedding .* reads\. Make one"):
        Tiny(path=NAME, stages="embedding").open(CPU)


def test_a_fit_that_loads_the_tail_leaves_the_global_generator_as_it_was() -> None:
    load = RandPWRN(layer="blocks.1").tail()
    assert load is not None
    before = torch.get_rng_state()
    load()
    assert torch.equal(torch.get_rng_state(), before)


def test_the_tail_has_filters_that_any_learner_can_train() -> None:
    load = RandPWRN(layer="blocks.4").tail()
    assert load is not None
    tail = load()
    assert {type(module) for module in tail.modules() if isinstance(module, nn.Conv2d)} == {nn.Conv2d}
    assert [name for name, _ in tail.named_parameters() if name.endswith("gain")] == []


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"layer": "blocks.5"}, "Unknown layer 'blocks.5'"),
        ({"layer": "blocks.4", "stages": "last"}, "Expected no stages and no pool with layer=blocks.4"),
        ({"stages": "embedding", "pool": 2}, "Expected no pool with stages=embedding"),
    ],
)
def test_a_layer_that_no_block_follows_and_stages_of_one_are_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said):
        RandPWRN(**options)


def test_a_missing_checkpoint_is_named_with_the_command_that_makes_one() -> None:
    missing = Tiny(path="nowhere.safetensors")
    assert not missing.present()
    with pytest.raises(DataMissing, match=r"nowhere\.safetensors.*dpbench pretrain randp-tiny --out"):
        missing.weights()


def test_without_a_path_it_is_the_one_that_is_shipped(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SHIPPED, Tiny.name, folder / "absent.safetensors")
    assert not Tiny().present()
    with pytest.raises(DataMissing, match=r"absent\.safetensors"):
        Tiny().open(CPU)
    monkeypatch.setitem(SHIPPED, Tiny.name, folder / NAME)
    assert Tiny().present()
    assert Tiny().weights() == Tiny(path=NAME).weights()


def test_a_checkpoint_of_another_network_is_refused() -> None:
    with pytest.raises(DataError, match=r"Expected a checkpoint of network 'wrn-16-4' in .*, got one of 'tiny'"):
        RandPWRN(path=NAME).open(CPU)


def test_weights_of_other_shapes_are_refused(tmp_path: Path, folder: Path) -> None:
    state = tensors(folder / NAME)
    state["norm.weight"] = torch.ones(5)
    file = tmp_path / "other.safetensors"
    Checkpoint("tiny", state, {}).save(file)
    with pytest.raises(DataError, match=r"do not fit network 'tiny': size mismatch for norm\.weight"):
        Tiny(path=str(file)).open(CPU)


def test_a_file_that_is_no_checkpoint_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "text.safetensors"
    file.write_text("hello")
    with pytest.raises(DataError, match="cannot be read as safetensors"):
        Tiny(path=str(file)).open(CPU)
