"""One set of numbers: README and documentation, `leaderboard.json`, the home page and each board say the same.

Ranks with and without correction, their stability, each learner's distance from the best, and what entries cost.
"""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from dpbench import registry
from dpbench.board.distance import compute_mean_distances
from dpbench.board.index import Entry, MeanDistanceFromBest, Standing
from dpbench.board.ranking import RANKING_SENTENCE
from dpbench.records.metrics import TITLES
from dpbench.site import build_site, layout
from dpbench.site.cost import make_cost_cells
from tests.helpers import readme
from tests.helpers.browser import address, browser, opened

pytestmark = pytest.mark.slow
INDEX = readme.index()
ROW = (
    r'class="number rank"[^>]*>(.*?)</td>.*?<th scope="row">.*?<a [^>]*>(.*?)</a>'
    r'.*?class="number score"[^>]*>(.*?)</td>'
    r".*?<dt>Cost of one fit</dt><dd>(.*?)</dd>"
)
FILLED = [standing for standing in INDEX.standings if standing.entries]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of the committed leaderboard."""
    out = tmp_path_factory.mktemp("leaderboard") / "site"
    build_site(INDEX, readme.LEADERBOARD, out, registry.load())
    return out


def _plain(page: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", page)).strip()


def _first(standing: Standing, *, labels: bool | None = None) -> list[str]:
    """Return who is on rank 1, of those who read public labels or do not where `labels` says so."""
    first = [entry for entry in standing.entries if entry.rank == 1]
    return list(dict.fromkeys(entry.learner for entry in first if labels is None or entry.reads_labels is labels))


def _ranked(standing: Standing) -> int:
    return sum(entry.rank is not None for entry in standing.entries)


def _rows(page: Path) -> list[tuple[str, ...]]:
    """Return rank, learner, score and cost of every line of a board's page."""
    found = re.findall(ROW, page.read_text(encoding="utf-8"), re.DOTALL)
    return [tuple(map(_plain, cells)) for cells in found]


def _ranks(entry: Entry) -> str:
    """Return an entry's ranks as pages write them: the uncorrected one in brackets where it is another."""
    differs = entry.uncorrected_rank != entry.rank
    return f"{entry.rank} ({entry.uncorrected_rank})" if differs else str(entry.rank)


def _cost(entry: Entry) -> str:
    spent, run = make_cost_cells(entry), "without feature extraction and search; peak memory of the whole run"
    return f"not known: {spent.why}" if spent.why else f"{spent.seconds} processor seconds, {run} {spent.memory}"


@pytest.mark.parametrize("standing", FILLED, ids=lambda standing: standing.board.name)
def test_a_board_shows_ranks_scores_and_cost_of_the_index_and_no_rank_for_a_line(
    site: Path, standing: Standing
) -> None:
    rows = _rows(site / "boards" / f"{standing.board.name}.html")
    shown = [(rank, learner, score.split(" ")[0], spent) for rank, learner, score, spent in rows if rank[0].isdigit()]
    assert shown == [
        (
            _ranks(entry), entry.learner, f"{100 * entry.metrics[standing.board.metric].mean:.2f}", _cost(entry),
        )
        for entry in standing.entries
        if entry.rank is not None
    ]  # fmt: skip
    beside = {learner for rank, learner, *_ in rows if not rank[0].isdigit()}
    assert beside == {entry.learner for entry in standing.entries if entry.role in {"control", "ceiling"}}
    assert all(entry.rank is None for entry in standing.entries if entry.learner in beside)


