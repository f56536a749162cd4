"""Class folders of images, in a folder or in a zip: DermNet, Flower-16, ImageNet and the user's own."""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import socket
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from dpbench_plugins.datasets.image_folders import (
    DermNet,
    Flower16,
    ImageFolder,
    ImageNet,
    dermnet,
    flower16,
    imagenet,
    owners,
)
from dpbench_plugins.datasets.image_trees import pictures
from PIL import Image

from dpbench import DataError, DataMissing, Dataset, SpecError, registry
from dpbench.data.survey import survey_dataset
from dpbench.records.protocol import Component
from dpbench.testing import DatasetLaws
from tests.helpers.trees import Tree, lay_out, pack, picture, pixels, planted, read

KINDS = ("n01440764", "n02102040", "n03000684")


PUBLISHED = {"dermnet": DermNet.counts, "imagenet": ImageNet.counts}


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Expect as many images and classes as the look-alikes have."""
    monkeypatch.setattr(DermNet, "counts", {"train": 46, "test": 23})
    monkeypatch.setattr(ImageNet, "counts", {"train": 6, "test": 3})
    monkeypatch.setattr(ImageNet, "kinds", 3)


def skin() -> Tree:
    """Kaggle's layout in small: two training images and one test image of each class."""
    train = planted([f"train/{kind}" for kind in DermNet.classes], 2)
    return train | planted([f"test/{kind}" for kind in DermNet.classes], 1)


def flowers() -> Tree:
    """Twenty images of each kind, below one more folder, as in Kaggle's zip."""
    return planted([f"flowers/{kind}" for kind in Flower16.classes], 20)


def synsets() -> Tree:
    train = planted([f"train/{kind}" for kind in KINDS], 2, "JPEG")
    return train | planted([f"val/{kind}" for kind in KINDS], 1, "JPEG")


def animals() -> Tree:
    return planted(["train/cat", "train/dog"], 3) | planted(["test/cat", "test/dog"], 2, "png")


@dataclass(frozen=True)
class Case:
    """A dataset, its small look-alike and where that belongs below a data folder."""

    dataset: Callable[[Path], Dataset]
    tree: Callable[[], Tree]
    folder: str
    classes: tuple[str, ...]

    def there(self, data: Path, changed: Callable[[Tree], object] = lambda files: None) -> Dataset:
        files = self.tree()
        changed(files)
        lay_out(data / self.folder, files)
        return self.dataset(data)


CASES = {
    "dermnet": Case(lambda _: DermNet(), skin, "dermnet", DermNet.classes),
    "flower16": Case(lambda _: Flower16(), flowers, "flower16", Flower16.classes),
    "imagenet": Case(lambda _: ImageNet(), synsets, "imagenet", KINDS),
    "imagefolder": Case(lambda data: ImageFolder(str(data / "own")), animals, "own", ("cat", "dog")),
}
PACKED = [name for name in CASES if name != "imagenet"]
each = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


class OnSmallFiles:
    """Puts the look-alike of a suite's dataset where that looks."""

    case: ClassVar[Case]

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path) -> None:
        self.case.there(data_folder)


class TestDermNet(OnSmallFiles, DatasetLaws):
    case, dataset = CASES["dermnet"], DermNet()


class TestFlower16(OnSmallFiles, DatasetLaws):
    case, dataset = CASES["flower16"], Flower16()


class TestImageNet(OnSmallFiles, DatasetLaws):
    case, dataset = CASES["imagenet"], ImageNet()


@each
def test_labels_are_the_places_of_the_class_folders(data_folder: Path, case: Case) -> None:
    splits = case.there(data_folder).load()
    assert case.dataset(data_folder).classes == case.classes
    colours = {Image.open(io.BytesIO(content)).tobytes(): name.split("/")[-2] for name, content in case.tree().items()}
    assert len(colours) == len(case.tree())
    for split in (splits.train, splits.test):
        assert [colours[image] for image in pixels(split.images)] == [case.classes[label] for label in split.labels]
        assert split.labels.tolist() == sorted(split.labels)
        assert {split.images[index].mode for index in range(len(split.images))} == {"RGB"}


