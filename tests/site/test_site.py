"""The leaderboard's site as files: whole or absent, the same bytes each time, and nothing of a stranger's escapes."""

from __future__ import annotations

import csv
import html
import io
import math
import re
from collections.abc import Mapping
from email.message import Message
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from markupsafe import Markup
from PIL import Image

from dpbench.analysis.columns import format_percent_cell
from dpbench.analysis.formats import format_lower_bound, format_percent_rounded_up, format_upper_bound
from dpbench.analysis.palette import assign_learner_styles
from dpbench.analysis.risk import max_true_positive_rates
from dpbench.analysis.rows import Origin
from dpbench.board.distance import compute_mean_distances
from dpbench.board.index import Entry, Index, Role, Standing
from dpbench.board.rows import format_entry_label, make_board_rows
from dpbench.errors import DataError, OutputError, SpecError
from dpbench.privacy import MECHANISM
from dpbench.records.board import Board, find_board
from dpbench.records.result import Interval, Result
from dpbench.records.stated_plan import PrivacyGuarantee
from dpbench.registry import KINDS, load
from dpbench.site import build_site, entries_page, layout, prose, text, view
from dpbench.site.citations import list_citations, read_catalogue
from dpbench.site.context import SiteContext
from dpbench.site.entry_pages import MAX_RAW_LENGTH
from dpbench.site.extras import SiteExtras
from dpbench.site.home_page import BoardColumn
from dpbench.site.lines import make_epsilon_charts, make_k_chart
from dpbench.site.overview import render_overview
from dpbench.site.picture import Chart
from dpbench.site.preview import _make_column_heads, render_map_preview
from dpbench.site.words import explain_model_release
from tests.helpers.boards import synthetic, write

HOSTILE = (
    "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u202egnp.exe javascript:alert(1) {{ 7*7 }} "
    "' \" &amp; & \u2028 <!-- 😀"
)


def entry_of(result: Result, board: str, rank: int | None = None) -> Entry:
    """Return a result as an entry, trusted as it stands."""
    role: Role = "ceiling" if math.isinf(result.spec.epsilon) else "entry" if rank else "unranked"
    classes = zip(*(seed.class_accuracy for seed in result.seeds), strict=True)
    name = result.file_name.removesuffix(".json")
    return Entry(
        id=name, file=f"results/{board}/{name}.json", role=role, rank=rank if role == "entry" else None,
        why="its search is outside ε" if role == "unranked" else "", learner=result.spec.learner.name,
        settings={key: str(value) for key, value in result.spec.learner.options.items()},
        command=f"dpbench run --board {board} --learner {result.spec.learner}", selection=result.selection, tried=None,
        reads="features", reads_private=True, trust="submitted", rng="research",
        mechanism=MECHANISM, made=Origin(date=None, version="0.1.0", commit="0" * 40, dirty=False),
        metrics=result.metrics, class_accuracy=tuple(pair[0] for pair in classes), seeds=len(result.seeds),
        epsilon=result.privacy.epsilon, independent=result.privacy.independent, sigma=result.privacy.sigma,
        steps=sum(release.steps for release in result.privacy.plan), seconds=result.seconds["fit"],
        cpu_seconds=result.cpu_seconds["fit"], peak_bytes=max(result.peak_bytes.values()),
        plugin=result.components["learner"],
    )  # fmt: skip


def standing_of(board: Board, results: list[Result]) -> Standing:
    """Return a board with its results ranked by their place."""
    entries = tuple(entry_of(result, board.name, rank) for rank, result in enumerate(results))
    if not results:
        return Standing(board=board, digest=board.digest, classes=(), private=0, public=0, test=0, licence="",
                        chance=0.0, entries=())  # fmt: skip
    task = results[0].task
    return Standing(board=board, digest=board.digest, classes=task.classes, private=task.private, public=task.public,
                    test=task.test, licence=task.licence, overlap=task.overlap, chance=1 / len(task.classes),
                    entries=entries)  # fmt: skip


def hostile(result: Result) -> Result:
    """Return a result in which every word of the submitter's is an attack."""
    component = result.spec.learner.model_copy(update={"name": HOSTILE, "options": {HOSTILE: HOSTILE}})
    brought = {role: value.model_copy(update={"plugin": HOSTILE}) for role, value in result.components.items()}
    return result.model_copy(update={
        "spec": result.spec.model_copy(update={"learner": component}), "components": brought,
        "task": result.task.model_copy(update={"classes": (HOSTILE,) * len(result.task.classes), "licence": HOSTILE}),
        "provenance": {HOSTILE: HOSTILE, "commit": HOSTILE},
    })  # fmt: skip


def filed(root: Path, board: Board, results: list[Result]) -> Standing:
    """Write results where a leaderboard keeps them; return their board."""
    write(results, root / "results" / board.name)
    return standing_of(board, results)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return synthetic(find_board("digits-eps1"), 6, seed=0)


def index_of(results: list[Result], root: Path) -> Index:
    """File results on a board, and return the index of that board and of an empty one."""
    filled = filed(root, find_board("digits-eps1"), results)
    standings = (filled, standing_of(find_board("pcam-resnet50-eps0.1"), []))
    return Index(ranking="By the mean.", distances=compute_mean_distances(standings), standings=standings)


@pytest.fixture
def index(results: list[Result], tmp_path: Path) -> Index:
    return index_of(results, tmp_path)


