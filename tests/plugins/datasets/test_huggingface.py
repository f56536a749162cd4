"""Datasets of the Hugging Face hub: mirrors of every shape, and what is said where the hub does not answer."""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow.parquet
import pytest
from dpbench_plugins.datasets import hub_files
from dpbench_plugins.datasets.cifar10 import Cifar10
from dpbench_plugins.datasets.huggingface import HuggingFace
from PIL import Image

from dpbench import DataError, DataMissing, SpecError, registry
from dpbench.records.spec import make_spec
from dpbench.testing import DatasetLaws
from tests.helpers.sessions import session

ID, CIFAR = "somebody/photos", "uoft-cs/cifar10"
NAMES = ["cat", "dog", "owl"]
CLASSES = datasets.ClassLabel(names=NAMES)
USUAL = {"photo": datasets.Image(), "kind": CLASSES}


def picture(shade: int, mode: str = "RGB") -> Image.Image:
    return Image.new("L", (4, 4), shade).convert(mode)


def values(feature: Any, size: int, first: int = 0) -> list[Any]:
    places = range(first, first + size)
    if isinstance(feature, datasets.Image):
        return [picture(place) for place in places]
    if isinstance(feature, datasets.ClassLabel):
        return [place % feature.num_classes for place in places]
    return [str(place) if feature.dtype == "string" else place for place in places]


def write(file: Path, size: int = 6, features: Mapping[str, Any] = USUAL, **columns: Sequence[Any]) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    rows = {name: columns.get(name, values(feature, size)) for name, feature in features.items()}
    datasets.Dataset.from_dict(rows, features=datasets.Features(features)).to_parquet(str(file))


def lay_out(folder: Path, config: str = "data", features: Mapping[str, Any] = USUAL, hub_id: str = ID) -> Path:
    """Write a mirror of 6 training and 3 test images, and return the folder of its files."""
    place = folder / hub_id / config
    write(place / "train-00000-of-00001.parquet", 6, features)
    write(place / "test-00000-of-00001.parquet", 3, features)
    return place


def digest_of(*files: Path) -> str:
    """Return the digest of a mirror as it was computed when CIFAR-10 was the only one."""
    total = hashlib.sha256()
    for file in files:
        total.update(hashlib.sha256(file.read_bytes()).digest())
    return total.hexdigest()


def shades(split: Any) -> list[int]:
    return [split.images[row].convert("L").getpixel((0, 0)) for row in range(len(split.images))]


class TestLaws(DatasetLaws):
    dataset = HuggingFace(ID)

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path) -> None:
        lay_out(data_folder)


@pytest.mark.parametrize("config", ["data", "plain_text", "a/b", "."])
def test_a_mirror_is_read_whatever_its_folder_is_called(data_folder: Path, config: str) -> None:
    place = lay_out(data_folder, config)
    dataset = HuggingFace(ID)
    splits = dataset.load()
    assert dataset.classes == tuple(NAMES)
    assert (shades(splits.train), shades(splits.test)) == ([*range(6)], [*range(3)])
    assert splits.train.labels.tolist() == [0, 1, 2, 0, 1, 2]
    files = [place / f"{split}-00000-of-00001.parquet" for split in ("train", "test")]
    assert splits.digest == HuggingFace(ID).load().digest == digest_of(*files)


def test_classes_are_known_without_loading_and_none_to_the_class(data_folder: Path) -> None:
    lay_out(data_folder)
    assert HuggingFace(ID).classes == tuple(NAMES)
    assert HuggingFace.classes == ()


@pytest.mark.parametrize("tail", ["", "-0a1b2c3d4e5f6789"])
def test_shards_are_read_in_their_order(data_folder: Path, tail: str) -> None:
    place = lay_out(data_folder)
    (place / "train-00000-of-00001.parquet").unlink()
    files = [place / f"train-{shard:05d}-of-00012{tail}.parquet" for shard in range(12)]
    for shard in (5, 11, *range(5), *range(6, 11)):
        write(files[shard], 2, photo=values(USUAL["photo"], 2, 2 * shard))
    splits = HuggingFace(ID).load()
    assert shades(splits.train) == [*range(24)]
    assert splits.digest == digest_of(*files, place / "test-00000-of-00001.parquet")


@pytest.mark.parametrize("name", ["train-00001-of-00002.parquet", "train-00000-of-00001-0a1b2c.parquet"])
def test_shards_that_are_missing_or_twice_are_refused(data_folder: Path, name: str) -> None:
    place = lay_out(data_folder)
    if "00002" in name:
        (place / "train-00000-of-00001.parquet").unlink()
    write(place / name)
    with pytest.raises(DataError, match=rf"Expected every shard in {place} once, found .*{name}"):
        HuggingFace(ID).load()


