"""Read `published.json`: results that papers report, in percent as printed, to draw beside those of dpbench."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dpbench.analysis.figure_data import PublishedSeries
from dpbench.analysis.plots import Plot
from dpbench.errors import SpecError
from dpbench.support.messages import format_unknown_name_message
from dpbench.support.validation import Record

FILE = Path(__file__).parent / "published.json"


class PublishedResults(Record):
    """The content of `published.json`."""

    papers: dict[str, str]  # short name -> authors, title, year
    series: dict[str, PublishedSeries]  # accuracies on test splits; the paper of each is a key of `papers`


def read_literature() -> PublishedResults:
    """Return the published results that come with dpbench."""
    return PublishedResults.model_validate_json(FILE.read_bytes())


def find_published_series(plot: Plot, origin: str) -> Sequence[PublishedSeries]:
    """Return the series that a plot names.

    Raises:
        SpecError: a series does not exist, or the plot does not show accuracy, the metric of all series.
    """
    series = read_literature().series
    for key in plot.published:
        if key not in series:
            raise SpecError(format_unknown_name_message("published series", key, series, f"[plot] of {origin}"))
    if plot.published and plot.metric != "accuracy":
        raise SpecError(
            f"Expected metric = 'accuracy' with published series in [plot] of {origin}: papers report that."
        )
    return [series[key] for key in plot.published]
