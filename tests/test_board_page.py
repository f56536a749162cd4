"""The leaderboard's site in a browser, from disk and from a server: what a reader does, and what no stranger can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dpbench.board.index import Index
from dpbench.board.site import build_site
from dpbench.records.board import find_board
from tests.boards import synthetic
from tests.browser import Seen, Theme, address, browser, opened, see_charts
from tests.test_board_site import HOSTILE, filed, hostile, standing_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = pytest.mark.serial
BOARDS = ("cifar10-lite0-eps0.1", "cifar10-lite0-eps0.7", "digits-eps1")
OPEN = "pcam-resnet50-eps0.1"
BOARD = "boards/cifar10-lite0-eps0.7.html"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of three boards with entries, some of learners with several, and an open one."""
    root = tmp_path_factory.mktemp("leaderboard")
    results = synthetic(find_board(BOARDS[0]), 20, seed=0)
    standings = [filed(root, find_board(name), results) for name in BOARDS]
    twice = [
        entry.model_copy(update={"learner": ("pillar", "dp-sgd", "jl")[place % 3]}) if entry.rank else entry
        for place, entry in enumerate(standings[1].entries)
    ]
    standings[1] = standings[1].model_copy(update={"entries": tuple(twice)})
    standings.append(standing_of(find_board(OPEN), []))
    build_site(Index(ranking="By the mean.", standings=tuple(standings)), root, root / "site")
    return root / "site"


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site all whose entries are hostile."""
    root = tmp_path_factory.mktemp("attacked")
    results = synthetic(find_board(BOARDS[0]), 4, seed=0)
    standing = filed(root, find_board(BOARDS[0]), results)
    bad = {"learner": HOSTILE, "settings": {HOSTILE: HOSTILE, "k": "9"}, "command": HOSTILE, "why": HOSTILE}
    for entry, result in zip(standing.entries, results, strict=True):
        (root / entry.file).write_text(hostile(result).model_dump_json(), encoding="utf-8")
    entries = tuple(entry.model_copy(update=bad) for entry in standing.entries)
    other = standing_of(find_board(BOARDS[1]), [])
    whole = (standing.model_copy(update={"entries": entries, "licence": HOSTILE}), other)
    build_site(Index(ranking=HOSTILE, standings=whole), root, root / "site")
    return root / "site"


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.fixture
def served(site: Path) -> Iterator[str]:
    """The address of the site on `dpbench leaderboard serve`."""
    code = "from dpbench.cli import main; main()"
    command = [sys.executable, "-c", code, "leaderboard", "serve", "--site", str(site), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        yield server.stdout.readline().split()[4].rstrip("/")
        server.terminate()


def _column(page: Page, table: str, place: int) -> list[str]:
    cells: Locator = page.locator(f"{table} tbody tr > :nth-child({place})")
    return [text.strip().split("\n")[0] for text in cells.all_inner_texts()]


def _scores(page: Page) -> list[float]:
    return [float(text.split(" ")[0]) for text in _column(page, "#all", 2)]


def _quiet(seen: Seen, *inside: str) -> bool:
    return seen.complaints == [] and seen.outside(*inside) == []


def _walk(page: Page) -> None:
    """Do what a reader does: sort, filter, follow an entry, look at its board and its charts."""
    page.locator("#all thead th", has_text="Score").click()
    page.locator("#filters select").first.select_option("cifar10")
    page.locator("#all tbody tr a").first.click()
    page.wait_for_url("**/entries/**")
    see_charts(page)
    page.locator(".crumbs a").last.click()
    page.wait_for_url("**/boards/**")
    see_charts(page)
    page.locator("#theme").click()
    see_charts(page)


def test_a_reader_walks_the_site_from_disk_and_no_request_leaves_it(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, "index.html")) as (page, seen):
        _walk(page)
        assert len(seen.requests) > 10
        assert _quiet(seen, site.resolve().as_uri())


def test_a_reader_walks_the_site_on_a_server_and_no_request_leaves_it(chromium: Browser, served: str) -> None:
    with opened(chromium, f"{served}/index.html") as (page, seen):
        _walk(page)
        assert len(seen.requests) > 10
        assert _quiet(seen, served)


def test_a_click_on_a_head_sorts_by_it_and_says_so(chromium: Browser, site: Path) -> None:
    from playwright.sync_api import expect

    with opened(chromium, address(site, "index.html")) as (page, _):
        head = page.locator("#all thead th", has_text="Score")
        head.click()
        expect(head).to_have_attribute("aria-sort", "ascending")
        rising = _scores(page)
        assert rising == sorted(rising)
        head.click()
        expect(head).to_have_attribute("aria-sort", "descending")
        falling = _scores(page)
        assert falling == sorted(falling, reverse=True)
        assert falling[0] > rising[0]


def test_a_boards_table_sorts_by_numbers_not_by_words(chromium: Browser, site: Path) -> None:
    from playwright.sync_api import expect

    with opened(chromium, address(site, BOARD)) as (page, _):
        head = page.locator(".standings thead th", has_text="Compute")
        head.click()
        expect(head).to_have_attribute("aria-sort", "ascending")
        shown = page.locator(".standings tbody tr > td[data-order]:nth-last-child(4)")
        seconds = [float(cell.get_attribute("data-order") or "nan") for cell in shown.all()]
        assert seconds == sorted(seconds)
        assert len(set(seconds)) > 5


@pytest.mark.parametrize(
    ("label", "choice", "column"),
    [("Dataset", "digits", 6), ("Extractor", "pixels", 7), ("ε", "0.7", 4), ("Selection", "transfer", 8),
     ("Learner", "pillar", 1), ("Board", "digits-eps1", 5)],
)  # fmt: skip
def test_a_filter_leaves_what_was_chosen(chromium: Browser, site: Path, label: str, choice: str, column: int) -> None:
    with opened(chromium, address(site, "index.html")) as (page, _):
        page.locator("#filters label", has_text=label).locator("select").select_option(choice)
        assert set(_column(page, "#all", column)) == {choice}


def test_filters_and_the_search_field_work_together(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, "index.html")) as (page, _):
        page.locator("#filters label", has_text="Board").locator("select").select_option("digits-eps1")
        page.get_by_label("Search").fill("synthetic-00003")
        assert _column(page, "#all", 1) == ["synthetic-00003"]
        assert _column(page, "#all", 5) == ["digits-eps1"]


def test_a_link_to_a_boards_entries_filters_by_it(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, "index.html#board=digits-eps1")) as (page, _):
        assert set(_column(page, "#all", 5)) == {"digits-eps1"}


def test_an_entry_leads_to_its_page_with_its_command_and_raw_file(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, BOARD)) as (page, _):
        name = page.locator(".standings tbody th a").first.inner_text()
        page.locator(".standings tbody th a").first.click()
        assert page.locator("h1").inner_text() == name
        assert page.locator(".command code").inner_text().startswith("dpbench run --board ")
        raw = page.locator("#raw ~ p a").get_attribute("href")
        assert raw is not None
        assert (site / "entries" / "x" / raw).resolve().is_file()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_theme_that_was_switched_is_kept_and_charts_follow_it(chromium: Browser, site: Path, theme: Theme) -> None:
    from playwright.sync_api import expect

    with opened(chromium, address(site, BOARD), theme) as (page, seen):
        see_charts(page)
        paper = "getComputedStyle(document.body).backgroundColor"
        ink = "getComputedStyle(document.querySelector('.plot .role-axis-title text')).fill"
        before = page.evaluate(paper), page.evaluate(ink)
        button = page.locator("#theme")
        expect(button).to_have_attribute("aria-pressed", str(theme == "dark").lower())
        button.click()
        page.wait_for_function(f"{ink} !== '{before[1]}'")
        assert page.evaluate(paper) != before[0]
        page.reload()
        assert page.evaluate(paper) != before[0]
        expect(button).to_have_attribute("aria-pressed", str(theme != "dark").lower())
        assert seen.complaints == []


def _pages(site: Path) -> list[str]:
    entry = sorted((site / "entries" / "cifar10-lite0-eps0.7").iterdir())[3]
    return ["index.html", BOARD, f"boards/{OPEN}.html", str(entry.relative_to(site)), "404.html"]


def test_no_page_scrolls_sideways_at_400_pixels(chromium: Browser, site: Path) -> None:
    for path in _pages(site):
        with opened(chromium, address(site, path), width=400) as (page, _):
            see_charts(page)
            assert page.evaluate("document.documentElement.scrollWidth") == 400, path


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_axe_finds_no_serious_fault(chromium: Browser, site: Path, theme: Theme) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for path in _pages(site):
        with opened(chromium, address(site, path), theme) as (page, _):
            see_charts(page)
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            found = Axe().run(page).response["violations"]
            grave = [(one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in {"serious", "critical"}]
            assert grave == [], path


def test_the_first_key_leads_past_the_head_and_rows_can_be_sorted_by_keys(chromium: Browser, site: Path) -> None:
    from playwright.sync_api import expect

    with opened(chromium, address(site, BOARD)) as (page, _):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to the content")
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'main'")
        head = page.locator(".standings thead th", has_text="Memory")
        head.locator("[tabindex='0']").focus()
        page.keyboard.press("Enter")
        expect(head).to_have_attribute("aria-sort", "ascending")


def test_tables_can_be_read_without_scripts(chromium: Browser, site: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(address(site, "index.html"))
        assert page.locator("#all tbody tr").count() == 25
        assert page.locator("table.boards tbody tr").count() == 3
        page.goto(address(site, BOARD))
        assert page.locator(".standings tbody tr").count() >= 10
    finally:
        context.close()


def test_every_chart_has_a_table_of_its_data(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, BOARD)) as (page, _):
        see_charts(page)
        assert page.locator("figure.chart h3").all_inner_texts() == [
            "Entries and published figures",
            "Accuracy against ε",
            "Accuracy against k",
            "Accuracy against compute",
        ]
        assert all(chart.locator("tbody tr").count() > 1 for chart in page.locator("figure.chart").all())


def test_hostile_results_run_nothing_and_stand_there_as_words(chromium: Browser, attacked: Path) -> None:
    entries = sorted(path.relative_to(attacked) for path in (attacked / "entries").rglob("*.html"))
    pages = ["index.html", f"boards/{BOARDS[0]}.html", *map(str, entries)]
    assert len(pages) == 6
    for path in pages:
        with opened(chromium, address(attacked, path)) as (page, seen):
            see_charts(page)
            assert _quiet(seen, attacked.resolve().as_uri()), path
            assert page.locator("img").count() == 0
            assert "<img src=x onerror=alert(1)>" in page.locator("main").inner_text()


def test_a_hostile_tooltip_and_a_hostile_filter_are_words_too(chromium: Browser, attacked: Path) -> None:
    with opened(chromium, address(attacked, f"boards/{BOARDS[0]}.html")) as (page, seen):
        see_charts(page)
        page.locator("#chart-seconds .mark-symbol path").first.hover(force=True)
        tooltip = page.locator("#vg-tooltip-element.visible")
        tooltip.wait_for()
        assert "<script>" in tooltip.inner_text()
        assert page.locator("img").count() == 0
        assert seen.complaints == []
    with opened(chromium, address(attacked, "index.html")) as (page, seen):
        choice = page.locator("#filters label", has_text="Learner").locator("select")
        choice.select_option(index=1)
        assert page.locator("#all tbody tr").count() == 3
        page.get_by_label("Search").fill("<img")
        assert page.locator("#all tbody tr a").count() == 3
        assert seen.complaints == []


def test_what_a_page_loads_is_below_three_megabytes(chromium: Browser, site: Path) -> None:
    for path in _pages(site):
        with opened(chromium, address(site, path)) as (page, seen):
            see_charts(page)
            files = {Path(url.removeprefix("file://")) for url in seen.requests if url.startswith("file://")}
            assert sum(file.stat().st_size for file in files) < 3_000_000, path
