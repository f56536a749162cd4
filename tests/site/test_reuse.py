"""A build that is skipped or made: never stale, and the same bytes as a build from nothing."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dpbench import registry
from dpbench.board import build
from dpbench.board.history import GitHistory
from dpbench.cli import main
from dpbench.site import render
from dpbench.site.extras import ExtraSection, SiteExtras
from dpbench.site.layout import PageSection
from dpbench.site.reuse import BuildTarget
from dpbench.support.folders import MARKER, lock_folder
from tests.helpers import boards

PACKAGE = "pages_of_a_test"
TEMPLATE = "extra.html.jinja"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return boards.world(tmp_path_factory)


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "leaderboard"))


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a package whose template is a page of the site that the command line builds."""
    folder = tmp_path / "packages" / PACKAGE
    folder.mkdir(parents=True)
    (folder / "__init__.py").touch()
    (folder / TEMPLATE).write_text("first", encoding="utf-8")
    monkeypatch.syspath_prepend(folder.parent)
    monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
    section = PageSection("extra", "Extra", "extra.html")
    page = ExtraSection(
        section, lambda _, shared: [("extra.html", shared.page("extra", "extra.html", "extra", {}))], PACKAGE
    )
    __import__(PACKAGE)
    monkeypatch.setattr("dpbench.main.load_extras", lambda: SiteExtras(pages=(page,)))
    return folder


def make_site(root: Path, site: Path) -> None:
    render._build_environment.cache_clear()  # another process reads templates anew
    with pytest.raises(SystemExit) as ended:
        main(["leaderboard", "build", "--no-docs", "--root", str(root), "--site", str(site)])
    assert not ended.value.code


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def change_result(root: Path, package: Path) -> None:
    file = boards.file_of(root, "class-means")
    made = boards.edited(json.loads(file.read_text(encoding="utf-8")), "provenance.date", "2024-01-02")
    file.write_text(json.dumps(boards.resealed(made)), encoding="utf-8")


