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


@pytest.mark.slow
def test_several_runs_say_it_once(capsys: Output, tmp_path: Path) -> None:
    assert said(capsys, tmp_path, 33, "--epsilon", "1,2")[1].count("These images are") == 1


@pytest.mark.parametrize(("delta", "warned"), [(0.5 / 1294, False), (0.999 / 1294, True)])
def test_a_delta_just_below_one_in_n_is_said_to_be_too_large(
    delta: float, warned: bool, capsys: Output, tmp_path: Path
) -> None:
    asked = ("run", "--learner", "jl:steps=2", "--dataset", "digits", "--seeds", "1", "--device", "cpu")
    assert called(*asked, "--delta", str(delta), "--out", str(tmp_path)) == 0
    assert ("is just below 1/n=0.000773 with n=1,294 private examples" in capsys.readouterr().err) is warned


def test_a_delta_of_one_in_n_is_refused_in_one_sentence(capsys: Output, tmp_path: Path) -> None:
    asked = ("run", "--learner", "jl:steps=2", "--dataset", "digits", "--seeds", "1", "--device", "cpu")
    assert called(*asked, "--delta", str(1 / 1294), "--out", str(tmp_path)) != 0
    assert "in (0, 1/n) with n=1294 private examples" in capsys.readouterr().err
