"""Extractors of timm's networks, on random weights in files like those of the hub."""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from dpbench_plugins.extractors.timm_models import FILES, ResNet50SSL, ResNet50SWSL, Timm, TimmNetwork
from dpbench_plugins.extractors.weights import hub_cache_path
from safetensors.torch import save_file
from torch import Tensor

from dpbench import DataError, DataMissing, SpecError
from tests.helpers import weights

CPU = torch.device("cpu")
MODEL = weights.SMALL


@pytest.fixture(scope="module")
def state() -> dict[str, Tensor]:
    import timm

    with torch.random.fork_rng():
        torch.manual_seed(0)
        tensors: dict[str, Tensor] = timm.create_model(MODEL, pretrained=False).state_dict()
    return tensors


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty hub cache, and a folder of DPBENCH_DATA for the model."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path))
    place = tmp_path / MODEL
    place.mkdir()
    return place


def features(extractor: Timm, seeds: int = 2) -> Tensor:
    return extractor.open(CPU)(torch.stack([extractor.prepare(weights.image(seed=seed)) for seed in range(seeds)]))


def test_features_and_recipe_are_timms_own(state: dict[str, Tensor], folder: Path) -> None:
    import timm

    save_file(state, folder / "model.safetensors")
    network = timm.create_model(MODEL, pretrained=False, num_classes=0).eval()
    network.load_state_dict({key: tensor for key, tensor in state.items() if not key.startswith("fc.")})
    data: Any = timm.data
    recipe = data.create_transform(**data.resolve_model_data_config(network), is_training=False)
    images = torch.stack([recipe(weights.image(seed=seed)) for seed in range(2)])
    assert torch.equal(images[0], Timm(MODEL).prepare(weights.image()))
    with torch.no_grad():
        expected = network(images)
    found = features(Timm(MODEL))
    assert found.shape == (2, 512)
    assert weights.same(found, expected)


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_grey_and_transparent_images_are_taken_as_rgb(mode: str) -> None:
    picture = weights.image(mode)
    assert torch.equal(Timm(MODEL).prepare(picture), Timm(MODEL).prepare(picture.convert("RGB")))


def test_a_torch_file_gives_the_same_features(state: dict[str, Tensor], folder: Path) -> None:
    torch.save({"state_dict": state}, folder / "pytorch_model.bin")
    of_torch, digest = features(Timm(MODEL)), Timm(MODEL).weights()
    save_file(state, folder / "model.safetensors")
    assert weights.same(features(Timm(MODEL)), of_torch)
    assert Timm(MODEL).weights() != digest


def test_weights_are_found_in_the_hubs_cache(state: dict[str, Tensor], tmp_path: Path, folder: Path) -> None:
    cached = tmp_path / f"hub/models--timm--{MODEL}"
    (cached / "snapshots/abc").mkdir(parents=True)
    (cached / "refs").mkdir()
    (cached / "refs/main").write_text("abc")
    save_file(state, cached / "snapshots/abc/model.safetensors")
    assert Timm(MODEL).present()
    assert huggingface_hub.try_to_load_from_cache(f"timm/{MODEL}", "model.safetensors") == str(
        hub_cache_path(f"timm/{MODEL}", "model.safetensors")
    )
    digest = Timm(MODEL).weights()
    shutil.copy(cached / "snapshots/abc/model.safetensors", folder)
    assert Timm(MODEL).weights() == digest


@pytest.mark.parametrize("extractor", [ResNet50SSL(), ResNet50SWSL()], ids=lambda extractor: extractor.name)
def test_presence_is_told_by_the_names_that_timm_records(extractor: TimmNetwork, tmp_path: Path) -> None:
    import timm

    entry: Any = timm.get_pretrained_cfg(extractor.selection)
    assert (extractor._hub_id, extractor._names) == (entry.hf_hub_id, FILES)
    assert entry.hf_hub_filename is None
    assert entry.license == type(extractor).licence.lower().replace("cc by", "cc-by").replace(" ", "-")
    assert not extractor.present()
    (tmp_path / entry.hf_hub_id).mkdir(parents=True)
    (tmp_path / entry.hf_hub_id / "pytorch_model.bin").touch()
    assert extractor.present()


def test_weights_that_are_nowhere_are_named_with_address_size_and_folders(tmp_path: Path) -> None:
    for extractor in (ResNet50SSL(), ResNet50SWSL()):
        with pytest.raises(DataMissing) as refusal:
            extractor.weights()
        for part in ("model.safetensors", f"https://huggingface.co/timm/{extractor.selection}", "about 102 MB"):
            assert part in str(refusal.value)
        assert str(tmp_path / extractor.selection) in str(refusal.value)
        assert "\n" not in str(refusal.value)


@pytest.mark.parametrize("key", ["conv1.0.weight", "fc.bias"])
def test_weights_that_lack_a_layer_are_refused_rather_than_left_random(
    state: dict[str, Tensor], folder: Path, key: str
) -> None:
    save_file({name: tensor for name, tensor in state.items() if name != key}, folder / "model.safetensors")
    with pytest.raises(DataError, match=rf"Expected the weights of {MODEL}.*{key}"):
        Timm(MODEL).open(CPU)


def test_weights_of_another_model_are_refused(folder: Path) -> None:
    save_file(weights.random_state("resnet18"), folder / "model.safetensors")
    with pytest.raises(DataError, match=f"Expected the weights of {MODEL}"):
        Timm(MODEL).open(CPU)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_a_damaged_file_is_refused(state: dict[str, Tensor], folder: Path, name: str) -> None:
    file = folder / name
    save_file(state, file) if name == "model.safetensors" else torch.save(state, file)
    file.write_bytes(file.read_bytes()[:100_000])
    with pytest.raises(DataError, match="It is damaged or in another format"):
        Timm(MODEL).open(CPU)


def test_a_file_that_needs_unpickling_is_refused(folder: Path) -> None:
    torch.save({"fc.bias": argparse.Namespace()}, folder / "pytorch_model.bin")
    with pytest.raises(DataError, match=r"argparse\.Namespace.*could run any code"):
        Timm(MODEL).open(CPU)


@pytest.mark.parametrize(
    ("model", "hint"), [("resnet10t", MODEL), ("resnet10t.c4", MODEL), ("resnut18.a1_in1k", "resn")]
)
def test_a_name_without_its_tag_is_refused_and_near_ones_listed(model: str, hint: str) -> None:
    with pytest.raises(SpecError, match=f"Unknown model .*Available: .*{hint}"):
        Timm(model)


def test_the_tag_of_the_weights_says_what_they_have_seen() -> None:
    assert ResNet50SWSL().trained_on == "Instagram, ImageNet-1k"
    assert ResNet50SSL().trained_on == "YFCC100M, ImageNet-1k"
    assert Timm("tf_efficientnet_b0.ns_jft_in1k").trained_on == "JFT-300M, ImageNet-1k"
    assert Timm("regnety_160.swag_ft_in1k").trained_on == "Instagram, ImageNet-1k"
    assert Timm("eva02_large_patch14_224.mim_m38m").trained_on == "Merged-38M"
    assert Timm("resnet50.bamboo").trained_on == ""
