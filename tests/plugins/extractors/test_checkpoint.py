"""The backbone in checkpoints of solo-learn, MoCo v2 and MoCo v3, whatever its prefix; and what does not fit."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import pytest
import torch
from dpbench_plugins.extractors.checkpoint import Backbone, Checkpoint, ResNet50BYOL, ResNet50MoCoV2, ResNet50MoCoV3
from safetensors.torch import save_file
from torch import Tensor

from dpbench import DataError, DataMissing, SpecError
from tests.helpers import weights

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def state() -> weights.State:
    return weights.random_state("resnet18")


def trunk(state: weights.State, prefix: str = "") -> weights.State:
    return {prefix + key: tensor for key, tensor in state.items() if not key.startswith("fc.")}


def features(extractor: Backbone) -> Tensor:
    return extractor.open(CPU)(extractor.prepare(weights.image())[None])


def extras(*names: str) -> weights.State:
    return {name: torch.zeros(2) for name in names}


def moco_v2(state: weights.State) -> Any:
    rest = extras("module.encoder_q.fc.0.weight", "module.encoder_k.fc.2.bias", "module.queue", "module.queue_ptr")
    tensors = trunk(state, "module.encoder_q.") | trunk(extras("conv1.weight"), "module.encoder_k.") | rest
    return {"epoch": 800, "arch": "resnet50", "state_dict": tensors}


def moco_v3(state: weights.State) -> Any:
    rest = extras(
        "module.base_encoder.fc.0.weight", "module.momentum_encoder.conv1.weight", "module.predictor.0.weight"
    )
    return {"epoch": 1000, "arch": "resnet50", "state_dict": trunk(state, "module.base_encoder.") | rest}


def solo_learn(state: weights.State, prefix: str = "backbone.") -> Any:
    names = ("classifier.weight", "projector.0.weight", "predictor.3.bias", "queue", "momentum_projector.0.bias")
    rest = extras(*names, f"momentum_{prefix}conv1.weight")
    return {"epoch": 99, "global_step": 1, "loops": {}, "state_dict": trunk(state, prefix) | rest}


def solo_learn_of_old(state: weights.State) -> Any:
    return solo_learn(state, "encoder.")


def bare(state: weights.State) -> Any:
    return state  # with its classifier


@pytest.mark.quick(1)
@pytest.mark.parametrize("form", [moco_v2, moco_v3, solo_learn, solo_learn_of_old, bare])
def test_every_form_gives_the_features_of_its_backbone(form: Any, state: weights.State, tmp_path: Path) -> None:
    from torchvision import models

    torch.save(form(state), tmp_path / "file.pth.tar")
    network = models.resnet18()
    network.load_state_dict(state)
    network.fc = torch.nn.Identity()
    recipe = models.ResNet18_Weights.IMAGENET1K_V1.transforms()
    with torch.no_grad():
        expected = network.eval()(recipe(weights.image())[None])
    found = features(Checkpoint(str(tmp_path / "file.pth.tar"), arch="resnet18"))
    assert weights.same(found, expected)


@pytest.mark.slow
def test_safetensors_and_a_folder_of_data_are_read_too(
    state: weights.State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path))
    save_file(trunk(state, "backbone."), tmp_path / "file.safetensors")
    torch.save(solo_learn(state), tmp_path / "file.ckpt")
    assert Checkpoint("file.ckpt").present()
    of_safetensors, of_torch = (Checkpoint(f"file.{end}", arch="resnet18") for end in ("safetensors", "ckpt"))
    assert weights.same(features(of_safetensors), features(of_torch))
    assert of_safetensors.weights() != of_torch.weights()


def test_recipes_differ_by_imagenets_mean_and_std(tmp_path: Path) -> None:
    unit = Checkpoint("any", recipe="unit").prepare(weights.image("L"))
    assert unit.shape == (3, 224, 224)
    assert 0 <= float(unit.min()) <= float(unit.max()) <= 1
    mean, std = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    expected = (unit - mean[:, None, None]) / std[:, None, None]
    assert torch.allclose(Checkpoint("any").prepare(weights.image("L")), expected)


def test_missing_and_left_over_keys_are_named(state: weights.State, tmp_path: Path) -> None:
    wrong = trunk(state, "backbone.") | {
        "backbone.layer5.0.conv1.weight": torch.zeros(1),
        "stem.weight": torch.zeros(1),
    }
    del wrong["backbone.bn1.weight"]
    torch.save(wrong, tmp_path / "file.pth")
    with pytest.raises(DataError) as refusal:
        features(Checkpoint(str(tmp_path / "file.pth"), arch="resnet18"))
    for part in ("1 missing (bn1.weight)", "2 left over", "layer5.0.conv1.weight", "stem.weight"):
        assert part in str(refusal.value)


def test_a_deeper_network_is_refused(state: weights.State, tmp_path: Path) -> None:
    torch.save(solo_learn(state), tmp_path / "file.pth")
    with pytest.raises(DataError, match=r"Expected weights of ResNet in .* missing"):
        features(ResNet50BYOL(str(tmp_path / "file.pth")))


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("named", "form"), [(ResNet50MoCoV2, moco_v3), (ResNet50MoCoV3, moco_v2), (ResNet50BYOL, moco_v2)]
)
def test_a_name_takes_the_forms_of_its_own_method_only(named: type[Backbone], form: Any, tmp_path: Path) -> None:
    from torchvision import models

    with torch.device("meta"):
        keys = models.resnet50().state_dict()
    torch.save(form({key: torch.zeros(1) for key in keys}), tmp_path / "file.pth")
    with pytest.raises(DataError, match="missing"):
        features(named(str(tmp_path / "file.pth")))


def test_the_small_first_layer_of_solo_learn_is_refused_by_name(state: weights.State, tmp_path: Path) -> None:
    small = {**state, "conv1.weight": torch.zeros(64, 3, 3, 3)}
    torch.save(solo_learn(small), tmp_path / "file.pth")
    with pytest.raises(DataError, match=r"got 3x3: a ResNet for 32x32 images"):
        features(Checkpoint(str(tmp_path / "file.pth"), arch="resnet18"))


def test_a_file_that_needs_unpickling_is_refused(state: weights.State, tmp_path: Path) -> None:
    content = {**solo_learn(state), "hyper_parameters": argparse.Namespace(lr=1)}
    torch.save(content, tmp_path / "file.ckpt")
    with pytest.raises(DataError, match=r"argparse\.Namespace.*save only its state_dict"):
        features(Checkpoint(str(tmp_path / "file.ckpt"), arch="resnet18"))


@pytest.mark.parametrize("content", [b"", b"no weights at all"])
@pytest.mark.parametrize("name", ["file.pth", "file.safetensors"])
def test_a_damaged_file_is_refused(content: bytes, name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match="It is damaged or in another format"):
        features(Checkpoint(str(tmp_path / name), arch="resnet18"))


def test_a_file_that_is_not_there_is_named_with_where_it_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path))
    assert not ResNet50BYOL("byol.ckpt").present()
    with pytest.raises(DataMissing, match=f"byol.ckpt .* {tmp_path}/byol.ckpt"):
        ResNet50BYOL("byol.ckpt").weights()


def test_an_unknown_arch_is_refused_and_near_ones_listed() -> None:
    with pytest.raises(SpecError, match=r"Unknown arch 'resnet51'.*resnet50"):
        Checkpoint("any", arch="resnet51")