@pytest.mark.quick(3)
@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize("below", ["", "archive/"])
def test_a_zip_is_the_same_data_as_its_folder(data_folder: Path, name: str, method: int, below: str) -> None:
    case = CASES[name]
    unpacked = read(case.there(data_folder).load())
    files = {f"{below}{place}": content for place, content in reversed(case.tree().items())}
    noise = ["__MACOSX/train/cat/._0.jpg", f"{below}train/.hidden/0.jpg", f"{below}readme.txt", "a/a/train/cat/1.jpg"]
    packed = pack(data_folder / f"{case.folder}.zip", files | dict.fromkeys(noise, b"noise"), method)
    shutil.rmtree(data_folder / case.folder)
    dataset = case.dataset(data_folder) if name != "imagefolder" else ImageFolder(str(packed))
    assert read(dataset.load()) == unpacked


@each
def test_hidden_and_other_files_are_left_out(data_folder: Path, case: Case) -> None:
    first = read(case.there(data_folder).load())
    kind = next(iter(case.tree())).rpartition("/")[0]
    noise = [f"{kind}/.0.jpg", f"{kind}/Thumbs.db", ".git/train/x/0.jpg", "__MACOSX/train/x/0.jpg", "readme.txt"]
    lay_out(data_folder / case.folder, dict.fromkeys(noise, b"noise"))
    assert read(case.dataset(data_folder).load()) == first


@each
def test_a_class_that_one_split_lacks_is_named(data_folder: Path, case: Case) -> None:
    kind = case.classes[1]

    def without(files: Tree) -> None:
        for name in [name for name in files if f"/{kind}/" in name and not name.startswith("train/")]:
            del files[name]

    with pytest.raises(DataError, match=rf"Expected (training|test) images .*, got no image of '{kind}'"):
        case.there(data_folder, without).load()


@each
def test_an_unknown_class_folder_is_named(data_folder: Path, case: Case) -> None:
    split = "test" if case.folder != "imagenet" else "val"
    folder = {"flower16": "flowers/weeds"}.get(case.folder, f"{split}/weeds")
    dataset = case.there(data_folder, lambda files: files.update(planted([folder], 9)))
    expected = r"no image of 'weeds'" if case.folder == "own" else r"the unknown 'weeds'"
    with pytest.raises(DataError, match=rf"got {expected}"):
        dataset.load()


@pytest.mark.parametrize(("cls", "got"), [(DermNet, "46 training and 23"), (ImageNet, "6 training and 3")])
def test_counts_other_than_the_published_ones_are_refused(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch, cls: Any, got: str
) -> None:
    dataset = CASES[cls.name].there(data_folder)
    monkeypatch.setattr(cls, "counts", PUBLISHED[cls.name])
    expected = "Expected {train:,} training and {test:,} test images".format(**cls.counts)
    with pytest.raises(DataError, match=rf"{expected} in .*, got {got} test\. "):
        dataset.load()


def test_the_published_figures() -> None:
    assert PUBLISHED["dermnet"] == {"train": 15_557, "test": 4_002}
    assert PUBLISHED["imagenet"] == {"train": 1_281_167, "test": 50_000}
    assert (len(set(DermNet.classes)), len(set(Flower16.classes))) == (23, 16)
    for dataset in (DermNet, Flower16):
        assert list(dataset.classes) == sorted(dataset.classes)


@pytest.mark.parametrize("name", ["dermnet", "flower16", "imagenet"])
def test_missing_data_says_what_to_fetch_and_where_it_looked(data_folder: Path, name: str) -> None:
    page = {"dermnet": dermnet.PAGE, "flower16": flower16.PAGE, "imagenet": imagenet.PAGE}[name]
    with pytest.raises(DataMissing) as caught:
        registry.load().build("dataset", name, {}).load()
    for said in (page, str(data_folder), f"dpbench data import {name}", "DPBENCH_DATA"):
        assert said in str(caught.value)


@each
def test_a_damaged_image_is_named(data_folder: Path, case: Case) -> None:
    place = next(iter(case.tree()))
    splits = case.there(data_folder, lambda files: files.update({place: files[place][:-200]})).load()
    name = "/".join(place.split("/")[-2:])
    with pytest.raises(DataError, match=rf"Expected a readable (train|test) image {name} in .* do not decode"):
        pixels(splits.train.images) + pixels(splits.test.images)


@pytest.mark.parametrize("name", PACKED)
def test_a_damaged_zip_is_refused(data_folder: Path, name: str) -> None:
    file = pack(data_folder / f"{CASES[name].folder}.zip", CASES[name].tree())
    file.write_bytes(file.read_bytes()[:-40])
    dataset = CASES[name].dataset(data_folder) if name != "imagefolder" else ImageFolder(str(file))
    with pytest.raises(DataError, match=rf"Expected a zip archive in {file}"):
        dataset.load()


