"""Extractors of torchvision's networks, on random weights in files like the published ones."""

from __future__ import annotations

import argparse
import io
import shutil
import urllib.request
from pathlib import Path
from typing import IO, NoReturn
from urllib.error import URLError

import pytest
import torch
from dpbench_plugins.extractors.torchvision_models import ResNet50, TorchVision, _make_builder_options, _rename_modules
from dpbench_plugins.extractors.weights import torch_cache_folder
from torch import Tensor

from dpbench import DataError, DataMissing, SpecError
from tests.helpers import weights

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return weights.save_named(weights.random_state("resnet18"), tmp_path_factory.mktemp("published"), "resnet18")


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))

    def unreachable(request: object, timeout: float) -> NoReturn:
        raise URLError("Name or service not known")

    monkeypatch.setattr(urllib.request, "urlopen", unreachable)


@pytest.fixture
def resnet18(published: Path, monkeypatch: pytest.MonkeyPatch) -> TorchVision:
    monkeypatch.setenv("DPBENCH_DATA", str(published.parent))
    weights.publish(monkeypatch, "resnet18", published)
    return TorchVision("resnet18")


def put(content: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str = "resnet18") -> TorchVision:
    weights.publish(monkeypatch, model, weights.save_named(content, tmp_path / "data", model))
    return TorchVision(model)


def reference(state: dict[str, Tensor], images: Tensor) -> Tensor:
    from torchvision import models

    network = models.resnet18()
    network.load_state_dict(state)
    network.fc = torch.nn.Identity()
    with torch.no_grad():
        features: Tensor = network.eval()(images)
    return features


def test_features_are_those_of_the_published_network_and_recipe(resnet18: TorchVision, published: Path) -> None:
    from torchvision import models

    pictures = [weights.image(seed=seed) for seed in range(2)]
    recipe = models.ResNet18_Weights.IMAGENET1K_V1.transforms()
    expected = reference(
        torch.load(published, weights_only=True), torch.stack([recipe(picture) for picture in pictures])
    )
    features = resnet18.open(CPU)(torch.stack([resnet18.prepare(picture) for picture in pictures]))
    assert features.shape == (2, 512)
    assert weights.same(features, expected)


@pytest.mark.parametrize("mode", ["L", "RGBA", "P"])
def test_grey_and_transparent_images_are_taken_as_rgb(resnet18: TorchVision, mode: str) -> None:
    picture = weights.image(mode)
    assert torch.equal(resnet18.prepare(picture), resnet18.prepare(picture.convert("RGB")))


def test_weights_are_found_in_the_hub_cache_too(resnet18: TorchVision, published: Path, tmp_path: Path) -> None:
    in_folder = resnet18.weights()
    hub = tmp_path / "torch/hub/checkpoints"
    hub.mkdir(parents=True)
    shutil.copy(published, hub)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPBENCH_DATA", "")
        assert TorchVision("resnet18").weights() == in_folder
    assert len(in_folder) == 64


@pytest.mark.parametrize("model", ["resnet18", "resnet50"])
def test_presence_is_told_by_the_published_name(model: str, tmp_path: Path) -> None:
    from torchvision import models

    assert not TorchVision(model).present()
    place = tmp_path / "torch/hub/checkpoints"
    place.mkdir(parents=True)
    (place / models.get_model_weights(model)["IMAGENET1K_V1"].url.rsplit("/", 1)[-1]).touch()
    assert TorchVision(model).present()
    assert ResNet50().present() == (model == "resnet50")