@pytest.mark.parametrize("standing", FILLED, ids=lambda standing: standing.board.name)
def test_a_board_says_how_stable_its_first_entry_is_and_draws_what_entries_cost(site: Path, standing: Standing) -> None:
    page = " ".join(_plain((site / "boards" / f"{standing.board.name}.html").read_text(encoding="utf-8")).split())
    drawn = f"{TITLES[standing.board.metric]} against cost" in page
    found = standing.stability
    if _ranked(standing) == 1:
        assert not drawn and found is None and "halves of the test set" not in page
        assert f"{standing.entries[0].learner} is the only entry, with" in page
        return
    assert drawn
    if found is None:
        assert standing.board.metric != "accuracy"
        assert "dpbench does not measure how stable rank 1 is on halves of this test set" in page
        return
    best = standing.entries[0].learner
    assert (
        f"Out of {found.halves:,} random halves of the test set, {best} has the highest mean on {found.first:,}" in page
    )
    assert found.first <= found.shared <= found.halves == 1000
    tied = sum(entry.rank == 1 and not entry.reads_labels for entry in standing.entries)
    said = f"one of the {tied} entries at rank 1 does on {found.shared:,}"
    assert said in page if tied > 1 else "entries at rank 1" not in page


@pytest.mark.parametrize("standing", FILLED, ids=lambda standing: standing.board.name)
def test_entries_that_read_public_labels_are_ranked_among_all_and_the_others_without_them(standing: Standing) -> None:
    ranked = [entry for entry in standing.entries if entry.rank]
    assert ranked == sorted(ranked, key=lambda entry: (entry.reads_labels, entry.rank))
    for entry in ranked:
        rivals = [other for other in ranked if entry.reads_labels or not other.reads_labels]
        scores = [rival.metrics[standing.board.metric].mean for rival in rivals]
        mine = entry.metrics[standing.board.metric].mean
        assert 1 <= (entry.rank or 0) <= 1 + sum(score > mine for score in scores)
        assert entry.rank == 1 or mine < max(scores)


def test_the_index_has_the_distances_of_its_boards_and_says_how_it_ranks() -> None:
    assert INDEX.distances == compute_mean_distances(INDEX.standings)
    assert {distance.learner for distance in INDEX.distances} == {
        entry.learner
        for standing in FILLED
        for entry in standing.entries
        if entry.role == "entry" and entry.selection == "default"
        if any(other.role == "entry" and other.learner != entry.learner for other in standing.entries)
    }
    assert INDEX.ranking == RANKING_SENTENCE
    assert all(entry.uncorrected_rank for standing in FILLED for entry in standing.entries if entry.rank)


def test_the_home_page_learners_readme_and_documentation_say_the_same_distances(site: Path) -> None:
    sets = len({str(standing.board.dataset) for standing in FILLED})
    home = (site / "index.html").read_text(encoding="utf-8")
    first, *_ = INDEX.distances
    assert f"it is {_distance(first)} (95% interval {_interval(first)}, from {sets} datasets) behind" in _plain(home)
    (table,) = re.findall(r'<table class="overall.*?</table>', home, re.DOTALL)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL) for row in table.split("<tbody>")[1:]]
    shown = [[_plain(cell) for cell in row] for row in rows]
    firsts = {
        distance.learner: sum(distance.learner in _first(standing) for standing in FILLED)
        for distance in INDEX.distances
    }
    assert shown == [
        [
            distance.learner, f"{distance.points:.2f}", _interval(distance),
            str(distance.boards) + (f"{distance.data_sets} of {sets} datasets" if distance.data_sets < sets else ""),
            str(firsts[distance.learner]),
        ]
        for distance in INDEX.distances
    ]  # fmt: skip
    for distance in INDEX.distances:
        page = " ".join(_plain((site / "learners" / f"{distance.learner}.html").read_text(encoding="utf-8")).split())
        assert f"With default settings it is {_distance(distance)} (95% interval {_interval(distance)}, from" in page
    lines = [
        f"| `{distance.learner}` | {distance.points:.2f} | {_interval(distance)} | {distance.data_sets} of {sets} "
        f"| {distance.boards} | {firsts[distance.learner]} |"
        for distance in INDEX.distances
    ]
    pages = [page for page in readme.PAGES if "<!-- table: distances -->" in page.text]
    assert [page.name for page in pages] == ["README.md", "explanation/leaderboard.md"]
    assert all("\n".join(lines) in page.text for page in pages)


