"""Feature packs: an image gets the features of its own pixels or is refused, and so is a file that is not whole."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import load, save
from torch import Tensor

from dpbench import DataError, Dataset, DeclaredImages, Extractor, FeaturePack, Features, SpecError, Split, Splits
from dpbench.data.concat import Concat
from dpbench.data.keys import digest_pixels
from dpbench.data.packing import StatedWeightsOrigin, write_feature_pack
from dpbench.records.pack import PackCard
from dpbench.support.files import file_sha256
from tests.helpers.commands import Refusal

CPU = torch.device("cpu")
STATED = StatedWeightsOrigin("CC0", "nothing")


def picture(level: int, mode: str = "RGB") -> Image.Image:
    return Image.new("L", (4, 3), level).convert(mode)


@dataclasses.dataclass(frozen=True)
class Corners(Extractor):
    """Twice the first and the last pixel."""

    name = "corners"
    factor: float = 2.0

    def prepare(self, image: Image.Image) -> Tensor:
        return torch.from_numpy(np.array(image.convert("L"))).float()

    def open(self, device: torch.device) -> Callable[[Tensor], Tensor]:
        return lambda images: self.factor * images.flatten(1)[:, [0, -1]]


@dataclasses.dataclass(frozen=True)
class Levels(Dataset):
    """Grey levels; the second training image is also the first test image."""

    name = "levels"
    classes = ("dark", "light")
    licence = "CC BY"
    citation = "none"
    features: ClassVar[bool] = False

    def load(self) -> Splits:
        return Splits(self._split([1, 200, 30]), self._split([200, 90]), "digest")

    def _split(self, levels: list[int]) -> Split:
        labels = np.array([level // 100 for level in levels], np.int64).clip(0, 1)
        if self.features:
            return Split(Features(np.ones((len(levels), 2), np.float32)), labels)
        return Split(DeclaredImages([picture(level) for level in levels], "drawn"), labels)


@pytest.fixture
def pack(tmp_path: Path) -> FeaturePack:
    return write_feature_pack(tmp_path / "levels.safetensors", Levels(), Corners(factor=1.5), STATED, CPU)


def test_a_pack_gives_each_image_its_own_features_in_half_precision(pack: FeaturePack) -> None:
    for level in (1, 200, 30, 90):
        found = pack.find(picture(level))
        assert found.dtype == np.float16
        assert found.tolist() == [1.5 * level] * 2
    assert pack.example_shape == (2,)


@pytest.mark.parametrize("swap", ["replaced", "overwritten"])
def test_features_of_other_bytes_than_the_digest_are_refused(
    pack: FeaturePack, swap: str, tmp_path: Path, refusal: Refusal
) -> None:
    other = write_feature_pack(tmp_path / "other.safetensors", Levels(), Corners(factor=2.5), STATED, CPU)
    assert pack.digest == file_sha256(pack.file) != other.digest
    if swap == "replaced":
        other.file.replace(pack.file)
    else:
        pack.file.write_bytes(other.file.read_bytes())
    assert "was changed while it was in use" in refusal(lambda: pack.find(picture(30)), DataError)
    assert FeaturePack.read(pack.file).find(picture(30)).tolist() == [75.0, 75.0]


def test_equal_images_have_one_row_and_the_card_counts_both(pack: FeaturePack) -> None:
    assert len(load(pack.file.read_bytes())["digests"]) == 4
    assert pack.card.images == {"train": 3, "test": 2}


def test_the_card_says_whose_features_these_are(pack: FeaturePack) -> None:
    said = dict(pack.card.lines())
    assert said["features by"] == "corners:factor=1.5"
    assert (said["licence"], said["weights trained on"]) == ("CC0", "nothing")
    assert said["images"] == "levels: 3 train, 2 test"
    assert said["licence of the images"] == "CC BY"


def test_no_path_of_this_machine_is_on_a_card(tmp_path: Path) -> None:
    @dataclasses.dataclass(frozen=True)
    class Stored(Levels):
        path: str = ""

    made = write_feature_pack(tmp_path / "pack", Stored(path=str(tmp_path)), Corners(), STATED, CPU)
    assert made.card.dataset == f"levels:path={tmp_path.name}"


@pytest.mark.parametrize(
    "other", [picture(2), picture(30, "L"), Image.new("RGB", (3, 4), (30, 30, 30))], ids=["pixels", "mode", "size"]
)
def test_an_image_that_differs_is_refused(pack: FeaturePack, other: Image.Image, refusal: Refusal) -> None:
    assert "holds 4 images of levels:" not in (said := refusal(lambda: pack.find(other), DataError))
    assert "has no features of this image" in said and "holds 4 images of levels, and this one differs" in said


def test_a_palette_is_read_as_the_colours_it_stands_for() -> None:
    first = picture(30).convert("P")
    swapped = first.copy()
    swapped.putpalette([255 - value for value in first.getpalette() or []])
    assert swapped.tobytes() == first.tobytes()
    assert digest_pixels(swapped) != digest_pixels(first)


def rewrite(pack: FeaturePack, card: dict[str, object]) -> None:
    tensors = load(pack.file.read_bytes())
    pack.file.write_bytes(save(tensors, {"card": json.dumps(card)}))


def flip_byte(file: Path, place: int) -> None:
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def write_shape(pack: FeaturePack, shape: str) -> None:
    """Write another shape of the features into the header, whose length is before it."""
    content = pack.file.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = content[8 : 8 + length].replace(b'"shape":[4,2]', b'"shape":' + shape.encode())
    pack.file.write_bytes(len(header).to_bytes(8, "little") + header + content[8 + length :])


SHAPES = ("[4.0,2]", '["x",2]', "[4,1e999]", "[[4],2]", "[4,9999999999999999999]", f"[4,{'1,' * 20}2]")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_that_is_none_is_refused(pack: FeaturePack, shape: str, refusal: Refusal) -> None:
    write_shape(pack, shape)
    with pytest.raises(DataError, match="damaged or was cut off"):
        FeaturePack.read(pack.file)


DAMAGES: dict[str, tuple[Callable[[FeaturePack], object], str]] = {
    "a feature": (lambda pack: flip_byte(pack.file, pack.start), "damaged or was changed"),
    "a digest": (lambda pack: flip_byte(pack.file, -1), "damaged or was changed"),
    "a shape": (
        lambda pack: pack.file.write_bytes(pack.file.read_bytes().replace(b'"shape":[4,2]', b'"shape":[0,2]')),
        "damaged or was cut off",
    ),
    "the end": (lambda pack: pack.file.write_bytes(pack.file.read_bytes()[:-5]), "damaged or was cut off"),
    "the start": (lambda pack: pack.file.write_bytes(pack.file.read_bytes()[:50]), "Expected a feature pack, got"),
    "all": (lambda pack: pack.file.write_bytes(b""), "Expected a feature pack, got"),
    "another file": (lambda pack: pack.file.write_bytes(b"\x04" + bytes(7) + b"true"), "Expected a feature pack, got"),
    "the file": (lambda pack: pack.file.unlink(), "Cannot read feature pack"),
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.values(), ids=DAMAGES)
def test_a_pack_that_is_not_whole_is_refused(
    pack: FeaturePack, damage: Callable[[FeaturePack], object], said: str, refusal: Refusal
) -> None:
    damage(pack)
    message = refusal(lambda: FeaturePack.read(pack.file), DataError)
    assert said in message and "\n" not in message


@pytest.mark.parametrize("field", ["network", "licence", "trained_on"])
def test_a_card_without_network_licence_or_training_data_is_refused(
    pack: FeaturePack, field: str, refusal: Refusal
) -> None:
    rewrite(pack, {**pack.card.model_dump(), field: ""})
    said = refusal(lambda: FeaturePack.read(pack.file), DataError)
    assert ("to name the network of its features, which is unknown" if field == "network" else field) in said


def test_a_pack_needs_a_licence_and_what_the_weights_have_seen(tmp_path: Path, refusal: Refusal) -> None:
    said = refusal(
        lambda: write_feature_pack(tmp_path / "pack", Levels(), Corners(), StatedWeightsOrigin(), CPU), SpecError
    )
    assert "Expected --licence and --trained-on of the features, which extractor 'corners' does not state" in said


@pytest.mark.parametrize("extractor", [Concat((Corners(), Corners())), "made elsewhere"], ids=["two", "elsewhere"])
def test_only_the_features_of_one_network_of_this_machine_are_packed(
    tmp_path: Path, extractor: Concat | str, refusal: Refusal
) -> None:
    class Elsewhere(Corners):
        made_elsewhere = "corners (pack 1)"

    chosen = Elsewhere() if isinstance(extractor, str) else extractor
    said = refusal(lambda: write_feature_pack(tmp_path / "pack", Levels(), chosen, STATED, CPU), SpecError)
    assert "Expected one extractor that computes features here" in said


def test_a_dataset_of_features_has_no_images_to_pack(tmp_path: Path, refusal: Refusal) -> None:
    class Given(Levels):
        features = True

    said = refusal(lambda: write_feature_pack(tmp_path / "pack", Given(), Corners(), STATED, CPU), DataError)
    assert "it has none to pack" in said


def test_a_feature_beyond_half_precision_is_refused(tmp_path: Path, refusal: Refusal) -> None:
    said = refusal(lambda: write_feature_pack(tmp_path / "pack", Levels(), Corners(factor=1e6), STATED, CPU), DataError)
    assert "gives image 0 of the train split a feature above 65,504" in said


def test_a_card_has_no_field_that_this_version_does_not_know(pack: FeaturePack) -> None:
    with pytest.raises(ValueError, match="extra"):
        PackCard.model_validate({**pack.card.model_dump(), "code": "x"})
