"""One palette: colours that readers tell apart, and a learner's colour and mark, which are the same everywhere."""

from __future__ import annotations

import itertools
import math
import re
from collections import Counter
from pathlib import Path

import pytest

from dpbench.analysis.palette import (
    DARK,
    HEAT,
    INK,
    LIGHT,
    LINE,
    PAPER,
    QUIET,
    REFERENCE,
    SHADES,
    SHAPES,
    assign_learner_styles,
    assign_row_styles,
    make_colour_stylesheet,
    make_style,
)  # fmt: skip
from dpbench.board.index import Index
from dpbench.registry import load
from dpbench.site.render import read_static_file

ROOT = Path(__file__).parents[2]
BESIDE = "public-only (no private data)"


def _linear(colour: str) -> list[float]:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    return [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]


def _contrast(colour: str, other: str) -> float:
    low, high = sorted(
        0.2126 * red + 0.7152 * green + 0.0722 * blue for red, green, blue in map(_linear, (colour, other))
    )
    return (high + 0.05) / (low + 0.05)


def _times(matrix: list[list[float]], vector: list[float]) -> list[float]:
    return [sum(a * b for a, b in zip(row, vector, strict=True)) for row in matrix]


def _perceived(colour: str, sight: list[list[float]]) -> list[float]:
    """Return a colour in OKLab (Ottosson 2020), as seen by `sight`."""
    seen = [min(max(part, 0.0), 1.0) for part in _times(sight, _linear(colour))]
    cones = [math.cbrt(part) for part in _times(CONES, seen)]
    return _times(LAB, cones)


CONES = [
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
]
LAB = [
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
]
SIGHTS = {  # Machado, Oliveira and Fernandes 2009, severity 1
    "all": [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
    "no red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "no green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
    "no blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]],
}


@pytest.mark.parametrize(("colours", "paper"), [(LIGHT, "#ffffff"), (DARK, "#15171a")])
@pytest.mark.parametrize("sight", SIGHTS)
def test_colours_are_told_apart_by_every_reader_and_stand_out_from_the_paper(
    colours: tuple[str, ...], paper: str, sight: str
) -> None:
    assert min(_contrast(colour, paper) for colour in colours) >= 2.9
    seen = [_perceived(colour, SIGHTS[sight]) for colour in colours]
    assert min(math.dist(*pair) for pair in itertools.combinations(seen, 2)) > 0.08


def test_seventy_learners_look_different() -> None:
    found = [make_style(place) for place in range(72)]
    assert len({(style.colour, style.shape) for style in found}) == 72 == len(LIGHT) * len(SHAPES)


def test_a_learner_looks_the_same_beside_whoever_it_is_drawn() -> None:
    own = load().components["learner"]
    styles = assign_learner_styles(own, ["public labels only"])
    assert len(set(styles.values())) == len(own) + 1
    assert all(assign_learner_styles([name])[name] == styles[name] for name in own)
    assert styles["public labels only"] == REFERENCE and REFERENCE.colour is None
    assert assign_row_styles(["pillar (tuned)"])["pillar (tuned)"] == styles["pillar"]


def test_no_three_learners_of_a_board_share_a_colour() -> None:
    index = Index.read(ROOT / "leaderboard" / "leaderboard.json")
    boards = [{entry.learner for entry in standing.entries if entry.role == "entry"} for standing in index.standings]
    styles = assign_learner_styles(set().union(*boards))
    for ranked in filter(None, boards):
        assert max(Counter(styles[learner].colour for learner in ranked).values()) <= 2
    whole = Counter(style.colour for style in styles.values())
    assert max(whole.values()) <= math.ceil(len(styles) / len(LIGHT))  # as few as eight colours allow


def test_strangers_of_one_style_are_told_apart_as_far_as_styles_go() -> None:
    names = [f"a-stranger-{place}" for place in range(72)]
    assert len(set(assign_learner_styles(names).values())) == 72
    assert len(assign_learner_styles([*names, "one-more"])) == 73


def test_further_rows_of_a_learner_are_hollow_and_references_grey() -> None:
    found = assign_row_styles(["pillar (tuned)", "pillar", BESIDE], [BESIDE])
    tuned, default = found["pillar (tuned)"], found["pillar"]
    assert (tuned.hollow, default.hollow) == (True, False)
    assert (tuned.colour, tuned.shape) == (default.colour, default.shape)
    assert found[BESIDE] == REFERENCE


def test_the_style_sheet_has_the_colours_of_pictures() -> None:
    style = read_static_file("site.css").decode()
    for name, colour in (("ink", INK), ("quiet", QUIET), ("line", LINE), ("paper", PAPER), ("heat", HEAT)):
        assert re.search(rf"--{name}: light-dark\({colour}, ", style)
    for place, (light, dark) in enumerate(zip(LIGHT, DARK, strict=True)):
        assert f"--c{place}:light-dark({light},{dark});" in make_colour_stylesheet()
    assert all(
        f".heat .h{place}{{--share:{share:.0%}}}" in make_colour_stylesheet() for place, share in enumerate(SHADES)
    )


def test_no_other_module_names_a_colour() -> None:
    named = re.compile(r"#[0-9a-f]{6}\b", re.IGNORECASE)
    modules = [*(ROOT / "dpbench").rglob("*.py"), *(ROOT / "plugins").rglob("*.py")]
    found = {file.relative_to(ROOT).as_posix() for file in modules if named.search(file.read_text(encoding="utf-8"))}
    assert found == {"dpbench/analysis/palette.py", "dpbench/docs/conf.py"}  # the theme of the manual