@pytest.mark.parametrize(
    ("mode", "form"), [("L", "JPEG"), ("CMYK", "JPEG"), ("RGBA", "PNG"), ("P", "PNG"), ("1", "PNG"), ("LA", "PNG")]
)
def test_an_image_of_another_mode_becomes_rgb(data_folder: Path, mode: str, form: str) -> None:
    place = f"train/{DermNet.classes[0]}/000.jpg"
    changed = {place: picture(90, mode, form)}
    image = CASES["dermnet"].there(data_folder, lambda files: files.update(changed)).load().train.images[0]
    expected = Image.open(io.BytesIO(changed[place])).convert("RGB")
    assert (image.mode, image.tobytes()) == ("RGB", expected.tobytes())


def own(folder: Path, changed: Tree, **options: Any) -> ImageFolder:
    return ImageFolder(str(lay_out(folder / "own", animals() | changed)), **options)


def test_a_palette_with_transparency_becomes_rgb_without_a_warning(data_folder: Path) -> None:
    content, image = io.BytesIO(), Image.new("RGB", (12, 8), (200, 10, 7)).quantize(4)
    image.save(content, "PNG", transparency=bytes([128, 255, 255, 255]))
    found = own(data_folder, {"train/cat/000.jpg": content.getvalue()}).load().train.images[0]
    assert (found.mode, found.getpixel((0, 0))) == ("RGB", (200, 10, 7))


@pytest.mark.parametrize("mode", ["I;16", "I", "F"])
def test_more_than_eight_bits_are_refused_not_clipped(data_folder: Path, mode: str) -> None:
    content = io.BytesIO()
    Image.new(mode, (12, 8), 3).save(content, "TIFF")
    splits = own(data_folder, {"train/cat/000.tiff": content.getvalue()}).load()
    with pytest.raises(DataError, match=r"train image cat/000\.tiff in .*more than 8 bits per channel"):
        pixels(splits.train.images)


def test_own_images_may_be_grey(data_folder: Path) -> None:
    image = own(data_folder, {}, mode="L").load().train.images[0]
    assert image.tobytes() == Image.open(io.BytesIO(animals()["train/cat/000.jpg"])).convert("L").tobytes()


def test_own_images_are_named_by_their_path_alone(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(data_folder))
    own(data_folder, {})
    component = Component.parse("imagefolder:~/own")
    dataset = registry.load().build("dataset", component.name, component.options)
    assert dataset.source() is None
    assert dataset.classes == ("cat", "dog")
    assert len(dataset.load().train.images) == 6


def test_val_is_the_test_split_only_where_there_is_no_other(data_folder: Path) -> None:
    first = read(own(data_folder, {}).load())
    assert read(own(data_folder, planted(["val/cat", "val/bird"], 4)).load()) == first
    shutil.rmtree(data_folder / "own/val")
    (data_folder / "own/test").rename(data_folder / "own/val")
    assert read(ImageFolder(str(data_folder / "own")).load()) == first


def test_own_images_that_are_nowhere_are_said(data_folder: Path) -> None:
    dataset = ImageFolder(str(data_folder / "nowhere"))
    for ask in (dataset.load, lambda: dataset.classes):
        with pytest.raises(DataMissing, match=rf"Expected images in {data_folder}/nowhere, which does not exist"):
            ask()


@pytest.mark.parametrize(("files", "got"), [({}, "none"), (planted(["train/cat", "test/cat"], 2), "'cat'")])
def test_fewer_than_two_classes_are_refused(data_folder: Path, files: Tree, got: str) -> None:
    (data_folder / "own").mkdir()
    with pytest.raises(DataError, match=rf"two or more class folders in .*train/CLASS/IMAGE.*; got {got}\."):
        ImageFolder(str(lay_out(data_folder / "own", files))).load()


def test_links_are_followed_but_not_in_a_circle(data_folder: Path) -> None:
    first = read(own(data_folder, {}).load())
    (data_folder / "own/train").rename(data_folder / "elsewhere")
    (data_folder / "own/train").symlink_to(data_folder / "elsewhere")
    (data_folder / "own/test/cat/back").symlink_to(data_folder / "own")
    assert read(ImageFolder(str(data_folder / "own")).load()) == first
    (data_folder / "own/test/cat/lost.jpg").symlink_to(data_folder / "lost")
    with pytest.raises(DataError, match=r"behind the link .*/lost\.jpg, which points to nothing\."):
        ImageFolder(str(data_folder / "own")).load()


