"""`dpbench report`: one page of a folder of results, which loads nothing and says what the results say."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from pathlib import Path

import pytest

from dpbench.analysis.reader import read_results
from dpbench.analysis.risk import max_true_positive_rates
from dpbench.site.report import render_report
from tests.helpers.browser import Theme, address, browser, opened
from tests.helpers.commands import Output, call

SMALL = ("--dataset", "digits", "--device", "cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("results")
    for learner, epsilon in (
        ("class-means", "0.5"),
        ("jl:steps=4", "0.5"),
        ("class-means", "2"),
        ("non-private:regularisation=1", "inf"),
    ):
        assert call("run", "--learner", learner, "--epsilon", epsilon, "--seeds", "2", "--out", str(out), *SMALL) == 0
    return out


@pytest.fixture(scope="module")
def page(folder: Path) -> str:
    return render_report(read_results([folder])[0], "accuracy", lambda _, part: part.name, "My <images>").decode()


def test_the_page_says_what_results_say(page: str, folder: Path) -> None:
    for filed in read_results([folder])[0]:
        assert f"{100 * filed.result.metrics['accuracy'].mean:.2f}" in page
        assert all(str(counted) in page for counted in filed.result.task.overlap.values())
    assert all(f"ε {epsilon} for one image, pld" in page for epsilon in ("0.5", "2"))
    assert "accuracy on digits with pixels features (1,294 private images, 144 public and 359 test images)" in page
    assert "as the mean over 2 seeds with its 95% interval" in page


def test_the_page_says_what_holds_of_every_private_run() -> None:
    """`prototypes` has a pure guarantee and reads no public image: neither is true of the others beside it."""
    root = Path(__file__).parents[2] / "leaderboard" / "results" / "digits-eps1"
    chosen = {
        result.result.spec.learner.name: result
        for result in read_results([root])[0]
        if result.result.spec.learner.name in {"prototypes", "dp-raft", "thrift"}
        and result.result.selection == "default"
    }
    shown = [chosen[name] for name in ("prototypes", "dp-raft", "thrift")]
    page = html.unescape(render_report(shown, "accuracy", lambda _, part: part.name, "").decode())
    (paragraph,) = [line for line in page.splitlines() if "We report accuracy" in line]
    assert "with ε 1 and δ 1e-05" in paragraph
    assert "1,294 private images, 144 public and 359 test images" in paragraph
    assert "1,294 private, 144 public, 359 test examples of 10 classes" in page
    said = re.search(r"true positives at most ([\d.]+)% at 0.1% false positives", page)
    assert said is not None
    risks = [max_true_positive_rates(stored.result.privacy)[0.001] for stored in shown]
    assert float(said[1]) == pytest.approx(100 * max(risks), abs=0.01)
    assert max(risks) > 1.1 * min(risks)


def test_the_page_says_how_far_private_learners_are_below_no_privacy(page: str, folder: Path) -> None:
    found = {
        (result.result.spec.learner.name, result.result.spec.epsilon): result.result
        for result in read_results([folder])[0]
    }
    free, private = (
        found[key].metrics["accuracy"].mean for key in (("non-private", float("inf")), ("class-means", 2.0))
    )
    price = page.split("What does privacy cost?</h3>")[1].split("</table>", maxsplit=1)[0]
    assert f">{100 * (free - private):.2f}<" in price


def test_the_page_loads_nothing_and_runs_nothing(page: str) -> None:
    assert not re.search(r"<script|<link|<img|\bsrc=|@import|url\((?!#)", page)
    style = page.split("<style>")[1].split("</style>", maxsplit=1)[0]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = html.unescape(page)
    assert f"style-src 'sha256-{digest}'" in policy and "default-src 'none'" in policy


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.long)])
def test_the_page_fits_a_phone_and_axe_finds_no_serious_fault(page: str, tmp_path: Path, theme: Theme) -> None:
    from axe_playwright_python.sync_playwright import Axe

    (tmp_path / "report.html").write_text(page, encoding="utf-8")
    with browser() as chromium:
        for width in (400, 1400):
            with opened(chromium, address(tmp_path, "report.html"), theme, width) as (shown, seen):
                assert shown.evaluate("document.documentElement.scrollWidth") == width
                found = Axe().run(shown).response["violations"]
                assert [violation["id"] for violation in found if violation["impact"] in {"serious", "critical"}] == []
                assert seen.outside(tmp_path.resolve().as_uri()) == []


def test_words_of_strangers_are_escaped(page: str) -> None:
    assert "My &lt;images&gt;" in page and "My <images>" not in page


def test_a_chart_is_drawn_of_two_epsilons_and_not_of_one(page: str, folder: Path) -> None:
    half = [filed for filed in read_results([folder])[0] if filed.result.spec.epsilon == 0.5]
    assert page.count('<figure class="chart">') == 1
    alone = render_report(half, "accuracy", lambda _, part: part.name, "One").decode()
    assert "<figure" not in alone
    assert "There is no result without privacy" in alone


def test_without_matplotlib_a_report_is_written_and_has_no_charts(
    folder: Path, tmp_path: Path, capsys: Output, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpbench.analysis.draw.find_spec", lambda name: None)
    assert call("report", str(folder), "--out", str(tmp_path / "report.html")) == 0
    assert "The report has no charts. Expected matplotlib" in capsys.readouterr().err
    assert "<figure" not in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_the_command_writes_the_page_into_the_folder(folder: Path, capsys: Output) -> None:
    assert call("report", str(folder), "--title", "Mine") == 0
    assert f"Wrote {folder}/report.html: 4 results" in capsys.readouterr().out
    assert "<h1>Mine</h1>" in (folder / "report.html").read_text(encoding="utf-8")


def test_what_cannot_be_reported_is_one_sentence(tmp_path: Path, capsys: Output) -> None:
    assert call("report", str(tmp_path)) == 1
    assert "found none" in capsys.readouterr().err
    assert call("report", str(tmp_path / "nowhere")) == 1
    assert "which does not exist" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_one_sentence(folder: Path, tmp_path: Path, capsys: Output) -> None:
    (tmp_path / "file").touch()
    assert call("report", str(folder), "--out", str(tmp_path / "file" / "report.html")) == 1
    assert capsys.readouterr().err.startswith("dpbench: Cannot write")
