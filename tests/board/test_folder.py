"""Files of strangers: what does not fit is one complaint, never a crash, never a file that costs memory."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dpbench import registry
from dpbench.board import folder
from dpbench.board.folder import ResultFile, locate_result, read_boards, read_json_object
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.review import review_leaderboard
from dpbench.errors import LeaderboardComplaint, MalformedFile, SpecError
from dpbench.records.board import find_board
from dpbench.records.spec import make_spec
from tests.helpers import boards
from tests.helpers.readme import ROOT
from tests.helpers.sessions import session

BOARD = "digits-eps1"


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> ReviewContext:
    return ReviewContext.read(made(tmp_path_factory.mktemp("known")), registry.load())


@pytest.fixture(scope="module")
def good() -> dict[str, Any]:
    (*_, result) = boards.synthetic(find_board(BOARD), 2, seed=0)
    content: dict[str, Any] = json.loads(result.model_dump_json())
    return {**content, "file": result.file_name}


def made(root: Path) -> Path:
    (root / "boards").mkdir(parents=True)
    (root / "results" / BOARD).mkdir(parents=True)
    shutil.copy(ROOT / "leaderboard" / "boards" / f"{BOARD}.toml", root / "boards")
    return root


def filed(root: Path, good: dict[str, Any], **changed: Any) -> Path:
    content = {key: value for key, value in {**good, **changed}.items() if key != "file"}
    if content["evidence_digest"] == good["evidence_digest"]:
        content = boards.resealed(content)
    file = root / "results" / BOARD / str(good["file"])
    file.write_text(json.dumps(content), encoding="utf-8")
    return file


def complaints(root: Path, known: ReviewContext) -> list[LeaderboardComplaint]:
    return list(review_leaderboard(root, known).complaints)


def test_a_good_file_has_no_complaint(tmp_path: Path, known: ReviewContext, good: dict[str, Any]) -> None:
    filed(made(tmp_path), good)
    assert complaints(tmp_path, known) == []


HOSTILE: dict[str, tuple[bytes, str, str]] = {
    "nothing": (b"", "file", "expected JSON"),
    "half": (b'{"digest": "', "file", "expected JSON"),
    "list": (b"[1, 2]", "file", "expected a JSON object, got list"),
    "not text": (b'{"digest": "\xff"}', "file", "expected UTF-8"),
    "NaN": (b'{"metrics": NaN}', "file", "has no NaN"),
    "Infinity": (b'{"metrics": -Infinity}', "file", "has no -Infinity"),
    "overflow": (b'{"seconds": {"fit": 1e999}}', "seconds.fit", "a number below 1e"),
    "long number": (b'{"schema_version": ' + b"9" * 5000 + b"}", "file", "expected JSON"),
    "large number": (b'{"task": [{"test": ' + b"9" * 30 + b"}]}", "task.0.test", "a number below 1e"),
    "large number in a list": (b'{"task": {"test": [1, 2.5, -1e20]}}', "task.test.2", "a number below 1e"),
    "deep": (b'{"spec": ' + b"[" * 500_000 + b"]" * 500_000 + b"}", "file", "got hundreds"),
    "rather deep": (b'{"spec": ' + b"[" * 20 + b"]" * 20 + b"}", "spec.0.0.0.0.0.0.0.0.0.0.0", "at most 12 levels"),
    "long string": (json.dumps({"digest": "a" * 4000}).encode(), "digest", "at most 3,000 characters, got 4,000"),
    "long key": (json.dumps({"spec": {"a" * 4000: 1}}).encode(), "spec.aaaa", "at most 3,000 characters"),
    "10 MB": (json.dumps({"digest": "a" * 10_000_000}).encode(), "file", "at most 2,000,000 bytes, got 10,000,014"),
    "escape codes": (b'{"task": {"licence": "\\u001b[2J"}}', "task.licence", "without control"),
    "right to left": (b'{"task": {"licence": "\\u202egpj.exe"}}', "task.licence", "without control"),
    "half a character": (b'{"task": {"licence": "\\ud800"}}', "task.licence", "without control"),
    "hidden in a key": (b'{"task": {"a\\u202e": 1}}', "task.a\\u202e", "without control"),
    "empty object": (b"{}", "digest", "field required"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_that_is_no_result_is_one_complaint(tmp_path: Path, known: ReviewContext, name: str) -> None:
    raw, field, said = HOSTILE[name]
    (made(tmp_path) / "results" / BOARD / "x.json").write_bytes(raw)
    (found,) = complaints(tmp_path, known)
    assert found.file == f"results/{BOARD}/x.json"
    assert found.field.startswith(field)
    assert said in found.said
    assert len(str(found)) < 1000 and str(found).isprintable()


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"spec": 5}, "spec"),
        ({"leader": True}, "leader"),
        ({"schema_version": 3}, "schema_version"),
        ({"copies_epsilon": "high"}, "copies_epsilon"),
        ({"seconds": {"fit": "NaN"}}, "seconds.fit"),
        ({"seconds": {"fit": -1}}, "seconds.fit"),
        ({"peak_bytes": {"fit": -1}}, "peak_bytes.fit"),
        ({"evidence_digest": ""}, "evidence_digest"),
        ({"evidence_digest": "0" * 64}, "evidence_digest"),
    ],
)
def test_a_field_that_does_not_fit_is_named(
    tmp_path: Path, known: ReviewContext, good: dict[str, Any], change: dict[str, Any], field: str
) -> None:
    filed(made(tmp_path), good, **change)
    assert field in [complaint.field for complaint in complaints(tmp_path, known)]


def test_a_component_without_a_name_is_a_complaint(tmp_path: Path, known: ReviewContext, good: dict[str, Any]) -> None:
    filed(made(tmp_path), good, spec={**good["spec"], "extractor": ""})
    assert any("Expected the name of an extractor" in complaint.said for complaint in complaints(tmp_path, known))


@pytest.mark.parametrize("name", ["../../../evil", "/etc/passwd", "<script>", "a" * 200, "A", ""])
@pytest.mark.parametrize("role", ["learner", "dataset"])
def test_a_name_that_is_no_components_is_refused(
    tmp_path: Path, known: ReviewContext, good: dict[str, Any], role: str, name: str
) -> None:
    spec = {**good["spec"], role: {"name": name, "options": {}}}
    filed(made(tmp_path), good, spec=spec)
    assert f"spec.{role}.name" in [complaint.field for complaint in complaints(tmp_path, known)]


def test_a_result_under_another_name_is_refused(tmp_path: Path, known: ReviewContext, good: dict[str, Any]) -> None:
    file = filed(made(tmp_path), good)
    file.rename(file.with_name("better.json"))
    (found,) = complaints(tmp_path, known)
    assert (found.file, found.field) == (f"results/{BOARD}/better.json", "file")
    assert str(good["file"]) in found.said


def test_a_result_on_another_board_is_refused_key_by_key(
    tmp_path: Path, known: ReviewContext, good: dict[str, Any]
) -> None:
    file = filed(made(tmp_path), good)
    board = known.boards[BOARD].model_copy(update={"epsilon": 2.0, "split_seed": 7})
    other = ReviewContext({BOARD: board}, known.installed)
    found = complaints(tmp_path, other)
    assert [(complaint.file, complaint.field) for complaint in found] == [
        (f"results/{BOARD}/{file.name}", "spec.epsilon"),
        (f"results/{BOARD}/{file.name}", "spec.split_seed"),
    ]


def a_link(place: Path, target: Path) -> None:
    place.symlink_to(target)


def a_pipe(place: Path, target: Path) -> None:
    os.mkfifo(place)


def a_folder(place: Path, target: Path) -> None:
    place.mkdir()


def a_link_to_nothing(place: Path, target: Path) -> None:
    place.symlink_to(target.parent / "absent.json")


@pytest.mark.parametrize("make", [a_link, a_pipe, a_folder, a_link_to_nothing])
def test_only_regular_files_are_read(
    tmp_path: Path, known: ReviewContext, good: dict[str, Any], make: Callable[[Path, Path], None]
) -> None:
    file = filed(made(tmp_path / "root"), good)
    outside = tmp_path / file.name
    file.rename(outside)
    make(file, outside)
    (found,) = complaints(tmp_path / "root", known)
    assert found.field == "file" and "expected a regular file" in found.said


def test_a_folder_that_is_no_board_and_what_is_no_result_are_named(tmp_path: Path, known: ReviewContext) -> None:
    root = made(tmp_path)
    (root / "results" / "no-board").mkdir()
    (root / "results" / "loose.json").touch()
    (root / "results" / BOARD / "script.js").touch()
    (root / "results" / BOARD / ".gitkeep").touch()
    (root / "results" / "link").symlink_to(tmp_path)
    (root / "figures" / "Up").mkdir(parents=True)
    found = [(complaint.file, complaint.said[:14]) for complaint in complaints(root, known)]
    assert found == [
        ("figures/Up", "expected lower"),
        (f"results/{BOARD}/script.js", "expected resul"),
        ("results/link", "expected a fol"),
        ("results/loose.json", "expected a fol"),
        ("results/no-board", "no board is ca"),
    ]


def test_a_result_of_a_figure_is_checked_without_a_board(
    tmp_path: Path, known: ReviewContext, good: dict[str, Any]
) -> None:
    root = made(tmp_path)
    (root / "figures" / "sweep").mkdir(parents=True)
    shutil.move(filed(root, good), root / "figures" / "sweep")
    assert complaints(root, known) == []
    (checked,) = review_leaderboard(root, known).results
    assert checked.stored.board is None


def test_a_figure_whose_seeds_draw_their_own_data_passes_and_its_first_seed_has_the_stated_classes(
    tmp_path: Path, known: ReviewContext
) -> None:
    spec = {"learner": "class-means:k=2", "dataset": "theory-lowrank:n=200,m=30,d=8,k=2,test=200", "seeds": 2}
    with boards.clean_commit():
        result = session().run(make_spec(spec, "the test"))
    there = {max(seed.evidence.class_sizes) for seed in result.seeds if seed.evidence}
    assert len(there) == 2  # the seeds differ
    root = made(tmp_path)
    place = root / "figures" / "sweep" / result.file_name
    place.parent.mkdir(parents=True)
    result.write(place.parent)
    assert complaints(root, known) == []
    content = json.loads(place.read_text(encoding="utf-8"))
    content["task"]["largest"] = 0.9
    place.write_text(json.dumps(boards.resealed(content)), encoding="utf-8")
    assert any("0.9 of the test split in the largest class" in complaint.said for complaint in complaints(root, known))


def test_the_plot_of_a_figure_lies_beside_its_results_and_nothing_else_does(
    tmp_path: Path, known: ReviewContext
) -> None:
    root = made(tmp_path)
    (root / "figures" / "sweep").mkdir(parents=True)
    for name in ("sweep.png", "sweep.svg", "other.png", "sweep.txt"):
        (root / "figures" / "sweep" / name).touch()
    assert [complaint.file for complaint in complaints(root, known)] == [
        "figures/sweep/other.png",
        "figures/sweep/sweep.txt",
    ]


def test_a_file_lies_under_its_board_only_inside_the_leaderboard(tmp_path: Path) -> None:
    inside = tmp_path / "results" / BOARD / "x.json"
    assert locate_result(inside, tmp_path) == ResultFile(inside, f"results/{BOARD}/x.json", BOARD)
    assert locate_result(tmp_path / "x.json", tmp_path / "root").board is None
    assert locate_result(tmp_path / "results" / ".." / BOARD / "x.json", tmp_path).board is None


def test_no_more_of_a_file_is_read_than_it_may_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sparse.json"
    with file.open("wb") as handle:
        handle.truncate(1 << 40)
    with pytest.raises(MalformedFile, match=r"at most 2,000,000 bytes, got 1,099,511,627,776"):
        read_json_object(file)
    monkeypatch.setattr(folder, "MAX_BYTES", 1)
    file.write_text("{}", encoding="utf-8")
    with pytest.raises(MalformedFile, match=r"at most 1 bytes, got 2"):
        read_json_object(file)


def test_a_leaderboard_without_boards_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"Expected boards in .*boards, found none.*--root"):
        read_boards(tmp_path)
