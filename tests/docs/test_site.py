"""The documentation's site: it builds without a warning, no link is broken, and nothing is asked of elsewhere."""

from __future__ import annotations

import html
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pytest

import dpbench
from dpbench import cli, docs, registry
from dpbench.docs import site as building
from dpbench.errors import OutputError
from dpbench.main import load_extras, load_root_command
from dpbench.site.layout import SECTIONS
from dpbench.site.render import make_site_stylesheet
from tests.conftest import built_once
from tests.helpers.browser import Theme, address, browser, opened
from tests.helpers.readme import DOCS, PAGES, README

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = (1400, 400)
SHOWN = ("index.html", "explanation/leaderboard.html", "explanation/museum.html", "reference/names.html",
         "reference/commands.html", "reference/learners.html", "how-to/add-a-learner.html",
         "tutorial/which-learner.html", "tutorial/write-and-attack.html")  # fmt: skip


@pytest.fixture(scope="module")
def documentation(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the whole site, as the command builds it, and the cache that it was built in."""
    return built_once(tmp_path_factory, "documentation", _build)


def _build(folder: Path) -> None:
    out, environment = folder / "site", {**os.environ, "DPBENCH_CACHE": str(folder / "cache")}
    command = [sys.executable, "-P", "-c", "from dpbench.cli import main; main()", "docs", "--no-open"]
    command += ["--out", str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == str(out / "index.html")


@pytest.fixture
def site(documentation: Path) -> Path:
    return documentation / "site"


@dataclass
class Read(HTMLParser):
    """What a page links to, what it loads, and where it can be linked to."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    ids: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.ids |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        loaded = [found.get("src", ""), found.get("srcset", ""), found.get("data", "") if tag == "object" else ""]
        loaded += [found["href"]] if tag == "link" and found.get("rel") not in {"next", "prev", "search"} else []
        self.loads += filter(None, loaded)


def read(file: Path) -> Read:
    found = Read()
    found.feed(file.read_text(encoding="utf-8"))
    return found


@pytest.fixture(scope="module")
def pages(documentation: Path) -> dict[Path, Read]:
    return {file.resolve(): read(file) for file in sorted((documentation / "site").rglob("*.html"))}


def test_every_page_that_somebody_wrote_is_on_the_site(site: Path) -> None:
    written = [page.file for page in PAGES if page is not README]
    assert len(written) > 20
    assert [file.name for file in written if not _made(file, site).is_file()] == []


def _made(file: Path, site: Path) -> Path:
    return (site / file.relative_to(DOCS)).with_suffix(".html")


def test_no_link_within_the_site_is_broken_and_no_anchor_is_missing(pages: dict[Path, Read]) -> None:
    broken, checked = [], 0
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                assert parts.scheme in {"https", "mailto"}, link
                continue
            checked += 1
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            anchor = unquote(parts.fragment)
            if not target.is_file() or (anchor and target in pages and anchor not in pages[target].ids):
                broken.append((file.name, link))
    assert checked > 1000
    assert broken == []


def test_no_page_loads_anything_from_elsewhere(site: Path, pages: dict[Path, Read]) -> None:
    loaded = [(file.name, address) for file, page in pages.items() for address in page.loads]
    assert len(loaded) > 100
    assert [
        request for request in loaded if urlsplit(request[1]).scheme not in {"", "data"} or request[1].startswith("//")
    ] == []
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        asked = re.findall(r"url\(\s*[\"']?([^)\"']+)", text) + re.findall(r"@import\s+[\"']([^\"']+)", text)
        assert [address for address in asked if re.match(r"(https?:)?//", address)] == [], sheet.name


def test_the_reference_has_every_public_name_component_and_command(site: Path) -> None:
    ids = read(site / "reference/names.html").ids
    assert [
        name for name in (*dpbench.__all__, *dpbench.NOTEBOOK, *dpbench.RECEIPTS) if f"dpbench.{name}" not in ids
    ] == []
    known = registry.load()
    for kind, components in known.components.items():
        text = (site / f"reference/{kind}s.html").read_text(encoding="utf-8")
        missing = [name for name in components if not re.search(rf"<h2>{re.escape(name)}<a", text)]
        assert (kind, missing) == (kind, [])
    ids = read(site / "reference/commands.html").ids
    commands = list(_commands(load_root_command(), "dpbench"))
    assert len(commands) > 25
    assert [name for name in commands if name.replace(" ", "-") not in ids] == []


def _commands(command: Any, path: str) -> Iterator[str]:
    known = getattr(command, "commands", None)
    if known is None:
        yield path
    for name, value in (known or {}).items():
        yield from _commands(value, f"{path} {name}")


def test_a_comment_with_a_colon_is_not_read_as_a_type(site: Path) -> None:
    text = (site / "reference/names.html").read_text(encoding="utf-8")
    assert not re.search(r'<dt class="field-\w+">Type<', text)
    shown = html.unescape(re.sub(r"<[^>]+>", "", text))
    assert "True where it leaves numbers as they are: the one extractor that fits a dataset of features." in shown


def test_fonts_and_colours_are_those_of_the_leaderboard(site: Path) -> None:
    style = make_site_stylesheet().decode()
    conf = runpy.run_path(str(Path(docs.__file__).parent / "conf.py"))["html_theme_options"]
    for theme in (conf["light_css_variables"], conf["dark_css_variables"]):
        assert all(re.search(rf"--\w+: light-dark\(.*{colour}", style) for colour in theme.values())
    docs_style = (site / "_static" / "docs.css").read_text(encoding="utf-8")
    for name in ("font", "mono"):
        (stack,) = re.findall(rf"--{name}: ([^;]+);", style)
        assert f": {stack};" in docs_style


NOTEBOOKS = sorted(DOCS.rglob("*.ipynb"))


@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_a_notebook_is_kept_without_what_it_printed_and_ran_when_the_site_was_built(file: Path, site: Path) -> None:
    cells = [load for load in json.loads(file.read_text(encoding="utf-8"))["cells"] if load["cell_type"] == "code"]
    assert len(cells) >= 7
    assert [cell for cell in cells if cell["outputs"] or cell["execution_count"]] == []
    assert _made(file, site).read_text(encoding="utf-8").count('class="cell_output') >= 6


def test_the_notebooks_show_what_their_words_say(site: Path) -> None:
    which, attacked = ((site / f"tutorial/{name}.html").read_text(encoding="utf-8") for name in
                       ("which-learner", "write-and-attack"))  # fmt: skip
    assert "<th>thrift</th>" in which or ">thrift<" in which
    assert re.search(r'<img[^>]*src="[^"]*\.png"', which)
    for refusal in ("NotPure: A row function", "NotPerExample: A row function", "NotPlanned: All 1 planned steps"):
        assert refusal in attacked
    assert "passed: True" in attacked and "broken learner" not in attacked


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as found:
        yield found


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_fits_the_window_and_asks_nothing_of_elsewhere(path: str, site: Path, chromium: Browser) -> None:
    for width in WIDTHS:
        with opened(chromium, address(site, path), width=width) as (page, seen):
            page.wait_for_load_state("networkidle")
            assert page.locator("h1").count() == 1
            assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") <= 0
            assert seen.outside(site.resolve().as_uri()) == []
            assert seen.complaints == []


@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 1400),
        *(pytest.param(*case, marks=pytest.mark.long) for case in (("light", 400), ("dark", 400), ("dark", 1400))),
    ],
)
def test_axe_finds_no_serious_fault_and_no_page_is_endless(
    site: Path, chromium: Browser, theme: Theme, width: int
) -> None:
    from axe_playwright_python.sync_playwright import Axe

    for path in (*SHOWN, "how-to/run.html", "contributing.html"):
        with opened(chromium, address(site, path), theme, width) as (page, _):
            assert page.evaluate("document.documentElement.scrollHeight") < 20_000, path
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            found = Axe().run(page).response["violations"]
            grave = [
                (violation["id"], violation["nodes"][0]["html"])
                for violation in found
                if violation["impact"] in {"serious", "critical"}
            ]
            assert grave == [], path


