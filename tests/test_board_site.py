"""The leaderboard's site as files: whole or absent, the same bytes each time, and nothing of a stranger's escapes."""

from __future__ import annotations

import html
import json
import math
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from dpbench.board.index import Entry, Index, Role, Standing
from dpbench.board.site import build_site, output, scripts, text, view
from dpbench.board.site.charts import board_charts
from dpbench.board.site.charts.classes import class_chart, class_specification
from dpbench.board.site.entries import RAW
from dpbench.errors import DataError, OutputError
from dpbench.records.board import Board, find_board
from dpbench.records.result import Interval, Result, interval
from tests.boards import synthetic, write

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
        reads_labels=False, reads_private=True, status=result.status, trust=("enforced", "derived"),
        metrics=result.metrics, class_accuracy=tuple(one[0] for one in classes), seeds=len(result.seeds),
        epsilon=result.privacy.epsilon, independent=result.privacy.independent, sigma=result.privacy.sigma,
        steps=sum(release.steps for release in result.privacy.plan), seconds=result.seconds["fit"],
        peak_bytes=max(result.peak_bytes.values()), plugin=result.components["learner"], commit="0" * 40, dirty=False,
    )  # fmt: skip


def standing_of(board: Board, results: list[Result]) -> Standing:
    """Return a board with its results ranked by their place."""
    entries = tuple(entry_of(result, board.name, rank) for rank, result in enumerate(results))
    if not results:
        return Standing(board=board, digest=board.digest, classes=(), private=0, public=0, test=0, licence="",
                        chance=0.0, entries=())  # fmt: skip
    task = results[0].task
    return Standing(board=board, digest=board.digest, classes=task.classes, private=task.private, public=task.public,
                    test=task.test, licence=task.licence, overlap=task.overlap or {}, chance=1 / len(task.classes),
                    entries=entries)  # fmt: skip


def hostile(result: Result) -> Result:
    """Return a result in which every word of the submitter's is an attack."""
    component = result.spec.learner.model_copy(update={"name": HOSTILE, "options": {HOSTILE: HOSTILE}})
    brought = {role: one.model_copy(update={"plugin": HOSTILE}) for role, one in result.components.items()}
    return result.model_copy(update={
        "spec": result.spec.model_copy(update={"learner": component}), "components": brought,
        "task": result.task.model_copy(update={"classes": (HOSTILE,) * len(result.task.classes), "licence": HOSTILE}),
        "provenance": {HOSTILE: HOSTILE, "commit": HOSTILE},
        "privacy": result.privacy.model_copy(update={"not_covered": (HOSTILE,)}),
    })  # fmt: skip


def filed(root: Path, board: Board, results: list[Result]) -> Standing:
    """Write results where a leaderboard keeps them; return their board."""
    write(results, root / "results" / board.name)
    return standing_of(board, results)


@pytest.fixture(scope="module")
def results() -> list[Result]:
    return synthetic(find_board("digits-eps1"), 6, seed=0)


@pytest.fixture
def index(results: list[Result], tmp_path: Path) -> Index:
    filled = filed(tmp_path, find_board("digits-eps1"), results)
    return Index(ranking="By the mean.", standings=(filled, standing_of(find_board("pcam-resnet50-eps0.1"), [])))


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(file.relative_to(folder)): file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_the_same_index_gives_the_same_bytes(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "one")
    build_site(index, tmp_path, tmp_path / "two")
    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "two")


def test_every_board_and_every_entry_has_a_page_and_every_link_leads_somewhere(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "site")
    pages = [file for file in (tmp_path / "site").rglob("*.html") if file.name != "404.html"]
    assert len(pages) == 1 + 2 + 6
    links = [
        (page, link)
        for page in pages
        for link in re.findall(r'(?:href|src)="([^"#]+)', page.read_text(encoding="utf-8"))
    ]
    assert len(links) > 50
    assert [(page.name, link) for page, link in links if not (page.parent / link).is_file()] == []


def test_raw_files_are_copied_to_the_byte_and_the_index_can_be_read_back(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "site")
    for entry in index.standings[0].entries:
        assert (tmp_path / "site" / entry.file).read_bytes() == (tmp_path / entry.file).read_bytes()
    assert Index.model_validate_json((tmp_path / "site" / "leaderboard.json").read_bytes()) == index


def test_a_page_shows_scores_with_intervals_and_both_epsilons(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "site")
    page = html.unescape((tmp_path / "site" / "boards" / "digits-eps1.html").read_text(encoding="utf-8"))
    for entry in index.standings[0].entries[1:]:
        if entry.role == "entry":
            assert text.spread(entry.metrics["accuracy"]) in page
            assert f"{text.downward(entry.independent.lower)}–{text.upward(entry.independent.upper, 3)}" in page


def test_an_open_board_says_what_would_fill_it(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "site")
    command = "dpbench run --board pcam-resnet50-eps0.1 --learner pillar"
    assert command in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
    assert command in (tmp_path / "site" / "boards" / "pcam-resnet50-eps0.1.html").read_text(encoding="utf-8")


