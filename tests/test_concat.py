"""`concat`: the features of several extractors side by side."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import dpbench_concat
import numpy as np
import pytest
import torch
from dpbench_concat import Concat
from dpbench_pixels import Pixels
from PIL import Image
from torch import Tensor

from dpbench import Extractor, SpecError, Split, registry
from dpbench.cli import main
from dpbench.data import cache
from dpbench.records.protocol import Component
from dpbench.testing import ExtractorLaws

CPU = torch.device("cpu")


def built(text: str) -> Concat:
    component = Component.parse(text)
    extractor = registry.load().build("extractor", component.name, component.options)
    assert isinstance(extractor, Concat)
    return extractor


def picture(seed: int = 0, side: int = 8) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def embedded(extractor: Extractor, images: list[Image.Image]) -> Tensor:
    return extractor.open(CPU)(torch.stack([extractor.prepare(image) for image in images]))


class TestConcat(ExtractorLaws):
    extractor = Concat("pixels:size=4+pixels:size=2;mode=L;flat=false")


def test_parts_and_their_options_are_read() -> None:
    parts = built("concat:pixels:size=8;flat=true+ pixels : mode = L ").parts()
    assert parts == (Pixels(8), Pixels(mode="L"))


def test_a_value_without_a_key_is_that_of_the_part_s_shorthand() -> None:
    (timm, _) = built("concat:timm:resnet18.a1_in1k+pixels").parts()
    assert (timm.name, timm.model) == ("timm", "resnet18.a1_in1k")  # type: ignore[attr-defined]


def test_options_are_spelled_out_so_that_a_result_names_all_of_them() -> None:
    short, long = built("concat:pixels:size=8+pixels"), built("concat:pixels:flat=yes;size=8+pixels:size=none")
    assert short == long
    assert "flat=True" in short.of
    assert built(f"concat:of={short.of}") == short


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("concat", r"^Expected option 'of' for extractor 'concat'"),
        ("concat:pixels", r"^Expected two or more extractors in concat:pixels, got one\. Name it alone\."),
        ("concat:pixels+", r"^Expected an extractor on both sides of each '\+' in concat:pixels\+\. Write it like"),
        ("concat:of=", r"^Expected an extractor on both sides of each '\+'"),
        ("concat:pixels+concat:pixels+pixels", r"^Expected no concat inside concat:pixels\+concat:"),
        ("concat:pixels+pixles", r"^Unknown extractor 'pixles'\. Did you mean 'pixels'\? Available: "),
        ("concat:pixels+pixels:sice=3", r"^Unknown option 'sice' of extractor 'pixels'\. Did you mean 'size'\?"),
        ("concat:pixels+pixels:size=0", r"^Expected size=0 >= 1 in extractor 'pixels'"),
        ("concat:pixels+pixels:8", r"^Expected key=value after extractor 'pixels', got '8'"),
        ("concat:pixels:size=3,flat=true+pixels", r"^Unknown option 'flat' of extractor 'concat'"),
    ],
)
def test_what_does_not_fit_is_one_sentence(text: str, message: str) -> None:
    with pytest.raises(SpecError, match=message) as refusal:
        built(text)
    assert "\n" not in str(refusal.value)


def test_features_are_the_parts_flattened_side_by_side(fresh_cache: Path) -> None:
    extractor = built("concat:pixels:size=4;flat=false+pixels:mode=L")
    images = [picture(seed) for seed in range(40)]
    expected = torch.cat([embedded(part, images).flatten(1) for part in extractor.parts()], 1)
    assert torch.equal(embedded(extractor, images), expected)
    source = cache.source_of("data", "train", len(images), extractor)
    split = Split(images, np.zeros(len(images), np.int64))
    assert torch.equal(cache.features(split, source, extractor, CPU), expected)


def test_what_is_prepared_says_its_own_shapes() -> None:
    """Images of one size after those of another, by the same network, in another process."""
    extractor = built("concat:pixels+pixels:mode=L")
    network = extractor.open(CPU)
    for side in (8, 3):
        prepared = pickle.loads(pickle.dumps(extractor)).prepare(picture(side=side))
        assert network(prepared[None]).shape == (1, 4 * side**2)


@dataclass(frozen=True)
class Exact(Extractor):
    """Prepares what float32 cannot hold."""

    name: ClassVar[str] = "exact"

    def weights(self) -> str:
        return WEIGHTS["digest"]

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.tensor([[2**40 + 1, 2**40]])

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: images.diff().abs().float()


WEIGHTS = {"digest": "first"}


def test_a_part_gets_the_very_numbers_that_it_prepared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpbench_concat, "build_extractor", lambda name, options: Exact())
    assert torch.equal(embedded(Concat("exact+exact"), [picture()]), torch.ones(1, 2))


def test_weights_are_those_of_all_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpbench_concat, "build_extractor", lambda name, options: Exact())
    digest = Concat("exact+exact").weights()
    monkeypatch.setitem(WEIGHTS, "digest", "other")
    assert Concat("exact+exact").weights() != digest


def test_weights_are_present_where_those_of_all_parts_are(monkeypatch: pytest.MonkeyPatch) -> None:
    assert built("concat:pixels+pixels:size=4").present()
    monkeypatch.setattr(Pixels, "present", lambda self: self.size is None)
    assert not built("concat:pixels+pixels:size=4").present()


def test_a_run_takes_it_from_the_command_line(
    fresh_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = "run --learner dp-sgd:steps=3 --dataset digits --extractor concat:pixels+pixels:size=4 --seeds 1 --json --out"
    with pytest.raises(SystemExit) as end:
        main([*run.split(), str(tmp_path)])
    assert end.value.code == 0
    result = json.loads(capsys.readouterr().out)
    assert result["task"]["example_shape"] == [64 + 16]
    assert result["spec"]["extractor"]["options"]["of"].startswith("pixels:size=None;")
