"""What `dpbench data` puts into a folder, remembers and takes away; what the user has there is never touched."""

from __future__ import annotations

import errno
import functools
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, Literal

import huggingface_hub
import numpy as np
import pytest
from PIL import Image

from dpbench import DataError, DataMissing, Dataset, Download, Source, SpecError, Split, Splits, locate
from dpbench.data.fetch import download, layouts, store
from dpbench.data.sources import find_dataset
from dpbench.errors import DpbenchError, OutputError

Tree = dict[str, str]
FOLD = {"fold/one/a.txt": "one", "fold/one/in/b.txt": "one b", "fold/test/c.txt": "test", "fold/labels.csv": "0,1"}
TWO = {"fold/two/a.txt": "two", "fold/test/c.txt": "test", "fold/labels.csv": "0,1"}
BAD = {**FOLD, "fold/one/a.txt": "bad"}


@dataclass(frozen=True)
class Fold(Dataset):
    """Folders and a table, from two archives and a file; a text that says bad is refused."""

    name: ClassVar[str] = "fold"
    classes: ClassVar[tuple[str, ...]] = ("a", "b")
    licence: ClassVar[str] = "CC0"
    citation: ClassVar[str] = "none"
    downloads: ClassVar[Sequence[Download]] = ()
    hub: ClassVar[Sequence[tuple[str, str]]] = ()
    requires: ClassVar[Sequence[str]] = ()

    training: Literal["one", "two"] = "one"

    def homes(self) -> list[list[str]]:
        return [["fold.zip"], [f"fold/{self.training}", "fold/test", "fold/labels.csv"]]

    def source(self) -> Source | None:
        return Source(
            self.homes(),
            page="https://x.org",
            size=1000,
            downloads=self.downloads,
            hub=self.hub,
            requires=self.requires,
        )

    def load(self) -> Splits:
        digest = hashlib.sha256()
        for path in locate(self).paths:
            for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
                content = file.read_bytes() if file.is_file() else b""
                if b"bad" in content:
                    raise DataError(f"Expected otherwise in {file}.")
                digest.update(content)
        split = Split([Image.new("L", (2, 2))], np.zeros(1, np.int64))
        return Splits(split, split, digest.hexdigest())


class Table(Fold):
    name: ClassVar[str] = "table"

    def homes(self) -> list[list[str]]:
        return [["fold/table.csv"]]


class Packaged(Fold):
    name: ClassVar[str] = "packaged"

    def source(self) -> None:
        return None


def write(folder: Path, tree: Tree) -> Path:
    for name, content in tree.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content)
    return folder


def there(folder: Path) -> Tree:
    """Return every file below a folder, but dpbench's own, by its content."""
    files = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    return {
        name: path.read_text() for name, path in files.items() if path.is_file() and not name.startswith(".dpbench")
    }


def folders(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != ".dpbench")


def zipped(file: Path, tree: Tree) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in tree.items():
            archive.writestr(name, content)
    return file


def tarred(file: Path, tree: Tree) -> Path:
    with tarfile.open(file, "w:gz") as archive:
        for name, content in tree.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content.encode()))
    return file


def refused(kind: type[DpbenchError], act: Callable[[], object]) -> str:
    with pytest.raises(kind) as caught:
        act()
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def home(data_folder: Path) -> Path:
    return data_folder