def change_template(root: Path, package: Path) -> None:
    (package / TEMPLATE).write_text("second", encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("change", [change_result, change_template])
def test_a_changed_input_gives_the_bytes_of_a_build_from_nothing(
    root: Path, package: Path, tmp_path: Path, fresh_cache: Path, change: Callable[[Path, Path], None]
) -> None:
    make_site(root, tmp_path / "site")
    before = read_files(tmp_path / "site")
    change(root, package)
    make_site(root, tmp_path / "site")
    made = {**read_files(tmp_path / "site"), build.INDEX: (root / build.INDEX).read_bytes()}
    for left in (fresh_cache, root / build.INDEX, root / build.SCHEMA):
        shutil.rmtree(left) if left.is_dir() else left.unlink()
    make_site(root, tmp_path / "from-nothing")
    assert made == {**read_files(tmp_path / "from-nothing"), build.INDEX: (root / build.INDEX).read_bytes()}
    assert made != {**before, build.INDEX: made[build.INDEX]}


def test_an_unchanged_leaderboard_is_not_checked_again(
    root: Path, tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_site(root, tmp_path / "site")
    before = read_files(tmp_path)
    capsys.readouterr()
    monkeypatch.setattr(build, "build_index", None)
    make_site(root, tmp_path / "site")
    assert f"{tmp_path / 'site'} are up to date: 4 results on 2 boards" in capsys.readouterr().out
    assert read_files(tmp_path) == before


@pytest.mark.quick(1)
@pytest.mark.parametrize("output", ["site/index.html", "leaderboard/leaderboard.json", "leaderboard/schema.json"])
def test_an_output_that_was_edited_or_deleted_is_made_again(
    root: Path, tmp_path: Path, fresh_cache: Path, output: str
) -> None:
    make_site(root, tmp_path / "site")
    content = (tmp_path / output).read_bytes()
    (tmp_path / output).write_bytes(content + b"\n")
    make_site(root, tmp_path / "site")
    assert (tmp_path / output).read_bytes() == content
    (tmp_path / output).unlink()
    make_site(root, tmp_path / "site")
    assert (tmp_path / output).read_bytes() == content


def test_inputs_are_the_files_of_the_leaderboard_the_code_and_the_environment(
    root: Path, package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def digest(docs: bool = False) -> str | None:
        page = ExtraSection(PageSection("extra", "Extra", "extra.html"), lambda _, shared: [], PACKAGE)
        return BuildTarget(root, root / "site", registry.load(), SiteExtras(pages=(page,)), docs).digest_inputs()

    seen = {digest(), digest(docs=True)}
    assert len(seen) == 2
    (root / build.INDEX).touch()  # outputs are none
    (root / ".site.abc").mkdir()
    assert digest() in seen
    for file in (
        root / "boards" / "tiny.toml",
        boards.file_of(root, "pillar"),
        root / "reruns" / "new",
        package / "new",
    ):
        file.parent.mkdir(exist_ok=True)
        with file.open("ab") as opened:
            opened.write(b"\n")
        seen.add(digest())
    monkeypatch.setenv("DPBENCH_ADDRESS", "https://example.org")
    seen.add(digest())
    assert len(seen) == 7


def link_copy(root: Path) -> None:
    file = boards.file_of(root, "pillar")
    file.symlink_to(shutil.move(file, root.parent / "elsewhere.json"))


def hide_results(root: Path) -> None:
    (root / "results" / MARKER).touch()
    (boards.file_of(root, "pillar")).unlink()


UNSEEN_CHANGES: dict[str, Callable[[Path], object]] = {
    "a link in place of a file": link_copy,
    "a result below the marker of a site": hide_results,
    "an empty folder": lambda root: (root / "results" / "stranger").mkdir(),
    "a link to nothing": lambda root: (root / "results" / "tiny" / "x.json").symlink_to("nowhere"),
    "a pipe": lambda root: os.mkfifo(root / "results" / "tiny" / "x.json"),
    "a folder of compiled code": lambda root: (root / "results" / "__pycache__").mkdir(),
    "a name that is not text": lambda root: Path(os.fsdecode(os.fsencode(root / "results") + b"/\xff")).mkdir(),
    "links in a circle": lambda root: (root / "results" / "tiny" / "x.json").symlink_to("x.json"),
}


@pytest.mark.parametrize("change", UNSEEN_CHANGES.values(), ids=UNSEEN_CHANGES.keys())
def test_every_change_below_the_leaderboard_is_seen(root: Path, change: Callable[[Path], object]) -> None:
    target = BuildTarget(root, root / "site", registry.load(), SiteExtras(), docs=False)
    before = target.digest_inputs()
    assert before == target.digest_inputs() is not None
    change(root)
    assert target.digest_inputs() != before


def test_a_file_behind_a_linked_folder_is_an_input(root: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (root / "claims").symlink_to(tmp_path / "elsewhere")
    target = BuildTarget(root, root / "site", registry.load(), SiteExtras(), docs=False)
    before = target.digest_inputs()
    (tmp_path / "elsewhere" / "paper.toml").touch()
    assert target.digest_inputs() != before


def test_what_cannot_be_read_is_neither_skipped_nor_remembered(
    root: Path, tmp_path: Path, fresh_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_site(root, tmp_path / "site")
    (record,) = (fresh_cache / "builds").iterdir()
    record.unlink()

    def refuse(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("dpbench.site.reuse.hashlib.file_digest", refuse)
    target = BuildTarget(root, tmp_path / "site", registry.load(), SiteExtras(), docs=False)
    assert target.digest_inputs() is None
    assert target.find_recorded_message(None) is None
    target.record_build(None, "said")
    assert not record.exists()


def test_two_builds_at_once_do_not_work_on_one_leaderboard(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with lock_folder(root), pytest.raises(SystemExit) as ended:
        main(["leaderboard", "build", "--no-docs", "--root", str(root), "--site", str(tmp_path / "site")])
    assert ended.value.code == 1
    assert "Another process builds or converts" in capsys.readouterr().err
    assert not (tmp_path / "site").exists()


@pytest.mark.slow
def test_a_damaged_record_of_a_build_is_no_record(root: Path, tmp_path: Path, fresh_cache: Path) -> None:
    make_site(root, tmp_path / "site")
    (record,) = (fresh_cache / "builds").iterdir()
    kept = record.read_text(encoding="utf-8")
    target = BuildTarget(root, tmp_path / "site", registry.load(), SiteExtras(), docs=False)
    inputs = json.loads(kept)["inputs"]
    assert target.find_recorded_message(inputs) is not None
    for content in ("", "[]", "{}", '{"inputs": 1, "outputs": 2, "said": 3}'):
        record.write_text(content, encoding="utf-8")
        assert target.find_recorded_message(inputs) is None
    make_site(root, tmp_path / "site")
    assert record.read_text(encoding="utf-8") == kept


def test_the_commits_that_filed_results_are_inputs(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = BuildTarget(root, root / "site", registry.load(), SiteExtras(), docs=False)
    before = target.digest_inputs()
    monkeypatch.setattr(GitHistory, "open", lambda _: GitHistory(root, "a", "b"))
    monkeypatch.setattr(GitHistory, "list_filings", lambda _: ("a", "b"))
    assert target.digest_inputs() != before