def _distance(distance: MeanDistanceFromBest) -> str:
    return f"{distance.points:.2f} points"


def _interval(distance: MeanDistanceFromBest) -> str:
    return f"{distance.low:.2f} to {distance.high:.2f}"


def test_the_map_marks_as_tied_whom_the_index_ranks_first_and_counts_as_it_does(site: Path) -> None:
    maps = [(site / "index.html").read_text(encoding="utf-8")]
    maps += [file.read_text(encoding="utf-8") for file in site.glob("epsilon-*.html")]
    tied = {html.unescape(link) for page in maps for link in re.findall(r'class="h0"><a href="([^"]+)"', page)}
    pages = {
        layout.entry_page_path(standing, entry): (standing, entry) for standing in FILLED for entry in standing.entries
    }
    for standing in FILLED:
        of_it = {pages[link][1].learner for link in tied if pages[link][0] is standing}
        assert of_it == set(_first(standing))
    page = maps[0]
    results = sum(len(standing.entries) for standing in FILLED)
    assert f"Of all {results:,} results" in " ".join(page.split())
    assert f"{sum(map(_ranked, FILLED))} entries on {len(FILLED)} boards" in " ".join(page.split())


def test_learners_are_first_as_often_as_the_index_says(site: Path) -> None:
    for learner in {name for standing in FILLED for name in _first(standing)}:
        boards = sum(learner in _first(standing) for standing in FILLED)
        all_of_them = sum(any(entry.learner == learner for entry in standing.entries) for standing in FILLED)
        page = _plain((site / "learners" / f"{learner}.html").read_text(encoding="utf-8"))
        assert f"on {boards} of {all_of_them} boards" in page


def test_readme_and_documentation_say_the_same() -> None:
    tables = 0
    for page in readme.PAGES:
        for table in re.findall(r"^\| board \|.*?(?=\n\n|\n<!--)", page.text, re.DOTALL | re.MULTILINE):
            head, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines())
            if "rank 1" not in head:
                continue
            tables += 1
            said = {row[0]: dict(zip(head, row, strict=True)) for row in rows}
            shown = [standing for standing in FILLED if page is not readme.README or standing.board.epsilon == 1]
            assert set(said) == {standing.board.title for standing in shown}
            for standing in shown:
                row = said[standing.board.title]
                first = {labels: dict.fromkeys(_first(standing, labels=labels), 0) for labels in (False, True)}
                for entry in reversed(standing.entries):
                    if entry.rank == 1:
                        first[entry.reads_labels][entry.learner] = entry.uncorrected_rank or 0
                without, with_labels = (
                    ", ".join(f"`{name}`" + (f" ({rank})" if rank != 1 else "") for name, rank in found.items())
                    for found in first.values()
                )
                assert row["rank 1"] == without
                assert row["rank 1 with public labels"].partition(":")[0] == with_labels
                halves = f"{standing.stability.first:,}" if standing.stability else ""
                assert row.get("best on how many of 1,000 random halves", halves) == halves
                assert row.get("entries", str(_ranked(standing))) == str(_ranked(standing))
    assert tables == 2


def test_the_home_page_is_below_150_kilobytes(site: Path) -> None:
    assert (site / "index.html").stat().st_size < 150_000


def test_no_page_is_taller_than_20_000_pixels_on_a_phone_or_wider_than_it(site: Path) -> None:
    entries = sorted(site.glob("entries/*/*.html"))
    pages = [*site.glob("*.html"), *(file for file in site.glob("*/*.html")), *entries[::40]]
    assert len(pages) > 100
    with browser() as chromium, opened(chromium, address(site, "index.html"), width=400) as (page, _):
        sizes = {}
        for file in pages:
            page.goto(file.as_uri())
            root = "document.documentElement"
            sizes[file.relative_to(site)] = page.evaluate(f"[{root}.scrollHeight, {root}.scrollWidth]")
    assert {file: size for file, size in sizes.items() if size[0] > 20_000 or size[1] > 400} == {}
