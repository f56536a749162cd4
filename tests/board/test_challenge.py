"""Challenge seeds of a leaderboard: how they are run and checked, and when a board is ranked by them."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpbench import registry
from dpbench.board import build
from dpbench.board.folder import locate_result
from dpbench.board.index import Entry, Standing
from dpbench.board.verify import challenge_record
from dpbench.board.verify.challenge_record import (
    MISS_RATE,
    FiledResult,
    challenge_path,
    find_challenge_complaints,
    prediction_interval_half_width,
    run_challenge,
)
from dpbench.cli import main
from dpbench.errors import NotReproducible
from dpbench.records.challenge import derive_challenge_seeds
from dpbench.records.checksums import compute_seal
from dpbench.records.result import Result
from dpbench.registry import Registry
from tests.helpers import boards
from tests.helpers.sessions import session

LEARNER = "class-means"
pytestmark = pytest.mark.usefixtures("clean_commit")


def git(folder: Path, *words: str) -> str:
    who = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    return subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


def challenge(root: Path, learner: str = LEARNER) -> Path:
    filed = filed_result(root, learner)
    return run_challenge(filed, root, session(registry.load()), "the test").write_to(challenge_path(filed.stored, root))


def filed_result(root: Path, learner: str = LEARNER) -> FiledResult:
    file = boards.file_of(root, learner)
    return FiledResult(locate_result(file, root), Result.read(file), "accuracy")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, clean_commit: None) -> Path:
    """A leaderboard in a repository, whose ranked entry was reproduced and has challenge seeds."""
    root = boards.proven(tmp_path_factory)
    git(root.parent, "init", "-q")
    git(root.parent, "add", "-A")
    git(root.parent, "commit", "-qm", "file")
    challenge(root)
    return root


@pytest.fixture
def root(world: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(world.parent, tmp_path / "repository")) / "leaderboard"


def tiny(root: Path, plugins: Registry) -> Standing:
    index = build.build_index(root, plugins)
    return next(standing for standing in index.standings if standing.board.name == "tiny")


def entry_of(standing: Standing, learner: str = LEARNER) -> Entry:
    return next(entry for entry in standing.entries if entry.learner == learner)


def change(root: Path, field: str, value: Any) -> None:
    file = challenge_path(filed_result(root).stored, root)
    made = boards.edited(json.loads(file.read_text(encoding="utf-8")), field, value)
    file.write_text(json.dumps({**made, "seal": compute_seal(made)}), encoding="utf-8")


def test_a_board_is_ranked_by_challenge_seeds_once_all_its_reproduced_entries_have_them(
    root: Path, plugins: Registry
) -> None:
    standing = tiny(root, plugins)
    entry, record = entry_of(standing), json.loads(challenge_path(filed_result(root).stored, root).read_text())
    assert (standing.scored, entry.scored, entry.rank) == ("challenge seeds", "challenge seeds", 1)
    assert entry.challenge is not None and entry.metrics["accuracy"] == entry.challenge.score
    assert entry.challenge.submitter == filed_result(root).result.metrics["accuracy"] != entry.challenge.score
    assert entry.challenge.seeds == tuple(seed["seed"] for seed in record["seeds"])
    assert (entry.seeds, entry.challenge.by, entry.trust) == (5, "the test", "audited")
    gap = standing.gap
    challenge_path(filed_result(root).stored, root).unlink()
    standing = tiny(root, plugins)
    assert gap is not None and standing.gap is not None  # five challenge seeds, and two of the submitter
    assert standing.gap.low / gap.low == pytest.approx((5 / 2) ** 0.5, rel=1e-3)
    assert standing.scored == entry_of(standing).scored == "seeds chosen by the submitter"
    assert entry_of(standing).metrics["accuracy"] == filed_result(root).result.metrics["accuracy"]


def test_a_submission_cannot_move_a_board_back_to_seeds_that_somebody_chose(root: Path, plugins: Registry) -> None:
    boards.enter(root, "thrift")  # filed, and neither re-run nor challenged
    standing = tiny(root, plugins)
    assert (standing.scored, entry_of(standing).rank) == ("challenge seeds", 1)
    new = entry_of(standing, "thrift")
    assert (new.role, new.rank, new.why) == ("unranked", None, "its challenge seeds have not been run yet")


def test_a_record_is_checked_in_a_clone_without_history_too(root: Path, plugins: Registry) -> None:
    shutil.rmtree(root.parent / ".git")
    assert find_challenge_complaints([filed_result(root)], root) == []
    change(root, "commit", "0" * 40)
    (found,) = find_challenge_complaints([filed_result(root)], root)
    assert found.field == "seeds" and "which follow from the result and the commit that filed it" in found.said


def other_commit(root: Path) -> None:
    """Derive seeds from a commit of the history that does not file the result."""
    git(root.parent, "commit", "--allow-empty", "-qm", "other")
    commit = git(root.parent, "rev-parse", "HEAD")
    change(root, "commit", commit)
    for place, seed in enumerate(derive_challenge_seeds(filed_result(root).result.evidence_digest, commit)):
        change(root, f"seeds.{place}.seed", seed)


@pytest.mark.parametrize(
    ("forge", "field", "said"),
    [
        (lambda root: change(root, "seeds.0.seed", 7), "seeds", "which follow from the result"),
        (other_commit, "commit", "commit of this history that has the result"),
        (lambda root: change(root, "seeds.0.correct", "AAAA"), "seeds.2.correct", "expected 45 bytes"),
        (lambda root: change(root, "seeds.0.spent", {}), "seeds.2.spent", "as planned"),
        (lambda root: change(root, "digest", "0" * 64), "digest", "of another result"),
        (lambda root: change(root, "replaced", ["0" * 64]), "replaced", "expected the 0 other results"),
        (lambda root: change(root, "seeds", lambda seeds: seeds[:4]), "seeds", "at least 5"),
    ],
    ids=["seed", "commit", "answers", "steps", "result", "replaced", "dropped"],
)
def test_a_record_that_does_not_follow_is_named(
    root: Path, plugins: Registry, forge: Callable[[Path], None], field: str, said: str
) -> None:
    forge(root)
    found = find_challenge_complaints([filed_result(root)], root)
    assert field in [complaint.field for complaint in found]
    assert said in "; ".join(complaint.said for complaint in found)
    assert {complaint.file for complaint in found} == {f"challenges/tiny/{filed_result(root).stored.path.name}"}


def test_a_record_that_was_changed_is_named_and_one_of_an_earlier_result_is_left_alone(root: Path) -> None:
    file = challenge_path(filed_result(root).stored, root)
    file.write_text(file.read_text(encoding="utf-8").replace("the test", "another"), encoding="utf-8")
    assert [complaint.field for complaint in find_challenge_complaints([filed_result(root)], root)] == ["seal"]
    change(root, "content", "0" * 64)
    assert find_challenge_complaints([filed_result(root)], root) == []


def test_the_record_of_another_result_in_its_place_is_named(root: Path) -> None:
    """Left alone, it would hide the packed record, and the board would go back to the submitters' seeds."""
    change(root, "digest", "0" * 64)
    change(root, "content", "0" * 64)
    (found,) = find_challenge_complaints([filed_result(root)], root)
    assert (found.field, found.said) == ("digest", "the record is of another result: remove it")


