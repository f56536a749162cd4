"""Lines, bars and heat maps in one style, as SVG, PNG or PDF. Drawing the same data again gives the same bytes."""

from __future__ import annotations

import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

from dpbench.analysis.palette import INK, LINE, PAPER, QUIET, LearnerStyle, heat_map_colour
from dpbench.errors import SpecError
from dpbench.records.metrics import METRIC_FACTS
from dpbench.records.result import Interval
from dpbench.support.files import write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

FORMATS = (".png", ".svg", ".pdf")
MISSING = "Expected matplotlib, which draws figures. Run: pip install 'dpbench-vision[plot]'"
STYLE: Mapping[str, Any] = {
    "font.size": 9, "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"],
    "text.parse_math": False, "text.color": INK,
    "axes.edgecolor": QUIET, "axes.labelcolor": INK, "axes.titlesize": 9, "axes.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False, "axes.grid": True, "axes.grid.axis": "y",
    "axes.axisbelow": True, "grid.color": LINE, "grid.linewidth": 0.8,
    "xtick.color": QUIET, "xtick.labelcolor": INK, "ytick.color": QUIET, "ytick.labelcolor": INK,
    "legend.frameon": False, "legend.fontsize": 8, "figure.facecolor": PAPER, "axes.facecolor": "none",
    "svg.fonttype": "none", "svg.hashsalt": "dpbench", "pdf.fonttype": 42,
}  # fmt: skip
"""The matplotlib settings of all charts. SVG files keep text as text."""
EMPTY_METADATA: Mapping[str, Mapping[str, None]] = {
    "svg": {"Date": None, "Creator": None}, "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}  # fmt: skip
_TAG, _FRACTION = re.compile(r"<[a-z][^>]*>"), re.compile(r"-?\d+\.\d{3,}")
_STEP = re.compile(r"\s*\n([MLCQz])\s?")  # of a path
DASHES = ("-", "-.", ":", "--")  # of lines that share a colour


def has_matplotlib() -> bool:
    """Return whether matplotlib is installed."""
    return find_spec("matplotlib") is not None


def check_matplotlib() -> None:
    """Check that matplotlib is installed.

    Raises:
        SpecError: matplotlib is not installed; the message tells you how to install it.
    """
    if not has_matplotlib():
        raise SpecError(MISSING)


def check_chart_file(file: Path, flag: str) -> None:
    """Check that the name of a chart's file ends in .png, .svg or .pdf and that matplotlib is installed.

    Raises:
        SpecError: the ending is not allowed, or matplotlib is missing.
    """
    check_matplotlib()
    if file.suffix.lower() not in FORMATS:
        raise SpecError(f"Expected {flag} {file} to end in {', '.join(FORMATS[:-1])} or {FORMATS[-1]}.")


@contextmanager
def _use_drawing_style(overrides: Mapping[str, Any]) -> Iterator[None]:
    """Use dpbench's drawing style in the block, without warnings about characters that its font lacks."""
    check_matplotlib()
    import matplotlib as mpl

    settings: dict[Any, Any] = {**STYLE, **overrides}
    with mpl.rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")
        yield


def render_figure(draw: Callable[[], Figure], image_format: str, **style: Any) -> bytes:
    """Draw a figure and return it as SVG, PNG or PDF, without date or version; `style` overrides `STYLE`."""
    with _use_drawing_style({name.replace("_", "."): value for name, value in style.items()}):
        out = io.BytesIO()
        draw().savefig(out, format=image_format, metadata=EMPTY_METADATA[image_format])
    return _TAG.sub(_round_coordinates, out.getvalue().decode()).encode() if image_format == "svg" else out.getvalue()


def reduce_colours(png: bytes) -> bytes:
    """Encode an opaque PNG by its 256 most frequent colours, which reduces a chart to a third.

    Edges of letters and lines have more shades; they get the nearest of these colours.
    """
    with Image.open(io.BytesIO(png)) as image:
        pixels = np.asarray(image.convert("RGB")).astype(np.int64)
    packed = pixels[..., 0] << 16 | pixels[..., 1] << 8 | pixels[..., 2]
    colours, index, counts = np.unique(packed, return_inverse=True, return_counts=True)
    channels = np.stack([colours >> 16, colours >> 8 & 255, colours & 255], -1)
    palette = channels[np.argsort(-counts, kind="stable")[:256]]
    nearest = ((channels[:, None] - palette) ** 2).sum(-1).argmin(-1)
    reduced = Image.fromarray(nearest[index].astype(np.uint8).reshape(packed.shape))
    reduced.putpalette(palette.astype(np.uint8).tobytes())
    out = io.BytesIO()
    reduced.save(out, "PNG", optimize=True)
    return out.getvalue()


def _round_coordinates(tag: re.Match[str]) -> str:
    """Round the coordinates in an SVG tag to a hundredth of a point. This reduces files to a third."""
    rounded = _FRACTION.sub(lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), tag[0])
    return _STEP.sub(r"\1", rounded)


