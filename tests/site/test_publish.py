"""Publishing: to a folder, as a whole; to a stand-in of the hub, in one commit and without a word of the token."""

from __future__ import annotations

import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import huggingface_hub
import pytest
import yaml  # type: ignore[import-untyped]
from pytest_socket import enable_socket, socket_allow_hosts

from dpbench.analysis.rows import Origin
from dpbench.board import build
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.verify.verdict import NON_ACCURACY_METRICS
from dpbench.cli import main
from dpbench.errors import DataError, OutputError, SpecError
from dpbench.privacy import MECHANISM
from dpbench.privacy.core.accounting.crosscheck import EpsilonInterval
from dpbench.records.board import Board
from dpbench.records.rerun import Rerun, SeedRerun
from dpbench.records.result import ComponentOrigin, Interval
from dpbench.registry import Registry, load
from dpbench.site import github_pages, upload
from dpbench.site.publishing import _collect_repository_files, publish
from dpbench.site.readme import make_dataset_card
from tests.helpers.boards import synthetic, write
from tests.helpers.commands import call
from tests.helpers.hub import TOKEN, Hub, Repository

ROOT = Path(__file__).parents[2]
NAME = "somebody/board"
FILES = {"README.md": b"---\nlicense: apache-2.0\n---\n", "leaderboard.json": b"{}\n", "boards/b.toml": "ε".encode()}


# A folder.


@pytest.fixture
def site(tmp_path: Path) -> Path:
    folder = tmp_path / "built"
    (folder / "entries").mkdir(parents=True)
    (folder / "index.html").write_text("<title>ε</title>", encoding="utf-8")
    (folder / "entries" / "one.html").write_text("one", encoding="utf-8")
    folder.chmod(0o700)
    (folder / ".dpbench-site").write_text("with it, a build would replace the folder as a whole", encoding="utf-8")
    return folder


def state(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def names(folder: Path) -> set[str]:
    return {file.name for file in folder.iterdir()}


def test_a_folder_gets_the_page_at_its_root(site: Path, tmp_path: Path) -> None:
    built = state(site)
    changes = github_pages.publish_to_folder(site, tmp_path / "new/public", dry_run=False)
    assert changes == ["add .nojekyll", "add entries/one.html", "add index.html"]
    recorded = state(tmp_path / "new/public")
    assert sorted(json.loads(recorded.pop(".dpbench-published.json"))) == sorted(recorded)
    assert recorded == {path: content for path, content in built.items() if path[0] != "."} | {".nojekyll": b""}
    assert (tmp_path / "new/public").stat().st_mode & 0o777 == 0o755
    assert names(tmp_path / "new") == {"public"}


def test_a_second_publication_replaces_the_first(site: Path, tmp_path: Path) -> None:
    github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)
    (site / "entries" / "one.html").unlink()
    (site / "index.html").write_text("new", encoding="utf-8")
    (site / "two.html").write_text("two", encoding="utf-8")
    changes = github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)
    assert changes == ["add two.html", "change index.html", "delete entries/one.html"]
    assert {*state(tmp_path / "public")} == {"index.html", "two.html", ".nojekyll", ".dpbench-published.json"}
    assert names(tmp_path) == {"built", "public"}


def test_publishing_the_same_again_touches_nothing(site: Path, tmp_path: Path) -> None:
    github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)
    before = (tmp_path / "public").stat().st_ino
    assert github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False) == []
    assert (tmp_path / "public").stat().st_ino == before


def test_a_dry_run_tells_and_writes_nothing(site: Path, tmp_path: Path) -> None:
    changes = github_pages.publish_to_folder(site, tmp_path / "public", dry_run=True)
    assert changes == ["add .nojekyll", "add entries/one.html", "add index.html"]
    assert names(tmp_path) == {"built"}


def test_git_and_the_domain_stay(site: Path, tmp_path: Path) -> None:
    folder = tmp_path / "public"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref", encoding="utf-8")
    (folder / "CNAME").write_text("board.example", encoding="utf-8")
    for text in ("first", "second"):
        (site / "index.html").write_text(text, encoding="utf-8")
        github_pages.publish_to_folder(site, folder, dry_run=False)
        kept = state(folder)
        assert (kept[".git/HEAD"], kept["CNAME"], kept["index.html"]) == (b"ref", b"board.example", text.encode())


