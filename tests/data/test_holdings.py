"""What the cache holds, and clearing it."""

from __future__ import annotations

from pathlib import Path

import pytest
from filelock import FileLock

from dpbench.data.holdings import clear_cache, list_cache_entries
from dpbench.errors import OutputError, SpecError
from dpbench.records.spec import make_spec
from tests.helpers.commands import call
from tests.helpers.sessions import session


@pytest.fixture
def filled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a cache that one run has filled, beside an extraction that did not end."""
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path))
    session().run(make_spec({"learner": "class-means:k=5", "seeds": 1, "extractor": "pixels:size=4"}, "the test"))
    partial = tmp_path / "features" / ("f" * 32 + ".partial")
    partial.mkdir()
    (partial / "shard").write_bytes(bytes(10_000_000))
    return tmp_path


@pytest.mark.slow
def test_entries_say_what_they_are_the_largest_first(filled: Path) -> None:
    held = list_cache_entries()
    assert held[0].what == "an extraction that did not end" and held[0].size == 10_000_000
    assert {entry.what for entry in held} >= {
        "1,438 train examples by pixels:size=4",
        "359 test examples by pixels:size=4",
        "hashes of images, to find copies",
        "noise multipliers that were found",
    }


def test_only_what_is_named_is_cleared(filled: Path) -> None:
    gone = list_cache_entries()[0]
    assert clear_cache([gone.name]) == [gone]
    assert not gone.folder.exists()
    assert len(list_cache_entries()) == 4


@pytest.mark.slow
def test_all_is_cleared_and_a_run_makes_it_again(filled: Path) -> None:
    clear_cache([])
    assert list_cache_entries() == []
    session().run(make_spec({"learner": "class-means:k=5", "seeds": 1, "extractor": "pixels:size=4"}, "the test"))
    assert len(list_cache_entries()) == 4


@pytest.mark.slow
def test_what_another_process_is_extracting_stays(filled: Path) -> None:
    entry = list_cache_entries()[0]
    with FileLock(entry.folder.with_suffix(".lock")), pytest.raises(OutputError, match="being used by another process"):
        clear_cache([entry.name])
    assert entry.folder.exists()


def test_an_unknown_name_is_refused_and_nothing_deleted(filled: Path) -> None:
    with pytest.raises(SpecError, match=r"Unknown cache entry 'hash'\. Did you mean 'hashes'"):
        clear_cache([list_cache_entries()[0].name, "hash"])
    assert len(list_cache_entries()) == 5


@pytest.mark.slow
def test_the_command_lists_and_clears(filled: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, code, said in (
        (["list"], 0, "hashes of images"),
        (["clear"], 1, "Expected names of cache entries, or --all"),
        (["clear", "--all"], 0, "Cleared 5 entries, 1"),
        (["list"], 0, "nothing in"),
    ):
        assert call("cache", *arguments) == code
        told = capsys.readouterr()
        assert said.replace(" ", "") in (told.out + told.err).replace("\n", "").replace(" ", "")
