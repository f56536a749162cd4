"""The leaderboard's site in a browser, from disk and from a server: what a reader does, and what no stranger can."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dpbench.board.distance import compute_mean_distances
from dpbench.board.index import Entry, Index
from dpbench.main import load_extras
from dpbench.records.board import find_board
from dpbench.records.search import SelectionRule
from dpbench.site import build_site
from tests.helpers.boards import synthetic
from tests.helpers.browser import Seen, Theme, address, browser, opened
from tests.site.test_site import HOSTILE, filed, hostile, standing_of

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

BOARDS = ("cifar10-lite0-eps0.1", "cifar10-lite0-eps0.7", "digits-eps1")
OPEN = "pcam-resnet50-eps0.1"
BOARD = "boards/cifar10-lite0-eps0.7.html"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site of three boards with entries, some of learners with several, and an open one."""
    root = tmp_path_factory.mktemp("leaderboard")
    results = synthetic(find_board(BOARDS[0]), 20, seed=0)
    standings = [filed(root, find_board(name), results) for name in BOARDS]
    for place, standing in enumerate(standings):
        standings[place] = standing.model_copy(update={"entries": tuple(map(_named, enumerate(standing.entries)))})
    standings.append(standing_of(find_board(OPEN), []))
    index = Index(ranking="By the mean.", distances=compute_mean_distances(standings), standings=tuple(standings))
    build_site(index, root, root / "site", extras=load_extras())
    return root / "site"