@pytest.mark.parametrize("path", ["notes.txt", "entries/mine.html", "entries/CNAME", "entries/.git"])
def test_what_somebody_else_put_there_is_never_replaced(site: Path, tmp_path: Path, path: str) -> None:
    github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)
    (tmp_path / "public" / path).write_text("mine", encoding="utf-8")
    (site / "index.html").write_text("new", encoding="utf-8")
    before = state(tmp_path / "public")
    with pytest.raises(OutputError, match=rf"got '{path}', which dpbench did not publish\. Move it away"):
        github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)
    assert state(tmp_path / "public") == before


def test_a_page_that_was_edited_since_is_never_replaced(site: Path, tmp_path: Path) -> None:
    github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)
    (tmp_path / "public" / "index.html").write_text("mine", encoding="utf-8")
    with pytest.raises(OutputError, match=r"got 'index\.html', which was edited since"):
        github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)


@pytest.mark.parametrize("marker", ["", "[]", "{", '{"index.html": 1}'])
def test_a_folder_without_a_true_marker_is_never_replaced(site: Path, tmp_path: Path, marker: str) -> None:
    (tmp_path / "public").mkdir()
    (tmp_path / "public" / "index.html").write_text("mine", encoding="utf-8")
    (tmp_path / "public" / ".dpbench-published.json").write_text(marker, encoding="utf-8")
    with pytest.raises(OutputError, match=r"Expected nothing in .* but what dpbench published there"):
        github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)


def test_a_link_is_nothing_that_was_published(site: Path, tmp_path: Path) -> None:
    github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)
    (tmp_path / "public" / "index.html").unlink()
    (tmp_path / "public" / "index.html").symlink_to(site / "index.html")
    (tmp_path / "public" / "folder").symlink_to(site)
    with pytest.raises(OutputError, match="got 'folder', which dpbench did not publish"):
        github_pages.publish_to_folder(site, tmp_path / "public", dry_run=False)


def test_a_file_or_the_current_folder_is_no_place(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(OutputError, match="Expected a folder to publish to, got the file"):
        github_pages.publish_to_folder(site, tmp_path / "file", dry_run=False)
    (tmp_path / "public").mkdir()
    monkeypatch.chdir(tmp_path / "public")
    with pytest.raises(OutputError, match="Expected to run outside"):
        github_pages.publish_to_folder(site, Path(), dry_run=False)


@pytest.mark.parametrize("fatal", [0, 1, 2])
def test_an_interruption_at_any_renaming_leaves_the_old_page_whole(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fatal: int
) -> None:
    folder = tmp_path / "public"
    github_pages.publish_to_folder(site, folder, dry_run=False)
    (folder / "CNAME").write_text("board.example", encoding="utf-8")
    before = state(folder)
    (site / "index.html").write_text("new", encoding="utf-8")
    rename, renamed = Path.rename, []

    def interrupted(path: Path, target: Path) -> Path:
        renamed.append(path)
        if len(renamed) == fatal + 1:
            raise KeyboardInterrupt
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt):
        github_pages.publish_to_folder(site, folder, dry_run=False)
    assert len(renamed) > fatal
    assert state(folder) == before
    assert names(tmp_path) == {"built", "public"}


# The hub.


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    enable_socket()
    socket_allow_hosts(["127.0.0.1"], allow_unix_socket=True)  # ended by pytest-socket after every test
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    from huggingface_hub import constants

    with serving(Hub()) as running:
        monkeypatch.setattr(constants, "ENDPOINT", running.address)  # read from HF_ENDPOINT on import
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_IMPLICIT_TOKEN", True)  # the client finds no token itself
        yield running


