"""One ranking: what README and documentation, `leaderboard.json`, the home page and each board say is the same."""

from __future__ import annotations

import html
import re
from pathlib import Path

import pytest

from dpbench import registry
from dpbench.board.index import Standing
from dpbench.site import build_site
from tests import readme

pytestmark = pytest.mark.slow
INDEX = readme.index()
ROW = (
    r'class="number rank"[^>]*>(.*?)</td>.*?<th scope="row">.*?<a [^>]*>(.*?)</a>'
    r'.*?class="number score"[^>]*>(.*?)</td>'
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


def _first(standing: Standing) -> list[str]:
    return list(dict.fromkeys(entry.learner for entry in standing.entries if entry.rank == 1))


def _ranked(standing: Standing) -> int:
    return sum(entry.rank is not None for entry in standing.entries)


def _rows(page: Path) -> list[tuple[str, str, str]]:
    """Return rank, learner and score of every line of a board's page."""
    found = re.findall(ROW, page.read_text(encoding="utf-8"), re.DOTALL)
    return [(_plain(rank), _plain(learner), _plain(score)) for rank, learner, score in found]


@pytest.mark.parametrize("standing", FILLED, ids=lambda one: one.board.name)
def test_a_board_shows_the_ranks_and_scores_of_the_index_and_no_rank_for_a_line(site: Path, standing: Standing) -> None:
    rows = _rows(site / "boards" / f"{standing.board.name}.html")
    shown = [(rank, learner, score.split(" ")[0]) for rank, learner, score in rows if rank.isdecimal()]
    assert shown == [
        (str(entry.rank), entry.learner, f"{100 * entry.metrics[standing.board.metric].mean:.2f}")
        for entry in standing.entries
        if entry.rank is not None
    ]
    beside = {learner for rank, learner, _ in rows if not rank.isdecimal()}
    assert beside == {entry.learner for entry in standing.entries if entry.role in {"control", "ceiling"}}
    assert all(entry.rank is None for entry in standing.entries if entry.learner in beside)


def test_the_map_marks_as_tied_whom_the_index_ranks_first_and_counts_as_it_does(site: Path) -> None:
    page = (site / "index.html").read_text(encoding="utf-8")
    tied = {html.unescape(one) for one in re.findall(r'class="h0 [^"]*"><a [^>]*title="([^"]+)"', page)}
    found = {
        standing.board.title: {
            one.removeprefix(f"{standing.board.title}: ") for one in tied if one.startswith(f"{standing.board.title}: ")
        }
        for standing in FILLED
    }
    for standing in FILLED:
        assert {re.split("[,:]", one)[0] for one in found[standing.board.title]} == set(_first(standing))
    results = sum(len(standing.entries) for standing in FILLED)
    assert f"Of all {results} results" in " ".join(page.split())
    assert f"{sum(map(_ranked, FILLED))} entries on {len(FILLED)} boards" in " ".join(page.split())


def test_learners_are_first_as_often_as_the_index_says(site: Path) -> None:
    for learner in {name for standing in FILLED for name in _first(standing)}:
        boards = sum(learner in _first(standing) for standing in FILLED)
        all_of_them = sum(any(one.learner == learner for one in standing.entries) for standing in FILLED)
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
            shown = [one for one in FILLED if page is not readme.README or one.board.epsilon == 1]
            assert set(said) == {standing.board.title for standing in shown}
            for standing in shown:
                row = said[standing.board.title]
                assert re.findall("`([^`]+)`", row["rank 1"]) == _first(standing)
                assert row.get("entries", str(_ranked(standing))) == str(_ranked(standing))
    assert tables == 2
