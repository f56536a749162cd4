"""Attacks on the meaning of rank 1: a name that is somebody else's, a learner that does not exist, clones, redraws."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpbench import registry
from dpbench.analysis.paired import RankingScores
from dpbench.board import build
from dpbench.board.entry import (
    FURTHER_ENTRY_REASON,
    EntryCandidate,
    make_candidate,
    unrank_further_entries,
    uses_challenge_seeds,
)
from dpbench.board.folder import ResultFile, locate_result
from dpbench.board.index import Entry, Index
from dpbench.board.ranking import adjust_by_learner, compute_corrected_ranks
from dpbench.board.verify.checks import CheckedFile
from dpbench.board.verify.expectations import ReviewContext
from dpbench.board.verify.rerun_record import find_rerun_complaints
from dpbench.records.board import find_board
from dpbench.records.challenge import Challenge
from dpbench.records.checksums import compute_seal
from dpbench.records.identity import LearnerIdentity
from dpbench.records.provenance import HARNESS
from dpbench.records.result import Result
from dpbench.site.readme import make_dataset_card
from tests.helpers import boards
from tests.helpers.readme import ROOT

BOARD = "digits-eps1"
PRO = "dpbench-thrift-pro"
SOURCE = {"repository": boards.REPOSITORY, "commit": "a" * 40, "dirty": False}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A leaderboard with five learners of one distribution, and one that calls itself `thrift`, of another."""
    (tmp_path / "boards").mkdir()
    shutil.copy(ROOT / "leaderboard" / "boards" / f"{BOARD}.toml", tmp_path / "boards")
    boards.write(boards.synthetic(find_board(BOARD), 6, seed=1), tmp_path / "results" / BOARD)
    return tmp_path


def impostor(root: Path, source: bool = True, ran: bool = True) -> Result:
    """File the best scores of the board as those of `thrift`, of a distribution that anybody could have named."""
    *_, best = sorted(
        (Result.read(file) for file in (root / "results" / BOARD).iterdir() if "synthetic" in file.name),
        key=lambda result: result.metrics["accuracy"].mean,
    )
    content = json.loads(best.model_dump_json())
    content["spec"]["learner"] = {"name": "thrift", "options": {}}
    content["components"]["learner"] = {"plugin": "thrift", "distribution": PRO, "version": "1"}
    content["provenance"]["sources"] = {PRO: SOURCE} if source else {}
    content |= {"selection": "default", "search": None, "settled": {}}
    result = boards.result_of(content)
    boards.write([result], root / "results" / BOARD)
    if not ran:
        (root / "reruns" / BOARD / result.file_name).unlink()
    return result


def built(root: Path) -> Index:
    return build.build_index(root, registry.load())


def entry_of(index: Index, distribution: str) -> Entry:
    return next(entry for entry in index.standings[0].entries if entry.plugin.distribution == distribution)


def test_a_name_alone_never_joins_the_row_of_the_built_in_learner(root: Path) -> None:
    impostor(root)
    index = built(root)
    entry = entry_of(index, PRO)
    assert (entry.learner, entry.learner_name, entry.source) == (f"thrift ({PRO})", "thrift", "5" * 16)
    assert "thrift" not in {distance.learner for distance in index.distances}
    assert f"| thrift \\({PRO}\\) |" in make_dataset_card(index).decode()


def test_two_sources_of_one_distribution_are_two_learners(root: Path) -> None:
    first = impostor(root)
    content = json.loads(first.model_dump_json())
    content["provenance"]["code"]["learner"] = "6" * 16
    content["spec"]["learner"]["options"] = {"k": 3}
    boards.write([boards.result_of({**content, "selection": "by-hand"})], root / "results" / BOARD)
    labels = {entry.learner for entry in built(root).standings[0].entries if entry.plugin.distribution == PRO}
    assert labels == {f"thrift ({PRO}, code 55555555)", f"thrift ({PRO}, code 66666666)"}


@pytest.mark.parametrize(
    ("source", "ran", "why"),
    [
        (False, True, f"the source of its learner, of {PRO}, is not on record"),
        (True, False, f"the source of its learner, of {PRO}, has not run here yet"),
    ],
)
def test_a_learner_whose_source_nobody_ran_has_no_rank(root: Path, source: bool, ran: bool, why: str) -> None:
    impostor(root, source, ran)
    entry = entry_of(built(root), PRO)
    assert (entry.role, entry.rank, entry.why) == ("unranked", None, why)