class serving:  # noqa: N801
    """Answer in a thread while the block runs."""

    def __init__(self, hub: Hub) -> None:
        self.hub, self.thread = hub, threading.Thread(target=hub.serve_forever, args=(0.01,))

    def __enter__(self) -> Hub:
        self.thread.start()
        return self.hub

    def __exit__(self, *_: object) -> None:
        huggingface_hub.close_session()
        self.hub.shutdown()
        self.thread.join()
        self.hub.server_close()


def sent(files: dict[str, bytes] = FILES, *, dry_run: bool = False) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        for path, content in files.items():
            (Path(folder) / path).parent.mkdir(parents=True, exist_ok=True)
            (Path(folder) / path).write_bytes(content)
        return upload.upload_folder(NAME, Path(folder), dry_run=dry_run)


def refused(match: str) -> str:
    with pytest.raises((OutputError, SpecError), match=match) as caught:
        sent()
    assert TOKEN not in "".join(traceback.format_exception(caught.value))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def there(hub: Hub) -> dict[str, bytes]:
    """Return what the repository holds, less what the hub and the marker put there."""
    return {
        path: content
        for path, content in hub.repositories[NAME].files.items()
        if path not in {".gitattributes", ".dpbench-published.json"}
    }


def test_the_first_publication_makes_the_repository_and_one_commit_of_the_very_bytes(hub: Hub) -> None:
    changes = sent()
    assert there(hub) == FILES
    assert {*changes} == {f"add {path}" for path in (*FILES, ".dpbench-published.json")}
    assert len(hub.repositories[NAME].commits) == 1
    assert [path.rsplit("/", 2)[-2:] for path in hub.wrote()] == [
        ["repos", "create"], ["api", "validate-yaml"], ["preupload", "main"], ["commit", "main"],
    ]  # fmt: skip


def test_every_question_has_the_token_in_its_header_alone(hub: Hub) -> None:
    sent()
    about = [request for request in hub.asked if NAME in request.path or request.method == "POST"]
    assert {request.authorization for request in about} == {f"Bearer {TOKEN}"}
    assert {request.authorization for request in hub.asked} <= {f"Bearer {TOKEN}", None}
    assert TOKEN not in "".join(request.path for request in hub.asked)
    assert TOKEN.encode() not in b"".join(hub.repositories[NAME].files.values())


def test_another_server_never_gets_the_token(hub: Hub) -> None:
    with serving(Hub()) as elsewhere:
        hub.elsewhere = elsewhere.address.replace("127.0.0.1", "localhost")
        socket_allow_hosts(["127.0.0.1", "localhost", "::1"], allow_unix_socket=True)
        refused("got one that it refuses")
        assert [request.authorization for request in elsewhere.asked] == [None]


def test_a_second_publication_sends_what_changed_and_deletes_what_is_gone(hub: Hub) -> None:
    sent()
    later = {"README.md": FILES["README.md"], "leaderboard.json": b"[]\n", "results/b/one.json": b"1"}
    changes = sent(later)
    assert changes == [
        "add results/b/one.json",
        "change .dpbench-published.json",
        "change leaderboard.json",
        "delete boards/b.toml",
    ]
    assert there(hub) == later
    assert len(hub.repositories[NAME].commits) == 2
    assert "parentCommit" in hub.repositories[NAME].commits[1]


def test_a_leaderboard_with_audits_and_a_curve_is_published_whole_and_twice(hub: Hub) -> None:
    whole = Index.read(ROOT / "leaderboard" / build.INDEX)
    digits = tuple(standing for standing in whole.standings if standing.board.name == "digits-eps1")
    files = _collect_repository_files(whole.model_copy(update={"standings": digits}), ROOT / "leaderboard")
    assert {"audits", "curves"} <= {path.partition("/")[0] for path in files}
    sent(files)
    assert sent({**files, "README.md": b"new"}) == ["change .dpbench-published.json", "change README.md"]


def test_publishing_the_same_again_commits_nothing(hub: Hub) -> None:
    sent()
    hub.asked.clear()
    assert sent() == []
    assert hub.wrote() == []


def test_a_dry_run_asks_and_writes_nothing(hub: Hub) -> None:
    assert {line.split()[0] for line in sent(dry_run=True)} == {"add"}
    assert hub.wrote() == []
    assert hub.repositories == {}


