"""Traffic signs: class folders, the table of the test images, and the same as torchvision reads."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dpbench_plugins.datasets.torchvision import Gtsrb, gtsrb
from PIL import Image

from dpbench import DataError, DataMissing
from dpbench.testing import DatasetLaws
from tests.helpers.trees import pack, read

HEADER = "Filename;Width;Height;Roi.X1;Roi.Y1;Roi.X2;Roi.Y2;ClassId"


class Few(Gtsrb):
    counts = {"online": 86, "final": 86, "test": 50}


def draw(file: Path, level: int, size: tuple[int, int] = (9, 7)) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (level, 255 - level, 7)).save(file)


def lay_out(folder: Path, training: str = "Training") -> Path:
    """Two images of each class and 50 test images, as torchvision unpacks the three archives."""
    root = folder / "gtsrb"
    for label in range(43):
        for number in range(2):
            draw(root / f"GTSRB/{training}/{label:05d}/{number:05d}_00000.ppm", label * 2 + number, (9 + label, 7))
        (root / f"GTSRB/{training}/{label:05d}/GT-{label:05d}.csv").write_text(HEADER)
    rows = [f"{number:05d}.ppm;9;7;1;1;8;6;{number * 7 % 43}" for number in range(50)]
    for number in range(50):
        draw(root / f"GTSRB/Final_Test/Images/{number:05d}.ppm", number)
    (root / "GT-final_test.csv").write_text("\n".join([HEADER, *rows]) + "\n")
    return root


class TestLaws(DatasetLaws):
    dataset = Gtsrb()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(Gtsrb, "counts", Few.counts)
        lay_out(data_folder)


def test_images_and_labels_are_those_that_torchvision_reads(data_folder: Path) -> None:
    from torchvision.datasets import GTSRB

    lay_out(data_folder)
    splits = Few().load()
    for split, name in ((splits.train, "train"), (splits.test, "test")):
        theirs = GTSRB(str(data_folder), split=name)
        assert split.labels.tolist() == [label for _, label in theirs]
        for index in range(len(theirs)):
            assert split.images[index].mode == "RGB"
            assert split.images[index].tobytes() == theirs[index][0].tobytes()


def test_the_larger_training_set_is_read_only_when_asked_for(data_folder: Path) -> None:
    root = lay_out(data_folder)
    with pytest.raises(DataMissing, match="which lacks gtsrb/GTSRB/Final_Training/Images;"):
        Few(training="final").load()
    (root / "GTSRB/Final_Training").mkdir()
    (root / "GTSRB/Training").rename(root / "GTSRB/Final_Training/Images")
    assert len(Few(training="final").load().train.images) == 86
    with pytest.raises(DataMissing, match=r"which lacks gtsrb/GTSRB/Training;"):
        Few().load()


ARCHIVES = {
    "GTSRB-Training_fixed.zip": "GTSRB/Training/",
    "GTSRB_Final_Test_Images.zip": "GTSRB/Final_Test/",
    "GTSRB_Final_Test_GT.zip": "GT-final_test.csv",
}


@pytest.mark.parametrize("packed", [list(ARCHIVES)[place:] for place in range(3)], ids=len)
def test_archives_as_downloaded_are_the_same_data_as_what_was_in_them(data_folder: Path, packed: list[str]) -> None:
    root = lay_out(data_folder)
    unpacked = read(Few().load())
    for name in packed:
        files = [file for file in root.rglob("*.*") if file.relative_to(root).as_posix().startswith(ARCHIVES[name])]
        pack(root / name, {file.relative_to(root).as_posix(): file.read_bytes() for file in reversed(files)})
        for file in files:
            file.unlink()
        for folder in ("GTSRB/Training", "GTSRB/Final_Test/Images"):
            if ARCHIVES[name] in f"{folder}/":
                shutil.rmtree(root / folder)
    assert read(Few().load()) == unpacked


def test_the_digest_of_unpacked_archives_is_that_of_earlier_versions(data_folder: Path) -> None:
    lay_out(data_folder)
    assert Few().load().digest == "ffe78755b54e777c36368c39373f09694eac091bee40d4d4b3ccf7c842c83ee5"


def test_a_damaged_archive_is_refused(data_folder: Path) -> None:
    root = lay_out(data_folder)
    (root / "GT-final_test.csv").unlink()
    (root / "GTSRB_Final_Test_GT.zip").write_bytes(b"no zip")
    with pytest.raises(
        DataError, match=r"Expected the table GT-final_test\.csv in .*GTSRB_Final_Test_GT\.zip: File is not"
    ):
        Few().load()


def test_units_are_the_tracks_of_file_names(data_folder: Path) -> None:
    root = lay_out(data_folder) / "GTSRB/Training"
    (root / "00002/00001_00000.ppm").rename(root / "00002/00000_00001.ppm")
    splits = Few().load()
    assert splits.unit == "track"
    assert splits.train.units is not None and splits.train.units.dtype.name == "int64"
    numbers = splits.train.units.tolist()
    assert numbers[4] == numbers[5]
    assert len(set(numbers)) == len(numbers) - 1 == 85
    assert splits.test.units is None


def test_a_copy_with_other_names_has_no_tracks(data_folder: Path) -> None:
    root = lay_out(data_folder) / "GTSRB/Training"
    (root / "00002/00001_00000.ppm").rename(root / "00002/a.ppm")
    splits = Few().load()
    assert (splits.unit, splits.train.units) == ("", None)


@pytest.mark.slow
def test_the_real_tracks_are_1307_of_29_or_30_frames(real_data: Path) -> None:
    if not any((real_data / "gtsrb" / name).exists() for name in ("GTSRB_Final_Training_Images.zip", "GTSRB")):
        pytest.skip(f"put the archives of {gtsrb.PAGE} into {real_data}/gtsrb")
    splits = Gtsrb(training="final").load()
    assert splits.train.units is not None
    tracks, frames = np.unique(splits.train.units, return_counts=True)
    assert (len(splits.train.units), len(tracks), set(frames.tolist())) == (39_209, 1307, {29, 30})
    assert len({(track, label) for track, label in zip(splits.train.units, splits.train.labels, strict=True)}) == 1307
    assert len(splits.test.labels) == 12_630


@pytest.mark.parametrize("label", ["43", "-1"])
def test_a_label_outside_the_classes_is_refused(data_folder: Path, label: str) -> None:
    table = lay_out(data_folder) / "GT-final_test.csv"
    table.write_text(table.read_text().replace(";7\n", f";{label}\n", 1))
    with pytest.raises(DataError, match=rf"Expected labels in 0\.\.42 in .*, got {label}"):
        Few().load()


def test_missing_data_says_what_to_fetch_and_where_it_looked(data_folder: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        Gtsrb().load()
    for said in ("gtsrb/{GTSRB/Training,", "277 MB", "`dpbench data fetch gtsrb`", gtsrb.PAGE, str(data_folder)):
        assert said in str(caught.value)


def test_addresses_and_checksums_are_those_of_torchvision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torchvision.datasets import GTSRB
    from torchvision.datasets import gtsrb as theirs

    stated: dict[str, str] = {}

    def noted(url: str, download_root: str, md5: str) -> None:
        assert Path(download_root) == tmp_path / "gtsrb"
        stated[url] = f"md5:{md5}"

    monkeypatch.setattr(theirs, "download_and_extract_archive", noted)
    for split in ("train", "test"):
        with pytest.raises(RuntimeError, match="not found"):
            GTSRB(str(tmp_path), split=split, download=True)
    assert {download.url: download.checksum for download in Gtsrb().source().downloads} == stated


@pytest.mark.parametrize(("training", "archive"), [("online", "Training_fixed"), ("final", "Final_Training_Images")])
def test_a_training_set_is_fetched_with_the_test_images(training: Any, archive: str) -> None:
    source = Gtsrb(training=training).source()
    assert len(source.downloads) == 3
    assert archive in source.downloads[0].url
    assert source.size == sum(download.size for download in source.downloads)
    for download in source.downloads:
        assert re.fullmatch("md5:[0-9a-f]{32}", download.checksum)
        assert (download.path, download.unpack) == ("gtsrb", True)


def test_a_missing_class_folder_is_named_and_shifts_no_label(data_folder: Path) -> None:
    shutil.rmtree(lay_out(data_folder) / "GTSRB/Training/00017")
    with pytest.raises(DataError, match=r"Expected \.ppm images of class 17 in .*/00017, got none"):
        Few().load()


def test_counts_other_than_the_published_ones_are_refused(data_folder: Path) -> None:
    root = lay_out(data_folder)
    with pytest.raises(DataError, match=r"Expected 26,640 images of GTSRB \(online\) .*, got 86"):
        Gtsrb().load()
    (root / "GTSRB/Training/00003/00001_00000.ppm").unlink()
    with pytest.raises(DataError, match="Expected 86 images of GTSRB"):
        Few().load()


def test_a_missing_test_image_is_named(data_folder: Path) -> None:
    (lay_out(data_folder) / "GTSRB/Final_Test/Images/00031.ppm").unlink()
    with pytest.raises(DataError, match=r"Expected an image .*/00031\.ppm, which .*/GT-final_test\.csv names"):
        Few().load()


@pytest.mark.parametrize("table", ["", "Filename;ClassId\n", "Filename;ClassId\n00000.ppm;stop\n", "a;b\n1;2\n"])
def test_a_table_that_does_not_parse_is_named(data_folder: Path, table: str) -> None:
    (lay_out(data_folder) / "GT-final_test.csv").write_text(table)
    with pytest.raises(DataError, match=r"GT-final_test\.csv|Expected 50 images of GTSRB \(test\)"):
        Few().load()


@pytest.mark.parametrize("change", ["content", "size", "name", "label"])
def test_the_digest_changes_with_the_data(data_folder: Path, change: str) -> None:
    root = lay_out(data_folder)
    first = Few().load().digest
    image, table = root / "GTSRB/Training/00000/00000_00000.ppm", root / "GT-final_test.csv"
    if change == "content":
        draw(image, 99)
    elif change == "size":
        draw(image, 0, (30, 30))
    elif change == "name":
        image.rename(image.with_name("00000_00001.ppm"))
    else:
        table.write_text(table.read_text().replace(";7\n", ";8\n"))
    assert Few().load().digest != first


@pytest.mark.parametrize("mode", ["L", "RGBA", "P", "CMYK"])
def test_an_image_of_another_mode_becomes_rgb(data_folder: Path, mode: str) -> None:
    file = lay_out(data_folder) / "GTSRB/Training/00000/00000_00000.ppm"
    Image.new("RGB", (9, 7)).convert(mode).save(file, "TIFF")
    image = Few().load().train.images[0]
    assert (image.mode, image.size) == ("RGB", (9, 7))


@pytest.mark.parametrize("content", [b"", b"no image", b"P6\n9 7\n255\nshort"])
def test_an_image_that_does_not_decode_is_named(data_folder: Path, content: bytes) -> None:
    (lay_out(data_folder) / "GTSRB/Training/00000/00000_00000.ppm").write_bytes(content)
    with pytest.raises(DataError, match=r"Expected a readable train image 00000/00000_00000\.ppm in "):
        Few().load().train.images[0]


def test_every_class_has_a_name() -> None:
    assert len(set(Gtsrb.classes)) == 43
    assert (Gtsrb.classes[14], Gtsrb.classes[25], Gtsrb.classes[40]) == ("stop", "road works", "roundabout")
