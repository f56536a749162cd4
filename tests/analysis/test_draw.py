"""Lines, bars and heat maps: what is drawn where, in whose colours, and files of the same bytes each time."""

from __future__ import annotations

import io
import re
import zlib
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from PIL import Image

from dpbench.analysis import draw
from dpbench.analysis.draw import (
    Bar,
    HeatCell,
    Line,
    convert_to_chart_units,
    draw_bars,
    draw_heat_map,
    draw_lines,
    new_figure,
    reduce_colours,
    render_figure,
    score_without_interval,
)
from dpbench.analysis.figure import draw_figure
from dpbench.analysis.figure_data import collect_figure_data
from dpbench.analysis.palette import (
    HEAT,
    LIGHT,
    PAPER,
    QUIET,
    REFERENCE,
    assign_learner_styles,
    assign_row_styles,
    heat_map_colour,
    make_style,
)
from dpbench.analysis.tables import make_grids
from dpbench.errors import SpecError
from dpbench.records.result import Interval
from tests.analysis.test_tables import with_loss


def picture() -> Figure:
    figure = new_figure(3, 2)
    axes = figure.subplots()
    draw_lines(
        axes, [Line("a 0.12345", {1: Interval(mean=2, low=1, high=3), 2: score_without_interval(1.5)}, make_style(0))]
    )
    axes.set_title("a 0.12345")
    return figure


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_a_picture_has_the_same_bytes_each_time_and_names_no_version_and_no_date(kind: str) -> None:
    content = render_figure(picture, kind)
    assert content == render_figure(picture, kind)
    streams = [content, *(_inflated(part) for part in content.split(b"stream\n")[1:])]
    for text in streams:
        assert b"atplotlib v" not in text and b"http://matplotlib" not in text and b"https://matplotlib" not in text
        assert mpl.__version__.encode() not in text and b"Date" not in text


def _inflated(stream: bytes) -> bytes:
    try:
        return zlib.decompress(stream)
    except zlib.error:
        return b""


def test_an_svg_has_short_coordinates_and_its_texts_as_they_are() -> None:
    text = render_figure(picture, "svg").decode()
    assert ">a 0.12345</text>" in text
    assert "sans-serif" in text  # where a reader has no DejaVu Sans
    assert not re.search(r"\d\.\d{3}", text.replace("0.12345", ""))


def test_lines_have_colour_mark_and_interval_and_those_of_one_colour_differ_in_their_dashes() -> None:
    axes = new_figure(3, 2).subplots()
    first, second = make_style(0), make_style(8)
    assert first.colour == second.colour
    score = Interval(mean=2, low=1, high=3)
    drawn = draw_lines(axes, [
        Line("a", {1: score, 2: score}, first), Line("b", {1: score}, second), Line("c", {1: score}, REFERENCE, ":"),
        Line("d", {1: score}, make_style(1), stroke=""),
    ])  # fmt: skip
    assert [line.get_linestyle() for line in drawn] == ["-", "-.", ":", "None"]
    assert [to_hex(line.get_color()) for line in drawn] == [LIGHT[0], LIGHT[0], QUIET, LIGHT[1]]
    assert [line.get_marker() for line in drawn] == ["o", ">", "D", "s"]
    assert drawn[2].get_markerfacecolor() == PAPER
    (strokes, *_) = axes.collections
    assert [np.asarray(path.vertices).tolist() for path in strokes.get_paths()] == [[[1, 1], [1, 3]], [[2, 1], [2, 3]]]


def test_a_band_is_one_area_and_an_unmarked_line_has_no_mark() -> None:
    axes = new_figure(3, 2).subplots()
    points = {x: Interval(mean=x, low=x - 1, high=x + 1) for x in (1.0, 2.0, 3.0)}
    (line,) = draw_lines(axes, [Line("a", points, make_style(0), marked=False, band=True)])
    assert line.get_marker() == "None" and len(axes.collections) == 1


def test_shares_are_drawn_in_percent_and_losses_as_they_are() -> None:
    score = Interval(mean=0.5, low=0.25, high=None)
    assert convert_to_chart_units("accuracy", score) == Interval(mean=50, low=25, high=None)
    assert convert_to_chart_units("error", score).mean == 50
    assert convert_to_chart_units("nll", score) == score