@pytest.fixture(scope="module")
def built(results: list[Result], tmp_path_factory: pytest.TempPathFactory) -> tuple[Index, Path]:
    """The same index, and the folder of its files with its `site`, for tests that only read."""
    root = tmp_path_factory.mktemp("built")
    index = index_of(results, root)
    build_site(index, root, root / "site")
    return index, root


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_the_same_index_gives_the_same_bytes(built: tuple[Index, Path], tmp_path: Path) -> None:
    index, root = built
    build_site(index, root, tmp_path / "again")
    assert _bytes(root / "site") == _bytes(tmp_path / "again")


WAYS = re.compile(r'(?:href|src)="([^"]+)"')
ADDRESS = re.compile(r"https://[a-z0-9.-]+(/[A-Za-z0-9._~%/-]*)?")


def broken(site: Path) -> list[tuple[str, str]]:
    """Return the links of all pages that lead nowhere: to no file, to no place of a page, or to no address."""
    files = [file.resolve() for file in site.rglob("*.html")]
    pages = {file: file.read_text(encoding="utf-8") for file in files}
    marks = {file: set(re.findall(r'\sid="([^"]+)"', page)) for file, page in pages.items()}
    found = []
    for file, page in pages.items():
        for link in map(html.unescape, set(WAYS.findall(page)) - {"data:,"}):
            path, _, mark = link.partition("#")
            target = (file.parent / path).resolve() if path else file
            outside = link.startswith("http") and ADDRESS.fullmatch(link)
            inside = target.is_file() and (not mark or "=" in mark or mark in marks.get(target, ()))  # k=v: a choice
            found += [] if outside or inside else [(file.name, link)]
    return found


def test_every_board_and_every_entry_has_a_page_and_every_link_leads_somewhere(built: tuple[Index, Path]) -> None:
    _, root = built
    assert len(list((root / "site" / "boards").glob("*.html"))) == 2
    assert len(list((root / "site" / "entries").rglob("*.html"))) == 6
    assert len(list((root / "site" / "learners").glob("*.html"))) == 6
    assert broken(root / "site") == []


def test_raw_files_are_copied_to_the_byte_and_the_index_can_be_read_back(built: tuple[Index, Path]) -> None:
    index, root = built
    for entry in index.standings[0].entries:
        assert (root / "site" / entry.file).read_bytes() == (root / entry.file).read_bytes()
    assert Index.model_validate_json((root / "site" / "leaderboard.json").read_bytes()) == index


def test_a_page_shows_scores_with_intervals_and_both_epsilons(built: tuple[Index, Path]) -> None:
    index, root = built
    page = html.unescape((root / "site" / "boards" / "digits-eps1.html").read_text(encoding="utf-8"))
    for entry in index.standings[0].entries[1:]:
        if entry.role == "entry":
            assert format_percent_cell(entry.metrics["accuracy"]) in page
            assert format_upper_bound(entry.epsilon) in page
            assert (
                f"{format_lower_bound(entry.independent.lower)}–{format_upper_bound(entry.independent.upper)}" in page
            )


def test_an_entrys_page_says_what_epsilon_means_as_odds_and_of_whom(results: list[Result], tmp_path: Path) -> None:
    board, (noiseless, noisy, *_) = find_board("digits-eps1"), results
    ward = noisy.model_copy(update={"spec": noisy.spec.model_copy(update={"unit": "patient"})})
    standing = filed(tmp_path, board, [noiseless, noisy, ward])
    build_site(Index(ranking="By the mean.", standings=(standing,)), tmp_path, tmp_path / "site")
    odds = [format_percent_rounded_up(most) for most in max_true_positive_rates(noisy.privacy).values()]
    pages = [
        (tmp_path / "site" / layout.entry_page_path(standing, entry)).read_text("utf-8") for entry in standing.entries
    ]
    for page, whose in zip(pages[1:], ("image", "patient"), strict=True):
        assert f"true positives at most {odds[0]} at 0.1% false positives and {odds[1]} at" in page
        assert f"of one private {whose}, by someone who knows all the others" in page
    assert "Membership test" not in pages[0]


@pytest.mark.slow
def test_boards_of_one_data_set_say_whose_epsilon_it_is(results: list[Result], tmp_path: Path) -> None:
    lesions, images = (
        find_board(f"ham10000-{unit}-lite0-128-eps1").model_copy(update={"seeds": find_board("digits-eps1").seeds})
        for unit in ("lesion", "image")
    )
    standings = tuple(filed(tmp_path, board, results) for board in (lesions, images))
    build_site(Index(ranking="By the mean.", standings=standings), tmp_path, tmp_path / "site")
    assert [view.family_title(standing).rpartition(", ")[2] for standing in standings] == [
        "ε for a lesion",
        "ε for an image",
    ]
    home = html.unescape((tmp_path / "site" / "index.html").read_text(encoding="utf-8"))
    assert home.count("ε for a lesion") == home.count("ε for an image") > 0
    count = f"{results[0].task.private:,} private"
    for standing, whose in zip(standings, ("lesion", "image"), strict=True):
        page = (tmp_path / "site" / f"boards/{standing.board.name}.html").read_text(encoding="utf-8")
        assert f"{count} {whose}s, " in page
        assert re.search(rf"Unit of the guarantee</dt>\s*<dd>{whose}<", page)
    columns = [BoardColumn("Skin lesions (HAM10000)", "", standing) for standing in standings]
    assert _make_column_heads(columns) == ["Skin lesions, lesion", "Skin lesions, image"]


