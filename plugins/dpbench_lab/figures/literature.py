"""Results that papers report, to draw beside those of dpbench: `published.json`, in percent as printed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field

from dpbench.analysis.plots import Plot
from dpbench.errors import SpecError
from dpbench.support.messages import unknown_name
from dpbench.support.validation import Record

FILE = Path(__file__).parent / "published.json"


class Point(Record):
    """One number of a paper."""

    at: dict[str, float | str]  # axis -> value; an x of "best" means the best x, which the paper does not name
    percent: float = Field(ge=0, le=100)
    above: bool = False  # the paper says "more than"


class Series(Record):
    """The numbers of one table, figure or sentence of a paper."""

    paper: str  # a key of `Literature.papers`
    place: str  # in the paper: a table, figure or section
    features: str
    protocol: str
    points: tuple[Point, ...] = Field(min_length=1)

    @property
    def label(self) -> str:
        """Its text in a legend."""
        above = "; ▲: more than" if any(point.above for point in self.points) else ""
        best = {axis.rpartition(".")[2] for point in self.points for axis, value in point.at.items() if value == "best"}
        line = "".join(f"; line: best {axis}" for axis in sorted(best))
        return f"published: {self.paper}, {self.place} ({self.features}{above}{line})"


class Literature(Record):
    """All of `published.json`."""

    papers: dict[str, str]  # short name -> authors, title, year
    series: dict[str, Series]  # accuracies on test splits


def read() -> Literature:
    """Return the published results that come with dpbench."""
    return Literature.model_validate_json(FILE.read_bytes())


def choose_series(plot: Plot, origin: str) -> Sequence[Series]:
    """Return the series that a plot names.

    Raises:
        SpecError: a series does not exist, or the plot does not show accuracy, which all of them report.
    """
    series = read().series
    for key in plot.published:
        if key not in series:
            raise SpecError(unknown_name("published series", key, series, f"[plot] of {origin}"))
    if plot.published and plot.metric != "accuracy":
        raise SpecError(
            f"Expected metric = 'accuracy' with published series in [plot] of {origin}: papers report that."
        )
    return [series[key] for key in plot.published]
