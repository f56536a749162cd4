"""`dpbench leaderboard`: what is printed, what is written, and when it fails."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dpbench import registry
from dpbench.board import build
from dpbench.board.add import _compare_with_nearest_board, find_untraceable_plugins
from dpbench.board.diff import list_changes
from dpbench.board.export import render_leaderboard_csv
from dpbench.board.history import GitHistory
from dpbench.board.index import Index
from dpbench.board.rows import describe_trust
from dpbench.board.verify.expectations import ReviewContext
from dpbench.privacy import MECHANISM
from dpbench.records.board import find_board, list_board_files
from dpbench.records.result import Result
from tests.helpers import boards
from tests.helpers.commands import call

Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = boards.world(tmp_path_factory)
    build.write_index(build.build_index(root, registry.load()), root)
    return root


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world, tmp_path / "leaderboard"))


def ask(*arguments: object) -> int:
    return call("leaderboard", *arguments)


def submit(file: Path, root: Path) -> int:
    return call("verify", "--submission", file, "--root", root)


def test_the_old_name_of_a_check_of_submissions_works_and_names_its_successor(empty: Path, capsys: Captured) -> None:
    assert ask("check", elsewhere(empty, "class-means"), "--root", empty) == 0
    said = capsys.readouterr()
    assert "that it can be submitted to board tiny" in said.out
    assert said.err == (
        "dpbench: dpbench leaderboard check is deprecated and will be removed in version 0.4. Use dpbench verify "
        "--submission.\n"
    )


def change(file: Path, field: str, value: Any, sealed: bool = True) -> None:
    made = boards.edited(json.loads(file.read_text(encoding="utf-8")), field, value)
    file.write_text(json.dumps(boards.resealed(made) if sealed else made), encoding="utf-8")


def test_verify_prints_a_line_a_result_and_a_count(root: Path, capsys: Captured) -> None:
    assert ask("verify", "--root", root) == 0
    lines = capsys.readouterr().out.splitlines()
    names = sorted(file.name for file in (root / "results" / "tiny").iterdir())
    assert lines == [*(f"ok results/tiny/{name}" for name in names), "4 results, 0 failed"]


def test_verify_names_file_and_field_and_fails(root: Path, capsys: Captured) -> None:
    file = boards.file_of(root, "class-means")
    change(file, "privacy.epsilon", 0.5, sealed=False)
    (root / "results" / "tiny" / "notes.txt").touch()
    assert ask("verify", "--root", root) == 1
    lines = capsys.readouterr().out.splitlines()
    (failed,) = [line for line in lines if line.startswith(f"FAILED results/tiny/{file.name}: ")]
    assert "evidence_digest: changed after the file was written" in failed
    assert "FAILED results/tiny/notes.txt: file: expected results alone" in lines[-2]
    assert lines[-1] == "4 results, 1 failed; 1 other file failed"


def test_verify_of_one_file_looks_at_that_alone(root: Path, tmp_path: Path, capsys: Captured) -> None:
    change(boards.file_of(root, "pillar"), "privacy.epsilon", 0.5)
    assert ask("verify", "--root", root, boards.file_of(root, "class-means")) == 0
    elsewhere = Path(shutil.copy(boards.file_of(root, "pillar"), tmp_path))
    assert ask("verify", "--root", root, elsewhere) == 1
    assert f"FAILED {elsewhere}: privacy.epsilon: expected 0.99" in capsys.readouterr().out


def test_verify_holds_a_file_under_a_board_against_that_board(root: Path, capsys: Captured) -> None:
    (root / "results" / "tiny-2").mkdir()
    moved = shutil.move(boards.file_of(root, "class-means"), root / "results" / "tiny-2")
    assert ask("verify", "--root", root, moved) == 1
    assert "spec.epsilon: expected 2.0, as board tiny-2, got 1.0" in capsys.readouterr().out


def test_verify_finds_the_board_however_the_path_is_spelled(root: Path, capsys: Captured) -> None:
    (root / "results" / "tiny-2").mkdir()
    moved = Path(shutil.move(boards.file_of(root, "class-means"), root / "results" / "tiny-2"))
    assert ask("verify", "--root", root, root / "boards" / ".." / "results" / "tiny-2" / moved.name) == 1
    assert "as board tiny-2, got 1.0" in capsys.readouterr().out
    assert ask("verify", "--root", root, shutil.copy(boards.file_of(root, "pillar"), root.parent)) == 0
    assert "(no board: there is no protocol to compare it with)" in capsys.readouterr().out


def test_a_root_that_is_no_leaderboard_is_one_sentence(root: Path, tmp_path: Path, capsys: Captured) -> None:
    shutil.rmtree(root / "results")
    (root / "results").touch()
    assert ask("verify", "--root", root) == 1
    assert "to be a folder that can be read: Not a directory" in capsys.readouterr().err
    (root / "results").unlink()
    assert ask("verify", "--root", root) == 0
    assert "There are no results in" in capsys.readouterr().out


def test_where_the_page_goes_is_not_asked_where_none_is_made(root: Path, capsys: Captured) -> None:
    assert ask("build", "--check", "--site", "x", "--root", root) == 1
    assert "Use only one of them" in capsys.readouterr().err


def test_verify_prints_nothing_that_moves_a_terminal(root: Path, capsys: Captured) -> None:
    change(boards.file_of(root, "class-means"), "selection", "\x1b[2J\x1b]0;title\x07")
    assert ask("verify", "--root", root) == 1
    assert capsys.readouterr().out.replace("\n", "").isprintable()


def record_of(root: Path, file: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / "reruns" / "tiny" / file.name).read_text(encoding="utf-8"))
    return found


def test_a_quick_look_keeps_a_record_and_nothing_calls_it_reproduced(root: Path, capsys: Captured) -> None:
    file = boards.file_of(root, "class-means")
    assert ask("verify", "--rerun", "--seed", 1, "--device", "cpu", "--root", root, file) == 0
    said = capsys.readouterr().out
    assert f"ok results/tiny/{file.name}; seed 1: same predictions, accuracy 0." in said
    assert "(a quick look at 1 of 2 seeds)" in said and "reproduced" not in said
    assert [(seed["seed"], seed["outcome"]) for seed in record_of(root, file)["seeds"]] == [(1, "same predictions")]
    assert ask("verify", "--root", root) == 0
    (tiny,) = [
        standing for standing in build.build_index(root, registry.load()).standings if standing.board.name == "tiny"
    ]
    (entry,) = [entry for entry in tiny.entries if entry.learner == "class-means"]
    assert (entry.trust, entry.reproduced, describe_trust(entry)) == ("re-run", False, "1 of 2 seeds re-run")
    assert "scores" in entry.author_word


def test_rerun_takes_all_seeds_and_its_record_says_which_where_and_by_whom(root: Path, capsys: Captured) -> None:
    file = boards.file_of(root, "class-means")
    assert ask("verify", "--rerun", "--by", "A Maintainer", "--device", "cpu", "--root", root, file) == 0
    assert f"ok results/tiny/{file.name}; reproduced, 2 seeds: same predictions, accuracy 0." in capsys.readouterr().out
    record = record_of(root, file)
    assert ([seed["seed"] for seed in record["seeds"]], record["by"]) == ([0, 1], "A Maintainer")
    assert record["provenance"].keys() >= {"processor", "cores", "commit", "code"}
    assert {claim["claim"] for claim in record["claims"]} >= {"privacy.plan", "task.overlap", "selection"}
    assert {claim["verdict"] for claim in record["claims"]} == {"same"}
    assert ask("verify", "--rerun", "--seed", 1, "--device", "cpu", "--root", root, file) == 0
    assert record_of(root, file) == record  # a quick look that agrees takes nothing away


def test_rerun_says_what_it_costs_before_it_starts(root: Path, capsys: Captured) -> None:
    file = boards.file_of(root, "class-means")
    change(file, "components.learner", {"plugin": "x", "distribution": "dpbench-x", "version": "1"})  # not run here
    change(file, "seconds", {"load": 60.0, "fit": 600.0, "score": 60.0, "tune": 3600.0})
    assert ask("verify", "--rerun", "--root", root, file) == 1
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert first.startswith("Re-running 2 seeds and 5 challenge seeds of 1 result: about 39 min 30 s and ")
    assert second.startswith(f"not run results/tiny/{file.name}: ")
    assert ask("verify", "--rerun", "--seed", 0, "--root", root, file) == 1
    assert "Re-running 1 seed of 1 result: about 6 min 30 s and " in capsys.readouterr().out


def test_rerun_fails_where_predictions_differ(root: Path, capsys: Captured) -> None:
    source = json.loads(boards.file_of(root, "public-only").read_text(encoding="utf-8"))
    file = boards.file_of(root, "class-means")
    spent = json.loads(file.read_text(encoding="utf-8"))["seeds"][0]["spent"]
    change(file, "seeds", [{**seed, "spent": spent} for seed in source["seeds"]])
    assert ask("verify", "--root", root, file) == 0
    assert ask("verify", "--rerun", "--device", "cpu", "--root", root, file) == 1
    assert f"FAILED results/tiny/{file.name}: seeds: seed 0: differs" in capsys.readouterr().out
    assert ask("verify", "--root", root) == 1


def test_rerun_meets_scores_that_were_forged_under_the_true_predictions(root: Path, capsys: Captured) -> None:
    file = boards.file_of(root, "class-means")
    made = json.loads(file.read_text(encoding="utf-8"))
    better = json.loads(boards.file_of(root, "non-private").read_text(encoding="utf-8"))["seeds"]
    seeds = [
        {**other, "spent": seed["spent"], "predictions": seed["predictions"]}
        for seed, other in zip(made["seeds"], better, strict=True)
    ]
    for seed in seeds[1:]:  # the same guesses of two seeds would be found at once
        seed["predictions"] = made["seeds"][1]["predictions"]
    change(file, "seeds", seeds)
    assert ask("verify", "--root", root, file) == 0
    assert ask("verify", "--rerun", "--device", "cpu", "--root", root, file) == 1
    assert "seed 1: differs" in capsys.readouterr().out


def test_rerun_of_what_is_not_installed_is_not_ok(root: Path, capsys: Captured) -> None:
    file = boards.file_of(root, "class-means")
    change(file, "components.learner", {"plugin": "x", "distribution": "dpbench-x", "version": "1"})
    assert ask("verify", "--rerun", "--root", root, file) == 1
    said = capsys.readouterr().out
    assert f"not run results/tiny/{file.name}: dpbench-x 1 brings learner 'class-means'; here dpbench-vision" in said
    assert said.endswith("1 result, 0 failed, 1 not run\n") and "\nok " not in said
    assert not (root / "reruns").exists()


def test_a_result_of_the_code_before_is_checked_and_said_to_be_one_and_not_run_again(
    root: Path, capsys: Captured
) -> None:
    file = boards.file_of(root, "class-means")
    made = json.loads(file.read_text())
    made["privacy"]["mechanism"] = "exact-sums-0"
    file.write_text(json.dumps(boards.resealed(made)))
    assert ask("verify", "--root", root, file) == 0
    assert f"ok results/tiny/{file.name} (made by code from before {MECHANISM})" in capsys.readouterr().out
    assert ask("verify", "--rerun", "--root", root, file) == 1
    said = f"not run results/tiny/{file.name}: It was made by the code before {MECHANISM} (exact-sums-0)"
    assert said in capsys.readouterr().out
    assert not (root / "reruns").exists()


def test_a_seed_without_rerun_is_one_sentence(root: Path, capsys: Captured) -> None:
    assert ask("verify", "--seed", 1, "--root", root) == 1
    assert "add --rerun" in capsys.readouterr().err


def test_build_writes_index_and_schema_and_check_holds_them_against_results(root: Path, capsys: Captured) -> None:
    (root / build.INDEX).unlink()
    assert ask("build", "--check", "--root", root) == 1
    assert "Run dpbench leaderboard build" in capsys.readouterr().err
    assert ask("build", "--no-site", "--root", root) == 0
    assert "leaderboard.json: 4 results on 2 boards" in capsys.readouterr().out
    assert sorted(file.name for file in root.glob("*.json")) == [build.INDEX, build.SCHEMA]
    assert ask("build", "--check", "--root", root) == 0
    (root / build.INDEX).write_bytes((root / build.INDEX).read_bytes().replace(b"0.8", b"0.9", 1))
    assert ask("build", "--check", "--root", root) == 1


@pytest.mark.slow
def test_build_makes_the_page_beside_unless_told_where(root: Path, tmp_path: Path) -> None:
    assert ask("build", "--no-docs", "--root", root) == 0
    assert (root / "site" / "index.html").is_file()
    assert ask("build", "--no-docs", "--site", tmp_path / "page", "--root", root) == 0
    assert (tmp_path / "page" / "index.html").read_bytes() == (root / "site" / "index.html").read_bytes()


def test_build_refuses_what_fails_and_leaves_what_was_built(root: Path, capsys: Captured) -> None:
    before = (root / build.INDEX).read_bytes()
    change(boards.file_of(root, "class-means"), "provenance.dirty", True)
    assert ask("build", "--no-site", "--root", root) == 1
    assert "Nothing is built: 1 complaint(s)" in capsys.readouterr().err
    assert (root / build.INDEX).read_bytes() == before


@pytest.fixture
def empty(root: Path) -> Path:
    """The same boards without results, beside a folder of results."""
    shutil.move(root / "results", root.parent / "elsewhere")
    (root / build.INDEX).unlink()
    return root


def elsewhere(root: Path, learner: str) -> Path:
    (file,) = (root.parent / "elsewhere" / "tiny").glob(f"{learner}-*.json")
    return file


def test_add_files_a_result_as_submitted_under_its_board(empty: Path, capsys: Captured) -> None:
    file = elsewhere(empty, "class-means")
    assert ask("add", file, "--root", empty) == 0
    filed = boards.file_of(empty, "class-means")
    assert capsys.readouterr().out == f"{file}: filed as {filed}\n"
    assert Result.read(filed).status == "submitted"
    assert not (empty / "results" / "tiny-2").exists()
    assert ask("verify", "--root", empty) == 0
    assert ask("add", file, "--root", empty) == 0
    assert "already filed as" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("status", "withdrawn", "status: expected submitted, got withdrawn"),
        ("provenance.commit", "f" * 40, f"provenance.commit: expected a published commit of dpbench, got {'f' * 40}"),
        ("provenance.date", "2099-01-01", "provenance.date: expected a day that has come, got '2099-01-01'"),
    ],
)
def test_check_names_what_a_submission_may_not_state(
    empty: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, field: str, value: str, said: str
) -> None:
    monkeypatch.setattr(GitHistory, "open", lambda folder: GitHistory(folder, boards.COMMIT, boards.COMMIT))
    monkeypatch.setattr(GitHistory, "has_commit", lambda self, commit: commit == boards.COMMIT)
    file = elsewhere(empty, "class-means")
    change(file, field, value)
    assert [submit(file, empty), ask("add", file, "--root", empty)] == [1, 1]
    found = capsys.readouterr()
    assert said in found.out and said in found.err
    assert not list((empty / "results").rglob("*.json"))


def test_check_does_not_look_for_commits_in_a_repository_that_holds_an_installed_dpbench(
    empty: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    installed = tmp_path / "project" / "site-packages" / "dpbench"
    installed.mkdir(parents=True)
    git = ("git", "-C", str(tmp_path / "project"), "-c", "user.name=t", "-c", "user.email=t@localhost")
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "first"], check=True)
    monkeypatch.setattr("dpbench.board.add.PACKAGE", installed)
    file = elsewhere(empty, "class-means")
    change(file, "provenance.commit", "f" * 40)
    assert submit(file, empty) == 0
    assert "provenance.commit" not in capsys.readouterr().out


def test_check_refuses_a_key_that_stands_twice(empty: Path, capsys: Captured) -> None:
    file = elsewhere(empty, "class-means")
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace('"status"', '"status": "submitted", "status"', 1), encoding="utf-8")
    assert submit(file, empty) == 1
    assert "file: expected each key once, got 'status' twice" in capsys.readouterr().out


def test_add_files_the_ceiling_under_boards_of_every_epsilon(empty: Path) -> None:
    assert ask("add", elsewhere(empty, "non-private"), "--root", empty) == 0
    assert boards.file_of(empty, "non-private", "tiny").read_bytes() == (
        boards.file_of(empty, "non-private", "tiny-2").read_bytes()
    )
    assert ask("verify", "--root", empty) == 0


def test_add_refuses_another_result_of_the_same_spec(empty: Path, capsys: Captured) -> None:
    file = elsewhere(empty, "class-means")
    assert ask("add", file, "--root", empty) == 0
    change(file, "seconds.fit", 0.125)
    assert ask("add", file, "--root", empty) == 1
    assert "already holds another result with the same spec" in capsys.readouterr().err
    assert submit(file, empty) == 0
    assert (
        f"to board tiny; results/tiny/{file.name} already holds another result with the same spec. Use --replace"
        in (capsys.readouterr().out)
    )


def test_add_refuses_two_results_of_one_spec_at_once(empty: Path, tmp_path: Path, capsys: Captured) -> None:
    file = elsewhere(empty, "class-means")
    other = Path(shutil.copy(file, tmp_path / file.name))
    assert ask("add", file, other, "--root", empty) == 0
    change(other, "seconds.fit", 0.125)
    boards.file_of(empty, "class-means").unlink()
    assert ask("add", file, other, "--root", empty) == 1
    assert f"it and {file} are different results with the same spec" in capsys.readouterr().err
    assert not list((empty / "results").rglob("*.json"))


def test_what_replaces_a_result_takes_its_audit_and_its_run_again_away(empty: Path, capsys: Captured) -> None:
    file = elsewhere(empty, "class-means")
    assert ask("add", file, "--root", empty) == 0
    records = [empty / folder / "tiny" / file.name for folder in ("audits", "released", "reruns", "challenges")]
    for record in records:
        record.parent.mkdir(parents=True)
        record.write_text("{}", encoding="utf-8")
    assert ask("add", file, "--root", empty, "--replace") == 0
    assert all(record.exists() for record in records)  # the same result: nothing is replaced
    change(file, "seconds.fit", 0.125)
    capsys.readouterr()
    assert ask("add", file, "--root", empty, "--replace") == 0
    said = capsys.readouterr().out
    assert all(f"removed {record}, which belongs to the replaced result" in said for record in records)
    assert not any(record.exists() for record in records)
    assert ask("build", "--no-site", "--root", empty) == 0


def test_a_plugin_whose_code_nobody_finds_is_said(tmp_path: Path, capsys: Captured) -> None:
    *_, result = boards.synthetic(find_board("digits-eps1"), 2, seed=0)
    result = result.model_copy(update={"provenance": {**result.provenance, "sources": {}}})
    (file,) = boards.write([result], tmp_path / "results")
    (tmp_path / "boards").mkdir()
    shutil.copy(list_board_files()["digits-eps1"], tmp_path / "boards")
    assert submit(file, tmp_path) == 0
    said = "the code of plugin 'synthetic' (dpbench-synthetic 1.0) cannot be found, unless a package index has it"
    assert said in capsys.readouterr().out
    noted = {"dpbench-synthetic": {"repository": "https://a.example/b", "commit": "1" * 40, "dirty": False}}
    assert (
        find_untraceable_plugins(result.model_copy(update={"provenance": {**result.provenance, "sources": noted}}))
        == []
    )


def test_of_boards_from_which_as_much_departs_the_nearest_has_the_nearest_epsilon(empty: Path) -> None:
    result = Result.read(elsewhere(empty, "class-means"))
    known = ReviewContext.read(empty, registry.load())
    board = known.boards["tiny"]
    far, near = (board.model_copy(update={"epsilon": times * result.spec.epsilon}) for times in (0.01, 3.0))
    said = [
        words for _, words in _compare_with_nearest_board(result, replace(known, boards={"far": far, "near": near}))
    ]
    assert said
    assert all("as on the nearest board, near" in words for words in said)


def test_add_says_which_keys_miss_on_the_nearest_board(empty: Path, capsys: Captured) -> None:
    file = elsewhere(empty, "class-means")
    made = boards.resealed(boards.edited(json.loads(file.read_text(encoding="utf-8")), "spec.split_seed", 3))
    other = file.with_name(Result.model_validate(made).file_name)
    other.write_text(json.dumps(made), encoding="utf-8")
    assert ask("add", other, "--root", empty) == 1
    assert (
        "spec.split_seed: expected 0, as on the nearest board, tiny, got 3: it matches no board. "
        "Run it with --board tiny" in capsys.readouterr().err
    )


def test_add_files_nothing_where_one_of_several_fails(empty: Path, capsys: Captured) -> None:
    change(elsewhere(empty, "pillar"), "privacy.sigma", 1.0)
    files = [elsewhere(empty, learner) for learner in ("class-means", "pillar")]
    assert ask("add", *files, "--root", empty) == 1
    assert "Nothing is added" in capsys.readouterr().err
    assert not (empty / "results").exists()


def test_add_holds_a_result_against_others_of_its_board(empty: Path, capsys: Captured) -> None:
    assert ask("add", elsewhere(empty, "class-means"), "--root", empty) == 0
    change(elsewhere(empty, "public-only"), "task.digests.private", "e" * 64)
    assert ask("add", elsewhere(empty, "public-only"), "--root", empty) == 1
    assert "task.digests: expected" in capsys.readouterr().err


def test_add_holds_results_of_one_call_against_each_other(empty: Path, capsys: Captured) -> None:
    change(elsewhere(empty, "public-only"), "task.digests.private", "e" * 64)
    files = [elsewhere(empty, learner) for learner in ("class-means", "public-only")]
    for command in (("leaderboard", "add"), ("verify", "--submission")):
        assert call(*command, *files, "--root", empty) == 1
        assert "task.digests: expected" in "".join(capsys.readouterr())
    assert not (empty / "results").exists()


def test_add_never_writes_outside_the_leaderboard(empty: Path, tmp_path: Path) -> None:
    before = {file for file in tmp_path.rglob("*") if empty not in file.parents}
    file = elsewhere(empty, "class-means")
    change(file, "spec.learner.name", "../../../evil")
    assert ask("add", file, "--root", empty) == 1
    assert {file for file in tmp_path.rglob("*") if empty not in file.parents} == before
    assert not (empty / "results").exists()


def test_diff_shows_what_came_went_and_moved(root: Path, capsys: Captured) -> None:
    before = root.parent / "before.json"
    shutil.copy(root / build.INDEX, before)
    gone = boards.file_of(root, "public-only")
    gone.unlink()
    better = Result.read(boards.file_of(root, "pillar"))
    assert ask("build", "--no-site", "--root", root) == 0
    capsys.readouterr()
    assert ask("diff", before, root / build.INDEX) == 0
    said = capsys.readouterr()
    replacement = re.search(r"will be removed in version 0\.4\. Use (git diff --no-index) OLD NEW", said.err)
    assert replacement is not None
    shown = subprocess.run([*replacement[1].split(), before, root / build.INDEX], capture_output=True, check=False)
    removed = [line for line in shown.stdout.decode().splitlines() if line.startswith("-")]
    assert shown.returncode == 1 and any(f'"id": "{gone.stem}"' in line for line in removed)
    lines = said.out.splitlines()
    assert any(line.startswith(f"removed  tiny: public-only ({gone.stem}), 0.") for line in lines)
    assert not any(better.digest[:8] in line for line in lines)
    assert ask("diff", root / build.INDEX, before, "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert ("added", "public-only", None) in [(change["what"], change["learner"], change["before"]) for change in found]
    assert ask("diff", before, before) == 0
    assert capsys.readouterr().out == "0 changes\n"


def test_a_changed_mean_and_rank_are_told_with_both_values(root: Path) -> None:
    before = Index.read(root / build.INDEX)
    made = json.loads((root / build.INDEX).read_text(encoding="utf-8"))
    (tiny,) = [standing for standing in made["standings"] if standing["board"]["name"] == "tiny"]
    tiny["entries"][0]["metrics"]["accuracy"]["mean"] = 0.125
    tiny["entries"][0]["rank"] = 7
    name = tiny["entries"][0]["learner"]
    found = list_changes(before, Index.model_validate(made))
    assert [(change.what, change.learner, change.after) for change in found] == [
        ("mean", name, 0.125),
        ("rank", name, 7),
    ]
    assert str(found[1]).endswith(": 1 -> 7")


def test_export_is_one_row_an_entry_at_full_precision(root: Path, tmp_path: Path, capsys: Captured) -> None:
    assert ask("export", "--csv", "-", "--root", root) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert len(rows) == len(boards.LEARNERS)
    for row in rows:
        result = Result.read(root / row["file"])
        assert float(row["accuracy"]) == result.metrics["accuracy"].mean
        assert float(row["sigma"]) == result.privacy.sigma
        assert (row["board"], row["learner"]) == ("tiny", result.spec.learner.name)
    assert ask("export", "--csv", tmp_path / "out.csv", "--root", root) == 0
    assert len(list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text(encoding="utf-8"))))) == len(rows)


def test_export_writes_every_format_that_is_asked_for(root: Path, tmp_path: Path, capsys: Captured) -> None:
    wanted = ["--parquet", tmp_path / "out.parquet", "--every-eval-ever", tmp_path / "eee", "--eval-results"]
    assert ask("export", *wanted, tmp_path / "hub", "--repository", "owner/board", "--root", root) == 0
    files = [file for file in tmp_path.rglob("*") if file.is_file() and not file.is_relative_to(root)]
    assert capsys.readouterr().out == f"Wrote {len(files)} files\n"
    assert {file.relative_to(tmp_path).parts[0] for file in files} == {"out.parquet", "eee", "hub"}


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "Expected a format to export to: --csv, "),
        (["--eval-results", "x"], "--eval-results and --repository need each other"),
        (["--csv", "-", "--repository", "a/b"], "--eval-results and --repository need each other"),
        (["--eval-results", "x", "--repository", "../b"], "Expected --repository to be OWNER/NAME, got '../b'"),
    ],
)
def test_export_refuses_what_it_cannot_export_to(root: Path, capsys: Captured, flags: list[str], said: str) -> None:
    assert ask("export", *flags, "--root", root) == 1
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ['=HYPERLINK("x")', "+1", "-1", "@SUM(A1)", "a,b\n=c"])
def test_a_strangers_text_is_no_formula_and_no_row_of_its_own(root: Path, text: str) -> None:
    made = json.loads((root / build.INDEX).read_text(encoding="utf-8"))
    (tiny,) = [standing for standing in made["standings"] if standing["board"]["name"] == "tiny"]
    tiny["entries"][0]["plugin"]["plugin"] = text
    rows = list(csv.DictReader(io.StringIO(render_leaderboard_csv(Index.model_validate(made)))))
    assert len(rows) == len(boards.LEARNERS)
    assert rows[0]["plugin"] == (text if text.startswith("a") else f"'{text}")
    assert rows[0]["accuracy"].startswith("0.")


def test_a_leaderboard_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: Captured) -> None:
    for command in (
        ["verify"],
        ["build"],
        ["export", "--csv", "-"],
        ["diff", tmp_path / "a.json", tmp_path / "b.json"],
    ):
        root = [] if command[0] == "diff" else ["--root", tmp_path]
        assert ask(*command, *root) == 1
        said = capsys.readouterr()
        assert said.err.startswith("dpbench: ") and said.err.count("\n") == 1