def test_bars_and_intervals_stand_in_their_rows() -> None:
    axes = new_figure(3, 2).subplots()
    style = make_style(0)
    draw_bars(axes, [Bar(0, 1, 4, LIGHT[1], text="+3.0"), Bar(1, 2, 3, style.hex, at=2.5, style=style)])
    edges = [np.asarray(bar.get_extents().transformed(axes.transData.inverted()).intervalx) for bar in axes.patches]
    assert np.allclose(edges, [(1, 4), (2, 3)])
    assert [text.get_text().strip() for text in axes.texts] == ["+3.0"]
    (mark,) = axes.get_lines()
    assert (mark.get_marker(), mark.get_xydata().tolist()) == ("o", [[2.5, 1]])  # type: ignore[union-attr]


def test_a_heat_map_has_an_outline_for_each_shade_and_a_dot_for_each_best_cell() -> None:
    axes = new_figure(3, 2).subplots()
    draw_heat_map(axes, [HeatCell(0, 0, 0, "91.1"), HeatCell(1, 0, 2, dot=True), HeatCell(2, 1, 2)], 3, 2)
    patches = [patch for patch in axes.patches if isinstance(patch, PathPatch)]
    assert [to_hex(patch.get_facecolor()) for patch in patches] == [HEAT, heat_map_colour(2)]
    assert [len(np.asarray(patch.get_path().vertices)) for patch in patches] == [5, 10]
    assert [text.get_text() for text in axes.texts] == ["91.1"]
    dots = [np.asarray(line.get_xydata()).tolist() for line in axes.get_lines() if len(np.asarray(line.get_xdata()))]
    assert dots == [[[1.5, 0.5]]]
    assert (axes.get_xlim(), axes.get_ylim()) == ((0, 3), (2, 0))


def test_a_learner_has_the_colour_and_mark_in_a_figure_that_it_has_everywhere() -> None:
    found = [with_loss("pillar", 1.5), with_loss("whitened", 0.75)]
    (axes,) = draw_figure(collect_figure_data("x", make_grids(found, "nll"))).axes
    styles = assign_learner_styles(["pillar", "whitened"])
    shown = {str(line.get_label()): line for line in axes.get_lines()}
    for name, style in styles.items():
        assert (to_hex(shown[name].get_color()), shown[name].get_marker()) == (style.hex, style.shape.marker)


def test_a_figure_of_losses_is_no_figure_of_percentages() -> None:
    (axes,) = draw_figure(collect_figure_data("x", make_grids([with_loss("pillar", 1.5)], "nll"))).axes
    (line,) = [line for line in axes.get_lines() if line.get_label() == "pillar"]
    assert np.asarray(line.get_ydata()).tolist() == pytest.approx([1.502])
    assert axes.get_ylabel().startswith("log loss\n")


def test_references_are_grey_and_level_whatever_their_names() -> None:
    grey = assign_row_styles(["thrift", "public-only (no private data)"], {"public-only (no private data)"})
    assert grey["public-only (no private data)"].hex == QUIET != grey["thrift"].hex


def test_a_file_is_written_by_its_ending_and_other_endings_are_refused(tmp_path: Path) -> None:
    for ending in ("png", "SVG", "pdf"):
        file = tmp_path / f"a.{ending}"
        draw.check_chart_file(file, "--chart")
        draw.write_chart(file, picture)
        drawn = render_figure(picture, ending.lower())
        assert file.read_bytes() == (reduce_colours(drawn) if ending == "png" else drawn)
    with pytest.raises(SpecError, match=r"Expected --chart .*a\.gif to end in \.png, \.svg or \.pdf\."):
        draw.check_chart_file(tmp_path / "a.gif", "--chart")


def test_the_most_frequent_colours_of_a_chart_stay_and_others_become_the_nearest_of_them() -> None:
    shades = np.arange(256, dtype=np.uint8)[:, None, None].repeat(3, 2)  # a shade of grey in each of 256 rows
    picture = np.broadcast_to(shades, (256, 9, 3)).copy()
    picture[10, 0], picture[200, 8] = (11, 12, 12), (255, 0, 0)
    out = io.BytesIO()
    Image.fromarray(picture).convert("RGBA").save(out, "PNG")
    with Image.open(io.BytesIO(reduce_colours(out.getvalue()))) as reduced:
        assert reduced.mode == "P"
        found = np.asarray(reduced.convert("RGB"))
    picture[10, 0], picture[200, 8] = (12, 12, 12), (85, 85, 85)  # the nearest greys
    assert (found == picture).all()