@pytest.mark.parametrize("role", ["extractor", "dataset"])
def test_a_built_in_learner_on_data_of_a_source_that_nobody_ran_has_no_rank(root: Path, role: str) -> None:
    content = json.loads(impostor(root).model_dump_json())
    content["components"][role] = {"plugin": "x", "distribution": "dpbench-x", "version": "1"}
    boards.write([boards.result_of(content)], root / "results" / BOARD)
    entry = entry_of(built(root), PRO)
    why = f"the source of its {role}, of dpbench-x, is not on record"
    assert (entry.role, entry.rank, entry.why) == ("unranked", None, why)


@pytest.mark.parametrize(
    ("having", "lacking", "challenged"), [(0, 2, False), (1, 0, True), (3, 1, True), (1, 3, False)]
)
def test_a_learner_that_fails_with_challenge_seeds_moves_no_board(having: int, lacking: int, challenged: bool) -> None:
    result = next(boards.made(find_board(BOARD), 2, seed=1))
    again = boards.reproduced(result)
    checked = CheckedFile(ResultFile(Path(), "", BOARD), ())
    records = [Challenge.model_construct(seeds=())] * having + [None] * lacking
    filed = [EntryCandidate(checked, result, "entry", "", again, None, record) for record in records]
    assert uses_challenge_seeds(filed) is challenged


def test_a_learner_from_elsewhere_is_ranked_once_its_source_has_run(root: Path) -> None:
    impostor(root)
    entry = entry_of(built(root), PRO)
    assert (entry.role, entry.rank, entry.trust, entry.status) == ("entry", 1, "reproduced", None)


def test_challenge_seeds_of_other_code_beside_a_quick_look_at_the_stated_code_give_no_rank(root: Path) -> None:
    result = impostor(root)
    known = ReviewContext.read(root, registry.load())
    stored = locate_result(root / "results" / BOARD / result.file_name, root)
    look = boards.reproduced(result)
    look = look.model_copy(update={"seeds": look.seeds[:1]})
    same, other = (
        Challenge.model_construct(seeds=(), provenance={"code": {"learner": digest}}) for digest in ("5" * 16, "6" * 16)
    )
    roles = [
        make_candidate(CheckedFile(stored, (), result), find_board(BOARD), known, look, None, challenge).role
        for challenge in (None, other, same)
    ]
    assert roles == ["unranked", "unranked", "entry"]


def test_a_record_of_a_rerun_by_other_code_is_named_where_it_claims_the_same(root: Path) -> None:
    result = impostor(root)
    file = root / "reruns" / BOARD / result.file_name
    made = json.loads(file.read_text(encoding="utf-8"))
    made["provenance"]["code"]["learner"] = "0" * 16
    file.write_text(json.dumps({**made, "seal": compute_seal(made)}), encoding="utf-8")
    stored = locate_result(root / "results" / BOARD / result.file_name, root)
    (found,) = find_rerun_complaints(stored, result, root)
    assert found.field == "provenance.code.learner"


@pytest.mark.parametrize(
    "name", ["dpbench_vision", "Dpbench-Vision", "dpbench.vision", f"{HARNESS} ", "dpbench\u2011vision"]
)
def test_no_distribution_has_the_name_of_dpbench_in_another_spelling(root: Path, name: str) -> None:
    content = json.loads(impostor(root).model_dump_json())
    content["components"]["learner"]["distribution"] = name
    content["provenance"]["sources"] = {name: SOURCE}
    boards.write([boards.result_of(content)], root / "results" / BOARD)
    found = build.verify_leaderboard(root, ReviewContext.read(root, registry.load())).complaints
    assert "components.learner.distribution" in [complaint.field for complaint in found]


def test_spellings_of_one_distribution_count_once() -> None:
    families = {LearnerIdentity("a", name, "").family for name in ("My_Learners", "my-learners", "my.learners")}
    assert len(families) == 1


