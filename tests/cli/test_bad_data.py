"""Data that are not as they should be: what `dpbench run` says of them, in one sentence each."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.cli.test_cli import refusal
from tests.helpers.commands import Output, call

QUICK = ("run", "--learner", "dp-sgd:steps=3", "--seeds", "1")


def photos(folder: Path, train: Sequence[int], test: Sequence[int] = range(1000, 1040)) -> Path:
    """Write photos of noise, each of the seed that names it."""
    for split, seeds in (("train", train), ("test", test)):
        for place, seed in enumerate(seeds):
            file = folder / split / "ab"[place % 2] / f"{place}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(np.random.default_rng(seed).integers(0, 256, (8, 8), np.uint8)).save(file)
    return folder


def beside_public(folder: Path, tmp_path: Path) -> tuple[str, ...]:
    """Return the flags of a private folder and of public photos of their own."""
    public = photos(tmp_path / "public", range(5000, 5020))
    return "--dataset", f"imagefolder:{folder}", "--public-dataset", f"imagefolder:{public}", "--out", str(tmp_path)


def test_public_data_of_which_half_are_private_images(tmp_path: Path, capsys: Output) -> None:
    private, public = photos(tmp_path / "mine", range(40)), photos(tmp_path / "theirs", range(20, 60))
    data = ("--dataset", f"imagefolder:{private}", "--public-dataset", f"imagefolder:{public}")
    said = refusal(capsys, *QUICK, *data, "--out", str(tmp_path / "out"))
    assert said == (
        "dpbench: Public in private: expected at most 10% of the 40 private images to equal a public image, got 20. "
        "Epsilon does not cover what is learned from public data. Use other public data, or set allow_overlap "
        "(--allow-overlap); no board accepts the result then.\n"
    )


def test_public_data_of_which_a_third_look_like_private_images(tmp_path: Path, capsys: Output) -> None:
    private, public = photos(tmp_path / "mine", range(40)), photos(tmp_path / "theirs", range(5000, 5020))
    for place in range(10):
        with Image.open(private / f"train/a/{2 * place}.png") as photo:
            photo.point(lambda level: level // 2 + 50).save(public / f"train/a/like-{place}.png")
    data = ("--dataset", f"imagefolder:{private}", "--public-dataset", f"imagefolder:{public}")
    assert call(*QUICK, *data, "--extractor", "pixels:size=8", "--out", str(tmp_path / "out")) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "warning 10 of 30 public images look like a private one (0 are identical)." in shown


@pytest.mark.slow
def test_half_of_the_test_images_among_the_private_ones(tmp_path: Path, capsys: Output) -> None:
    folder = photos(tmp_path / "mine", range(40), range(20, 60))
    assert call(*QUICK, *beside_public(folder, tmp_path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "warning Test in private: expected at most 1% of the 40 images" in shown


@pytest.mark.slow
def test_a_photo_under_two_names(tmp_path: Path, capsys: Output) -> None:
    folder = photos(tmp_path / "mine", range(40))
    shutil.copy(folder / "train/a/0.png", folder / "train/a/copy.png")
    assert call(*QUICK, *beside_public(folder, tmp_path)) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert (
        "warning 2 of 41 private images are exact copies of another; one image appears 2 times. "
        "Its copies together have ε 2." in shown
    )


@pytest.mark.parametrize("content", [b"", b"\x89PNG\r\n\x1a\n and no more", b"text"])
def test_a_record_that_cannot_be_read(content: bytes, tmp_path: Path, capsys: Output) -> None:
    folder = photos(tmp_path / "mine", range(40))
    (folder / "train/b/7.png").write_bytes(content)
    said = refusal(capsys, *QUICK, "--dataset", f"imagefolder:{folder}", "--out", str(tmp_path / "out"))
    assert said.startswith("dpbench: Expected a readable train image b/7.png in ")


@pytest.mark.parametrize(
    ("header", "owners", "left_out", "said"),
    [
        ("file,unit", "mnop", 1, "its unit, but it misses images: train/b/9.png (1 in all). Correct the table."),
        ("file,unit", "mnop", -1, "but it names images that are not there: train/a/none.png (1 in all). Correct the t"),
        ("file,unit", "m", 0, "at least as many patients in the train split of dataset 'imagefolder' as its 2 classes"),
        ("file,person", "mnop", 0, "Expected a CSV file whose first line is file,unit in"),
        ("image,unit", "mnop", 0, "Expected a CSV file whose first line is file,unit in"),
    ],
)
def test_a_table_of_units_that_does_not_fit(
    header: str, owners: str, left_out: int, said: str, tmp_path: Path, capsys: Output
) -> None:
    folder, table = photos(tmp_path / "mine", range(10), range(1000, 1004)), tmp_path / "units.csv"
    names = sorted(file.relative_to(folder).as_posix() for file in folder.rglob("*.png"))
    names = [*names[: len(names) - max(left_out, 0)], *["train/a/none.png"] * (left_out < 0)]
    table.write_text(
        "\n".join([header, *(f"{name},{owners[place % len(owners)]}" for place, name in enumerate(names))])
    )
    data = ("--dataset", f"imagefolder:{folder},units={table},unit=patient", "--unit", "patient")
    refused = refusal(capsys, *QUICK, *data, "--out", str(tmp_path / "out"))
    assert said in refused and refused.count("\n") == 1