def test_where_a_flower_belongs_depends_on_its_name_alone(data_folder: Path) -> None:
    dataset = CASES["flower16"].there(data_folder)
    before = dataset.load()
    tested = {
        f"{kind}/{n:03d}.jpg" for kind in Flower16.classes for n in range(20) if _divisible(f"{kind}/{n:03d}.jpg")
    }
    assert len(before.test.images) == len(tested)
    (data_folder / "flower16/flowers/rose/000.jpg").unlink()
    after = dataset.load()
    gone = {"rose/000.jpg"}
    assert len(after.test.images) == len(tested - gone)
    assert len(after.train.images) == 320 - 1 - len(tested - gone)


def _divisible(name: str) -> bool:
    return int(hashlib.sha256(name.encode()).hexdigest(), 16) % 5 == 0


@pytest.mark.parametrize("change", ["content", "size", "name"])
def test_the_fingerprint_of_imagenet_changes_with_the_data(data_folder: Path, change: str) -> None:
    dataset = CASES["imagenet"].there(data_folder)
    first, image = dataset.load().digest, data_folder / f"imagenet/val/{KINDS[0]}/000.JPEG"
    if change == "content":
        image.write_bytes(image.read_bytes()[::-1])
    elif change == "size":
        image.write_bytes(image.read_bytes() + b" ")
    else:
        image.rename(image.with_name("001.JPEG"))
    assert dataset.load().digest != first


def test_only_some_images_of_imagenet_are_read(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "READ_FULLY", 3)
    dataset = CASES["imagenet"].there(data_folder)
    first = dataset.load().digest
    unread = data_folder / f"imagenet/train/{KINDS[0]}/001.JPEG"
    unread.write_bytes(bytes(len(unread.read_bytes())))
    assert dataset.load().digest == first


def test_imagenet_with_other_than_a_thousand_classes_is_refused(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = CASES["imagenet"].there(data_folder)
    monkeypatch.setattr(ImageNet, "kinds", 1_000)
    with pytest.raises(DataError, match=r"Expected 1,000 class folders in .*imagenet/train, got 3\. Unpack"):
        dataset.load()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@each
def test_what_may_not_be_read_is_named(data_folder: Path, case: Case) -> None:
    dataset = case.there(data_folder)
    (data_folder / case.folder).chmod(0)
    try:
        with pytest.raises(DataError, match="Check its permissions"):
            dataset.load()
    finally:
        (data_folder / case.folder).chmod(0o755)


NAMED = {  # a cat's owner and a picture of it
    name: picture(40 * place)
    for place, name in enumerate(
        [f"{split}/{kind}/{owner}_{number}.jpg" for split, owners in (("train", "abc"), ("test", "de"))
         for kind in ("cat", "dog") for owner in owners for number in range(2)]
    )
}  # fmt: skip


def owned(folder: Path, units: str, **options: Any) -> ImageFolder:
    return ImageFolder(str(lay_out(folder / "owned", NAMED)), units=units, **options)


def written(folder: Path, lines: list[str]) -> str:
    (folder / "owners.csv").write_text("\n".join(lines))
    return str(folder / "owners.csv")


LINES = ["file,unit", *(f"{name},{name.split('/')[-1][0]}" for name in NAMED)]


def test_units_of_own_images_are_read_from_a_table_or_from_file_names(data_folder: Path) -> None:
    by_table = owned(data_folder, written(data_folder, LINES), unit="owner").load()
    by_name = owned(data_folder, r"^([a-z])_", unit="owner").load()
    for splits in (by_table, by_name):
        assert splits.train.units is not None and splits.test.units is not None
        assert splits.train.units.tolist() == [0, 0, 1, 1, 2, 2] * 2
        assert splits.test.units.tolist() == [3, 3, 4, 4] * 2
        assert splits.unit == "owner"
    assert owned(data_folder, "").load().unit == ""


def test_the_table_is_part_of_the_digest_and_the_pattern_is_an_option(data_folder: Path) -> None:
    plain = owned(data_folder, "").load().digest
    first = owned(data_folder, written(data_folder, LINES)).load().digest
    second = owned(data_folder, written(data_folder, [*LINES[:-1], f"{list(NAMED)[-1]},z"])).load().digest
    assert len({plain, first, second}) == 3
    assert owned(data_folder, r"^([a-z])_").load().digest == plain


def test_a_zip_has_the_units_of_its_folder_and_val_is_named_as_it_lies(data_folder: Path) -> None:
    files = {name.replace("test/", "val/"): content for name, content in NAMED.items()}
    packed = pack(data_folder / "owned.zip", {f"below/{name}": content for name, content in files.items()})
    table = written(data_folder, [line.replace("test/", "val/") for line in LINES])
    units = ImageFolder(str(packed), units=table).load().test.units
    assert units is not None and units.tolist() == [3, 3, 4, 4] * 2


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([*LINES, "train/cat/no.jpg,a"], r"it names images that are not there: train/cat/no\.jpg \(1 in all\)"),
        (LINES[:-2], r"it misses images: test/dog/e_0\.jpg \(2 in all\)"),
        ([*LINES, LINES[1]], r"it names images more than once: train/cat/a_0\.jpg"),
        ([*LINES[:-1], f"{list(NAMED)[-1]},"], r"it has no unit for images: test/dog/e_1\.jpg"),
        (["image,patient"], r"Expected a CSV file whose first line is file,unit in .*owners\.csv, got image,patient\."),
        (["file;unit", "a;b"], r"whose first line is file,unit in .*owners\.csv, got file;unit\."),
        ([], r"whose first line is file,unit in .*owners\.csv, got an empty file\."),
    ],
)
def test_a_table_that_does_not_fit_the_images_is_refused_in_one_sentence(
    data_folder: Path, lines: list[str], said: str
) -> None:
    with pytest.raises(DataError, match=said):
        owned(data_folder, written(data_folder, lines)).load()