def test_published_figures_are_labelled_with_their_source_and_are_in_no_table_of_entries(
    results: list[Result], tmp_path: Path
) -> None:
    board = find_board("cifar10-lite0-eps0.7")
    build_site(Index(ranking="", standings=(filed(tmp_path, board, results),)), tmp_path, tmp_path / "site")
    page = (tmp_path / "site" / "boards" / f"{board.name}.html").read_text(encoding="utf-8")
    standings, published = page.split('id="published"')
    assert "Pinto et al. 2023 (PILLAR), Table 1" in html.unescape(published)
    assert "84.89" in published
    assert "84.89" not in standings.split('id="charts"')[0]


class Elements(HTMLParser):
    """Collects the elements of a page with their attributes, and what its scripts say."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.scripts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        if self.found and self.found[-1][0] == "script" and data.strip():
            self.scripts.append(data)


@pytest.fixture
def attacked(results: list[Result], tmp_path: Path) -> Path:
    """The site of a board all whose entries are hostile."""
    board = find_board("digits-eps1")
    standing = filed(tmp_path, board, results)
    attacks = [hostile(result) for result in results]
    entries = []
    for entry, attack in zip(standing.entries, attacks, strict=True):
        (tmp_path / entry.file).write_text(attack.model_dump_json(), encoding="utf-8")
        bad = {"learner": HOSTILE, "settings": {HOSTILE: HOSTILE}, "command": HOSTILE, "why": HOSTILE}
        entries.append(entry.model_copy(update=bad))
    update = {"entries": tuple(entries), "licence": HOSTILE, "classes": (HOSTILE,) * 10}
    index = Index(ranking="", standings=(standing.model_copy(update=update),))
    build_site(index, tmp_path, tmp_path / "site")
    return tmp_path / "site"


def test_words_of_strangers_make_no_element_no_handler_and_no_address(attacked: Path) -> None:
    pages = sorted(attacked.rglob("*.html"))
    assert len(pages) == 1 + 1 + 6 + 1
    for page in pages:
        elements = Elements(page.read_text(encoding="utf-8")).found
        assert not [tag for tag, _ in elements if tag in {"img", "iframe", "object", "embed", "base"}]
        for tag, attributes in elements:
            assert not [name for name in attributes if name.startswith("on")], page
            assert not re.match(r"\s*(javascript|data|https?):", attributes.get("href") or "") or tag == "link"
            assert tag != "script" or "src" in attributes or attributes.get("type") == "application/json"


def test_data_for_scripts_cannot_end_their_element_and_are_json(attacked: Path) -> None:
    found = [one for page in attacked.rglob("*.html") for one in Elements(page.read_text(encoding="utf-8")).scripts]
    assert len(found) >= 1 + 2 + 6
    for one in found:
        assert json.loads(one)
        assert not set("<>&\u2028\u202e") & set(one)


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
    long = "x" * 10_000_000
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
    assert (tmp_path / "site" / output.page(standing, entry)).stat().st_size < 2 * RAW + 60_000
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
        output.check_names(index.model_copy(update={"standings": (standing.model_copy(update={"entries": (named,)}),)}))
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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


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
    assert sorted(path.name for path in tmp_path.iterdir()) == ["results", "site"]


def test_a_missing_package_is_one_sentence(index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "altair", None)
    with pytest.raises(DataError, match=r"needs altair, which is not installed: pip install 'dpbench-vision\[board\]'"):
        build_site(index, tmp_path, tmp_path / "site")


def test_libraries_keep_their_notices_and_set_one_name() -> None:
    files = scripts.libraries()
    assert b"SpryMedia Ltd - datatables.net/license" in files["datatables.js"]
    assert b"window.DataTable=" in files["datatables.js"]
    assert b"window.vegaEmbed=" in files["vega.js"]
    assert files["licences.txt"].count(b"Permission is hereby granted") == 1
    assert files["licences.txt"].count(b"Redistribution and use") == 1
    assert sum(map(len, files.values())) < 2_000_000


@pytest.mark.parametrize(
    "module",
    ["var x=1;", "export{a as b};", "export{a as default};export{b as c};", "import x from 'y';export{x as default};"],
)
def test_a_bundle_that_looks_otherwise_is_refused(module: str) -> None:
    with pytest.raises(DataError, match="one module with a default export and no imports"):
        scripts.tables_script(module)


def test_a_bundle_without_vega_embed_is_refused() -> None:
    with pytest.raises(DataError, match=r"to set window\.vegaEmbed"):
        scripts.vega_script("var x = 1;")


def _charts(standing: Standing, *more: Standing) -> dict[str, Any]:
    learners = sorted({text.shown(entry.learner, 40) for one in (standing, *more) for entry in one.entries})
    return {chart.key: chart for chart in board_charts(standing, view.table(standing), (standing, *more), learners)}


def _with(standing: Standing, **update: Any) -> Standing:
    entries = tuple(entry.model_copy(update=update) for entry in standing.entries)
    return standing.model_copy(update={"entries": entries})


def test_one_entry_without_an_interval_is_drawn(results: list[Result]) -> None:
    standing = standing_of(find_board("digits-eps1"), results[:2])
    single = _with(standing, metrics={"accuracy": interval([0.5])}, seconds=0.0)
    charts = _charts(single)
    assert set(charts) == {"chart-entries", "chart-seconds"}
    (row,) = charts["chart-seconds"].spec["datasets"]["entries"]
    assert (row["low"], row["mean"], row["high"], row["value"]) == (50.0, 50.0, 50.0, "50.00")
    assert row["x"] > 0


def test_a_board_without_entries_has_no_chart(results: list[Result]) -> None:
    board = find_board("digits-eps1")
    assert _charts(standing_of(board, [])) == {}
    assert _charts(standing_of(board, results[:1])) == {}


def test_accuracy_against_epsilon_needs_two_boards_and_joins_those_that_differ_in_epsilon_alone(
    results: list[Result],
) -> None:
    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "0.7", "1")]
    one, two, three = (standing_of(board, results) for board in boards)
    other = standing_of(find_board("cifar10-resnet50-eps0.7"), results)
    index = Index(ranking="", standings=(two, other, one, three))
    assert [akin.board.epsilon for akin in view.family(one, index)] == [0.1, 0.7, 1.0]
    chart = _charts(one, two, three)["chart-epsilon"]
    assert {row["x"] for row in chart.spec["datasets"]["entries"]} == {0.1, 0.7, 1.0}
    assert {row["what"] for row in chart.spec["datasets"]["rules"]} >= {"no privacy"}
    assert "84.89" in {row["value"] for row in chart.spec["datasets"]["published"]}
    assert "chart-epsilon" not in _charts(one)


def test_accuracy_against_k_needs_a_learner_with_several(results: list[Result]) -> None:
    standing = standing_of(find_board("digits-eps1"), results)
    assert "chart-k" not in _charts(standing)  # each has one entry
    chart = _charts(_with(standing, learner="pillar"))["chart-k"]
    assert len({row["x"] for row in chart.spec["datasets"]["entries"]}) == 5


def test_the_front_holds_entries_that_none_is_both_faster_and_better_than(results: list[Result]) -> None:
    standing = standing_of(find_board("digits-eps1"), results)
    rows = _charts(standing)["chart-seconds"].spec["datasets"]["entries"]
    for row in rows:
        beaten = any(other["x"] <= row["x"] and other["mean"] >= row["mean"] and other is not row for other in rows)
        assert row["front"] is not beaten


def test_a_thousand_entries_are_limited_and_the_page_says_so(results: list[Result], tmp_path: Path) -> None:
    standing = standing_of(find_board("digits-eps1"), results)
    many = tuple(
        standing.entries[1].model_copy(update={"id": f"e{n}", "learner": f"learner-{n}", "rank": n + 1})
        for n in range(1000)
    )
    crowded = standing.model_copy(update={"entries": many})
    charts = _charts(crowded)
    assert "The best 200 entries." in charts["chart-seconds"].note
    assert "The best 30 entries." in charts["chart-entries"].note
    assert view.table(crowded).left_out == 500
    assert len(json.dumps([chart.spec for chart in charts.values()])) < 200_000


def test_classes_without_test_images_are_left_out_and_of_many_the_worst_are_shown(results: list[Result]) -> None:
    result = results[1]
    seeds = tuple(
        seed.model_copy(update={"class_accuracy": (None, *(n / 100 for n in range(99)))}) for seed in result.seeds
    )
    classes = tuple(f"class {n}" for n in range(100))
    task = result.task.model_copy(update={"classes": classes})
    chart = class_chart(result.model_copy(update={"seeds": seeds, "task": task}), class_specification())
    assert chart is not None
    shown = [row["label"] for row in chart.spec["datasets"]["classes"]]
    assert shown == [f"class {n}" for n in range(1, 61)]
    assert "worst 60 of 99 classes" in chart.note


def test_a_chart_of_the_page_is_what_vega_lite_can_compile(results: list[Result]) -> None:
    import vl_convert

    boards = [find_board(f"cifar10-lite0-eps{epsilon}") for epsilon in ("0.1", "0.7")]
    one, two = (_with(standing_of(board, results), learner=HOSTILE) for board in boards)
    charts = [*_charts(one, two).values(), class_chart(hostile(results[1]), class_specification())]
    assert len(charts) == 5
    for chart in charts:
        spec = {**chart.spec, "width": 400}
        assert "<script" not in vl_convert.vegalite_to_svg(spec)
        assert vl_convert.vegalite_to_vega(spec)["marks"]


def test_an_interval_says_what_is_known() -> None:
    assert text.spread(Interval(mean=0.5, low=None, high=None)) == "50.00"
    assert text.spread(None) == "–"
    assert text.upward(0.69999) == "0.7000"
    assert text.upward(math.inf) == "∞"


def test_many_entries_are_written_by_several_processes_as_by_one(
    index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_site(index, tmp_path, tmp_path / "one")
    monkeypatch.setattr("dpbench.board.site.entries.ENOUGH", 3)
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    build_site(index, tmp_path, tmp_path / "two")
    assert _bytes(tmp_path / "one") == _bytes(tmp_path / "two")