def test_a_split_by_another_name_can_be_named(data_folder: Path) -> None:
    place = lay_out(data_folder)
    (place / "test-00000-of-00001.parquet").rename(place / "validation-00000-of-00001.parquet")
    with pytest.raises(DataError, match=r"Expected train-.* and test-.* in one folder below .*, found .*validation-"):
        HuggingFace(ID).load()
    assert shades(HuggingFace(ID, test="validation").load().test) == [0, 1, 2]
    with pytest.raises(SpecError, match="Expected two splits"):
        HuggingFace(ID, test="train")


def test_one_of_several_configs_has_to_be_named(data_folder: Path) -> None:
    for config in ("small", "large"):
        lay_out(data_folder, config)
    for config in ("", "medium"):
        with pytest.raises(SpecError, match=r"Expected config=.* Available: large, small\."):
            HuggingFace(ID, config=config).load()
    assert HuggingFace(ID, config="small").load().train.labels.tolist() == [0, 1, 2, 0, 1, 2]


MANY = {
    "photo": datasets.Image(), "mask": datasets.Image(), "kind": CLASSES,
    "place": datasets.ClassLabel(names=["in", "out"]), "year": datasets.Value("int64"), "by": datasets.Value("string"),
}  # fmt: skip


@pytest.mark.parametrize(
    ("absent", "options", "said"),
    [
        ((), {}, "Expected one column of somebody/photos to be of type Image; its columns are: photo"),
        ((), {"image": "photo"}, r"of type ClassLabel; .* Name one: hf:somebody/photos,label=COLUMN"),
        ((), {"image": "foto"}, r"Expected image=foto .* photo \(Image"),
        ((), {"image": "kind"}, r"Expected image=kind .* to be of type Image"),
        (
            ("kind", "place"),
            {"image": "mask"},
            r"year \(Value\('int64'\)\), by \(Value\('string'\)\)\. Copy the dataset",
        ),
        ((), {"image": "mask", "label": "year"}, r"Expected label=year .* to be of type ClassLabel"),
        ((), {"image": "mask", "label": "by"}, r"Expected label=by .* to be of type ClassLabel"),
        (("photo", "mask"), {}, r"to be of type Image; .* Copy the dataset"),
    ],
)
def test_columns_that_are_not_clear_are_refused_and_listed(
    data_folder: Path, absent: Sequence[str], options: dict[str, str], said: str
) -> None:
    lay_out(data_folder, features={name: feature for name, feature in MANY.items() if name not in absent})
    with pytest.raises(SpecError, match=said) as refusal:
        HuggingFace(ID, **options).load()
    assert "\n" not in str(refusal.value)


def test_columns_can_be_named_and_other_images_have_another_digest(data_folder: Path) -> None:
    lay_out(data_folder, features=MANY)
    first = HuggingFace(ID, image="photo", label="kind")
    other = HuggingFace(ID, image="photo", label="place")
    masks = HuggingFace(ID, image="mask", label="kind")
    assert (first.classes, other.classes) == (tuple(NAMES), ("in", "out"))
    assert first.load().digest == other.load().digest != masks.load().digest


def test_an_image_without_a_label_is_refused(data_folder: Path) -> None:
    write(lay_out(data_folder) / "test-00000-of-00001.parquet", 3, kind=[0, None, 1])
    with pytest.raises(DataError, match="Expected a label for every image in 'kind'"):
        HuggingFace(ID).load()


@pytest.mark.parametrize("mode", ["L", "RGBA"])
def test_images_stay_as_they_are_stored(data_folder: Path, mode: str) -> None:
    write(lay_out(data_folder) / "train-00000-of-00001.parquet", 3, photo=[picture(9, mode)] * 3)
    assert HuggingFace(ID).load().train.images[1].mode == mode


@pytest.mark.parametrize("keep", [0, 500, -20])
def test_a_damaged_shard_is_named(data_folder: Path, keep: int) -> None:
    file = lay_out(data_folder) / "test-00000-of-00001.parquet"
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(DataError, match=f"Expected Parquet files of .*{file}.*Copy them again"):
        HuggingFace(ID).load()


