"""What the studies add to the site: their pages, a sentence on the first page, and charts on those of learners."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import get_args

import pytest

from dpbench.board.distance import compute_mean_distances
from dpbench.board.index import Index
from dpbench.errors import DataError
from dpbench.records.board import find_board
from dpbench.records.protocol import Component
from dpbench.records.result import Interval
from dpbench.records.spec import make_spec
from dpbench.site import build_site
from dpbench_lab.explain.explanation import Explanation, LearnerExplanation, LiftedStage, Stage
from dpbench_lab.museum.tour import EXHIBITS
from dpbench_lab.pages import EXTRAS
from tests.helpers.boards import synthetic
from tests.site.test_site import broken, filed, standing_of


@pytest.fixture
def index(tmp_path: Path) -> Index:
    for folder in ("figures", "claims"):  # without which their pages are left out
        (tmp_path / folder).mkdir()
    filled = filed(tmp_path, find_board("digits-eps1"), synthetic(find_board("digits-eps1"), 6, seed=0))
    standings = (filled, standing_of(find_board("pcam-resnet50-eps0.1"), []))
    return Index(ranking="By the mean.", distances=compute_mean_distances(standings), standings=standings)


def _explanation(learner: str) -> Explanation:
    def at(mean: float) -> Interval:
        return Interval(mean=mean, low=mean - 0.01, high=mean + 0.01)

    ladder = [LiftedStage(stage=stage, score=at(0.6), points=at(0.05)) for stage in get_args(Stage)]
    explanation = LearnerExplanation(
        learner=Component(name=learner),
        digest="0" * 64,
        epsilon=0.5,
        private=at(0.5),
        ladder=tuple(ladder),
        rest=at(0.02),
        alone=(),
    )
    spec = make_spec({"learner": "pillar", "epsilon": 0.5}, "the test")
    return Explanation(
        digest="1" * 64, specs=(spec,), private=1294, public=144, test=359, ceiling=Component(name="non-private"),
        score=at(0.8), learners=(explanation,), digests={}, seconds=1.0, components={}, provenance={},
    )  # fmt: skip


@pytest.mark.slow
def test_a_learners_page_shows_what_privacy_costs_it_where_that_was_explained(index: Index, tmp_path: Path) -> None:
    mine, other = (entry.learner for entry in index.standings[0].entries[1:3])
    _explanation(mine).write(tmp_path / "explanations")
    build_site(index, tmp_path, tmp_path / "site", extras=EXTRAS)
    page = (tmp_path / "site" / "learners" / f"{mine}.html").read_text(encoding="utf-8")
    assert page.count('<td class="number">+5.00</td>') == len(get_args(Stage))
    assert "+2.00" in page and 'class="picture"' in page
    assert 'class="picture"' not in (tmp_path / "site" / "learners" / f"{other}.html").read_text(encoding="utf-8")


@pytest.mark.quick(1)
@pytest.mark.parametrize("said", ["{", "{}", '{"kind": "result"}'])
def test_an_explanation_that_is_none_is_named(index: Index, tmp_path: Path, said: str) -> None:
    (tmp_path / "explanations").mkdir()
    (tmp_path / "explanations" / "bad.json").write_text(said, encoding="utf-8")
    with pytest.raises(DataError, match=r"Expected an explanation in .*bad\.json"):
        build_site(index, tmp_path, tmp_path / "site", extras=EXTRAS)


@pytest.mark.slow
def test_the_museum_tells_of_every_exhibit_what_it_does_where_it_was_found_and_its_code(
    index: Index, tmp_path: Path
) -> None:
    build_site(index, tmp_path, tmp_path / "site", extras=EXTRAS)
    page = html.unescape((tmp_path / "site" / "museum.html").read_text(encoding="utf-8"))
    for exhibit in EXHIBITS:
        line, story = page.split(f'<div id="{exhibit.name}">')
        assert len(re.findall(r'<span class="summary">[^<]+', line.rsplit("<details", maxsplit=1)[1])) == 1
        story = story.split("</details>", maxsplit=1)[0]
        assert exhibit.code in story and "Where it comes from:" in story and "What catches it:" in story


@pytest.mark.slow
def test_the_page_of_evidence_leads_to_every_study_and_no_link_is_dead(index: Index, tmp_path: Path) -> None:
    build_site(index, tmp_path, tmp_path / "site", extras=EXTRAS)
    evidence = (tmp_path / "site" / "audits.html").read_text(encoding="utf-8")
    for section in EXTRAS.sections:
        assert f'<a href="{section.path}">{section.title}</a>: {section.summary}' in evidence
        assert (tmp_path / "site" / section.path).is_file()
    assert broken(tmp_path / "site") == []


@pytest.mark.slow
def test_studies_add_lines_to_pages_and_change_none(index: Index, tmp_path: Path) -> None:
    _explanation(index.standings[0].entries[1].learner).write(tmp_path / "explanations")
    build_site(index, tmp_path, tmp_path / "with", extras=EXTRAS)
    build_site(index, tmp_path, tmp_path / "without")
    for file in (file for file in sorted((tmp_path / "without").rglob("*")) if file.is_file()):
        whole = (tmp_path / "with" / file.relative_to(tmp_path / "without")).read_bytes().splitlines()
        left = iter(whole)
        assert all(line in left for line in file.read_bytes().splitlines()), file
    assert (tmp_path / "with" / "index.html").read_bytes() != (tmp_path / "without" / "index.html").read_bytes()
