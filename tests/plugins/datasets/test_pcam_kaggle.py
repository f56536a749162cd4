"""PatchCamelyon as Kaggle ships it: TIFF files and a table, unpacked or zipped, cut by a hash of each id."""

from __future__ import annotations

import hashlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from dpbench_plugins.datasets.torchvision import Pcam
from dpbench_plugins.datasets.torchvision.pcam import kaggle

from dpbench import DataError, DataMissing, Splits
from dpbench.data.fetch import store
from dpbench.records.result import Result
from dpbench.support.paths import restrict_data_search
from dpbench.testing import DatasetLaws
from dpbench.testing.datasets import expect_at_most_one_changed_image
from tests.helpers.commands import call
from tests.helpers.trees import Tree, lay_out, pack, picture, read

IDS = [hashlib.sha1(str(number).encode()).hexdigest() for number in range(40)]
ARCHIVE = f"pcam/{kaggle.ARCHIVE}.zip"


def table(ids: list[str] = IDS, label: str = "") -> bytes:
    """Return the table of labels; odd ids have a tumour, unless all have one label."""
    lines = [f"{name},{label or int(name, 16) % 2}" for name in ids]
    return "\n".join(["id,label", *lines, ""]).encode()


def files(ids: list[str] = IDS) -> Tree:
    images = {f"train/{name}.tif": picture(int(name[:6], 16), form="TIFF") for name in ids}
    return {**images, "train_labels.csv": table(ids), "sample_submission.csv": b"id,label\n"}


def put(data: Path, ids: list[str] = IDS) -> Path:
    return lay_out(data / "pcam", files(ids))


def ids(splits: Splits) -> tuple[list[str], list[str]]:
    """Return the ids of the training and of the test images, in their order."""
    train, test = ([Path(place.file).stem for place in split.images.places] for split in (splits.train, splits.test))  # type: ignore[union-attr]
    return train, test


class TestLaws(DatasetLaws):
    dataset = Pcam()

    @pytest.fixture(autouse=True)
    def files(self, data_folder: Path) -> None:
        put(data_folder)


def test_a_patch_is_tested_on_if_the_hash_of_its_id_is_divisible_by_five(data_folder: Path) -> None:
    put(data_folder)
    train, test = ids(Pcam().load())
    assert sorted(train + test) == sorted(IDS)
    assert set(test) == {name for name in IDS if int(hashlib.sha256(name.encode()).hexdigest(), 16) % 5 == 0}
    assert 0 < len(test) < len(train)


def test_labels_are_those_of_the_table_and_images_are_rgb(data_folder: Path) -> None:
    put(data_folder)
    splits = Pcam().load()
    for split, names in zip((splits.train, splits.test), ids(splits), strict=True):
        assert split.labels.tolist() == [int(name, 16) % 2 for name in names]
        assert {split.images[place].mode for place in range(len(names))} == {"RGB"}


def test_a_copy_without_some_patches_leaves_the_others_in_their_splits(data_folder: Path) -> None:
    put(data_folder)
    whole = ids(Pcam().load())
    shutil.rmtree(data_folder / "pcam")
    put(data_folder, IDS[:-7])
    assert ids(Pcam().load()) == tuple([name for name in names if name in IDS[:-7]] for names in whole)


def test_a_copy_without_one_patch_gives_all_others_equal_bit_for_bit(data_folder: Path, tmp_path: Path) -> None:
    put(data_folder)
    whole = Pcam().load().train
    put(tmp_path / "fewer", [name for name in IDS if name != Path(whole.images.places[3].file).stem])  # type: ignore[union-attr]
    with restrict_data_search(tmp_path / "fewer"):
        changed = Pcam().load().train
    assert len(changed.labels) == len(whole.labels) - 1
    expect_at_most_one_changed_image(whole, changed, "without a patch", replaced=False)


def test_the_copy_is_named_by_its_count_and_digest(data_folder: Path) -> None:
    put(data_folder)
    splits = Pcam().load()
    assert splits.edition.startswith(
        f"40 of the 220,025 labelled images of Kaggle's {kaggle.ARCHIVE}, digest {splits.digest[:12]}; "
    )


def test_smaller_fractions_lie_within_larger_ones_and_the_test_split_stays(data_folder: Path) -> None:
    put(data_folder)
    kept = {share: ids(Pcam(fraction=share).load()) for share in (0.2, 0.5, 1.0)}
    assert set(kept[0.2][0]) < set(kept[0.5][0]) < set(kept[1.0][0])
    assert kept[0.2][1] == kept[0.5][1] == kept[1.0][1]
    assert Pcam(fraction=0.2).load().digest == Pcam().load().digest


def test_the_zip_is_the_same_data_as_the_folder_and_its_unlabelled_test_images_are_ignored(data_folder: Path) -> None:
    put(data_folder)
    unpacked = read(Pcam().load())
    shutil.rmtree(data_folder / "pcam")
    (data_folder / "pcam").mkdir()
    pack(data_folder / ARCHIVE, {**files(), f"test/{'0' * 40}.tif": picture(5, form="TIFF")})
    assert read(Pcam().load()) == unpacked


