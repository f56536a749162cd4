"""The site of a leaderboard of one's own: its title, its words on submissions, and no page about nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.site.extras import ExtraSection, SiteExtras
from dpbench.site.layout import PageSection
from dpbench.site.own_text import LeaderboardText
from dpbench.site.render import make_renderer
from dpbench.site.settings import SiteSettings
from dpbench.site.text import sanitise_string
from tests.helpers.commands import Refusal


def test_every_text_that_is_accepted_is_shown_whole() -> None:
    longest = LeaderboardText(submission="x" * 2000)
    assert sanitise_string(longest.submission) == longest.submission


TEXT = 'title = "Ward <4>"\nsubmission = "Write to Anna."\n'


def test_pages_have_the_title_of_the_leaderboard_and_its_words_on_submissions(tmp_path: Path) -> None:
    (tmp_path / "site.toml").write_text(TEXT, encoding="utf-8")
    assert LeaderboardText.read(tmp_path).submission == "Write to Anna."
    for root, title in ((tmp_path, "Ward &lt;4&gt;"), (None, "dpbench")):
        renderer = make_renderer(SiteSettings("", "", "", ""), root=root)
        page = renderer.page("cite", "cite.html", "", {"groups": [], "own": ""}).decode()
        assert f'index.html">{title}</a>' in page


@pytest.mark.parametrize("text", ["title = 3", "titel = 'x'", "title = [", f"submission = '{'x' * 2001}'"])
def test_a_text_that_does_not_fit_is_refused_with_its_file(text: str, tmp_path: Path, refusal: Refusal) -> None:
    (tmp_path / "site.toml").write_text(text, encoding="utf-8")
    assert "site.toml" in refusal(lambda: LeaderboardText.read(tmp_path))


def test_a_page_about_a_folder_that_a_leaderboard_lacks_is_left_out(tmp_path: Path) -> None:
    section = PageSection("figures", "Figures", "figures.html")
    extras = SiteExtras(
        pages=(ExtraSection(section, lambda *_: [], "x", "figures"), ExtraSection(section, lambda *_: [], "y"))
    )
    assert extras.for_leaderboard(tmp_path).packages == ("y",)
    (tmp_path / "figures").mkdir()
    assert extras.for_leaderboard(tmp_path) == extras
