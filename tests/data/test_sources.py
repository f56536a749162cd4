"""Where data is looked for, and the one sentence that is said where it is not."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dpbench import DataMissing, Dataset, Download, Source, Splits
from dpbench.data.sources import (
    check_datasets_present,
    describe_data_paths,
    find_dataset,
    format_dataset_spec,
    locate,
    make_missing_data_error,
)
from dpbench.records.protocol import Component
from dpbench.support.messages import format_bytes
from dpbench.support.paths import restrict_data_search

HOMES = [["x.zip"], ["x/train", "x/test"]]
GIVEN = Download("http://127.0.0.1/x.zip", "md5:0", 5, "x", unpack=True)


@dataclass(frozen=True)
class Somewhere(Dataset):
    name: ClassVar[str] = "somewhere"
    classes: ClassVar[tuple[str, ...]] = ("a", "b")
    licence: ClassVar[str] = "CC0"
    citation: ClassVar[str] = "none"

    given: ClassVar[Source | None] = None

    def source(self) -> Source | None:
        return self.given

    def load(self) -> Splits:
        raise NotImplementedError


@dataclass(frozen=True)
class Optional(Somewhere):
    size: int = 28
    colour: bool = True
    tag: str | None = "v1"
    kinds: tuple[str, ...] = field(default_factory=tuple)
    given: ClassVar[Source | None] = Source(HOMES)


@dataclass(frozen=True)
class Required(Optional):
    id: str = field(kw_only=True)


def at(homes: Sequence[Sequence[str]] = HOMES, **more: Any) -> Somewhere:
    found = type("Described", (Somewhere,), {"given": Source(homes, **more)})()
    assert isinstance(found, Somewhere)
    return found


def make(folder: Path, *places: str) -> None:
    for place in places:
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).touch()


@pytest.fixture
def folders(data_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.setenv("DPBENCH_DATA", f"{data_folder}:{second}")
    return data_folder, second


def test_all_paths_of_a_home_are_needed(data_folder: Path) -> None:
    make(data_folder, "x/train")
    assert find_dataset(at()) is None
    make(data_folder, "x/test")
    assert locate(at()).paths == (data_folder / "x/train", data_folder / "x/test")
    assert locate(at()).folder == data_folder


def test_paths_of_two_homes_make_no_home(data_folder: Path) -> None:
    make(data_folder, "a/train", "b/test")
    assert find_dataset(at([["a/train", "a/test"], ["b/train", "b/test"]])) is None


def test_the_first_home_of_a_folder_wins(data_folder: Path) -> None:
    make(data_folder, "x.zip", "x/train", "x/test")
    assert locate(at()).paths == (data_folder / "x.zip",)


def test_the_first_folder_wins_whatever_home_it_has(folders: tuple[Path, Path]) -> None:
    make(folders[1], "x.zip")
    assert locate(at()).folder == folders[1]
    make(folders[0], "x/train", "x/test")
    assert locate(at()).folder == folders[0]


def test_parts_in_two_folders_make_no_home(folders: tuple[Path, Path]) -> None:
    make(folders[0], "x/train")
    make(folders[1], "x/test")
    with pytest.raises(DataMissing) as caught:
        locate(at())
    assert f"{folders[0]}, which lacks x/test; {folders[1]}, which lacks x/train; " in str(caught.value)


def test_folders_of_the_user_and_of_others_come_last(folders: tuple[Path, Path], tmp_path: Path) -> None:
    dataset = at(elsewhere=[(str(tmp_path / "else"), [["own.npz"]])])
    make(tmp_path, "else/own.npz")
    assert locate(dataset).paths == (tmp_path / "else/own.npz",)
    make(tmp_path / "none/dpbench", "x.zip")  # below XDG_DATA_HOME
    assert locate(dataset).folder == tmp_path / "none/dpbench"
    make(folders[1], "x.zip")
    assert locate(dataset).folder == folders[1]


def test_elsewhere_may_begin_with_a_tilde(data_folder: Path, tmp_path: Path) -> None:
    make(tmp_path / "home", ".x/own.npz")
    assert locate(at(elsewhere=[("~/.x", [["own.npz"]])])).folder == tmp_path / "home/.x"


def test_only_in_looks_nowhere_else_and_ends(data_folder: Path, tmp_path: Path) -> None:
    dataset = at(elsewhere=[(str(tmp_path / "else"), HOMES)])
    make(data_folder, "x.zip")
    make(tmp_path / "else", "x.zip")
    with pytest.raises(RuntimeError), restrict_data_search(tmp_path / "empty"):
        assert find_dataset(dataset) is None
        said = str(make_missing_data_error(dataset))
        assert str(tmp_path / "empty") in said
        assert str(data_folder) not in said
        assert str(tmp_path / "else") not in said
        raise RuntimeError
    assert locate(dataset).folder == data_folder


def test_a_link_to_nothing_is_not_there(data_folder: Path) -> None:
    (data_folder / "x.zip").symlink_to(data_folder / "moved.zip")
    assert find_dataset(at()) is None


def test_a_folder_that_may_not_be_entered_holds_nothing(
    folders: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = Path.stat
    make(folders[1], "x.zip")

    def refused(path: Path, **more: bool) -> object:
        if folders[0] in path.parents:
            raise PermissionError(13, "Permission denied")
        return stat(path, **more)

    monkeypatch.setattr(Path, "stat", refused)
    monkeypatch.setattr(Path, "exists", lambda path: bool(path.stat()) if folders[0] in path.parents else True)
    assert locate(at()).folder == folders[1]


def test_a_name_that_is_too_long_is_missing(data_folder: Path) -> None:
    assert find_dataset(at([["x" * 300]])) is None


def test_a_dataset_of_a_package_is_nowhere_and_never_missing(data_folder: Path) -> None:
    assert find_dataset(Somewhere()) is None
    check_datasets_present(Somewhere())


def test_what_is_missing_is_refused_first(data_folder: Path) -> None:
    make(data_folder, "x.zip")
    check_datasets_present(at())
    with pytest.raises(DataMissing, match=r"looked for y\.zip"):
        check_datasets_present(Somewhere(), at(), at([["y.zip"]]))


def test_a_dataset_of_the_hub_may_come_from_there_still(data_folder: Path) -> None:
    check_datasets_present(at(hub=[("who/what", "data.parquet")]))


def test_the_sentence_of_data_by_hand(data_folder: Path, tmp_path: Path) -> None:
    assert str(make_missing_data_error(at(page="https://x.org", size=1_234_000_000))) == (
        f"Dataset 'somewhere' is not on this machine: looked for x.zip or x/{{train,test}} in {data_folder}; "
        f"{tmp_path}/none/dpbench. Download it (1.2 GB, licence: CC0) from https://x.org, then run `dpbench data "
        "import somewhere FILE-OR-FOLDER`; or name the folder that holds it in DPBENCH_DATA."
    )


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"downloads": [GIVEN]},
            "Run `dpbench data fetch somewhere` (licence: CC0); or download it and run `dpbench data import s",
        ),
        (
            {"hub": [("who/what", "a")]},
            "Run `dpbench data fetch somewhere` (licence: CC0); or download it and run `dpbench data import s",
        ),
        ({"size": 99_600}, " (1 MB, licence: CC0)"),
        ({}, "Download it (licence: CC0), then run `dpbench data import"),
        ({"package": "x-data"}, "On Debian, install x-data. Elsewhere: download it (licence"),
        ({"package": "x-data", "downloads": [GIVEN]}, "On Debian, install x-data. Elsewhere: run `dpbench data fetch"),
    ],
)
def test_the_sentence_says_every_way(data_folder: Path, more: dict[str, Any], said: str) -> None:
    assert said in str(make_missing_data_error(at(**more)))
    if not more.keys() & {"downloads", "hub"}:
        assert "dpbench data fetch" not in str(make_missing_data_error(at(**more)))


def test_options_stand_in_the_commands_as_a_shell_takes_them(data_folder: Path) -> None:
    dataset = Optional(size=64, tag="it's (2)")
    command = f"`dpbench data import {shlex.quote(format_dataset_spec(dataset))} FILE-OR-FOLDER`"
    assert command in str(make_missing_data_error(dataset))
    assert shlex.split(command.strip("`"))[3] == "somewhere:size=64,tag=it's (2)"


@pytest.mark.parametrize(
    ("dataset", "said"),
    [
        (Optional(), "somewhere"),
        (Optional(size=64), "somewhere:size=64"),
        (Optional(size=64, colour=False, tag=None), "somewhere:size=64,colour=False,tag=None"),
        (Required(id="who/what"), "somewhere:id=who/what"),
    ],
)
def test_a_label_is_what_a_user_writes(dataset: Optional, said: str) -> None:
    assert format_dataset_spec(dataset) == said
    options = Component.parse(said).options
    assert options.keys() == {name for name, value in vars(dataset).items() if value != getattr(Optional(), name, ...)}


def test_names_and_sizes_are_said_shortly() -> None:
    assert describe_data_paths(Source([["train", "test"], ["a/b/train", "a/b/test"], ["c"], ["d"]])) == (
        "{train,test} or a/b/{train,test} (or in 2 more layouts)"
    )
    assert [format_bytes(size) for size in (1, 1_600_000, 10**9 - 1, 10**9)] == ["1 MB", "2 MB", "1000 MB", "1.0 GB"]
