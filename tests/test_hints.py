"""What is said before a run: large images without an extractor want a network's features."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.test_cli import called

Output = pytest.CaptureFixture[str]


def photos(folder: Path, side: int) -> Path:
    draw = np.random.default_rng(0)
    for split, count in (("train", 10), ("test", 2)):
        for kind in ("cat", "dog"):
            (folder / split / kind).mkdir(parents=True)
            for index in range(count):
                pixels = draw.integers(0, 256, (side, 8, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / kind / f"{index}.png")
    return folder


def said(capsys: Output, folder: Path, side: int, *flags: str) -> tuple[str, str]:
    """Return what a run on photos of this height writes to standard output and standard error."""
    data = ("--dataset", f"imagefolder:{photos(folder / 'photos', side)}", "--seeds", "1", "--device", "cpu")
    assert called("run", *data, "--learner", "jl:steps=2", "--out", str(folder), *flags) == 0
    captured = capsys.readouterr()
    return captured.out, captured.err


def test_images_of_more_than_32_pixels_are_said_to_want_a_networks_features(capsys: Output, tmp_path: Path) -> None:
    out, err = said(capsys, tmp_path, 33, "--json")
    assert err.count("These images are 8 x 33 pixels") == 1
    assert "--extractor efficientnet-lite0" in err
    assert json.loads(out)["spec"]["extractor"]["name"] == "pixels"


@pytest.mark.parametrize(("side", "flags"), [(32, ()), (33, ("--extractor", "pixels")), (33, ("--quiet",))])
def test_nothing_is_said_of_small_images_or_where_the_user_chose(
    side: int, flags: tuple[str, ...], capsys: Output, tmp_path: Path
) -> None:
    assert "These images are" not in said(capsys, tmp_path, side, *flags)[1]


def test_several_runs_say_it_once(capsys: Output, tmp_path: Path) -> None:
    assert said(capsys, tmp_path, 33, "--epsilon", "1,2")[1].count("These images are") == 1
