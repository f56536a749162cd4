"""Folders of files that a process trusts: nobody else may write to them, and their digests were noted."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.support.own_folders import create_cache_entry, is_cache_entry_intact, prepare_user_only_folder


@pytest.fixture
def entry(fresh_cache: Path) -> Path:
    folder, trouble = prepare_user_only_folder("things", "many things")
    assert folder == fresh_cache / "things" and trouble == ""
    with create_cache_entry(folder / "entry") as new:
        (new / "part").mkdir()
        (new / "part" / "file").write_bytes(b"content")
    return folder / "entry"


def test_an_entry_is_intact_until_one_of_its_files_changes(entry: Path) -> None:
    assert is_cache_entry_intact(entry)
    (entry / "part" / "file").write_bytes(b"other")
    assert not is_cache_entry_intact(entry)


@pytest.mark.parametrize("damage", ["", "[", "{}"])
def test_an_entry_without_a_list_of_its_digests_is_not_intact(entry: Path, damage: str) -> None:
    (entry / "digests.json").write_text(damage)
    assert not is_cache_entry_intact(entry)


def test_a_second_process_leaves_the_entry_of_the_first(entry: Path) -> None:
    with create_cache_entry(entry) as new:
        (new / "file").write_bytes(b"later")
    assert is_cache_entry_intact(entry) and not (entry / "file").exists()
    assert [each.name for each in entry.parent.iterdir()] == ["entry"]


def test_a_write_that_fails_leaves_nothing(entry: Path) -> None:
    with pytest.raises(OSError, match="full"), create_cache_entry(entry.with_name("second")):
        raise OSError("full")
    assert [each.name for each in entry.parent.iterdir()] == ["entry"]


@pytest.mark.parametrize("shared", ["", "things"])
def test_a_folder_that_others_may_write_to_is_not_used(entry: Path, shared: str) -> None:
    open_to_all = entry.parents[1] / shared
    open_to_all.chmod(0o777)
    folder, trouble = prepare_user_only_folder("things", "many things")
    assert folder is None and trouble == f"Others may write to {open_to_all}, so many things are not kept there. "


def test_the_sticky_bit_protects_the_folder_above_only(entry: Path) -> None:
    (folder := entry.parent).parent.chmod(0o1777)
    assert prepare_user_only_folder("things", "many things") == (folder, "")
    folder.chmod(0o1777)  # anyone could add an entry, with digests that fit
    assert prepare_user_only_folder("things", "many things")[1].startswith(f"Others may write to {folder}, ")