@pytest.fixture
def given(tmp_path: Path) -> Path:
    """What the user downloaded, unpacked."""
    return write(tmp_path / "given", FOLD)


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the archives as published; a download is a copy from there."""
    folder = tmp_path / "published"
    folder.mkdir()
    zipped(folder / "train.zip", {"one/a.txt": "one", "one/in/b.txt": "one b", "two/a.txt": "two"})
    tarred(folder / "test.tgz", {"test/c.txt": "test"})
    (folder / "labels.csv").write_text("0,1")
    places = {"train.zip": "fold", "test.tgz": "fold", "labels.csv": "fold/labels.csv"}
    sums = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in places}
    monkeypatch.setattr(Fold, "downloads", [
        Download(f"http://x.org/{name}?download=1", f"sha256:{sums[name]}", 1, place, name != "labels.csv")
        for name, place in places.items()
    ])  # fmt: skip
    monkeypatch.setattr(
        download, "_receive_remaining_bytes", lambda wanted, file, *_: shutil.copy(folder / file.name, file)
    )
    return folder


UNPACKED = {**FOLD, "fold/two/a.txt": "two"}


# Fetching


def test_archives_are_fetched_checked_and_put_in_place(home: Path, published: Path) -> None:
    kept = store.fetch_dataset(Fold(), home)
    assert there(home) == UNPACKED
    assert kept == store.read_stored_dataset_record(Fold(), home)
    assert sorted(kept.paths) == sorted(UNPACKED)
    assert kept.digest == Fold().load().digest
    assert "http://x.org/train.zip?download=1, " in kept.origin
    assert {path.suffix for path in (home / ".dpbench").iterdir()} <= {".json", ".lock", ""}  # no archive, no staging


def test_what_nobody_gives_is_said_with_what_to_do_by_hand(home: Path) -> None:
    said = refused(DataMissing, lambda: store.fetch_dataset(Fold(), home))
    assert "Download it (1 MB, licence: CC0) from https://x.org, then run `dpbench data import fold " in said
    assert there(home) == {}


def test_what_comes_with_a_package_is_neither_fetched_nor_imported(home: Path) -> None:
    for act in (lambda: store.fetch_dataset(Packaged(), home), lambda: store.import_dataset(Packaged(), home, home)):
        assert "comes with a Python package" in refused(SpecError, act)


def test_archives_stay_until_the_dataset_is_whole(home: Path, published: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    received: list[str] = []
    receive = download._receive_remaining_bytes

    def counted(wanted: Download, file: Path, *more: Any) -> Any:
        received.append(file.name)
        if len(received) == 3:
            raise KeyboardInterrupt
        return receive(wanted, file, *more)

    monkeypatch.setattr(download, "_receive_remaining_bytes", counted)
    with pytest.raises(KeyboardInterrupt):
        store.fetch_dataset(Fold(), home)
    assert find_dataset(Fold()) is None
    store.fetch_dataset(Fold(), home)
    assert received == ["train.zip", "test.tgz", "labels.csv", "labels.csv"]


def test_two_datasets_may_be_published_under_one_file_name(
    home: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store._dataset_path(Table(), home, "downloads")).mkdir(parents=True)
    (store._dataset_path(Table(), home, "downloads") / "train.zip").write_text("half of another one")
    store.fetch_dataset(Fold(), home)
    assert (store._dataset_path(Table(), home, "downloads") / "train.zip").read_text() == "half of another one"


def test_a_fetched_dataset_that_its_loader_refuses_is_not_put_in_place(
    home: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    zipped(published / "train.zip", {"one/a.txt": "bad"})
    digest = hashlib.sha256((published / "train.zip").read_bytes()).hexdigest()
    monkeypatch.setattr(Fold, "downloads", [
        Download("http://x.org/train.zip", f"sha256:{digest}", 1, "fold", unpack=True), *Fold.downloads[1:]
    ])  # fmt: skip
    said = refused(DataError, lambda: store.fetch_dataset(Fold(), home))
    assert said.startswith("What came from http://x.org/train.zip, ")
    assert said.endswith("is not dataset 'fold'. Expected otherwise in fold/one/a.txt.")
    assert there(home) == {}
    assert store.read_stored_dataset_record(Fold(), home) is None


# Importing


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("part", [".", "fold"])
def test_a_folder_is_imported_from_itself_or_from_what_holds_it(home: Path, given: Path, link: bool, part: str) -> None:
    kept = store.import_dataset(Fold(), given / part, home, link=link)
    assert Fold().load().digest == kept.digest
    assert kept.origin == str((given / part).resolve())
    linked = [path for path in home.rglob("*") if path.is_symlink()]
    assert sorted(path.name for path in linked) == (["labels.csv", "one", "test"] if link else [])
    shutil.rmtree(given)
    assert (find_dataset(Fold()) is None) == link


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("name", ["fold.zip", "archive (1).zip"])
def test_a_file_is_imported_under_any_name(home: Path, tmp_path: Path, name: str, link: bool) -> None:
    store.import_dataset(Fold(), zipped(tmp_path / name, FOLD), home, link=link)
    assert folders(home) == ["fold.zip"]
    assert (home / "fold.zip").is_symlink() == link


@pytest.mark.parametrize("link", [False, True])
def test_published_archives_in_a_folder_are_imported(home: Path, published: Path, link: bool) -> None:
    store.import_dataset(Fold(), published, home, link=link)
    assert there(home) == UNPACKED
    assert folders(published) == ["labels.csv", "test.tgz", "train.zip"]


def test_one_published_archive_is_unpacked_even_where_a_folder_may_be_a_file(
    home: Path, published: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fold, "downloads", Fold.downloads[:1])
    monkeypatch.setattr(Fold, "homes", lambda _: [["fold"]])
    store.import_dataset(Fold(), (published / "train.zip").rename(published / "renamed.zip"), home)
    assert (home / "fold/one/a.txt").read_text() == "one"


def test_an_archive_that_is_not_the_published_one_is_not_unpacked(home: Path, published: Path) -> None:
    zipped(published / "train.zip", {"one/a.txt": "other"})
    said = refused(DataError, lambda: store.import_dataset(Fold(), published, home))
    assert "or the published train.zip, test.tgz, labels.csv in" in said
    assert said.endswith("but none of them is complete. You can get dataset 'fold' from https://x.org.")


@pytest.mark.parametrize("place", ["gone", "gone/deeper", "loop", "~nobody-of-that-name/x", "x" * 300])
def test_a_path_that_does_not_exist_is_said(home: Path, tmp_path: Path, place: str) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    path = Path(place) if place.startswith("~") else tmp_path / place
    assert "Check the path." in refused(DataMissing, lambda: store.import_dataset(Fold(), path, home))
    assert not (home / ".dpbench").exists()


@pytest.mark.parametrize("link", [False, True])
def test_a_wrong_thing_is_refused_and_leaves_nothing(home: Path, tmp_path: Path, link: bool) -> None:
    for tree in ({"other.txt": ""}, {"fold/one/a.txt": "half"}, {}):
        wrong = write(tmp_path / "wrong", tree)
        wrong.mkdir(exist_ok=True)
        said = refused(DataError, lambda: store.import_dataset(Fold(), wrong, home, link=link))  # noqa: B023
        assert f"Expected fold.zip or fold/{{one,test,labels.csv}} in {wrong}, but none" in said
    assert folders(home) == []
    assert [path.suffix for path in (home / ".dpbench").iterdir()] == [".lock"]


def test_what_the_loader_refuses_leaves_earlier_data_alone(home: Path, given: Path, tmp_path: Path) -> None:
    kept = store.import_dataset(Fold(), given, home)
    said = refused(DataError, lambda: store.import_dataset(Fold(), write(tmp_path / "bad", BAD), home))
    assert said.endswith("Expected otherwise in fold/one/a.txt.")
    assert there(home) == FOLD
    assert store.read_stored_dataset_record(Fold(), home) == kept


def test_a_loader_that_fails_is_named(home: Path, given: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fold, "load", lambda _: 1 / 0)
    assert "load of 'fold' failed: ZeroDivisionError" in refused(
        DpbenchError, lambda: store.import_dataset(Fold(), given, home)
    )
    assert folders(home) == []


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("after", [False, True])
def test_importing_again_replaces_all_of_it(home: Path, given: Path, tmp_path: Path, before: bool, after: bool) -> None:
    store.import_dataset(Fold(), given, home, link=before)
    fewer = {name: f"new {content}" for name, content in FOLD.items() if "/in/" not in name}
    kept = store.import_dataset(Fold(), write(tmp_path / "new", fewer), home, link=after)
    assert Fold().load().digest == kept.digest
    assert sorted(Path(home, path).read_text() for path in kept.paths if Path(home, path).is_file()) == sorted(
        content for name, content in fewer.items() if not after or name == "fold/labels.csv"
    )
    assert there(given) == FOLD
    store.remove_dataset(Fold(), home)
    assert folders(home) == []
    assert there(given) == FOLD
    assert there(tmp_path / "new") == fewer


def test_importing_the_same_twice_is_fine(home: Path, given: Path) -> None:
    assert store.import_dataset(Fold(), given, home) == store.import_dataset(Fold(), given, home)
    assert there(home) == FOLD


def test_a_link_to_data_is_followed(home: Path, given: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(given)
    kept = store.import_dataset(Fold(), tmp_path / "link", home, link=True)
    (tmp_path / "link").unlink()
    assert kept.origin == str(given)
    assert find_dataset(Fold()) is not None


def test_a_copy_has_no_links_and_can_be_written(home: Path, given: Path) -> None:
    (given / "fold/one/link.txt").symlink_to(given / "fold/test/c.txt")
    for path in [*given.rglob("*.txt"), *given.rglob("one"), *given.rglob("in")]:
        path.chmod(0o555)
    store.import_dataset(Fold(), given, home)
    assert (home / "fold/one/link.txt").read_text() == "test"
    for path in home.rglob("*"):
        assert not path.is_symlink()
        assert path.stat().st_mode & 0o200


# What the user has in the folder


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("part", [".", "fold"])
def test_what_lies_where_it_belongs_is_not_put_onto_itself(home: Path, link: bool, part: str) -> None:
    write(home, FOLD)
    said = refused(DataError, lambda: store.import_dataset(Fold(), home / part, home, link=link))
    assert "If the data already lie where dpbench looks, you do not need to import them." in said
    assert there(home) == FOLD
    refused(DataMissing, lambda: store.remove_dataset(Fold(), home))


@pytest.mark.parametrize("link", [False, True])
def test_a_file_where_it_belongs_is_not_put_onto_itself(home: Path, tmp_path: Path, link: bool) -> None:
    zipped(home / "fold.zip", FOLD)
    (tmp_path / "other-way").symlink_to(home)
    content = (home / "fold.zip").read_bytes()
    for path in (home, home / "fold.zip", tmp_path / "other-way/fold.zip"):
        refused(DataError, functools.partial(store.import_dataset, Fold(), path, home, link=link))
        refused(DataError, functools.partial(store.import_dataset, Fold(), path, tmp_path / "other-way", link=link))
    assert (home / "fold.zip").read_bytes() == content


@pytest.mark.parametrize("link", [False, True])
def test_what_holds_the_folder_itself_is_not_put_into_it(
    home: Path, monkeypatch: pytest.MonkeyPatch, link: bool
) -> None:
    monkeypatch.setattr(Fold, "homes", lambda _: [["fold"]])
    for path in (home, home.parent):
        refused(DataError, functools.partial(store.import_dataset, Fold(), path, home, link=link))
    assert folders(home) == []


def test_what_dpbench_put_there_is_not_linked_to_itself(home: Path, given: Path, tmp_path: Path) -> None:
    store.import_dataset(Fold(), zipped(tmp_path / "x.zip", FOLD), home)
    for path in (home, home / "fold.zip"):
        refused(DataError, functools.partial(store.import_dataset, Fold(), path, home, link=True))
    assert (home / "fold.zip").read_bytes() == (tmp_path / "x.zip").read_bytes()


@pytest.mark.parametrize("link", [False, True])
def test_files_of_the_user_are_never_overwritten(home: Path, given: Path, link: bool) -> None:
    mine = write(home, {"fold/one/a.txt": "my own notes"})
    said = refused(OutputError, lambda: store.import_dataset(Fold(), given, home, link=link))
    assert str(home / "fold/one") in said
    assert there(mine) == {"fold/one/a.txt": "my own notes"}
    assert store.read_stored_dataset_record(Fold(), home) is None


def test_a_fetch_overwrites_no_files_of_the_user_and_keeps_what_came(home: Path, published: Path) -> None:
    write(home, {"fold/labels.csv": "my own"})
    refused(OutputError, lambda: store.fetch_dataset(Fold(), home))
    assert there(home) == {"fold/labels.csv": "my own"}
    (home / "fold/labels.csv").unlink()
    shutil.rmtree(published)
    store.fetch_dataset(Fold(), home)  # without a server


@pytest.mark.parametrize("thing", ["link", "file", "dangling"])
def test_nothing_else_of_the_user_is_overwritten(home: Path, given: Path, tmp_path: Path, thing: str) -> None:
    (tmp_path / "mine").mkdir()
    if thing == "file":
        (home / "fold").write_text("mine")
    else:
        (home / "fold").symlink_to(tmp_path / ("mine" if thing == "link" else "unmounted"))
    refused(OutputError, lambda: store.import_dataset(Fold(), given, home))
    assert os.path.lexists(home / "fold")
    assert there(tmp_path / "mine") == {}


def test_files_of_the_user_that_are_the_same_stay_his(home: Path, given: Path) -> None:
    write(home, {"fold/one/a.txt": "one", "fold/mine.txt": "mine", "mine.txt": "mine"})
    store.import_dataset(Fold(), given, home)
    store.remove_dataset(Fold(), home)
    assert there(home) == {"fold/one/a.txt": "one", "fold/mine.txt": "mine", "mine.txt": "mine"}


def test_what_the_user_adds_later_stays(home: Path, given: Path) -> None:
    store.import_dataset(Fold(), given, home)
    write(home, {"fold/one/in/notes.txt": "mine"})
    store.remove_dataset(Fold(), home)
    assert there(home) == {"fold/one/in/notes.txt": "mine"}


# Several datasets


def test_two_datasets_share_a_folder(home: Path, given: Path, tmp_path: Path) -> None:
    store.import_dataset(Table(), write(tmp_path / "other", {"table.csv": "t"}) / "table.csv", home)
    store.import_dataset(Fold(), given, home)
    assert there(home) == {**FOLD, "fold/table.csv": "t"}
    assert store.remove_dataset(Table(), home).paths == ("fold/table.csv",)
    assert there(home) == FOLD
    store.remove_dataset(Fold(), home)
    assert folders(home) == []


@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("first", ["one", "two"])
def test_two_options_share_files_and_removing_one_leaves_the_other_whole(
    home: Path, tmp_path: Path, first: Literal["one", "two"], link: bool
) -> None:
    given = write(tmp_path / "given", {**FOLD, **TWO})
    for dataset in (Fold("one"), Fold("two")):
        store.import_dataset(dataset, given, home, link=link)
    other = Fold("two" if first == "one" else "one")
    digest = other.load().digest
    gone = store.remove_dataset(Fold(first), home).paths
    assert all(path.startswith(f"fold/{first}") for path in gone)
    assert find_dataset(Fold(first)) is None
    assert other.load().digest == digest
    store.import_dataset(Fold(first), given, home, link=link)
    store.remove_dataset(other, home)
    store.remove_dataset(Fold(first), home)
    assert folders(home) == []
    assert there(given) == {**FOLD, **TWO}


def test_another_datasets_file_is_not_overwritten(home: Path, tmp_path: Path) -> None:
    store.import_dataset(Fold("one"), write(tmp_path / "given", FOLD), home)
    changed = write(tmp_path / "changed", {**TWO, "fold/labels.csv": "1,0"})
    refused(OutputError, lambda: store.import_dataset(Fold("two"), changed, home))
    assert there(home) == FOLD
    assert store.read_stored_dataset_record(Fold("two"), home) is None


def test_records_are_told_apart_by_every_option(home: Path) -> None:
    @dataclass(frozen=True)
    class Named(Fold):
        id: str = ""

    names = [store._dataset_path(Named(id=name), home, "json") for name in ("a/b", "a-b", "a:b", "A b", "a%2Fb", "")]
    assert len(set(names)) == len(names)
    assert {name.parent for name in names} == {home / ".dpbench"}


# Removing


def test_removing_nothing_is_said_and_makes_nothing(home: Path) -> None:
    said = refused(DataMissing, lambda: store.remove_dataset(Fold("two"), home))
    assert said.startswith(f"dpbench has put no files of dataset 'fold:training=two' into {home}, so")
    assert list(home.iterdir()) == []


def test_removing_says_what_is_gone_and_happens_once(home: Path, given: Path) -> None:
    assert sorted(store.remove_dataset(_imported(given, home), home).paths) == sorted(FOLD)
    refused(DataMissing, lambda: store.remove_dataset(Fold(), home))


def _imported(given: Path, home: Path) -> Fold:
    store.import_dataset(Fold(), given, home)
    return Fold()


def test_removing_copes_with_what_is_gone_already(home: Path, given: Path) -> None:
    dataset = _imported(given, home)
    shutil.rmtree(home / "fold/one")
    (home / "fold/labels.csv").unlink()
    (home / "fold/one").write_text("a file now")
    store.remove_dataset(dataset, home)
    assert there(home) == {"fold/one": "a file now"}


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", '{"paths": [], "origin": ""}', '{"paths": ["../x"], "origin": "", "digest": ""}',
        '{"paths": ["/etc"], "origin": "", "digest": ""}', '{"paths": ["a/../../x"], "origin": "", "digest": ""}',
    ],
)  # fmt: skip
def test_a_damaged_record_is_said_and_nothing_is_deleted(home: Path, given: Path, content: str) -> None:
    dataset = _imported(given, home)
    record = home / ".dpbench/fold.json"
    record.write_text(content)
    for act in (
        lambda: store.remove_dataset(dataset, home), lambda: store.read_stored_dataset_record(dataset, home),
        lambda: store.import_dataset(Table(), write(given, {"table.csv": "t"}) / "table.csv", home),
        lambda: store.import_dataset(dataset, given, home),
    ):  # fmt: skip
        assert str(record) in refused(DataError, act)
    assert there(home) == FOLD


@pytest.mark.parametrize("path", ["", ".", "fold", ".dpbench", "fold/one"])
def test_a_record_that_names_folders_deletes_nothing_in_them(home: Path, given: Path, path: str) -> None:
    dataset = _imported(given, home)
    (home / ".dpbench/fold.json").write_text(json.dumps({"paths": [path], "origin": "", "digest": ""}))
    store.remove_dataset(dataset, home)
    assert there(home) == FOLD


def test_many_files_are_counted_and_few_are_named() -> None:
    few, many = (
        store.StoredDatasetRecord(paths=tuple(f"a/{n}" for n in range(count)), origin="", digest="")
        for count in (2, 5000)
    )
    assert (str(few), str(many)) == ("a/0, a/1", "5,000 files in a")


# Runs that are cut short, and folders that cannot be written


def test_what_a_killed_run_staged_is_cleared(home: Path, given: Path) -> None:
    write(home / ".dpbench/fold.staging", {"fold/one/old.txt": "old", "rest.txt": "old"})
    store.import_dataset(Fold(), given, home)
    assert there(home) == FOLD


class Killed(BaseException):
    """As if the process were gone."""


@pytest.mark.parametrize("step", ["plan_moves", "delete_files", "apply_moves"])
@pytest.mark.parametrize("again", [False, True])
def test_a_run_killed_at_any_step_is_repeated_and_then_removed(
    home: Path, given: Path, monkeypatch: pytest.MonkeyPatch, step: str, again: bool
) -> None:
    if again:
        store.import_dataset(Fold(), given, home)
    with monkeypatch.context() as patch:
        patch.setattr(layouts, step, _killed(getattr(layouts, step)))
        with pytest.raises(Killed):
            store.import_dataset(Fold(), given, home)
    store.import_dataset(Fold(), given, home)
    assert there(home) == FOLD
    store.remove_dataset(Fold(), home)
    assert folders(home) == []


@pytest.mark.parametrize("kills", [1, 2, 3])
def test_a_run_killed_between_two_moves_is_repeated_and_then_removed(
    home: Path, given: Path, monkeypatch: pytest.MonkeyPatch, kills: int
) -> None:
    write(home, {"fold/mine.txt": "mine"})  # so that every part is moved on its own
    moved: list[Path] = []
    rename = Path.rename

    def killed(path: Path, target: Path) -> Path:
        moved.append(path)
        if len(moved) == kills:
            raise Killed
        return rename(path, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", killed)
        with pytest.raises(Killed):
            store.import_dataset(Fold(), given, home)
    if kills == 2:
        store.import_dataset(Fold(), given, home)
        assert there(home) == {**FOLD, "fold/mine.txt": "mine"}
    store.remove_dataset(Fold(), home)  # a half of it, too
    assert there(home) == {"fold/mine.txt": "mine"}


def _killed(act: Callable[..., object]) -> Callable[..., object]:
    def killed(*arguments: object) -> object:
        act(*arguments)
        raise Killed

    return killed


def test_a_folder_that_cannot_be_written_is_one_sentence(given: Path) -> None:
    assert "Cannot write /dev/null/x" in refused(
        OutputError, lambda: store.import_dataset(Fold(), given, Path("/dev/null/x"))
    )


@pytest.mark.parametrize("name", ["copyfile", "rmtree"])
def test_what_the_system_refuses_is_one_sentence(
    home: Path, given: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(home / "x"))

    monkeypatch.setattr(shutil, name, full)
    said = refused(OutputError, lambda: store.import_dataset(Fold(), given, home))
    assert said.startswith(f"Cannot change {home}: No space left on device ({home / 'x'}).")


def test_a_removal_that_the_system_refuses_is_one_sentence(
    home: Path, given: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, **_: bool) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    dataset = _imported(given, home)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", refuse)
        assert "Permission denied" in refused(OutputError, lambda: store.remove_dataset(dataset, home))
    assert there(home) == FOLD
    store.remove_dataset(dataset, home)
    assert folders(home) == []


# The hub


class Hub:
    """Stands in for the client of huggingface_hub."""

    def __init__(self, tree: Tree) -> None:
        self.tree, self.asked, self.fail = tree, list[str](), set[str]()
        self.wrong: set[str] = set()

    def list_repo_tree(self, repository: str, **_: object) -> list[Any]:
        self.asked.append(repository)
        found = [
            huggingface_hub.hf_api.RepoFile(  # type: ignore[no-untyped-call]
                path=name, size=1, oid="0", lfs={"size": 1, "oid": self.digest(name), "pointerSize": 1}
            )
            for name in self.tree
        ]
        folder = huggingface_hub.hf_api.RepoFolder(path="data.parquet", oid="0")  # type: ignore[no-untyped-call]
        return [*found, folder]

    def digest(self, name: str) -> str:
        return "0" if name in self.wrong else hashlib.sha256(self.tree[name].encode()).hexdigest()

    def download(self, repository: str, file: str, *, repo_type: str, local_dir: Path) -> str:
        self.asked.append(file)
        if file in self.fail:
            raise ConnectionError("no answer")
        write(local_dir, {file: self.tree[file]})
        return str(local_dir / file)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    made = Hub({"train.parquet": "one", "in/test.parquet": "test", "README.md": "no data"})
    monkeypatch.setattr(huggingface_hub, "HfApi", lambda: made)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", made.download)
    monkeypatch.setattr(Fold, "hub", [("who/what", "train.parquet"), ("who/what", "in/test.parquet")])
    monkeypatch.setattr(Fold, "homes", lambda _: [["who/what/train.parquet", "who/what/in/test.parquet"]])
    return made


MIRROR = {"who/what/train.parquet": "one", "who/what/in/test.parquet": "test"}


@pytest.mark.parametrize("pattern", [False, True])
def test_a_dataset_of_the_hub_is_kept_as_a_mirror(
    home: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, pattern: bool
) -> None:
    if pattern:
        monkeypatch.setattr(Fold, "hub", [("who/what", "*.parquet")])
    kept = store.fetch_dataset(Fold(), home)
    assert (there(home), kept.origin) == (MIRROR, "who/what")
    assert [path.suffix for path in (home / ".dpbench").iterdir() if path.is_dir()] == []
    store.remove_dataset(Fold(), home)
    assert folders(home) == []


def test_another_file_of_the_hub_is_deleted_and_fetched_again(home: Path, hub: Hub) -> None:
    hub.wrong = {"in/test.parquet"}
    assert "Expected SHA-256 0 of in/test.parquet of who/what" in refused(
        DataError, lambda: store.fetch_dataset(Fold(), home)
    )
    assert there(store._dataset_path(Fold(), home, "downloads")) == {"who/what/train.parquet": "one"}
    hub.wrong = set()
    store.fetch_dataset(Fold(), home)
    assert there(home) == MIRROR


def test_what_came_from_the_hub_is_kept_when_it_no_longer_answers(home: Path, hub: Hub) -> None:
    hub.fail = {"in/test.parquet"}
    said = refused(DataError, lambda: store.fetch_dataset(Fold(), home))
    assert "Expected in/test.parquet of who/what from the Hugging Face hub, got ConnectionError. What was" in said
    assert there(store._dataset_path(Fold(), home, "downloads")) == {"who/what/train.parquet": "one"}
    assert folders(home) == []


def test_a_hub_that_cannot_be_asked_or_has_no_such_file_is_said(
    home: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fold, "hub", [("who/what", "gone.parquet")])
    assert "has no such file" in refused(DataError, lambda: store.fetch_dataset(Fold(), home))
    monkeypatch.setattr(huggingface_hub, "HfApi", SimpleNamespace)
    assert "got AttributeError" in refused(DataError, lambda: store.fetch_dataset(Fold(), home))


def test_a_full_disk_is_not_the_hubs_fault(home: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> str:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", full)
    assert "No space left on device" in refused(OutputError, lambda: store.fetch_dataset(Fold(), home))


@pytest.mark.parametrize("act", ["fetch", "adopt"])
def test_data_that_this_machine_cannot_read_are_refused_before_the_first_byte(
    home: Path, published: Path, given: Path, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Fold, "requires", ("json", "reader_of_folds"))
    monkeypatch.setattr(download, "_receive_remaining_bytes", lambda *_: pytest.fail("something was downloaded"))
    said = refused(
        DataError,
        lambda: store.fetch_dataset(Fold(), home) if act == "fetch" else store.import_dataset(Fold(), given, home),
    )
    assert said.startswith("Expected to read dataset 'fold' with the package reader_of_folds, which cannot be imported")
    assert "Install it first: pip install reader_of_folds." in said
    assert list(home.iterdir()) == []