def test_odds_are_computed_once_for_entries_of_one_plan(
    results: list[Result], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[PrivacyGuarantee] = []

    def counted(privacy: PrivacyGuarantee) -> Mapping[float, float]:
        asked.append(privacy)
        return max_true_positive_rates(privacy)

    monkeypatch.setattr("dpbench.site.entry_pages.max_true_positive_rates", counted)
    alike = [result.model_copy(update={"privacy": results[1].privacy}) for result in results]
    standing = filed(tmp_path, find_board("digits-eps1"), alike)
    build_site(Index(ranking="By the mean.", standings=(standing,)), tmp_path, tmp_path / "site")
    assert asked == [results[1].privacy]


def test_an_open_board_says_what_would_fill_it(built: tuple[Index, Path]) -> None:
    _, root = built
    command = "dpbench run --board pcam-resnet50-eps0.1 --learner pillar"
    home = (root / "site" / "index.html").read_text(encoding="utf-8")
    assert home.index('id="open"') < home.index('href="boards/pcam-resnet50-eps0.1.html"')
    assert command in (root / "site" / "boards" / "pcam-resnet50-eps0.1.html").read_text(encoding="utf-8")


def test_a_cost_that_is_not_known_says_why_and_is_no_mark_in_the_chart(results: list[Result], tmp_path: Path) -> None:
    standing = filed(tmp_path, find_board("digits-eps1"), results)
    unknown = standing.entries[1].model_copy(update={"cpu_seconds": None, "unmeasured": "the fit ran on a GPU"})
    entries = tuple(unknown if entry.id == unknown.id else entry for entry in standing.entries)
    build_site(
        Index(ranking="", standings=(standing.model_copy(update={"entries": entries}),)), tmp_path, tmp_path / "site"
    )
    page = (tmp_path / "site" / "boards" / "digits-eps1.html").read_text(encoding="utf-8")
    (row,) = [part for part in page.split("<tbody")[1:] if f">{unknown.learner}</a>" in part and 'class="rest"' in part]
    assert f"<dt>Cost of one fit</dt><dd>not known: {unknown.unmeasured}</dd>" in row
    chart = page[page.index('id="cost"') :]
    shown = re.findall(r'<th scope="row">(.*?)</th><td class="number">', chart[: chart.index("</figure>")])
    assert shown == [format_entry_label(entry) for entry in entries if entry.role == "entry" and entry.id != unknown.id]
    known = sum(entry.role == "entry" for entry in entries)
    assert f"{known - 1} of {known} entries." in chart


def test_published_figures_are_labelled_with_their_source_and_are_in_no_table_of_entries(
    results: list[Result], tmp_path: Path
) -> None:
    board = find_board("cifar10-lite0-eps0.7")
    build_site(Index(ranking="", standings=(filed(tmp_path, board, results),)), tmp_path, tmp_path / "site")
    page = (tmp_path / "site" / "boards" / f"{board.name}.html").read_text(encoding="utf-8")
    standings, published = page.split('id="published"')
    assert "Pinto et al. 2023 (PILLAR), Table 1" in html.unescape(published)
    assert "84.89" in published
    assert "84.89" not in standings


def test_a_section_of_another_package_is_on_its_board_page_and_on_no_other(index: Index, tmp_path: Path) -> None:
    def section(board: str) -> Markup:
        return Markup("<p>Opacus</p>") if board == "digits-eps1" else Markup()

    build_site(index, tmp_path, tmp_path / "site", extras=SiteExtras(boards=(lambda: section,)))
    boards = tmp_path / "site" / "boards"
    assert "<p>Opacus</p>" in (boards / "digits-eps1.html").read_text(encoding="utf-8")
    assert "Opacus" not in (boards / "pcam-resnet50-eps0.1.html").read_text(encoding="utf-8")


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


@pytest.fixture(scope="module")
def attacked(results: list[Result], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site of a board all whose entries are hostile."""
    root = tmp_path_factory.mktemp("attacked")
    board = find_board("digits-eps1")
    standing = filed(root, board, results)
    attacks = [hostile(result) for result in results]
    entries = []
    for entry, attack in zip(standing.entries, attacks, strict=True):
        (root / entry.file).write_text(attack.with_evidence_digest().model_dump_json(), encoding="utf-8")
        bad = {"learner": HOSTILE, "settings": {HOSTILE: HOSTILE}, "command": HOSTILE, "why": HOSTILE}
        entries.append(entry.model_copy(update=bad))
    update = {"entries": tuple(entries), "licence": HOSTILE, "classes": (HOSTILE,) * 10}
    whole = (standing.model_copy(update=update),)
    index = Index(ranking="", distances=compute_mean_distances(whole), standings=whole)
    build_site(index, root, root / "site")
    return root / "site"


def test_words_of_strangers_make_no_element_no_handler_and_no_address(attacked: Path) -> None:
    pages = sorted(attacked.rglob("*.html"))
    assert len(pages) > 6 + 1 + 1 + 5
    for page in pages:
        elements = Elements(page.read_text(encoding="utf-8")).found
        assert not [tag for tag, _ in elements if tag in {"iframe", "object", "embed", "base", "foreignobject"}]
        for tag, attributes in elements:
            assert not [name for name in attributes if name.startswith("on") or name == "style"], page
            assert not re.match(r"\s*(javascript|data):", attributes.get("href") or "") or page.name == "404.html"
            assert tag != "img" or str(attributes["src"]).endswith(".svg")
            assert tag != "script" or str(attributes["src"]).endswith("assets/site.js")


def test_no_page_has_characters_that_reorder_or_hide_others(attacked: Path) -> None:
    for page in attacked.rglob("*.html"):
        assert not re.search("[\u202a-\u202e\u2066-\u2069\u200b-\u200f\u2028]", page.read_text(encoding="utf-8")), page


def test_a_policy_forbids_all_scripts_but_the_sites_own_files(attacked: Path) -> None:
    for page in attacked.rglob("*.html"):
        metas = [attributes for tag, attributes in Elements(page.read_text(encoding="utf-8")).found if tag == "meta"]
        (policy,) = [meta["content"] for meta in metas if meta.get("http-equiv") == "Content-Security-Policy"]
        assert policy is not None
        assert policy.startswith("default-src 'none'")
        assert "unsafe" not in policy


def test_strings_without_end_are_cut(results: list[Result], tmp_path: Path) -> None:
    board = find_board("digits-eps1")
    standing = filed(tmp_path, board, results[:2])
    long = "x" * 1_000_000
    entry = standing.entries[1].model_copy(
        update={"learner": long, "command": long, "settings": {long: long, "k": long}}
    )
    index = Index(ranking="", standings=(standing.model_copy(update={"entries": (standing.entries[0], entry)}),))
    build_site(index, tmp_path, tmp_path / "site")
    assert all(file.stat().st_size < 300_000 for file in (tmp_path / "site").rglob("*.html"))


def test_a_raw_file_is_shown_in_part_and_refused_when_enormous(results: list[Result], tmp_path: Path) -> None:
    standing = filed(tmp_path, find_board("digits-eps1"), results[:2])
    entry = standing.entries[1]
    index = Index(ranking="", standings=(standing,))
    raw = (tmp_path / entry.file).read_bytes() + b" " * 1_000_000
    (tmp_path / entry.file).write_bytes(raw)
    build_site(index, tmp_path, tmp_path / "site")
    assert (tmp_path / "site" / layout.entry_page_path(standing, entry)).stat().st_size < 2 * MAX_RAW_LENGTH + 60_000
    (tmp_path / entry.file).write_bytes(raw + b" " * 8_000_000)
    with pytest.raises(DataError, match="Expected at most 2,000,000 bytes"):
        build_site(index, tmp_path, tmp_path / "other")
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("name", ["../x", "..", ".hidden", "a/b", "a\\b", "", "a b", "ö", "x" * 201, "a\n"])
def test_names_that_are_paths_to_elsewhere_are_refused(index: Index, tmp_path: Path, name: str) -> None:
    standing = index.standings[0]
    bad = standing.entries[1].model_copy(update={"id": name, "file": f"results/digits-eps1/{name}.json"})
    broken = index.model_copy(update={"standings": (standing.model_copy(update={"entries": (bad,)}),)})
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match="Expected the name of an entry of board 'digits-eps1'"):
        build_site(broken, tmp_path, tmp_path / "site")
    assert sorted(tmp_path.rglob("*")) == before


def test_a_file_elsewhere_is_refused_named_or_linked(index: Index, tmp_path: Path) -> None:
    standing = index.standings[0]
    entry = standing.entries[1]
    secret = tmp_path.parent / f"{tmp_path.name}-secret.json"
    secret.write_text((tmp_path / entry.file).read_text(encoding="utf-8"), encoding="utf-8")
    named = entry.model_copy(update={"file": f"../{secret.name}"})
    with pytest.raises(DataError, match=r"to be the file results/digits-eps1/"):
        layout.check_names(index.model_copy(update={"standings": (standing.model_copy(update={"entries": (named,)}),)}))
    (tmp_path / entry.file).unlink()
    (tmp_path / entry.file).symlink_to(secret)
    with pytest.raises(DataError, match="got a link to"):
        build_site(index, tmp_path, tmp_path / "site")


def test_two_names_that_some_disks_take_for_one_are_refused(index: Index, tmp_path: Path) -> None:
    standing = index.standings[0]
    twins = [
        standing.entries[1].model_copy(update={"id": n, "file": f"results/digits-eps1/{n}.json"}) for n in ("A", "a")
    ]
    broken = index.model_copy(update={"standings": (standing.model_copy(update={"entries": tuple(twins)}),)})
    with pytest.raises(DataError, match="got 'a' twice"):
        build_site(broken, tmp_path, tmp_path / "site")


def test_a_result_that_is_no_result_is_named(index: Index, tmp_path: Path) -> None:
    file = tmp_path / index.standings[0].entries[2].file
    file.write_text('{"schema_version": 1}', encoding="utf-8")
    with pytest.raises(DataError, match=rf"Result results/digits-eps1/{file.name} does not fit the schema at digest"):
        build_site(index, tmp_path, tmp_path / "site")


def test_a_site_replaces_the_one_before_it_as_a_whole(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "site")
    (tmp_path / "site" / "stale.html").write_text("old", encoding="utf-8")
    build_site(index, tmp_path, tmp_path / "site")
    assert not (tmp_path / "site" / "stale.html").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reruns", "results", "site"]


def test_a_folder_that_no_build_made_is_left_alone(index: Index, tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "thesis.tex").write_text("years of work", encoding="utf-8")
    with pytest.raises(OutputError, match="absent, empty or a site that dpbench built"):
        build_site(index, tmp_path, tmp_path / "site")
    assert [path.name for path in (tmp_path / "site").iterdir()] == ["thesis.tex"]


def test_a_build_that_fails_leaves_the_site_before_it(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "site")
    before = _bytes(tmp_path / "site")
    (tmp_path / index.standings[0].entries[0].file).unlink()
    with pytest.raises(DataError, match="Cannot read result"):
        build_site(index, tmp_path, tmp_path / "site")
    assert _bytes(tmp_path / "site") == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["reruns", "results", "site"]


def _with(standing: Standing, **update: Any) -> Standing:
    entries = tuple(entry.model_copy(update=update) for entry in standing.entries)
    return standing.model_copy(update={"entries": entries})


def _against(*family: Standing) -> list[Chart]:
    every = assign_learner_styles({entry.learner for standing in family for entry in standing.entries})
    return make_epsilon_charts([make_board_rows(standing) for standing in family], every)


def test_accuracy_against_epsilon_needs_two_boards_and_joins_those_that_differ_in_epsilon_alone(
    results: list[Result],
) -> None:
    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "0.7", "1")]
    low, middle, high = (standing_of(board, results) for board in boards)
    other = standing_of(find_board("cifar10-resnet50-eps0.7"), results)
    index = Index(ranking="", standings=(middle, other, low, high))
    assert [[akin.board.epsilon for akin in found] for found in view.group_families(index)] == [[0.1, 0.7, 1.0], [0.7]]
    (chart,) = _against(low, middle, high)  # all by default settings
    assert {row[1] for row in chart.rows} == {"0.1", "0.7", "1"}
    assert "no privacy" in {row[0] for row in chart.rows}
    assert "84.89" not in chart.picture  # what papers report stretches no axis
    assert _against(low) == []
    assert _against(standing_of(boards[0], [])) == []
    assert _against(standing_of(boards[0], []), low, middle)[0].rows == _against(low, middle)[0].rows


def test_accuracy_against_k_takes_runs_that_differ_in_k_alone(results: list[Result]) -> None:
    standing = standing_of(find_board("digits-eps1"), results)
    alike = _with(standing, learner="pillar", selection="default")
    every = assign_learner_styles(["pillar", *(entry.learner for entry in standing.entries)])
    assert make_k_chart(make_board_rows(standing), every) is None  # each learner has one entry
    assert make_k_chart(make_board_rows(alike), every) is None  # they differ in steps too
    only_k = tuple(entry.model_copy(update={"settings": {**entry.settings, "steps": "9"}}) for entry in alike.entries)
    chart = make_k_chart(make_board_rows(alike.model_copy(update={"entries": only_k})), every)
    assert chart is not None
    assert len({row[1] for row in chart.rows}) == 5


def test_a_picture_has_no_style_of_its_own_follows_the_theme_and_runs_nothing(results: list[Result]) -> None:
    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "0.7")]
    low, high = (_with(standing_of(board, results), learner=HOSTILE, selection="default") for board in boards)
    (chart,) = _against(low, high)
    elements = Elements(chart.picture).found
    assert {tag for tag, _ in elements} <= {"svg", "g", "path", "defs", "use", "text", "clippath", "rect"}
    assert not [attributes for _, attributes in elements if "style" in attributes or "onerror" in attributes]
    assert re.search(r"var\(--c[0-7]\)", chart.picture) and "var(--ink)" in chart.picture
    assert "&lt;/script&gt;" in chart.picture  # as words


def test_names_within_pictures_of_one_page_differ(results: list[Result]) -> None:
    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "0.7")]
    found = []
    for rule in ("default", "public-validation"):
        found += _against(*(_with(standing_of(board, results), selection=rule) for board in boards))
    names = [re.findall(r'\sid="([^"]+)"', chart.picture) for chart in found]
    assert len(names) == 2
    assert not set(names[0]) & set(names[1])
    for chart, own in zip(found, names, strict=True):
        assert set(re.findall(r'(?:href="|url\()#([^")]+)', chart.picture)) <= set(own)


def test_a_thousand_entries_are_limited_and_the_table_says_so(results: list[Result]) -> None:
    standing = standing_of(find_board("digits-eps1"), results)
    many = tuple(
        standing.entries[1].model_copy(update={"id": f"e{n}", "learner": f"learner-{n}", "rank": n + 1})
        for n in range(1000)
    )
    crowded = standing.model_copy(update={"entries": many})
    shown = view.make_board_table(make_board_rows(crowded))
    assert (len(shown.rows), shown.entries, shown.left_out) == (500, 1000, 500)


def test_a_board_has_a_table_of_entries_without_public_labels_and_one_of_those_with(results: list[Result]) -> None:
    standing = standing_of(find_board("digits-eps1"), results)
    ceiling, first, second, *_ = standing.entries
    reads = {"reads": "features and labels"}
    control = first.model_copy(update={"role": "control", "rank": None, "id": "control", **reads})
    reader = second.model_copy(update={"id": "reader", **reads})

    def groups(*entries: Entry) -> list[tuple[str, set[str]]]:
        table = view.make_board_table(make_board_rows(standing.model_copy(update={"entries": entries})))
        return [(group.key, {row.entry.id for row in group.rows}) for group in table.groups]

    assert groups(first, second, reader, control, ceiling) == [
        ("without-labels", {first.id, second.id, ceiling.id}),
        ("with-labels", {"reader", "control"}),
    ]
    assert groups(first, control) == [("without-labels", {first.id, "control"})]  # a reference opens no table
    assert groups(reader, ceiling) == [("with-labels", {"reader", ceiling.id})]
    assert groups(control, ceiling) == []


def test_a_learners_page_shows_its_best_result_on_each_board_by_epsilon(results: list[Result], tmp_path: Path) -> None:
    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "1")]
    standings = tuple(filed(tmp_path, board, results) for board in boards)
    build_site(Index(ranking="", standings=standings), tmp_path, tmp_path / "site")
    name = standings[0].entries[1].learner
    page = (tmp_path / "site" / "learners" / f"{name}.html").read_text(encoding="utf-8")
    assert page.index('id="entries"') < page.index("<dt>Guarantee</dt>")  # results come first
    (table,) = re.findall(r'<table class="heat.*?</table>', page, re.DOTALL)
    assert re.findall(r'class="group">([^<]+)<', table) == ["ε 0.1", "ε 1"]
    (line,) = re.findall(r'<tr><th scope="row">CIFAR-10.*?</tr>', table, re.DOTALL)
    pages = [layout.entry_page_path(standing, standing.entries[1]) for standing in standings]
    assert re.findall(r'href="\.\./([^"]+)"', line) == pages


def test_the_overview_for_language_models_names_every_board_with_entries(built: tuple[Index, Path]) -> None:
    _, root = built
    text = (root / "site" / "llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# dpbench\n\n> ") and len(text.splitlines()) < 80
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert "boards/digits-eps1.html" in links and "boards/pcam-resnet50-eps0.1.html" not in links
    assert all((root / "site" / link).is_file() for link in links)


def test_the_title_of_a_board_adds_no_line_and_no_link_to_the_overview(index: Index, tmp_path: Path) -> None:
    first = next(standing for standing in index.standings if standing.entries)
    hostile = first.board.model_copy(update={"title": "Lungs\n## Instructions\n[here](https://a.example), ε 1"})
    changed = index.model_copy(update={"standings": (first.model_copy(update={"board": hostile}),)})
    text = render_overview(SiteContext.from_index(changed, tmp_path, load(), docs=False)).decode()
    assert "\n## Instructions" not in text and "](https://a.example" not in text
    assert "Lungs \\#\\# Instructions" in text


def test_an_axis_cuts_off_what_is_far_below_the_others() -> None:
    scores = [Interval(mean=mean, low=mean - 0.01, high=mean + 0.01) for mean in (0.80, 0.79, 0.78, 0.77, 0.3)]
    axis = view.IntervalAxis.from_scores(scores)
    assert axis.is_below(0.3)
    assert not any(axis.is_below(score.mean) for score in scores[:4])
    places = [float(axis.coordinate(score.mean)) for score in scores]
    assert places == sorted(places, reverse=True)
    assert 3 <= len(axis.ticks) <= 6
    assert view.IntervalAxis.from_scores([]).ticks


# It travels.


def test_a_page_says_what_it_is_and_links_are_canonical_where_an_address_is_known(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_site(index, tmp_path, tmp_path / "plain")
    monkeypatch.setenv("DPBENCH_ADDRESS", "https://example.org/board/")
    monkeypatch.setenv("DPBENCH_REPOSITORY", "https://example.org/code")
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "86400")
    build_site(index, tmp_path, tmp_path / "placed")
    assert broken(tmp_path / "placed") == []
    seen = set()
    for file in (tmp_path / "placed").rglob("*.html"):
        page, path = file.read_text(encoding="utf-8"), file.relative_to(tmp_path / "placed").as_posix()
        if path == "404.html":
            continue
        address = "https://example.org/board/" + ("" if path == "index.html" else path)
        assert f'<link rel="canonical" href="{address}">' in page
        assert '<a href="https://example.org/code" rel="noreferrer">source code</a>' in page
        assert "1970-01-02" in page
        head = page.split("<body")[0]
        (title,), (described,), (preview,) = (
            re.findall(pattern, head)
            for pattern in (r"<title>([^<]+)<", r'name="description" content="([^"]+)"', r'og:image" content="([^"]+)"')
        )
        assert title not in seen, path
        seen.add(title)
        assert 20 < len(described) < 400
        assert (tmp_path / "placed" / preview.removeprefix("https://example.org/board/")).is_file()
        plain = (tmp_path / "plain" / path).read_text(encoding="utf-8")
        assert "canonical" not in plain and "https://" not in plain.split("<main")[0]


@pytest.mark.parametrize(
    "address", ["ftp://x", "https://", 'https://x/"onload="', "javascript:alert(1)", "https://x y"]
)
def test_an_address_that_is_none_is_refused(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setenv("DPBENCH_ADDRESS", address)
    with pytest.raises(SpecError, match="Expected DPBENCH_ADDRESS to be an address like"):
        build_site(index, tmp_path, tmp_path / "site")


def test_a_site_is_of_the_day_of_its_newest_result(index: Index, tmp_path: Path) -> None:
    standing = index.standings[0]
    days = {entry.id: f"2026-0{place + 1}-01" for place, entry in enumerate(standing.entries)}
    entries = tuple(
        entry.model_copy(update={"made": entry.made.model_copy(update={"date": days[entry.id]})})
        for entry in standing.entries
    )
    dated = index.model_copy(update={"standings": (standing.model_copy(update={"entries": entries}),)})
    build_site(dated, tmp_path, tmp_path / "site")
    assert f'<time datetime="{max(days.values())}">' in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_tables_can_be_downloaded_and_hold_what_the_index_holds(built: tuple[Index, Path]) -> None:
    index, root = built
    for path in ("entries.csv", "boards/digits-eps1.csv"):
        rows = list(csv.DictReader(io.StringIO((root / "site" / path).read_text(encoding="utf-8"))))
        assert [row["file"] for row in rows] == [entry.file for entry in index.standings[0].entries]


@pytest.mark.slow
def test_the_documentation_stands_beside_the_board_where_it_is_built_along(index: Index, tmp_path: Path) -> None:
    def docs(folder: Path) -> None:
        folder.mkdir()
        (folder / "index.html").write_text("<!doctype html>", encoding="utf-8")

    build_site(index, tmp_path, tmp_path / "site", docs=docs)
    assert 'href="docs/index.html"' in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert broken(tmp_path / "site") == []
    build_site(index, tmp_path, tmp_path / "site")
    assert "docs/" not in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")


def test_an_interval_says_what_is_known() -> None:
    assert format_percent_cell(Interval(mean=0.5, low=None, high=None)) == "50.00"
    assert format_percent_cell(None) == "–"


@pytest.mark.slow
def test_many_entries_are_written_by_several_processes_as_by_one(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_site(index, tmp_path, tmp_path / "one")
    monkeypatch.setattr("dpbench.site.entry_pages.MIN_ENTRIES_PER_PROCESS", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    build_site(index, tmp_path, tmp_path / "two")
    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "two")


def test_charts_of_a_board_draw_untuned_learners_beside_tuned_ones_and_begin_with_defaults(
    results: list[Result],
) -> None:
    def rule(entry: Entry) -> Entry:
        return entry.model_copy(update={"selection": "public-validation" if entry.rank == 2 else "default"})

    found = [standing_of(find_board(f"cifar10-lite0-eps{epsilon}"), results) for epsilon in ("0.1", "0.7")]
    family = [standing.model_copy(update={"entries": tuple(map(rule, standing.entries))}) for standing in found]
    first, second = _against(*family)
    assert (first.key, second.key) == ("epsilon-default", "epsilon-tuned")
    untuned = {entry.learner for entry in family[0].entries if entry.role == "entry" and entry.selection == "default"}
    (tuned,) = {entry.learner for entry in family[0].entries if entry.selection == "public-validation"}
    assert untuned == {row[0] for row in first.rows} - set(view.REFERENCE_LABELS.values())
    assert untuned | {tuned} == {row[0] for row in second.rows} - set(view.REFERENCE_LABELS.values())


@pytest.mark.slow
def test_every_epsilon_has_a_map_and_each_leads_to_the_others(results: list[Result], tmp_path: Path) -> None:
    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "0.7", "1")]
    standings = tuple(filed(tmp_path, board, results) for board in boards)
    build_site(
        Index(ranking="", distances=compute_mean_distances(standings), standings=standings), tmp_path, tmp_path / "site"
    )
    paths = {1.0: "index.html", 0.1: "epsilon-0.1.html", 0.7: "epsilon-0.7.html"}
    for epsilon, path in paths.items():
        page = (tmp_path / "site" / path).read_text(encoding="utf-8")
        (table,) = re.findall(r'<table class="heat.*?</table>', page, re.DOTALL)
        assert set(re.findall(r'href="boards/([^"]+).html"', table)) == {f"cifar10-lite0-eps{epsilon:g}"}
        assert all(f'<a href="{other}"' in page for other in paths.values())
    assert broken(tmp_path / "site") == []


def test_an_empty_cell_of_the_map_says_why_and_so_does_its_caption(results: list[Result], tmp_path: Path) -> None:
    boards = [(find_board("cifar10-lite0-eps1"), results), (find_board("digits-eps1"), results[:-1])]
    standings = tuple(filed(tmp_path, board, some) for board, some in boards)
    build_site(
        Index(ranking="", distances=compute_mean_distances(standings), standings=standings), tmp_path, tmp_path / "site"
    )
    (table,) = re.findall(r'<table class="heat.*?</table>', (tmp_path / "site" / "index.html").read_text(), re.DOTALL)
    assert "Empty: nobody has entered that learner on that board yet." in table
    missing = {entry.learner for entry in standings[0].entries} - {entry.learner for entry in standings[1].entries}
    rows = [
        row for row in table.split("<tr>") if '<td class="none"><span class="hidden">no entry yet</span></td>' in row
    ]
    assert [name for name in missing if any(f">{name}</a>" in row for row in rows)] == [*missing]


def test_the_map_has_the_score_of_a_tuned_learner_at_default_settings_too(index: Index, tmp_path: Path) -> None:
    filled, *others = index.standings
    first, *entries, last = filled.entries
    tuned = entries[0].model_copy(update={"selection": "public-validation"})
    score = {"accuracy": Interval(mean=0.0123, low=0.01, high=0.02)}
    earlier = last.model_copy(
        update={"learner": tuned.learner, "metrics": {**last.metrics, **score}, "defaults_version": "0.2.0"}
    )
    changed = filled.model_copy(update={"entries": (first, tuned, *entries[1:], earlier)})
    build_site(index.model_copy(update={"standings": (changed, *others), "distances": ()}), tmp_path, tmp_path / "site")
    page = (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert re.findall('<span class="default".*?</span>', page) == [
        '<span class="default" title="defaults of version 0.2.0">1.2</span>'
    ]
    said = (tmp_path / "site" / "boards" / f"{filled.board.name}.html").read_text(encoding="utf-8")
    assert "<small>defaults of version 0.2.0</small>" in said


def test_the_home_pages_preview_shows_its_map(built: tuple[Index, Path]) -> None:
    _, root = built
    home = (root / "site" / "index.html").read_text(encoding="utf-8")
    (place,) = re.findall(r'og:image" content="([^"]+)"', home)
    card = (root / "site" / place).read_bytes()
    assert card != render_map_preview(None)
    assert Image.open(io.BytesIO(card)).size == (1200, 630)


def test_an_entry_says_whether_its_model_may_be_published(results: list[Result]) -> None:
    standing = standing_of(find_board("digits-eps1"), results)
    private = next(entry for entry in standing.entries if entry.reads_private)
    said = {rng: explain_model_release(private.model_copy(update={"rng": rng})) for rng in ("research", "secure")}
    assert said["research"].startswith("None to download: the noise comes from published seeds")
    assert said["secure"].startswith("If you ran this with --models, you may publish the model")
    without = private.model_copy(update={"reads_private": False})
    assert explain_model_release(without).startswith("You may publish a model from this run")


@pytest.mark.slow
def test_all_entries_begin_with_the_boards_of_the_home_page(results: list[Result], tmp_path: Path) -> None:
    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "1", "0.7")]
    standings = tuple(filed(tmp_path, board, results) for board in boards)
    build_site(Index(ranking="", standings=standings), tmp_path, tmp_path / "site")
    page = (tmp_path / "site" / "entries.html").read_text(encoding="utf-8")
    shown = list(dict.fromkeys(re.findall(r'<td><a href="boards/([^"]+).html"', page)))
    assert shown == ["cifar10-lite0-eps1", "cifar10-lite0-eps0.1", "cifar10-lite0-eps0.7"]


def test_filters_and_heads_of_the_table_of_all_entries_go_by_the_names_of_columns(built: tuple[Index, Path]) -> None:
    _, root = built
    page = (root / "site" / "entries.html").read_text(encoding="utf-8")
    heads = re.findall(r'<th scope="col" data-column="([^"]+)"', page)
    assert heads == [column.name for column in entries_page.COLUMNS]
    filters = re.findall(r'<select name="([^"]+)" data-column="([^"]+)"', page)
    assert [pair for pair in filters if pair[0] != pair[1] or pair[1] not in heads] == []
    assert [name for name, _ in filters] == [column.name for column in entries_page.COLUMNS if column.filter]


def test_a_page_that_is_not_found_leads_to_the_address_and_never_above_the_root(
    built: tuple[Index, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index, root = built
    plain = (root / "site" / "404.html").read_text(encoding="utf-8")
    assert re.findall(r'href="([^"]+)"', plain) == ["data:,", "index.html"]
    monkeypatch.setenv("DPBENCH_ADDRESS", "https://example.org/board")
    build_site(index, root, tmp_path / "site")
    assert 'href="https://example.org/board/"' in (tmp_path / "site" / "404.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_a_repository_is_that_of_the_environment_or_of_the_metadata_else_pages_say_clone(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def home() -> str:
        build_site(index, tmp_path, tmp_path / "site")
        return (tmp_path / "site" / "index.html").read_text(encoding="utf-8")

    said = Message()
    monkeypatch.setattr("dpbench.site.settings.metadata", lambda name: said)
    assert "from a clone of this repository" in home()
    said["Project-URL"] = "Documentation, https://example.org/docs"
    said["Project-URL"] = "Repository, https://example.org/metadata/"
    assert "from a clone of https://example.org/metadata\n" in home()
    monkeypatch.setenv("DPBENCH_REPOSITORY", "https://example.org/environment")
    assert "from a clone of https://example.org/environment\n" in home()


def test_every_installed_component_has_what_to_cite(built: tuple[Index, Path]) -> None:
    _, root = built
    page = (root / "site" / "cite.html").read_text(encoding="utf-8")
    plugins = load()
    for citation in list_citations(plugins):
        assert f'id="{citation.kind}-{text.make_anchor(citation.name)}"' in page
    known = {f"{kind}/{name}" for kind in KINDS for name in plugins.components[kind]}
    assert [name for reference in read_catalogue() for name in reference.components if name not in known] == []
    without = {
        f"{citation.kind}/{citation.name}"
        for citation in list_citations(plugins)
        if not citation.references and not citation.said
    }
    assert without <= OUR_OWN | {f"extractor/{name}" for name in ("pixels", "pack")}


OUR_OWN = {f"learner/{name}" for name in (
    "class-means", "dp-finetune", "non-private", "public-finetune", "public-only", "public-tail", "self-tail",
    "thrift", "whitened",
)}  # fmt: skip
"""Learners that come from no paper: one cites dpbench."""


def test_entries_of_bibtex_are_whole_and_have_distinct_keys() -> None:
    keys = [re.match(r"@\w+\{([\w-]+),\n", reference.bibtex) for reference in read_catalogue()]
    assert len({key[1] for key in keys if key}) == len(read_catalogue()) == 44
    for reference in read_catalogue():
        assert reference.bibtex.count("{") == reference.bibtex.count("}")
        assert all(f"  {field} " in reference.bibtex for field in ("author", "title", "year"))
        assert reference.components and "keywords" not in reference.bibtex


def test_a_list_of_a_docstring_is_a_paragraph_a_point() -> None:
    class Documented:
        """What it does.

        1. The first
           point.
        2. The `second`.

        Otherwise:

        - `a`: one - not
          two.
        - `b`
        """

    assert prose.render_paragraphs(Documented) == [
        "What it does.",
        "1. The first point.",
        "2. The <code>second</code>.",
        "Otherwise:",
        "• <code>a</code>: one - not two.",
        "• <code>b</code>",
    ]