def write_chart(file: Path, draw: Callable[[], Figure]) -> None:
    """Draw a figure and write it into `file` atomically, in the format that the file's ending names.

    Raises:
        OutputError: the file cannot be written.
    """
    image_format = file.suffix.lower().removeprefix(".")
    content = render_figure(draw, image_format)
    write_atomically(file, lambda out: out.write(reduce_colours(content) if image_format == "png" else content))


def new_figure(width: float, height: float, **options: Any) -> Figure:
    """Return an empty figure of this width and height in inches."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), **options)
    FigureCanvasAgg(figure)
    return figure


def label_powers_of_ten(axis: Axis) -> None:
    """Label the powers of ten on a logarithmic axis in plain text, because dpbench's style does not parse math text."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    axis.set_major_formatter(FuncFormatter(lambda value, _: format_tick_label(value)))
    axis.set_minor_formatter(NullFormatter())


def format_tick_label(value: float) -> str:
    """Return a number as a tick label of an axis.

    >>> format_tick_label(0.01), format_tick_label(1e-9), format_tick_label(1e5), format_tick_label(2.0)
    ('0.01', '10⁻⁹', '10⁵', '2')
    """
    exponent = math.floor(math.log10(value) + 0.5) if value > 0 else 0
    if abs(exponent) <= 4 or not math.isclose(value, 10.0**exponent):
        return f"{value:g}"
    return "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


@dataclass(frozen=True)
class Line:
    """A line of a chart, in the units of the chart's axes."""

    name: str
    points: Mapping[float, Interval]  # by place on the x axis
    style: LearnerStyle
    stroke: str = "-"  # of matplotlib; "" for marks alone. Further whole lines of a colour are dashed
    marked: bool = True
    size: float = 5.0  # of a mark
    band: bool = False  # intervals as one area, and not a stroke each


def convert_to_chart_units(metric: str, score: Interval) -> Interval:
    """Convert a score to the unit of its chart; shares become percent."""
    scale = (
        METRIC_FACTS[metric].scale if metric in METRIC_FACTS else 100.0
    )  # "error" is no metric, and a share as accuracy is
    low, high = (None if end is None else scale * end for end in (score.low, score.high))
    return Interval(mean=scale * score.mean, low=low, high=high)


def score_without_interval(value: float) -> Interval:
    """Return a score that has this mean and no interval."""
    return Interval(mean=value, low=None, high=None)


def draw_lines(axes: Axes, lines: Sequence[Line]) -> list[Line2D]:
    """Draw lines with their intervals; return their legend handles."""
    return [_draw_line(axes, line, stroke) for line, stroke in zip(lines, _assign_strokes(lines), strict=True)]


def _assign_strokes(lines: Iterable[Line]) -> Iterator[str]:
    taken = Counter[str]()
    for line in lines:
        yield DASHES[taken[line.style.hex] % len(DASHES)] if line.stroke == "-" else line.stroke or "none"
        taken[line.style.hex] += line.stroke == "-"


def _draw_line(axes: Axes, line: Line, stroke: str) -> Line2D:
    xs = sorted(line.points)
    scores = [line.points[x] for x in xs]
    ends = [
        (x, score.low, score.high)
        for x, score in zip(xs, scores, strict=True)
        if score.low is not None and score.high is not None
    ]
    if ends:
        places, lows, highs = ([end[part] for end in ends] for part in range(3))
        if line.band:
            axes.fill_between(places, lows, highs, color=line.style.hex, alpha=0.15, linewidth=0)
        else:
            axes.vlines(places, lows, highs, color=line.style.hex, linewidth=1, alpha=0.6)
    (shown,) = axes.plot(
        xs, [score.mean for score in scores], linestyle=stroke, color=line.style.hex, linewidth=1.3, label=line.name,
        **(make_marker_options(line.style, line.size) if line.marked else {}),
    )  # fmt: skip
    return shown


def make_marker_options(style: LearnerStyle, size: float) -> dict[str, Any]:
    """Return the matplotlib options of a learner's marker."""
    face = PAPER if style.hollow else style.hex
    return {"marker": style.shape.marker, "markersize": size, "markerfacecolor": face, "markeredgecolor": style.hex}


def label_line_ends(axes: Axes, lines: Sequence[Line], shorten: Callable[[str], str]) -> None:
    """Write each line's name and marker at the end of the line, spread apart so that names do not overlap."""
    low, high = axes.get_ylim()
    gap, across = (high - low) / 20, axes.get_yaxis_transform()
    ends = [line.points[max(line.points)].mean for line in lines]
    for line, end, place in zip(lines, ends, spread_positions(ends, gap, low + gap / 2, high - gap / 2), strict=True):
        axes.plot([1.005, 1.025], [end, place], color=line.style.hex, linewidth=0.8, transform=across, clip_on=False)
        _draw_name(axes, line, (1.045, place), 0.03, across, shorten)