def test_a_link_to_a_folded_section_opens_it(site: Path, chromium: Browser) -> None:
    with opened(chromium, address(site, "reference/learners.html#thrift")) as (page, _):
        shown = page.locator("details[open] h2").all_inner_texts()
        assert [text.strip().rstrip("¶") for text in shown] == ["thrift"]  # a mark that hovering shows


def test_the_search_finds_pages_on_a_disk_without_a_network(site: Path, chromium: Browser) -> None:
    with opened(chromium, address(site, "index.html")) as (page, seen):
        page.fill("input[name=q]", "slurm")
        page.press("input[name=q]", "Enter")
        page.locator("ul.search li a").first.wait_for()
        assert "how-to/sweep.html" in " ".join(
            link.get_attribute("href") or "" for link in page.locator("ul.search li a").all()
        )
        assert seen.outside(site.resolve().as_uri()) == []


def test_a_site_that_is_up_to_date_is_not_built_again(documentation: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_CACHE", str(documentation / "cache"))
    monkeypatch.setattr(building, "_run_sphinx", None)
    assert (docs.build_cached_documentation(load_root_command(), extras=load_extras()) / "index.html").is_file()


def test_a_site_is_stale_once_a_plugins_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugins = registry.load()
    before = building._digest_sources({}, [], None, plugins)
    assert building._digest_sources({}, [], None, plugins) == before
    module = sys.modules[plugins.find("learner", "thrift").cls.__module__]
    assert module.__file__ is not None
    changed = tmp_path / "thrift.py"
    changed.write_bytes(Path(module.__file__).read_bytes() + b"\n")
    monkeypatch.setattr(module, "__file__", str(changed))
    assert building._digest_sources({}, [], None, plugins) != before


@dataclass(frozen=True)
class Tiny:
    """A site of three pages: where it lies, and what its build complained of."""

    out: Path
    said: str


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Tiny:
    """Pages with a formula, a page below and broken links, built as the real ones are, for a leaderboard's site."""
    folder, out = tmp_path_factory.mktemp("tiny") / "pages", tmp_path_factory.mktemp("built")
    source = Path(docs.__file__).parent
    shutil.copytree(source / "theme", folder / "theme")
    shutil.copy(source / "conf.py", folder)
    (folder / "deep").mkdir()
    formulas = "$\\epsilon \\le 1$ and\n\n$$\\sum_i x_i$$\n"
    (folder / "index.md").write_text(f"# A\n\n{formulas}\n```{{toctree}}\ndeep/b\nbroken\n```\n", encoding="utf-8")
    (folder / "deep" / "b.md").write_text("# B\n", encoding="utf-8")
    text = "# C\n\n[gone](nowhere.md)\n\n[gone](#nothing)\n\n![gone](images/lost.png)\n"
    (folder / "broken.md").write_text(text, encoding="utf-8")
    with pytest.raises(docs.DocsNotBuilt) as refused:
        building._run_sphinx(folder, out, building.SiteHeader("../", SECTIONS))
    return Tiny(out, str(refused.value))


@pytest.mark.slow
def test_broken_links_stop_the_build_which_names_the_page_and_each_of_them(tiny: Tiny) -> None:
    for line, said in ((3, "nowhere.md"), (5, "nothing"), (7, "lost.png")):
        assert re.search(rf"^broken\.md:{line}: WARNING: .*{said}", tiny.said, re.MULTILINE)
    assert tiny.said.count("WARNING") == 3


@pytest.mark.slow
def test_a_formula_is_mathml_and_needs_no_script(tiny: Tiny) -> None:
    text = (tiny.out / "index.html").read_text(encoding="utf-8")
    assert text.count("<math") == 2 and "<mi>ϵ</mi>" in text
    assert not re.search(r"<script[^>]*mathjax", text, re.IGNORECASE)


@pytest.mark.slow
def test_pages_of_a_leaderboards_site_have_its_header(tiny: Tiny) -> None:
    for path, root in (("index.html", "./../"), ("deep/b.html", "../../")):
        text = (tiny.out / path).read_text(encoding="utf-8")
        assert f'href="{root}assets/header.css"' in text
        assert f'<a class="site-brand" href="{root}index.html">' in text
        assert re.search(r'docs/index\.html" aria-current="true"', text)


def test_without_the_generator_one_sentence_says_how_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(name: str) -> str:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(building, "version", missing)
    with pytest.raises(SystemExit) as ended:
        cli.main(["docs", "--no-open"])
    said = capsys.readouterr()
    assert ended.value.code == 1 and not said.out
    assert said.err.splitlines()[-1].endswith("pip install 'dpbench-vision[docs]'")


def test_a_folder_of_something_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.txt").write_text("mine", encoding="utf-8")
    monkeypatch.setattr(
        building, "build_cached_documentation", lambda command, *, root: pytest.fail("built for nothing")
    )
    with pytest.raises(OutputError, match="absent, empty or a site"):
        docs.build_documentation(tmp_path, None)
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine"