def test_a_result_cannot_be_filed_again_under_another_spelling_of_its_spec(root: Path) -> None:
    """Each file would have challenge seeds of its own, and the best of eight stands points above their mean."""
    first = impostor(root)
    content = json.loads(first.model_dump_json())
    content["spec"]["extractor"]["options"] = {"flat": True}  # as it is where the spec leaves it out
    again = boards.result_of(content)
    assert again.file_name != first.file_name
    boards.write([again], root / "results" / BOARD)
    (found,) = build.verify_leaderboard(root, ReviewContext.read(root, registry.load())).complaints
    assert found.field == "spec" and "has the same learner, settings and rule" in found.said


def test_of_many_settings_of_a_learner_the_submitters_seeds_choose_and_not_the_challenge(root: Path) -> None:
    """A setting can differ by a millionth, so that its challenge seeds are one more draw of the same noise."""
    results = sorted(boards.synthetic(find_board(BOARD), 6, seed=1), key=lambda found: -found.metrics["accuracy"].mean)
    names = {"learner": results[0].spec.learner, "search": None}
    variants = [
        result.model_copy(update={"spec": result.spec.model_copy(update=names), "selection": "default"})
        for result in results[1:4]
    ]
    challenge = Challenge.model_construct(seeds=())
    checked = CheckedFile(ResultFile(root, "", BOARD), ())
    waiting = EntryCandidate(checked, variants[0], "entry", "", None, None, None)
    filed = [EntryCandidate(checked, variant, "entry", "", None, None, challenge) for variant in reversed(variants)]
    kept = unrank_further_entries([*filed, waiting], "accuracy")
    assert [(found.role, found.result) for found in kept] == [
        ("unranked", variants[2]), ("unranked", variants[1]), ("entry", variants[0]), ("entry", variants[0]),
    ]  # fmt: skip
    assert {found.why for found in kept[:2]} == {FURTHER_ENTRY_REASON}


WIGGLE = np.array([[1, -1, 0, 0, 0], [0, 1, -1, 0, 0], [0, 0, 1, -1, 0]]) * 0.01


def scored(*means: float) -> list[RankingScores]:
    """Return the scores of entries, best first, with five seeds each."""
    return [RankingScores(tuple(mean + WIGGLE[place % 3]), None) for place, mean in enumerate(means)]


def test_sixteen_clones_lift_nobody() -> None:
    best, rival = scored(0.9, 0.881)  # the rival is worse, and not by much
    clones, names = [rival] * 16, [f"clone-{number}" for number in range(16)]
    assert compute_corrected_ranks([best, rival]) == [1, 2]
    assert compute_corrected_ranks([best, rival, *clones], ["a", "b", *names]) == [1] * 18  # if each counted
    assert compute_corrected_ranks([best, rival, *clones], ["a", "b", *["b"] * 16]) == [1] + [2] * 17
    families = [LearnerIdentity(name, "dpbench-clones", f"{name:>016}").family for name in names]
    assert compute_corrected_ranks([best, *clones], ["a", *families]) == [1] + [2] * 16  # of another distribution


def test_one_more_entry_of_a_learner_lifts_no_other() -> None:
    best, rival = scored(0.9, 0.884)
    assert compute_corrected_ranks([best, rival]) == [1, 2]
    assert compute_corrected_ranks([best, rival, rival], ["a", "b", "c"]) == [1, 1, 1]  # a third learner counts
    assert compute_corrected_ranks([best, rival, rival], ["a", "b", "b"]) == [1, 2, 2]
    assert compute_corrected_ranks([best, rival, rival], ["a", "b", "a"]) == [1, 2, 2]  # nor does a clone of the best


def test_a_learner_counts_once_and_its_further_entries_are_held_to_the_same() -> None:
    p = [0.001, 0.02, 0.02, 0.3]
    assert adjust_by_learner(p, ["a", "b", "c", "d"]).tolist() == pytest.approx([0.004, 0.06, 0.06, 0.3])
    assert adjust_by_learner(p, ["a", "b", "b", "b"]).tolist() == pytest.approx([0.002, 0.02, 0.02, 0.3])
    assert adjust_by_learner([], []).tolist() == []


def test_learners_of_dpbench_count_each_and_every_version_of_their_code_is_one_learner() -> None:
    first, second = (LearnerIdentity(name, HARNESS, "") for name in ("thrift", "pillar"))
    assert first.family != second.family
    assert first.family != LearnerIdentity("x", "thrift", "").family