def test_an_empty_repository_is_filled(hub: Hub) -> None:
    hub.repositories[NAME] = Repository()
    sent()
    assert there(hub) == FILES
    assert "/api/repos/create" not in hub.wrote()


@pytest.mark.parametrize(
    "others",
    [
        {"train.parquet": b""},
        {"README.md": b""},
        {"results/a/b/c.json": b"", upload.MARKER: b""},
        {"boards/a.txt": b"", upload.MARKER: b""},
    ],
)
def test_a_repository_that_dpbench_did_not_publish_is_left_alone(hub: Hub, others: dict[str, bytes]) -> None:
    hub.repositories[NAME] = Repository(dict(others))
    assert f"got {sorted({*others} - {upload.MARKER})[0]!r} in it" in refused("to be empty or published by dpbench")
    assert hub.wrote() == []
    assert hub.repositories[NAME].files == others


@pytest.mark.parametrize("token", ["", " ", "\n"])
def test_without_a_token_nothing_is_asked(hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    refused("in the environment variable HF_TOKEN, got none")
    assert hub.asked == []


@pytest.mark.parametrize("token", [f"{TOKEN} x", f"{TOKEN}\nx", f"{TOKEN}é", f"a\x7f{TOKEN}"])
def test_a_token_that_no_header_can_hold_is_refused_unread(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    refused("characters that no token has")
    assert hub.asked == []


def test_a_token_of_the_clients_own_store_is_never_used(
    hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKEN, encoding="utf-8")
    monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "token"))
    monkeypatch.delenv("HF_TOKEN")
    refused("got none")
    assert hub.asked == []