def draw_name_list(axes: Axes, lines: Sequence[Line], rows: int, shorten: Callable[[str], str]) -> None:
    """Write the names of lines beside the axes, from top to bottom, with room for `rows` names."""
    for place, line in enumerate(lines):
        _draw_name(axes, line, (1.07, 0.97 - place * 0.94 / max(rows - 1, len(lines))), 0.05, axes.transAxes, shorten)


def _draw_name(
    axes: Axes, line: Line, at: tuple[float, float], text_offset: float, transform: Any, shorten: Callable[[str], str]
) -> None:
    x, y = at
    if line.marked:
        axes.plot([x], [y], linestyle="none", transform=transform, clip_on=False, **make_marker_options(line.style, 6))
    colour = INK if line.style.colour is not None else QUIET
    left = x + text_offset if line.marked else x - 0.01
    axes.text(left, y, shorten(line.name), va="center", transform=transform, color=colour, fontsize=9)


def spread_positions(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Return positions close to `wanted`, in the same order, at least `gap` apart and within [low, high].

    >>> spread_positions([1.0, 1.0, 5.0], 1.0, 0.0, 9.0), spread_positions([8.0, 9.0, 9.0], 1.0, 0.0, 9.0)
    ([1.0, 2.0, 5.0], [7.0, 8.0, 9.0])
    """
    found = list(wanted)
    order = sorted(range(len(wanted)), key=lambda place: wanted[place])
    for place in order:
        found[place] = low = max(found[place], low)
        low += gap
    for place in reversed(order):
        found[place] = high = min(found[place], high)
        high -= gap
    return found


@dataclass(frozen=True)
class Bar:
    """A horizontal bar, or an interval with the marker of its learner."""

    row: float
    start: float
    end: float
    colour: str
    height: float = 0.8
    text: str = ""
    before: bool = False  # where the text stands
    at: float | None = None  # the mark
    style: LearnerStyle | None = None


def draw_bars(axes: Axes, bars: Iterable[Bar]) -> None:
    """Draw horizontal bars, the first row on top."""
    for bar in bars:
        alpha = 1.0 if bar.style is None else 0.5
        axes.barh(bar.row, bar.end - bar.start, left=bar.start, height=bar.height, color=bar.colour, alpha=alpha)
        if bar.style is not None and bar.at is not None:
            axes.plot([bar.at], [bar.row], linestyle="none", **make_marker_options(bar.style, 12))
        if bar.text:
            x, side = (bar.start, "right") if bar.before else (max(bar.start, bar.end), "left")
            axes.text(x, bar.row, f" {bar.text} ", ha=side, va="center", fontsize=9 if bar.before else 7)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")


@dataclass(frozen=True)
class HeatCell:
    """A cell of a heat map. `shade` 0 is the full colour, and each higher number is paler."""

    column: float  # its left edge
    row: float  # its upper edge
    shade: int
    text: str = ""
    dot: bool = False


def draw_heat_map(axes: Axes, cells: Sequence[HeatCell], width: float, height: float, text_size: float = 9) -> None:
    """Draw cells, each one column wide and one row high, on a map of `width` columns and `height` rows."""
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path as Outline

    axes.set(xlim=(0, width), ylim=(height, 0))
    axes.grid(visible=False)
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    for shade in sorted({cell.shade for cell in cells}):
        boxes = [_trace_cell_outline(cell) for cell in cells if cell.shade == shade]
        outline = Outline.make_compound_path(*(Outline(box, closed=True) for box in boxes))
        axes.add_patch(PathPatch(outline, facecolor=heat_map_colour(shade), edgecolor="none"))
        dots = [cell for cell in cells if cell.dot and cell.shade == shade]
        axes.plot(
            [cell.column + 0.5 for cell in dots],
            [cell.row + 0.5 for cell in dots],
            "o",
            color=_choose_text_colour(shade),
            markersize=3,
        )
    for cell in cells:
        if cell.text:
            axes.text(
                cell.column + 0.5, cell.row + 0.5, cell.text, ha="center", va="center", fontsize=text_size,
                color=_choose_text_colour(cell.shade), weight="normal" if cell.shade else "bold",
            )  # fmt: skip


def _trace_cell_outline(cell: HeatCell) -> list[tuple[float, float]]:
    left, top, right, bottom = cell.column, cell.row, cell.column + 0.94, cell.row + 0.94
    return [(left, top), (right, top), (right, bottom), (left, bottom), (left, top)]


def _choose_text_colour(shade: int) -> str:
    return PAPER if shade == 0 else INK