@pytest.mark.parametrize("variable", ["TORCH_HOME", "XDG_CACHE_HOME", "HOME"])
def test_the_hub_folder_is_torchs_own(variable: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for other in ("TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(other, raising=False)
    monkeypatch.setenv(variable, str(tmp_path))
    assert torch_cache_folder() == Path(torch.hub.get_dir()) / "checkpoints"
    assert torch_cache_folder().is_relative_to(tmp_path)


def test_weights_that_are_nowhere_are_named_with_address_size_and_folders(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as refusal:
        ResNet50().weights()
    for part in ("resnet50-0676ba61.pth", "https://download.pytorch.org/models/", "103 MB", "DPBENCH_DATA"):
        assert part in str(refusal.value)
    assert str(tmp_path / "data") in str(refusal.value)
    assert str(tmp_path / "torch/hub/checkpoints") in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_weights_are_downloaded_with_their_digest_checked(
    published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def answer(request: object, timeout: float) -> IO[bytes]:
        return io.BytesIO()

    def download(url: str, to: str, prefix: str) -> None:
        asked.append(prefix)
        shutil.copy(published, to)

    monkeypatch.setattr(urllib.request, "urlopen", answer)
    monkeypatch.setattr(torch.hub, "download_url_to_file", download)
    weights.publish(monkeypatch, "resnet18", published)
    digest = TorchVision("resnet18").weights()
    assert asked == [digest[:8]]
    assert (tmp_path / "torch/hub/checkpoints" / published.name).is_file()


def test_a_file_whose_digest_is_not_the_one_in_its_name_is_refused(
    resnet18: TorchVision, published: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / published.name).write_bytes(published.read_bytes()[:-1] + b"!")
    monkeypatch.setenv("DPBENCH_DATA", str(tmp_path / "data"))
    with pytest.raises(DataError, match=r"SHA-256 that starts with .* Delete it"):
        resnet18.weights()


def test_a_file_that_is_no_weights_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="Expected a dictionary of tensors"):
        put([1, 2], tmp_path, monkeypatch).open(CPU)


def test_a_file_that_needs_unpickling_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match=r"argparse\.Namespace.*could run any code"):
        put({"fc.bias": argparse.Namespace()}, tmp_path, monkeypatch).open(CPU)


def test_weights_that_do_not_fit_are_refused_by_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = weights.random_state("resnet18")
    state["extra"] = state.pop("conv1.weight")
    state["fc.bias"] = torch.zeros(7)
    with pytest.raises(DataError) as refusal:
        put(state, tmp_path, monkeypatch).open(CPU)
    for part in ("1 missing (conv1.weight)", "1 left over (extra)", "fc.bias (7,) for (1000,)"):
        assert part in str(refusal.value)


def test_a_model_without_a_linear_head_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = weights.random_state("squeezenet1_1")
    with pytest.raises(SpecError, match="Expected a last linear layer"):
        put(state, tmp_path, monkeypatch, "squeezenet1_1").open(CPU)


@pytest.mark.parametrize(
    ("model", "tag", "hint"),
    [
        ("resnet51", "DEFAULT", "resnet50"),
        ("resnet18", "IMAGENET1K_V2", "IMAGENET1K_V1"),
        ("vgg16", "IMAGENET1K_FEATURES", "IMAGENET1K_V1"),  # it has no classifier
        ("fcn_resnet50", "DEFAULT", "resnet50"),  # it segments
    ],
)
def test_unknown_names_are_refused_and_near_ones_listed(model: str, tag: str, hint: str) -> None:
    with pytest.raises(SpecError, match=f"Unknown (model|tag) .*{hint}"):
        TorchVision(model, tag)


def test_the_default_weights_are_torchvisions() -> None:
    from torchvision import models

    assert TorchVision("resnet50", "DEFAULT")._entry is models.ResNet50_Weights.IMAGENET1K_V2


@pytest.mark.parametrize(
    ("model", "tag", "seen"),
    [
        ("resnet50", "DEFAULT", "ImageNet-1k"),
        ("vit_h_14", "DEFAULT", "Instagram, ImageNet-1k"),  # its only weights are SWAG
        ("vit_b_16", "IMAGENET1K_SWAG_LINEAR_V1", "Instagram, ImageNet-1k"),
    ],
)
def test_the_weights_say_what_they_have_seen_by_any_name(model: str, tag: str, seen: str) -> None:
    assert TorchVision(model, tag).trained_on == seen


@pytest.mark.parametrize(
    ("model", "tag"),
    [("vit_b_16", "IMAGENET1K_SWAG_E2E_V1"), ("maxvit_t", "IMAGENET1K_V1"), ("inception_v3", "IMAGENET1K_V1")],
)
def test_networks_have_as_many_parameters_as_their_weights(model: str, tag: str) -> None:
    from torchvision import models

    meta = models.get_model_weights(model)[tag].meta
    with torch.device("meta"):
        network = models.get_model(model, weights=None, **_make_builder_options(model, meta))
    assert sum(parameter.numel() for parameter in network.parameters()) == meta["num_params"]


def test_old_names_of_densenet_are_read() -> None:
    from torchvision import models

    with torch.device("meta"):
        state = models.densenet121().state_dict()
    old = {key.replace("norm1.", "norm.1.").replace("conv2.", "conv.2."): tensor for key, tensor in state.items()}
    assert set(old) != set(state)
    assert set(_rename_modules(old, "densenet121")) == set(state)