def test_a_table_that_is_nowhere_is_said(data_folder: Path) -> None:
    with pytest.raises(DataMissing, match=r"Expected a table of file and unit in /nowhere\.csv"):
        owned(data_folder, "/nowhere.csv").load()


def test_a_pattern_that_never_ends_is_stopped_and_one_too_long_is_refused(
    data_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owners, "MATCH_SECONDS", 1)
    files = planted(["train/a", "train/b", "test/a", "test/b"], 2)
    lay_out(data_folder, {**files, f"train/a/{'x' * 40}.jpg": picture(1)})
    with pytest.raises(DataError, match=r"units=\(x\+\)\+! cannot be found in 9 file names within 1 seconds"):
        ImageFolder(str(data_folder), units="(x+)+!").load()
    with pytest.raises(SpecError, match=r"at most 200 characters, got 302"):
        ImageFolder(str(data_folder), units=f"({'x' * 300})")


def test_a_pattern_that_is_not_in_every_name_is_refused(data_folder: Path) -> None:
    with pytest.raises(DataError, match=r"units=\(\[ab\]\)_ .*got none in test/cat/d_0\.jpg \(12 of 20\)"):
        owned(data_folder, "([ab])_").load()


@pytest.mark.parametrize(
    ("units", "unit", "said"),
    [
        ("", "patient", r"Expected units beside unit=patient"),
        ("([a-z]", "unit", r"units=\(\[a-z\] to be folder, a \.csv file or a regular expression"),
        ("[a-z]_", "unit", r"Expected a group in the pattern units=\[a-z\]_"),
    ],
)
def test_options_that_name_no_unit_are_refused(units: str, unit: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        ImageFolder("any", units=units, unit=unit)


@pytest.mark.parametrize(("owners", "count"), [("aaaaaa", 1), ("aaabbb", 2)])
def test_one_unit_for_all_and_fewer_units_than_classes_are_refused(data_folder: Path, owners: str, count: int) -> None:
    kinds = ("bird", "cat", "dog")
    files = planted([f"{split}/{kind}" for split in ("train", "test") for kind in kinds], 2)
    lines = [f"{name},{owners[place % 6]}" for place, name in enumerate(files)]
    table = written(data_folder, ["file,unit", *lines])
    dataset = ImageFolder(str(lay_out(data_folder / "three", files)), units=table, unit="patient")
    with pytest.raises(DataError, match=rf"at least as many patients .* as its 3 classes, got {count} for 6 examples"):
        survey_dataset(dataset)


def test_pipes_sockets_and_devices_among_images_are_skipped_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = lay_out(tmp_path / "own", planted(["train/a", "train/b", "test/a", "test/b"], 2))
    os.mkfifo(folder / "train" / "a" / "pipe.png")
    (folder / "train" / "b" / "endless.png").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "s.png"))
    found = survey_dataset(ImageFolder(path=str(folder)))
    assert found.train == (2, 2)
    assert "ignored 3 pipes, sockets or devices in place of files" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["/dev/zero", "pipe.zip"])
def test_a_pipe_or_a_device_is_no_dataset(place: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.zip")
    with pytest.raises(DataError, match=r"Expected a folder or a zip archive in \S+, which is neither"):
        ImageFolder(path=str(tmp_path / place)).load()
