"""Which engine computes an extractor's network, and that features are the same by either."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.efficientnet_lite import EfficientNetLite0
from dpbench_plugins.extractors.randp.extractor import RandPWRN
from PIL import Image
from torch import Tensor, nn

from dpbench import registry
from dpbench.api import Extractor
from dpbench.data import engine, extraction
from dpbench.data.engine import AGREEMENT, BATCH, LEAST, are_features_close, choose_inference_engine
from dpbench.errors import ComponentFailed
from dpbench.records.protocol import Component
from dpbench.registry.components import build
from dpbench.support import progress
from dpbench.support.own_folders import create_cache_entry, is_cache_entry_intact
from tests.conftest import built_once
from tests.helpers import fresh, weights

CPU = torch.device("cpu")
FRACTION = 0.1  # of a deviation: what a module computes otherwise that is not the extractor's network


@dataclass(frozen=True)
class Averages(Extractor):
    """Means of an image's channels, through a convolution whose weights are fixed."""

    shift: float = 0.0  # of what the module gives
    name: ClassVar[str] = "averages"

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image.convert("RGB").resize((8, 8)))).permute(2, 0, 1).float() / 255

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        network = _network(0.0)
        return lambda images: network(images).detach()

    def as_module(self) -> nn.Module | None:
        return _network(self.shift)


class Shifted(nn.Module):
    def __init__(self, shift: float) -> None:
        super().__init__()
        self.convolution, self.shift = nn.Conv2d(3, 4, 3, bias=False), shift
        weights = torch.randn(4, 3, 3, 3, generator=torch.Generator().manual_seed(0))
        self.convolution.load_state_dict({"weight": weights})

    def forward(self, images: Tensor) -> Tensor:
        means: Tensor = self.convolution(images).relu().mean((2, 3))
        return means + self.shift


def _network(shift: float) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        return Shifted(shift)


def photographs(count: int) -> list[Image.Image]:
    pixels = np.random.default_rng(1).integers(0, 256, (count, 32, 32, 3), dtype=np.uint8)
    return [Image.fromarray(image) for image in pixels]