def lay_out_single(folder: Path, size: int = 40, split: str = "test") -> Path:
    file = folder / ID / f"data/{split}-00000-of-00001.parquet"
    write(file, size)
    return file


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_mirror_of_one_split_is_cut_by_the_bytes_of_each_image(data_folder: Path, split: str) -> None:
    file = lay_out_single(data_folder, split=split)
    splits = HuggingFace(ID).load()
    train, test = shades(splits.train), shades(splits.test)
    assert sorted(train + test) == [*range(40)]
    stored = pyarrow.parquet.read_table(file).column("photo").to_pylist()
    tested = [int(hashlib.sha256(row["bytes"]).hexdigest(), 16) % 5 == 0 for row in stored]
    assert test == [shade for shade in range(40) if tested[shade]]
    assert 0 < len(test) < len(train)
    assert [*splits.train.labels, *splits.test.labels] == [shade % 3 for shade in train + test]
    said = f"40 images of split '{split}' of {ID}, digest {splits.digest[:12]}; there is no other split, so the fifth"
    assert splits.edition.startswith(said)


def test_equal_images_are_in_the_same_split(data_folder: Path) -> None:
    write(lay_out_single(data_folder), 40, photo=[picture(row // 2) for row in range(40)])
    splits = HuggingFace(ID).load()
    assert not set(shades(splits.train)) & set(shades(splits.test))


def test_rows_that_are_missing_leave_the_others_in_their_splits(data_folder: Path) -> None:
    lay_out_single(data_folder)
    whole = HuggingFace(ID).load()
    lay_out_single(data_folder, 25)
    fewer = HuggingFace(ID).load()
    assert shades(fewer.test) == [shade for shade in shades(whole.test) if shade < 25]


def test_a_mirror_of_both_splits_is_not_named_as_another_edition(data_folder: Path) -> None:
    lay_out(data_folder)
    assert HuggingFace(ID).load().edition == ""


def test_one_split_of_the_hub_is_cut_too(data_folder: Path, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, datasets.DatasetDict({"train": answer["train"]}))
    splits = HuggingFace(ID).load()
    assert sorted(shades(splits.train) + shades(splits.test)) == [*range(6)]
    assert "6 images of split 'train'" in splits.edition


def test_cifar10_is_never_cut(data_folder: Path, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, datasets.DatasetDict({"train": answer["train"]}))
    with pytest.raises(DataError, match=r"Expected the splits train and test of uoft-cs/cifar10, got train alone\."):
        Cifar10().load()


def test_the_real_cifar100_is_cut_and_has_coarse_labels(real_data: Path) -> None:
    if not (real_data / "uoft-cs/cifar100").exists():
        pytest.skip(f"there is no uoft-cs/cifar100 in {real_data}")
    dataset = HuggingFace("uoft-cs/cifar100", label="coarse_label")
    splits = dataset.load()
    assert (len(dataset.classes), dataset.classes[0]) == (20, "aquatic_mammals")
    assert (len(splits.train.labels), len(splits.test.labels)) == (8034, 1965)
    assert splits.edition.startswith("9,999 images of split 'test' of uoft-cs/cifar100, digest ")
    with pytest.raises(
        SpecError, match=r"Expected one column of uoft-cs/cifar100 to be of type ClassLabel; .*fine_lab"
    ):
        HuggingFace("uoft-cs/cifar100").load()


@pytest.mark.parametrize("name", ["", "..", "../x", "a/b/c", "/etc", "a//b", "a b"])
def test_what_is_no_repository_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="to be as on the hub"):
        HuggingFace(name)


def test_the_id_needs_no_name() -> None:
    built = registry.load().build("dataset", "hf", {"": CIFAR, "config": "x"})
    assert built == HuggingFace(CIFAR, config="x")


def test_cifar10_by_its_id_is_the_same_data(cifar_mirror: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_DATA", str(cifar_mirror))
    named, by_id = Cifar10().load(), HuggingFace(CIFAR).load()
    folder = cifar_mirror / CIFAR / "plain_text"
    assert named.digest == by_id.digest
    assert named.digest == digest_of(*(folder / f"{split}-00000-of-00001.parquet" for split in ("train", "test")))
    assert np.array_equal(named.train.labels, by_id.train.labels)
    with pytest.raises(SpecError, match="is the private one"):  # its digest says so
        spec = make_spec({"dataset": "cifar10", "public_dataset": f"hf:{CIFAR}", "learner": "pillar:k=4"}, "the test")
        session().run(spec)


@pytest.mark.slow
def test_a_run_with_a_dataset_of_the_hub(data_folder: Path, fresh_cache: Path) -> None:
    place = lay_out(data_folder)
    write(place / "train-00000-of-00001.parquet", 200)
    spec = make_spec({"dataset": f"hf:{ID}", "learner": "dp-sgd:steps=2", "delta": 1e-3, "seeds": 1}, "the test")
    result = session().run(spec)
    assert result.task.classes == tuple(NAMES)
    assert result.task.licence == "as its page states"
    assert result.spec.dataset.options["id"] == ID


@pytest.mark.slow
def test_the_real_cifar10_keeps_its_digest(real_data: Path) -> None:
    folder = real_data / CIFAR / "plain_text"
    files = [folder / f"{split}-00000-of-00001.parquet" for split in ("train", "test")]
    if not all(file.is_file() for file in files):
        pytest.skip(f"there is no CIFAR-10 in {real_data}")
    assert Cifar10().load().digest == digest_of(*files)


def test_cifar10_that_is_nowhere_says_what_to_do(data_folder: Path) -> None:
    with pytest.raises(DataMissing) as refusal:
        Cifar10().load()
    for part in ("`dpbench data fetch cifar10` (144 MB", f"{data_folder / CIFAR}", "DPBENCH_DATA", "hub failed too"):
        assert part in str(refusal.value)
    assert "\n" not in str(refusal.value)


def test_half_a_mirror_of_cifar10_is_told(data_folder: Path) -> None:
    write(data_folder / CIFAR / "plain_text/train-00000-of-00001.parquet")
    with pytest.raises(DataMissing, match=r"which lacks uoft-cs/cifar10/plain_text/test-"):
        Cifar10().load()


class Hub:
    """Stands for the hub: answers with a dataset, or raises."""

    def __init__(self, patch: pytest.MonkeyPatch, answer: Any) -> None:
        self.answer, self.asked = answer, dict[str, Any]()
        patch.setattr(hub_files, "_go_offline_unless_reachable", lambda hub_id: None)
        patch.setattr(datasets, "load_dataset", self)

    def __call__(self, hub_id: str, **which: Any) -> Any:
        self.asked = {"id": hub_id, **which}
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.fixture
def answer() -> datasets.DatasetDict:
    features = datasets.Features(USUAL)
    rows = {split: {name: values(USUAL[name], size) for name in USUAL} for split, size in (("train", 6), ("test", 3))}
    return datasets.DatasetDict(
        {split: datasets.Dataset.from_dict(held, features=features) for split, held in rows.items()}
    )


def test_the_hub_is_asked_without_a_mirror(data_folder: Path, answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    hub = Hub(monkeypatch, answer)
    splits = HuggingFace(ID, config="small").load()
    assert hub.asked == {"id": ID, "name": "small", "revision": None}
    assert shades(splits.test) == [0, 1, 2]
    fingerprints = answer["train"]._fingerprint + answer["test"]._fingerprint
    assert splits.digest == hashlib.sha256(fingerprints.encode()).hexdigest()


def test_a_revision_is_asked_of_the_hub_even_with_a_mirror(
    data_folder: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    lay_out(data_folder)
    hub = Hub(monkeypatch, answer)
    HuggingFace(ID, revision="abc").load()
    assert hub.asked["revision"] == "abc"
    hub.answer = OSError("no\nsuch thing")
    with pytest.raises(DataMissing, match=r"Revision abc .* failed too \(OSError: no\)"):
        HuggingFace(ID, revision="abc").load()


def test_a_split_that_the_hub_lacks_is_refused_and_others_listed(
    data_folder: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Hub(monkeypatch, answer)
    with pytest.raises(SpecError, match=r"Expected a split 'validation' in .*\. Available: train, test\."):
        HuggingFace(ID, test="validation").load()


def test_a_damaged_mirror_is_not_replaced_by_the_hub(
    data_folder: Path, answer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (data_folder / ID).mkdir(parents=True)
    hub = Hub(monkeypatch, answer)
    with pytest.raises(DataError, match="found no such file"):
        HuggingFace(ID).load()
    assert hub.asked == {}


def test_what_the_hub_says_of_a_name_is_passed_on(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Hub(monkeypatch, ValueError("Config name is missing. Please pick one among: ['a', 'b']"))
    with pytest.raises(DataMissing, match=rf"{ID} .*ValueError: Config name is missing.*{data_folder / ID}"):
        HuggingFace(ID).load()


def test_the_files_of_one_config_are_fetched() -> None:
    files = ["small/train-00000-of-00001.parquet", "large/train-00000-of-00001.parquet", "train.csv"]
    for config, wanted in (("", files[:2]), ("small", files[:1])):
        ((repository, pattern),) = HuggingFace(ID, config=config).source().hub
        assert (repository, fnmatch.filter(files, pattern)) == (ID, wanted)
