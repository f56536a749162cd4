"""The extractor `pack`: a network's features on a machine without the network, and what results say of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from dpbench_plugins.extractors.packs import Pack

from dpbench.board.verify import declarations
from dpbench.models.model import Model
from dpbench.records.result import Result
from tests.helpers import trees
from tests.helpers.commands import Output, Refusal, call
from tests.helpers.readme import ROOT

FLAGS = ("--public-fraction", "0.3", "--allow-overlap", "--device", "cpu")


@pytest.fixture
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of images and the pack of their pixels, and then another cache, which is empty."""
    monkeypatch.chdir(tmp_path)
    kinds = [f"{split}/{kind}" for split in ("train", "test") for kind in ("cat", "dog")]
    trees.lay_out(tmp_path / "photos", trees.planted(kinds, 12, "png"))
    packed = ("imagefolder:photos", "pixels:size=8", "--licence", "none", "--out", "photos.safetensors")
    assert call("features", "pack", *packed) == 0
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "empty"))
    return tmp_path / "photos.safetensors"


def run(extractor: str, *flags: str, dataset: str = "imagefolder:photos") -> tuple[object, ...]:
    named = ("--learner", "class-means", "--dataset", dataset, "--extractor", extractor)
    return ("run", *named, "--seeds", "1", "--epsilon", "8", *FLAGS, *flags)


def read_result(folder: str) -> Result:
    (file,) = Path(folder).glob("*.json")
    return Result.read(file)


def test_a_run_from_a_pack_says_that_its_features_were_made_elsewhere(photos: Path, capsys: Output) -> None:
    assert call(*run("pack:photos.safetensors", "--out", "packed")) == 0
    result = read_result("packed")
    stated = f"pixels:size=8 (pack {Pack(str(photos)).weights()})"
    assert result.task.made_elsewhere == stated
    assert result.task.trained_on == "nothing"
    assert f"features made elsewhere, by {stated}: a row may follow from several images" in result.not_covered
    capsys.readouterr()
    assert call("results", "show", *map(str, Path("packed").glob("*.json"))) == 0
    assert "features made elsewhere" in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow
def test_a_model_on_features_from_a_pack_states_the_same_limit(photos: Path) -> None:
    assert call(*run("pack:photos.safetensors", "--out", "packed", "--models")) == 0
    (model,) = Path("packed/models").glob("*.onnx")
    (limit,) = (limit for limit in read_result("packed").not_covered if limit.startswith("features made elsewhere"))
    assert limit in Model.load(model).card.not_covered


def test_a_run_that_computes_its_features_does_not_say_so(photos: Path) -> None:
    assert call(*run("pixels:size=8", "--out", "computed")) == 0
    result = read_result("computed")
    assert result.task.made_elsewhere is None
    assert not [limit for limit in result.not_covered if "elsewhere" in limit]


def test_no_board_takes_a_pack_that_the_project_did_not_make(photos: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert call(*run("pack:photos.safetensors", "--out", "packed")) == 0
    result = read_result("packed")
    stated = result.task.made_elsewhere
    ((field, said),) = declarations.check_features_origin(result)
    assert field == "task.made_elsewhere" and f"or a pack that this project made, got {stated}" in said
    silent = result.model_copy(update={"task": result.task.model_copy(update={"made_elsewhere": None})})
    assert [*declarations.check_features_origin(silent)], "a result that hides its pack"
    monkeypatch.setattr(declarations, "PROJECT_PACKS", frozenset({stated}))
    assert not [*declarations.check_features_origin(result)]


def test_the_pack_of_other_images_is_refused(photos: Path, refusal: Refusal) -> None:
    said = refusal.command(*run("pack:photos.safetensors", dataset="digits"))
    assert "has no features of this image (L, 8 x 8 pixels): it holds 48 images of imagefolder:path=photos" in said


def test_one_image_that_differs_is_refused(photos: Path, refusal: Refusal) -> None:
    (photos.parent / "photos" / "train" / "cat" / "003.png").write_bytes(trees.picture(77, form="PNG"))
    assert "and this one differs from all of them" in refusal.command(*run("pack:photos.safetensors"))


def test_a_damaged_pack_is_refused_in_a_run(photos: Path, refusal: Refusal) -> None:
    photos.write_bytes(photos.read_bytes()[:-1])
    assert "is damaged or was cut off" in refusal.command(*run("pack:photos.safetensors"))


def test_a_pack_that_is_not_here_is_named(photos: Path, refusal: Refusal) -> None:
    assert not Pack("other.safetensors").present()
    assert "The feature pack other.safetensors is not on this machine" in refusal.command(
        *run("pack:other.safetensors")
    )


@pytest.mark.slow
def test_the_script_of_the_project_names_networks_that_timm_has() -> None:
    import timm

    named = re.findall(r"timm:(\S+)", (ROOT / ".ci" / "packs").read_text(encoding="utf-8"))
    assert len(named) == 4 and set(named) <= set(timm.list_pretrained())


def test_the_card_of_a_pack_is_shown(photos: Path, capsys: Output) -> None:
    capsys.readouterr()
    assert call("features", "show", "photos.safetensors") == 0
    assert "pixels:size=8" in capsys.readouterr().out


def test_the_laws_on_images_are_not_tested_as_a_pack_has_images_of_its_own(photos: Path, capsys: Output) -> None:
    capsys.readouterr()
    assert call("check", "pack:photos.safetensors") == 0
    assert "not tested" in capsys.readouterr().out