@pytest.mark.slow
@pytest.mark.parametrize(
    "extractor",
    [
        EfficientNetLite0(size=64),
        EfficientNetLite0(size=64, views="mirror"),
        EfficientNetLite0(size=64, layer="blocks.4"),
        pytest.param(RandPWRN(stages="all"), marks=pytest.mark.slow),
        pytest.param(RandPWRN(layer="blocks.2"), marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_features_of_images_agree_between_the_engines(extractor: Extractor) -> None:
    if not extractor.present():
        pytest.skip("its weights are not installed")
    chosen = choose_inference_engine(extractor, CPU, LEAST)
    assert chosen.name.startswith("onnxruntime ")
    prepared = torch.stack([extractor.prepare(image) for image in photographs(BATCH)])
    assert are_features_close(chosen.open(extractor)(prepared), extractor.open(CPU)(prepared))


@pytest.fixture(scope="module")
def weight_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_once(tmp_path_factory, "engine-weights", fresh.write_weights)


@pytest.mark.slow
@pytest.mark.parametrize("case", fresh.EXTRACTIONS, ids=lambda case: case.extractor)
def test_features_of_500_images_agree_between_the_engines(
    case: fresh.Extraction, weight_files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(weight_files))
    weights.publish_all(monkeypatch, weight_files)
    component = Component.parse(f"{case.extractor}:{case.options}" if case.options else case.extractor)
    extractor: Extractor = build(registry.load(), "extractor", component)
    if not extractor.present():
        pytest.skip("its weights are not installed")
    if extractor.as_module() is None:
        pytest.skip("torch computes it on every device")
    chosen = choose_inference_engine(extractor, CPU, LEAST)
    assert chosen.name.startswith("onnxruntime ")
    largest, deviation = compare_engines(chosen, extractor, photographs(500))
    assert largest <= AGREEMENT * deviation


def compare_engines(
    chosen: engine.InferenceEngine, extractor: Extractor, images: list[Image.Image]
) -> tuple[float, float]:
    """Return the largest difference between features by an engine and by torch, and the deviation of torch's."""
    embed, expected = chosen.open(extractor), extractor.open(CPU)
    prepared = torch.stack([extractor.prepare(image) for image in images])
    batches = [extraction._pad_batch(prepared[start : start + BATCH]) for start in range(0, len(images), BATCH)]
    found, other = (torch.cat([network(batch) for batch in batches]).double() for network in (embed, expected))
    return float((found - other).abs().max()), float(other.std())


def test_few_images_and_other_devices_are_left_to_torch() -> None:
    assert choose_inference_engine(Averages(), CPU, LEAST - 1).name == f"torch {torch.__version__}"
    assert choose_inference_engine(Averages(), torch.device("meta"), LEAST).name == f"torch {torch.__version__}"


def test_an_extractor_without_a_module_is_left_to_torch(capfd: pytest.CaptureFixture[str]) -> None:
    class Closed(Averages):
        def as_module(self) -> None:
            return None

    assert choose_inference_engine(Closed(), CPU, LEAST).name.startswith("torch ")
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("device", "images", "closed", "said"),
    [
        ("meta", LEAST, False, "torch {} computes extractor 'averages' on meta: onnxruntime computes on CPUs only."),
        ("cpu", 3, False, "torch {} computes extractor 'averages' on cpu: onnxruntime computes splits of 1,024 images"),
        ("cpu", LEAST, True, "torch {} computes extractor 'averages' on cpu: the extractor returns no module for onnx"),
        (
            "cpu",
            LEAST,
            False,
            "onnxruntime {} computes extractor 'averages' on cpu: it gives the same features as torch",
        ),
    ],
)
def test_a_verbose_run_says_why_an_engine_was_chosen(
    device: str,
    images: int,
    closed: bool,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Closed(Averages):
        def as_module(self) -> None:
            return None

    monkeypatch.setattr(progress, "is_verbose", lambda: True)
    chosen = choose_inference_engine(Closed() if closed else Averages(), torch.device(device), images)
    assert said.format(chosen.name.partition(" ")[2]) in capfd.readouterr().err


def test_a_module_that_gives_other_features_is_named_and_left_to_torch(capfd: pytest.CaptureFixture[str]) -> None:
    assert choose_inference_engine(Averages(shift=FRACTION), CPU, LEAST).name.startswith("torch ")
    said = capfd.readouterr().err.splitlines()[-1]
    assert said == (
        "dpbench: onnxruntime and torch differ by more than 0.0001 deviations of the features. torch computes "
        "extractor 'averages' instead, which takes longer."
    )


def test_a_module_that_cannot_be_exported_is_named_and_left_to_torch(
    fresh_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Sorting(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            raise RuntimeError("no graph\nand more")

    class Unexportable(Averages):
        def as_module(self) -> nn.Module:
            return Sorting()

    assert choose_inference_engine(Unexportable(), CPU, LEAST).name.startswith("torch ")
    said = capfd.readouterr().err.splitlines()[-1]
    assert said.startswith("dpbench: onnxruntime cannot compute the network: ") and "torch computes" in said


def test_without_onnxruntime_torch_computes(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert choose_inference_engine(Averages(), CPU, LEAST).name.startswith("torch ")
    assert "The package onnxruntime cannot be imported" in capfd.readouterr().err


@pytest.mark.slow
def test_a_module_that_draws_random_numbers_is_left_to_torch(
    fresh_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Noisy(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            features: Tensor = _network(0.0)(images)
            return features + 1e-6 * torch.rand(BATCH, 4)

    class Drawing(Averages):
        def as_module(self) -> nn.Module:
            return Noisy()

    assert choose_inference_engine(Drawing(), CPU, LEAST).name.startswith("torch ")
    assert "torch computes extractor 'averages' instead" in capfd.readouterr().err


def test_a_module_that_raises_is_the_extractors_failure() -> None:
    class Broken(Averages):
        def as_module(self) -> nn.Module:
            raise ValueError("no weights")

    with pytest.raises(ComponentFailed, match=r"network of extractor 'averages' failed: ValueError: no weights"):
        choose_inference_engine(Broken(), CPU, LEAST)


@pytest.mark.slow
def test_a_graph_is_exported_once(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    choose_inference_engine(Averages(), CPU, LEAST)

    def refuse(*_: object) -> bytes:
        raise AssertionError("exported again")

    monkeypatch.setattr(engine, "_export_graph", refuse)
    assert choose_inference_engine(Averages(), CPU, LEAST).name.startswith("onnxruntime ")


@pytest.mark.slow
def test_a_damaged_graph_is_exported_again(fresh_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    choose_inference_engine(Averages(), CPU, LEAST)
    (graph,) = (fresh_cache / "networks").glob("*/graph.onnx")
    whole = graph.read_bytes()
    graph.write_bytes(whole[:100] + b"x" + whole[101:])
    assert choose_inference_engine(Averages(), CPU, LEAST).name.startswith("onnxruntime ")
    said = f"The exported network in {graph.parent} is damaged. The network of extractor 'averages' is exported again."
    assert said in capfd.readouterr().err
    assert is_cache_entry_intact(graph.parent)


def test_a_graph_is_not_read_where_others_may_write(fresh_cache: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Whoever can plant a graph decides what is computed from private images, and can note a digest of it too."""
    choose_inference_engine(Averages(), CPU, LEAST)
    (graph,) = (fresh_cache / "networks").glob("*/graph.onnx")
    with create_cache_entry(graph.parent.with_name("other")) as planted:
        (planted / graph.name).write_bytes(b"planted")
    shutil.rmtree(graph.parent)
    graph.parent.with_name("other").rename(graph.parent)
    (fresh_cache / "networks").chmod(0o777)
    assert choose_inference_engine(Averages(), CPU, LEAST).name.startswith("onnxruntime ")
    assert (
        f"Others may write to {fresh_cache / 'networks'}, so exported networks are not kept" in capfd.readouterr().err
    )
    assert graph.read_bytes() == b"planted"


def test_a_network_whose_input_follows_the_image_is_left_to_torch(
    fresh_cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Unresized(Averages):
        def prepare(self, image: Image.Image) -> Tensor:
            return torch.from_numpy(np.array(image.convert("RGB"))).permute(2, 0, 1).float() / 255

    assert choose_inference_engine(Unresized(), CPU, LEAST).name.startswith("torch ")
    assert "The shape of a prepared image depends on its size" in capfd.readouterr().err


@pytest.mark.slow
def test_a_cache_that_cannot_be_written_costs_only_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "file"))
    assert choose_inference_engine(Averages(), CPU, LEAST).name.startswith("onnxruntime ")


def test_shards_of_one_engine_are_not_taken_for_those_of_another(tmp_path: Path) -> None:
    def extract(by: engine.InferenceEngine) -> tuple[np.ndarray, list[int]]:
        features = np.concatenate(list(extraction.extract_features(photographs(3), Averages(), tmp_path, by)))
        return features, [file.stat().st_mtime_ns for file in sorted(tmp_path.rglob("*")) if file.is_file()]

    by_torch = choose_inference_engine(Averages(), CPU, 3)
    first, written = extract(by_torch)
    again, kept = extract(by_torch)
    assert np.array_equal(first, again) and written and kept == written
    assert extract(engine.InferenceEngine("another engine", CPU, by_torch.open))[1] != written


@pytest.mark.parametrize(
    ("found", "same"),
    [(0.9 * AGREEMENT, True), (1.2 * AGREEMENT, False)],
)
def test_one_number_decides_agreement(found: float, same: bool) -> None:
    features = torch.randn(BATCH, 50, generator=torch.Generator().manual_seed(2))
    other: Any = features.clone()
    other[3, 7] += found * float(features.double().std())
    assert are_features_close(other, features) is same


def test_other_shapes_and_precisions_do_not_agree() -> None:
    features = torch.ones(BATCH, 5)
    assert not are_features_close(features[:, :4], features)
    assert not are_features_close(features.half(), features)


def test_half_precision_may_differ_in_its_last_bit() -> None:
    features = torch.randn(BATCH, 50, generator=torch.Generator().manual_seed(2)).half()
    assert are_features_close((features.float() * (1 + 2**-11)).half(), features)
    assert not are_features_close((features.float() * 1.01).half(), features)