def test_seeds_that_were_chosen_for_their_scores_are_named(root: Path) -> None:
    record = json.loads(challenge_path(filed_result(root).stored, root).read_text(encoding="utf-8"))
    content, filed = json.loads(boards.file_of(root, LEARNER).read_text(encoding="utf-8")), filed_result(root)
    right = base64.b64encode(np.packbits(np.ones(filed.result.task.test, bool)).tobytes()).decode()
    plain = [{name: value for name, value in seed.items() if name != "calibration"} for seed in content["seeds"]]
    seeds = [{**seed, "correct": right, "confusion": perfect(seed["confusion"])} for seed in plain]
    lucky = boards.result_of({**content, "seeds": seeds})  # a score that no fresh seed has
    fresh = derive_challenge_seeds(lucky.evidence_digest, record["commit"])
    record |= {
        "content": lucky.evidence_digest,
        "seeds": [{**fit, "seed": seed} for fit, seed in zip(record["seeds"], fresh, strict=True)],
    }
    shutil.rmtree(root.parent / ".git")
    challenge_path(filed.stored, root).write_text(json.dumps({**record, "seal": compute_seal(record)}))
    (found,) = find_challenge_complaints([FiledResult(filed.stored, lucky, "accuracy")], root)
    assert f"{LEARNER} has accuracy 1.0000 with the submitter's seeds" in found.said
    disputed = lucky.model_copy(update={"status": "disputed"})
    assert find_challenge_complaints([FiledResult(filed.stored, disputed, "accuracy")], root) == []


