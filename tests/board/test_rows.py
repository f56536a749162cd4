"""Rows of a board: with whom each result is compared, and how far it is behind."""

from __future__ import annotations

from dpbench.analysis.rows import Origin
from dpbench.board.index import ChallengeSummary, Entry, Role, Standing
from dpbench.board.rows import make_board_rows
from dpbench.records.board import find_board
from dpbench.records.result import Interval
from tests.helpers.boards import synthetic
from tests.site.test_site import standing_of

BOARD = find_board("digits-eps1")
BARE = standing_of(BOARD, synthetic(BOARD, 2, seed=0))


def entry(score: float, role: Role = "entry", *, labels: bool = False, rank: int | None = 2) -> Entry:
    (first,) = (entry for entry in BARE.entries if entry.role == "entry")
    return first.model_copy(update={
        "metrics": {"accuracy": Interval(mean=score, low=None, high=None)}, "role": role,
        "rank": rank if role == "entry" else None, "reads": "features and labels" if labels else "features",
    })  # fmt: skip


def standing(*entries: Entry) -> Standing:
    return BARE.model_copy(update={"entries": entries})


def behind(*entries: Entry) -> list[float | None]:
    gaps = [row.distance_behind for row in make_board_rows(standing(*entries))]
    return [None if gap is None else round(gap, 6) for gap in gaps]


def test_an_entry_is_compared_with_those_that_read_no_more_than_it_does() -> None:
    assert behind(entry(0.8), entry(0.7), entry(0.9, labels=True), entry(0.6, labels=True)) == [0.0, 0.1, 0.0, 0.3]


def test_a_reference_is_compared_with_the_first_group_and_may_be_above_it() -> None:
    assert behind(entry(0.8), entry(0.9, labels=True), entry(0.85, "ceiling"), entry(0.5, "control")) == [
        0.0, 0.0, -0.05, 0.3,
    ]  # fmt: skip
    assert behind(entry(0.9, labels=True), entry(0.85, "ceiling")) == [0.0, 0.05]


def test_without_a_ranked_entry_nothing_is_behind() -> None:
    assert behind(entry(0.8, "ceiling"), entry(0.5, "unranked")) == [None, None]


def test_a_row_says_how_often_its_challenge_seeds_were_drawn() -> None:
    score = Interval(mean=0.8, low=None, high=None)
    made = Origin.model_construct()
    once = ChallengeSummary(commit="0" * 40, seeds=(1,), score=score, submitter=score, made=made)
    again = once.model_copy(update={"replaced": 2})
    rows = make_board_rows(standing(*(entry(0.8).model_copy(update={"challenge": found}) for found in (once, again))))
    assert [row.differs for row in rows] == ["", "challenge seeds drawn 3 times"]
    assert "replaced" not in once.model_dump()


def test_a_row_says_which_version_chose_its_settings_if_its_learner_chooses_others_today() -> None:
    said = {"default": "defaults of version 0.2.0", "public-validation": "open settings of version 0.2.0"}
    for selection, words in said.items():
        earlier = entry(0.8).model_copy(update={"selection": selection, "defaults_version": "0.2.0"})
        assert [row.differs for row in make_board_rows(standing(earlier))] == [words]


def test_a_row_knows_its_rank_its_ties_its_rivals_and_the_ceiling() -> None:
    rows = make_board_rows(
        standing(entry(0.8, rank=1), entry(0.7), entry(0.9, labels=True, rank=1), entry(0.95, "ceiling"))
    )
    standings = [row.standing for row in rows]
    assert [standing.tied for standing in standings] == [True, False, True, False]
    assert [standing.rank for standing in standings] == [1, 2, 1, None]
    assert [standing.rivals for standing in standings[:3]] == [2, 2, 3]
    assert [round(row.above or 0.0, 6) for row in rows] == [0.15, 0.25, 0.05, 0.0]