@pytest.mark.parametrize("change", ["image", "label", "fewer"])
def test_the_digest_changes_with_the_data(data_folder: Path, change: str) -> None:
    folder = put(data_folder)
    first = Pcam().load().digest
    if change == "image":
        (folder / f"train/{IDS[0]}.tif").write_bytes(picture(1, form="TIFF"))
    elif change == "label":
        (folder / "train_labels.csv").write_bytes(table(label="1"))
    else:
        shutil.rmtree(folder)
        put(data_folder, IDS[1:])
    assert Pcam().load().digest != first


def test_a_folder_without_its_table_says_what_it_lacks(data_folder: Path) -> None:
    (put(data_folder) / "train_labels.csv").unlink()
    with pytest.raises(DataMissing, match=r"which lacks pcam/train_labels\.csv") as caught:
        Pcam().load()
    assert "\n" not in str(caught.value)


def test_a_zip_without_its_table_is_refused(data_folder: Path) -> None:
    (data_folder / "pcam").mkdir()
    pack(data_folder / ARCHIVE, {name: content for name, content in files().items() if not name.endswith(".csv")})
    with pytest.raises(DataError, match=r"Expected the table train_labels\.csv in .*\.zip: the archive has none\."):
        Pcam().load()


def test_ids_without_an_image_are_counted_and_named(data_folder: Path) -> None:
    folder = put(data_folder)
    for name in sorted(IDS)[:3]:
        (folder / f"train/{name}.tif").unlink()
    said = rf"for every line of .*train_labels\.csv, got none for 3 of 40 \(such as {min(IDS)}\)\."
    with pytest.raises(DataError, match=said):
        Pcam().load()


def test_images_without_an_id_are_counted_and_named(data_folder: Path) -> None:
    left_out = min(IDS)
    (put(data_folder) / "train_labels.csv").write_bytes(table([name for name in IDS if name != left_out]))
    with pytest.raises(DataError, match=rf"for every image in .*train, got none for 1 of 40 \(such as {left_out}\)\."):
        Pcam().load()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (table(label="2"), r"Expected label 0 or 1 of every image in .*train_labels\.csv, got '2' of [0-9a-f]{40}\."),
        (table([*IDS, IDS[0]]), rf"Expected every image once in .*, got {IDS[0]} 2 times\."),
        (b"", r"Expected a table with the columns id, label in .*, got no line\."),
        (b"name,class\na,1\n", r"Expected a table with the columns id, label in .*, got name, class\."),
        (table() + b"0\n", r"Expected id, label in every line of .*, line 42 ends early\."),
        (b"id,label\n\xff,1\n", r"Expected the table train_labels\.csv in .*"),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_one_sentence(data_folder: Path, content: bytes, said: str) -> None:
    (put(data_folder) / "train_labels.csv").write_bytes(content)
    with pytest.raises(DataError, match=said) as caught:
        Pcam().load()
    assert "\n" not in str(caught.value)


def test_more_images_than_kaggle_has_are_refused(data_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(data_folder)
    monkeypatch.setattr(kaggle, "COUNT", 39)
    with pytest.raises(DataError, match=r"Expected at most 39 images in .*, got 40\."):
        Pcam().load()


def test_the_validation_split_is_not_in_the_archive(data_folder: Path) -> None:
    put(data_folder)
    with pytest.raises(DataMissing, match=r"looked for pcam/\{.*split_valid_x\.h5"):
        Pcam(val="train").load()


@pytest.mark.parametrize("packed", [False, True])
def test_a_download_is_imported(data_folder: Path, tmp_path: Path, packed: bool) -> None:
    place = tmp_path / "download"
    download = pack(place.with_suffix(".zip"), files()) if packed else lay_out(place, files())
    kept = store.import_dataset(Pcam(), download, data_folder)
    assert kept.digest == Pcam().load().digest
    assert kept.paths == (
        (ARCHIVE,) if packed else tuple(sorted(f"pcam/{name}" for name in files() if "sub" not in name))
    )


@pytest.mark.slow
def test_a_run_and_data_info_name_the_copy(
    data_folder: Path, fresh_cache: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ids = [hashlib.sha1(str(number).encode()).hexdigest() for number in range(200)]
    put(data_folder, ids)
    edition = Pcam().load().edition
    command = "run --learner dp-sgd:steps=2 --dataset pcam --extractor pixels:size=4 --delta 1e-3 --seeds 1 --out"
    assert call(*command.split(), str(tmp_path / "results")) == 0
    assert edition in " ".join(capsys.readouterr().out.split())
    (file,) = (tmp_path / "results").glob("*.json")
    result = Result.read(file)
    assert result.task.editions == {"private": edition, "public": edition}
    assert result.task.edition_names == (edition,)
    assert call("results", "show", str(file)) == 0
    assert edition in " ".join(capsys.readouterr().out.split())
    assert call("data", "info", "pcam", "--json") == 0
    assert json.loads(capsys.readouterr().out)["edition"] == edition


def test_the_real_patches_are_3500_of_kaggles(real_data: Path) -> None:
    if not (real_data / "pcam/train").exists():
        pytest.skip(f"put patches of {kaggle.PAGE} into {real_data}/pcam")
    splits = Pcam().load()
    labels = np.concatenate([splits.train.labels, splits.test.labels])
    assert (len(labels), labels.sum()) == (3500, 1421)
    assert (len(splits.train.labels), len(splits.test.labels)) == (2774, 726)
    assert (splits.train.images[0].mode, splits.train.images[0].size) == ("RGB", (96, 96))
    assert splits.edition.startswith("3,500 of the 220,025 ")