@pytest.mark.parametrize(("fresh", "named"), [([0.807] * 5, False), ([0.815] * 5, True), ([0.806, *[0.807] * 4], True)])
def test_a_score_that_no_seed_moves_may_differ_as_between_machines(
    root: Path, monkeypatch: pytest.MonkeyPatch, fresh: list[float], named: bool
) -> None:
    monkeypatch.setattr(challenge_record, "_collect_seed_scores", lambda *_: ([0.8] * 5, fresh))
    complaints = find_challenge_complaints([filed_result(root)], root)
    assert [complaint.field for complaint in complaints] == ["seeds"] * named


def perfect(confusion: list[str]) -> list[str]:
    """Return a confusion matrix with every example of a class on the diagonal."""
    counts = [[int(count) for count in line.split()] for line in confusion]
    return [
        " ".join(str(sum(row) if place == label else 0) for place in range(len(row)))
        for label, row in enumerate(counts)
    ]


def test_honest_seeds_are_named_about_as_rarely_as_stated() -> None:
    chance, named = np.random.default_rng(0), 0
    for _ in range(20_000):
        own, fresh = chance.normal(size=(2, 5))
        named += bool(abs(own.mean() - fresh.mean()) > prediction_interval_half_width(own.tolist(), fresh.tolist(), 1))
    assert named / 20_000 == pytest.approx(MISS_RATE, abs=0.003)


def test_what_has_no_filing_commit_has_no_challenge_seeds(root: Path) -> None:
    boards.enter(root, "thrift")
    with pytest.raises(NotReproducible, match="No commit of the published main line has it"):
        challenge(root, "thrift")
    shutil.rmtree(root.parent / ".git")
    with pytest.raises(NotReproducible, match="has no whole git history"):
        challenge(root)


def test_the_command_runs_what_lacks_a_record_and_says_what_it_could_not_run(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    challenge_path(filed_result(root).stored, root).unlink()
    for learner in ("pillar", "non-private"):  # two filed results and one that is not show what a command does with all
        boards.file_of(root, learner).unlink()
    boards.enter(root, "thrift")
    command = ["leaderboard", "challenge", "tiny", "--root", str(root), "--device", "cpu"]
    with pytest.raises(SystemExit) as ended:
        main(command)
    said = capsys.readouterr().out
    assert ended.value.code == 1
    assert said.startswith("Running 15 challenge seeds of 3 results: about ")
    assert "with challenge seeds, " in said and "not run results/tiny/thrift-digits-" in said
    assert said.endswith("3 results, 0 had a record, 1 not run\n")
    with pytest.raises(SystemExit):
        main(command)
    assert capsys.readouterr().out.endswith("3 results, 2 had a record, 1 not run\n")


def test_verify_rerun_runs_challenge_seeds_of_what_is_filed(root: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = challenge_path(filed_result(root).stored, root)
    before = json.loads(file.read_text(encoding="utf-8"))
    file.unlink()
    where = ["--root", str(root), "--device", "cpu", str(boards.file_of(root, LEARNER))]
    with pytest.raises(SystemExit) as ended:
        main(["leaderboard", "verify", "--rerun", *where])
    assert not ended.value.code
    assert "reproduced, 2 seeds: same predictions" in (said := capsys.readouterr().out)
    assert "with challenge seeds" in said
    assert json.loads(file.read_text(encoding="utf-8"))["seeds"] == before["seeds"]