def test_a_token_that_the_hub_does_not_know_is_said(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", f"{TOKEN}x")
    refused("got one that it refuses")


def test_a_repository_of_somebody_else_is_said(hub: Hub) -> None:
    hub.repositories[NAME], hub.readable = Repository(), {NAME}
    refused(f"may write to {NAME}, got one that may not")


def test_whoever_made_the_repository_meanwhile_is_not_overwritten(hub: Hub) -> None:
    hub.refusals = {"/repos/create": [409]}
    refused("changed while dpbench was publishing to it")
    assert "commit" not in str(hub.wrote())


def test_whoever_published_meanwhile_is_not_overwritten(hub: Hub) -> None:
    sent()
    hub.refusals = {"/commit/main": [412]}
    with pytest.raises(OutputError, match="changed while dpbench was publishing to it"):
        sent({**FILES, "leaderboard.json": b"mine"})
    assert there(hub) == FILES


@pytest.mark.parametrize("end", ["/tree/main", "/preupload/main", "/commit/main"])
def test_a_busy_hub_is_asked_again(hub: Hub, monkeypatch: pytest.MonkeyPatch, end: str) -> None:
    monkeypatch.setattr(time, "sleep", lambda _: None)
    hub.refusals = {end: [503, 429]}
    sent()
    assert there(hub) == FILES


def test_many_files_may_take_several_commits_and_the_first_deletes_what_is_gone(hub: Hub) -> None:
    sent()
    many = {f"results/b/{number}.json": str(number).encode() for number in range(300)} | {"README.md": b"many"}
    sent(many)
    assert there(hub) == many
    assert len(hub.repositories[NAME].commits) > 2
    assert sent(many) == []


@pytest.mark.parametrize("end", [NAME, "/repos/create", "/validate-yaml"])
def test_a_hub_that_fails_is_said_and_the_next_try_succeeds(hub: Hub, end: str) -> None:
    hub.refusals = {end: [500]}
    refused("got status 500. Publish again later")
    assert sent()
    assert there(hub) == FILES


def test_a_hub_that_is_not_there_is_said(hub: Hub) -> None:
    hub.server_close()
    refused("to take the leaderboard for somebody/board, got ConnectError")


def test_offline_is_said(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    refused("HF_HUB_OFFLINE is set. Unset it")
    assert hub.asked == []


def test_a_token_is_not_sent_in_the_clear(hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://hub.example")
    refused("an https address in HF_ENDPOINT")


@pytest.mark.parametrize("name", ["board", "a/b/c", "/b", "a/", "../b", "a/b?x=1", ""])
def test_a_name_that_no_repository_has_is_refused(hub: Hub, name: str) -> None:
    with pytest.raises(SpecError, match="Expected hf:OWNER/NAME to publish to"):
        upload.upload_folder(name, Path(), dry_run=False)
    assert hub.asked == []


def test_no_record_of_a_log_has_the_token(hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    huggingface_hub.logging.enable_propagation()
    caplog.set_level(logging.DEBUG)
    try:
        sent()
        hub.refusals = {NAME: [500], "/commit/main": [400] * 99}
        refused("status 500")
        with pytest.raises(OutputError, match="status 400"):
            sent({f"results/b/{number}.json": b"1" for number in range(50)})  # so many are tried in smaller parts
    finally:
        huggingface_hub.logging.disable_propagation()
    assert "/commit/main" in caplog.text
    assert TOKEN not in caplog.text


@pytest.mark.quick(1)
@pytest.mark.parametrize(("token", "status"), [(TOKEN, 0), (f"{TOKEN}x", 1)])
def test_no_output_has_the_token_however_talkative(hub: Hub, tmp_path: Path, token: str, status: int) -> None:
    (tmp_path / "README.md").write_text("x", encoding="utf-8")
    code = (
        "import logging; logging.basicConfig(level=0); from pathlib import Path; "
        "from dpbench.site.upload import upload_folder; "
        f"upload_folder({NAME!r}, Path({str(tmp_path)!r}), dry_run=False)"
    )
    talkative = {"HF_DEBUG": "1", "HF_HUB_VERBOSITY": "debug", "DPBENCH_DEBUG": "1", "HF_HUB_OFFLINE": "0"}
    environment = {**os.environ, **talkative, "HF_TOKEN": token, "HF_ENDPOINT": hub.address}
    ended = subprocess.run(
        [sys.executable, "-c", code], check=False, capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert ended.returncode == status, ended.stderr
    assert "curl -X" in ended.stderr
    assert ("OutputError" in ended.stderr) == bool(status)
    assert "SECRET" not in ended.stdout + ended.stderr


# All of it.


@pytest.fixture(scope="module")
def plugins() -> Registry:
    return load()


@pytest.fixture
def root(tmp_path: Path, plugins: Registry) -> Path:
    """A leaderboard of one board with three results, of one of which a seed was run again; built."""
    folder = tmp_path / "leaderboard"
    (folder / "boards").mkdir(parents=True)
    shutil.copy(ROOT / "leaderboard/boards/digits-eps1.toml", folder / "boards")
    board = Board.read(folder / "boards/digits-eps1.toml")
    results = synthetic(board, 3, seed=0)
    write(results, folder / "results" / board.name)
    stated = results[1].seeds[0]
    look = SeedRerun(
        seed=0, outcome="same predictions", accuracy=stated.accuracy, predictions=stated.predictions,
        correct=stated.correct, agreement=1.0, scores={name: stated.metrics[name] for name in NON_ACCURACY_METRICS},
    )  # fmt: skip
    again = Rerun(
        digest=results[1].digest, content=results[1].evidence_digest, seeds=(look,), tolerance="none", provenance={}
    )  # fmt: skip
    again.write_to(folder / "reruns" / board.name / results[1].file_name)
    build.write_index(build.build_index(folder, plugins), folder)
    return folder


@pytest.mark.slow
def test_a_folder_gets_the_page_of_verified_results(root: Path, tmp_path: Path, plugins: Registry) -> None:
    publish(str(tmp_path / "public"), root, plugins)
    there = state(tmp_path / "public")
    assert b"synthetic-00002 (dpbench-synthetic)" in there["index.html"]
    assert {path for path in there if path.startswith("results/")} == {
        f"results/digits-eps1/{name}" for name in names(root / "results/digits-eps1")
    }


def test_what_is_on_the_hub_verifies_itself(root: Path, tmp_path: Path, plugins: Registry, hub: Hub) -> None:
    publish(f"hf:{NAME}", root, plugins)
    for path, content in there(hub).items():
        (tmp_path / "copy" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "copy" / path).write_bytes(content)
    assert build.build_index(tmp_path / "copy", plugins).encode() == (root / "leaderboard.json").read_bytes()
    made = {"README.md", "entries.parquet"}
    assert {path: content for path, content in there(hub).items() if path not in made} == state(root)
    assert b"synthetic-00001" in there(hub)["README.md"]
    assert b'"re-run"' in there(hub)["leaderboard.json"]


@pytest.mark.parametrize("target", ["public", f"hf:{NAME}"])
def test_one_changed_digit_keeps_all_from_being_published(
    root: Path, tmp_path: Path, plugins: Registry, hub: Hub, target: str
) -> None:
    file = next((root / "results/digits-eps1").glob("synthetic-00002*"))  # which has no record of a re-run
    content = json.loads(file.read_text(encoding="utf-8"))
    content["seconds"]["fit"] += 0.001
    file.write_text(json.dumps(content), encoding="utf-8")
    target = target if ":" in target else str(tmp_path / target)
    with pytest.raises(
        DataError, match=rf"first of results/digits-eps1/{file.name}: evidence_digest.*Nothing is published"
    ):
        publish(target, root, plugins)
    assert names(tmp_path) == {"leaderboard"}
    assert hub.asked == []


def test_an_index_that_does_not_follow_from_the_results_is_not_published(
    root: Path, tmp_path: Path, plugins: Registry
) -> None:
    for record in root.glob("*/digits-eps1/synthetic-00001*"):
        record.unlink()
    with pytest.raises(
        DataError, match=r"leaderboard\.json does not match the results\. Run `dpbench leaderboard build`"
    ):
        publish(str(tmp_path / "public"), root, plugins)
    assert names(tmp_path) == {"leaderboard"}


@pytest.mark.slow
def test_the_command_lists_what_would_change_and_then_says_what_did(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["leaderboard", "publish", str(tmp_path / "public"), "--no-docs", "--root", str(root)]
    said = []
    for more in (["--dry-run"], [], []):
        assert call(*words, *more) == 0
        printed = capsys.readouterr()
        assert "publish FOLDER is deprecated and will be removed in version 0.4. Use" in printed.err
        said.append(printed.out.splitlines())
    listed, published, again = said
    assert "add index.html" in listed[:-1]
    count = f"{tmp_path / 'public'}: {len(listed) - 1} added, 0 changed, 0 deleted"
    assert [listed[-1], published, again] == [
        f"{count} if published",
        [count],
        [f"{tmp_path / 'public'} is up to date"],
    ]


@pytest.mark.slow
def test_an_interrupted_command_says_what_is_there(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(github_pages, "publish_to_folder", interrupted)
    with pytest.raises(SystemExit, match="130"):
        main(["leaderboard", "publish", str(tmp_path / "public"), "--no-docs", "--root", str(root)])
    assert capsys.readouterr().err.endswith("public contains either the old site or the complete new one.\n")


def test_a_missing_token_is_said_before_anything_is_verified(
    tmp_path: Path, plugins: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with pytest.raises(SpecError, match="HF_TOKEN, got none"):
        publish(f"hf:{NAME}", tmp_path / "nowhere", plugins)


# The card.


def interval(mean: float, half: float) -> Interval:
    return Interval(mean=mean, low=mean - half, high=mean + half)


def entry(board: str, learner: str, rank: int | None = 1) -> Entry:
    return Entry(
        id=f"{learner}-1",
        file=f"results/{board}/{learner}-1.json",
        role="entry" if rank else "unranked",
        rank=rank,
        learner=learner,
        settings={},
        command="dpbench run",
        selection="default",
        tried=None,
        reads="features",
        reads_private=True,
        trust="audited",
        rng="research",
        mechanism=MECHANISM,
        made=Origin(date=None, version=None, commit=None, dirty=None),
        metrics={"accuracy": interval(0.8125, 0.01)},
        class_accuracy=(),
        seeds=5,
        epsilon=0.99999,
        independent=EpsilonInterval("prv", 0.9, 1.0),
        sigma=1.0,
        steps=1,
        seconds=1.0,
        peak_bytes=1,
        plugin=ComponentOrigin(plugin="p", distribution="d", version="1"),
    )


def index(*entries: Entry, title: str = "Digits") -> Index:
    board = Board.read(ROOT / "leaderboard/boards/digits-eps1.toml").model_copy(update={"title": title})
    whole = Standing(
        board=board, digest="0", classes=("a",), private=1, public=1, test=1, licence="", chance=0.1, entries=entries
    )
    return Index(ranking="By mean.", standings=(whole,))


def header(content: bytes) -> dict[str, object]:
    found: dict[str, object] = yaml.safe_load(content.decode().split("---\n")[1])
    return found


def test_the_card_has_the_header_that_the_hub_reads() -> None:
    assert header(make_dataset_card(index(entry("digits-eps1", "pillar")))) == {
        "pretty_name": "dpbench leaderboard",
        "license": "apache-2.0",
        "task_categories": ["image-classification"],
        "size_categories": ["n<1K"],
        "tags": ["dpbench", "leaderboard", "differential-privacy"],
        "configs": [{"config_name": "entries", "data_files": [{"split": "entries", "path": "entries.parquet"}]}],
    }


def test_the_card_shows_a_board_with_its_entries_and_names_one_without() -> None:
    shown = make_dataset_card(index(entry("digits-eps1", "pillar"), entry("digits-eps1", "jl", None))).decode()
    assert "## Digits\n" in shown
    assert (
        "| 1 | pillar | 81.25 ± 1.00 | 1 | audited |  |  |\n| unranked | jl | 81.25 ± 1.00 | 1 | audited |  |  |\n"
        in shown
    )
    disputed = entry("digits-eps1", "pillar").model_copy(update={"status": "disputed"})
    assert "| 1 | pillar | 81.25 ± 1.00 | 1 | disputed |  |  |\n" in make_dataset_card(index(disputed)).decode()
    known = entry("digits-eps1", "jl").model_copy(
        update={"uncorrected_rank": 2, "cpu_seconds": 1.5, "peak_bytes": 10**9}
    )
    assert "| 1 (2) | jl | 81.25 ± 1.00 | 1 | audited | 1.50 | 1.0 GB |\n" in make_dataset_card(index(known)).decode()
    assert "Boards without results yet: `digits-eps1`." in make_dataset_card(index()).decode()


def test_the_card_shows_the_best_that_reads_public_labels_however_many_entries_come_before() -> None:
    readers = [
        entry("digits-eps1", f"reader{place}", place).model_copy(update={"reads": "features and labels"})
        for place in (1, 2, 3)
    ]
    many = [entry("digits-eps1", f"learner{place}", place) for place in range(1, 15)]
    shown = make_dataset_card(index(*many, *readers)).decode()
    assert [name in shown for name in ("learner8", "learner9", "reader1", "reader2", "reader3")] == [
        True, False, True, True, False
    ]  # fmt: skip
    assert "| 1 with labels | reader1 |" in shown and "7 more in `leaderboard.json`" in shown
    assert make_dataset_card(index(*readers)).decode().count("with labels |") == 3


def test_the_card_of_a_large_board_stays_short() -> None:
    shown = make_dataset_card(index(*(entry("digits-eps1", f"learner{place}") for place in range(1000))))
    assert b"990 more in `leaderboard.json`" in shown
    assert len(shown) < 5000
    assert header(shown)["size_categories"] == ["1K<n<10K"]


def test_a_hostile_name_stays_a_name_in_the_card() -> None:
    hostile = "x|y\n---\nlicense: mit\n# <script>alert(1)</script> [a](http://b) `c`"
    shown = make_dataset_card(index(entry("digits-eps1", hostile), title=hostile)).decode()
    assert header(shown.encode())["license"] == "apache-2.0"
    assert "\nlicense: mit" not in shown
    assert "<script>" not in shown.replace("\\<", "")
    assert "[a]" not in shown