def _named(entry: tuple[int, Entry]) -> Entry:
    """Give a few learners several entries, by default settings and tuned."""
    place, filed = entry
    rule: SelectionRule = ("default", "public-validation")[place % 2]
    named = {"learner": ("pillar", "dp-sgd", "jl")[place % 3], "selection": rule}
    return filed.model_copy(update=named) if filed.rank else filed


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A site all whose entries are hostile."""
    root = tmp_path_factory.mktemp("attacked")
    results = synthetic(find_board(BOARDS[0]), 4, seed=0)
    standing = filed(root, find_board(BOARDS[0]), results)
    bad = {"learner": HOSTILE, "settings": {HOSTILE: HOSTILE, "k": "9"}, "command": HOSTILE, "why": HOSTILE}
    for entry, result in zip(standing.entries, results, strict=True):
        (root / entry.file).write_text(hostile(result).with_evidence_digest().model_dump_json(), encoding="utf-8")
    entries = tuple(entry.model_copy(update=bad) for entry in standing.entries)
    other = standing_of(find_board(BOARDS[1]), [])
    whole = (standing.model_copy(update={"entries": entries, "licence": HOSTILE}), other)
    build_site(Index(ranking=HOSTILE, distances=compute_mean_distances(whole), standings=whole), root, root / "site")
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


def _column(page: Page, place: int) -> list[str]:
    cells = page.locator(f"#all tbody:not([hidden]) tr > :nth-child({place})")
    return [text.strip() for text in cells.all_inner_texts()]


def _quiet(seen: Seen, *inside: str) -> bool:
    return seen.complaints == [] and seen.outside(*inside) == []


def _choose(page: Page, label: str, choice: str) -> None:
    page.locator(f"form.filters label:has-text('{label}') select").first.select_option(choice)


def _walk(page: Page) -> None:
    """Do what a reader does: look at the map, open a board and an entry, its learner, then filter all entries."""
    page.locator(".switch label", has_text="behind the best").click()
    page.locator(".heat thead a:visible").first.click()
    page.wait_for_url("**/boards/**")
    page.locator(".standings summary").nth(2).click()
    page.locator(".standings tbody th a").nth(1).click()
    page.wait_for_url("**/entries/**")
    page.locator("h1 a").click()
    page.wait_for_url("**/learners/**")
    learner = page.locator("h1").inner_text()
    page.locator("a", has_text="results in one table").click()
    page.wait_for_url(f"**/entries.html#learner={learner}")
    _choose(page, "Dataset", "cifar10")
    assert set(_column(page, 2)) == {learner}


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

    with opened(chromium, address(site, "entries.html")) as (page, _):
        head = page.locator("#all thead th", has_text="Score")
        head.locator("button").click()
        expect(head).to_have_attribute("aria-sort", "ascending")
        rising = [float(text.split(" ")[0]) for text in _column(page, 3)]
        assert rising == sorted(rising)
        head.locator("button").click()
        expect(head).to_have_attribute("aria-sort", "descending")
        falling = [float(text.split(" ")[0]) for text in _column(page, 3)]
        assert falling == sorted(falling, reverse=True)
        assert falling[0] > rising[0]


def test_what_belongs_to_an_entry_moves_with_it(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, BOARD)) as (page, _):
        before = page.locator(".standings tbody").all_text_contents()
        page.locator(".standings thead button", has_text="Accuracy").first.click()
        after = page.locator(".standings tbody").all_text_contents()
        assert before != after
        assert sorted(before) == sorted(after)


@pytest.mark.parametrize(
    ("label", "choice", "column"),
    [("Dataset", "digits", 6), ("Extractor", "pixels", 7), ("ε", "0.7", 5), ("Settings", "tuned", 8),
     ("Learner", "pillar", 2), ("Trust", "submitted", 10), ("Public data", "features", 9)],
)  # fmt: skip
def test_a_filter_leaves_what_was_chosen_and_stays_in_the_address(
    chromium: Browser, site: Path, label: str, choice: str, column: int
) -> None:
    with opened(chromium, address(site, "entries.html")) as (page, _):
        _choose(page, label, choice)
        assert set(_column(page, column)) == {choice}
        shown, kept = _column(page, 2), page.url
        assert "#" in kept
        page.goto("about:blank")
        page.goto(kept)
        assert _column(page, 2) == shown
        _choose(page, label, "")
        assert len(_column(page, 2)) == 60


def test_filters_and_the_search_field_work_together(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, "entries.html")) as (page, _):
        _choose(page, "Dataset", "digits")
        page.get_by_label("Search").fill("pillar tuned")
        assert set(_column(page, 2)) == {"pillar"}
        assert set(_column(page, 8)) == {"tuned"}
        assert set(_column(page, 4)) == {"digits-eps1"}
        count = len(_column(page, 2))
        assert page.locator("form.filters output").inner_text() == f"{count} results"


def test_an_entry_leads_to_its_page_with_its_command_and_raw_file(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, BOARD)) as (page, _):
        name = page.locator(".standings tbody.first th a").first.inner_text()
        page.locator(".standings tbody.first th a").first.click()
        assert page.locator("h1").inner_text().startswith(name)
        assert page.locator(".command code").first.inner_text().startswith("dpbench run --board ")
        raw = page.locator("dd a[href$='.json']").get_attribute("href")
        assert raw is not None
        assert (site / "entries" / "x" / raw).resolve().is_file()


def test_the_map_switches_between_scores_and_gaps_without_scripts(chromium: Browser, site: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(address(site, "index.html"))
        cell = page.locator(".heat td.h0 a:visible").first
        assert float(cell.inner_text()) > 50
        page.locator(".switch label", has_text="behind the best").click()
        gaps = page.locator(".heat tbody:not(.references) td a:visible").all_inner_texts()
        assert gaps and all(gap == "0" or gap.startswith("\N{MINUS SIGN}") for gap in gaps)
        for path in page.locator("nav.switch a").evaluate_all("(all) => all.map((one) => one.getAttribute('href'))"):
            page.goto(address(site, path))
            said = page.locator("nav.switch a[aria-current]").inner_text().replace("\xa0", " ")
            titles = [str(locator.get_attribute("title")) for locator in page.locator(".heat thead th a").all()]
            assert titles and all(title.endswith(f", {said}") for title in titles)
            assert page.locator(".heat tbody tr").first.locator("td").count() == len(titles)
    finally:
        context.close()


def test_a_board_switches_between_default_settings_and_tuned_without_scripts(chromium: Browser, site: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(address(site, BOARD))
        assert page.locator("#epsilon-default svg").is_visible() and not page.locator("#epsilon-tuned").is_visible()
        page.locator(".switch label", has_text="tuned").click()
        assert page.locator("#epsilon-tuned svg").is_visible() and not page.locator("#epsilon-default").is_visible()
        page.locator(".standings summary").nth(1).click()
        assert page.locator(".standings .rest").nth(1).is_visible()
    finally:
        context.close()


def test_a_print_shows_every_chart(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, BOARD)) as (page, _):
        page.emulate_media(media="print")
        charts = page.locator("figure.chart").all()
        assert len(charts) == 3
        assert all(chart.locator("svg").is_visible() for chart in charts)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_chart_follows_the_theme(chromium: Browser, site: Path, theme: Theme) -> None:
    ink = "[...document.querySelectorAll('.picture text')].map((one) => getComputedStyle(one).fill)"
    with opened(chromium, address(site, BOARD), theme) as (page, _):
        assert ("rgb(230, 231, 233)" if theme == "dark" else "rgb(26, 28, 31)") in page.evaluate(ink)


def _pages(site: Path) -> list[str]:
    entry = sorted((site / "entries" / "cifar10-lite0-eps0.7").glob("*.html"))[3]
    kinds = [
        "index",
        "entries",
        "learners",
        "learners/pillar",
        "data",
        "datasets/cifar10",
        "audits",
        *(section.path.removesuffix(".html") for section in load_extras().sections),
        "compare",
        "cite",
        "epsilon-0.1",
    ]
    found = [f"{kind}.html" for kind in kinds]
    found += [BOARD, f"boards/{OPEN}.html", str(entry.relative_to(site)), "404.html"]
    assert all((site / path).is_file() for path in found)
    return found


def test_no_page_scrolls_sideways_and_the_answer_is_seen_without_scrolling(chromium: Browser, site: Path) -> None:
    for path in _pages(site):
        with opened(chromium, address(site, path), width=400) as (page, _):
            for width in (400, 900):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate("document.documentElement.scrollWidth") == width, path
                for answer in page.locator(".answer, .heat td.h0:visible, .standings tbody.first").all()[:2]:
                    box = answer.bounding_box()
                    assert box is not None and box["y"] + box["height"] < 900, path


def test_nothing_is_cut_off_on_a_wide_screen(chromium: Browser, site: Path) -> None:
    cut = "[...document.querySelectorAll('.scroll')].filter((part) => part.scrollWidth > part.clientWidth + 1).length"
    for path in _pages(site):
        with opened(chromium, address(site, path), width=1400) as (page, _):
            assert page.evaluate(cut) == 0, path


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 400),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("light", 1400), ("dark", 400), ("dark", 1400))),
    ],
)
def test_axe_finds_no_serious_fault(chromium: Browser, site: Path, theme: Theme, width: int) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for path in _pages(site):
        with opened(chromium, address(site, path), theme, width) as (page, _):
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            found = Axe().run(page).response["violations"]
            grave = [
                (violation["id"], violation["nodes"][0]["html"])
                for violation in found
                if violation["impact"] in {"serious", "critical"}
            ]
            assert grave == [], (path, width)


def test_numbers_and_names_of_the_map_are_whole_on_a_phone(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, "index.html"), width=400) as (page, _):
        for cell in page.locator(".heat td a, .heat tbody th a").all():
            assert cell.evaluate("(one) => one.getClientRects().length + (one.scrollWidth > one.clientWidth + 1)") == 1
            height = cell.evaluate("(one) => one.getBoundingClientRect().height")
            assert height < 40, cell.inner_text()


def test_two_learners_are_compared_board_by_board(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, "compare.html#a=jl&b=pillar")) as (page, seen):
        shown = page.locator("#compare thead th:visible").all_inner_texts()
        assert [text.strip() for text in shown] == ["Board", "Difference", "Ranks", "pillar", "jl"]
        row = page.locator("#compare tbody tr").first.locator(":scope > :visible")
        _, gap, _, pillar, jl = row.all_inner_texts()
        score = {"pillar": pillar, "jl": jl}
        expected = float(score["jl"].split(" ")[0]) - float(score["pillar"].split(" ")[0])
        assert float(gap.replace("−", "-")) == pytest.approx(expected, abs=0.011)
        assert page.locator("#compare-answer").inner_text().startswith("jl scores higher than pillar on ")
        page.get_by_label("First learner").select_option("dp-sgd")
        assert page.url.endswith("#a=dp-sgd&b=pillar")
        assert page.locator("#compare-answer").inner_text().startswith("dp-sgd scores higher than pillar on ")
        assert _quiet(seen, site.resolve().as_uri())


def test_the_first_key_leads_past_the_head_and_rows_can_be_sorted_by_keys(chromium: Browser, site: Path) -> None:
    from playwright.sync_api import expect

    with opened(chromium, address(site, BOARD)) as (page, _):
        page.keyboard.press("Tab")
        expect(page.locator(":focus")).to_have_text("Skip to content")
        page.keyboard.press("Enter")
        page.wait_for_function("document.activeElement.id === 'main'")
        head = page.locator(".standings thead th", has_text="Trust")
        head.locator("button").focus()
        page.keyboard.press("Enter")
        expect(head).to_have_attribute("aria-sort", "ascending")


def test_everything_but_sorting_and_filtering_is_there_without_scripts(chromium: Browser, site: Path) -> None:
    context = chromium.new_context(java_script_enabled=False)
    try:
        page = context.new_page()
        page.goto(address(site, "entries.html"))
        assert page.locator("#all tbody tr").count() == 60
        assert not page.locator("form.filters").is_visible()
        page.goto(address(site, "index.html"))
        assert page.locator(".heat tbody tr").count() == 3 + 2
    finally:
        context.close()


def test_every_chart_has_a_table_of_its_data(chromium: Browser, site: Path) -> None:
    with opened(chromium, address(site, BOARD)) as (page, _):
        assert page.locator("figure.chart h3").all_text_contents() == [
            "Accuracy against ε, default settings",
            "Accuracy against ε, tuned settings",
            "Accuracy against cost",
        ]
        assert all(chart.locator("tbody tr").count() > 1 for chart in page.locator("figure.chart").all())


def test_hostile_results_run_nothing_and_stand_there_as_words(chromium: Browser, attacked: Path) -> None:
    entries = sorted(path.relative_to(attacked) for path in (attacked / "entries").rglob("*.html"))
    learner = next((attacked / "learners").glob("_*.html")).relative_to(attacked)
    pages = [
        "index.html",
        "entries.html",
        "learners.html",
        str(learner),
        f"boards/{BOARDS[0]}.html",
        *map(str, entries),
    ]
    assert len(pages) == 9
    for path in pages:
        with opened(chromium, address(attacked, path)) as (page, seen):
            assert _quiet(seen, attacked.resolve().as_uri()), path
            assert page.locator("img:not([src$='.svg'])").count() == 0
            assert "<img src=x onerror=alert(1)>" in page.locator("main").inner_text()


def test_a_hostile_filter_is_words_too(chromium: Browser, attacked: Path) -> None:
    with opened(chromium, address(attacked, "entries.html")) as (page, seen):
        page.locator("form.filters label", has_text="Learner").locator("select").select_option(index=1)
        assert len(_column(page, 2)) == 4
        page.get_by_label("Search").fill("<img")
        assert len(_column(page, 2)) == 4
        page.goto(f"{page.url}&dataset=%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
        assert seen.complaints == []


def test_what_the_first_page_loads_is_below_150_kilobytes_and_any_other_below_two_megabytes(
    chromium: Browser, site: Path
) -> None:
    for path in _pages(site):
        with opened(chromium, address(site, path)) as (_, seen):
            files = {Path(url.removeprefix("file://")) for url in seen.requests if url.startswith("file://")}
            limit = 150_000 if path == "index.html" else 2_000_000
            assert sum(file.stat().st_size for file in files) < limit, path
