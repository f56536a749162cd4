"""Results in a notebook: a table, a pandas frame, a figure, and the model of a seed."""

from __future__ import annotations

import dataclasses
import html
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, overload

from dpbench.analysis import comparison
from dpbench.analysis.columns import FILE_COLUMNS
from dpbench.analysis.draw import check_matplotlib
from dpbench.analysis.grid import ResultGrid
from dpbench.analysis.reader import StoredResult, read_results
from dpbench.analysis.rows import ResultRow, make_result_row
from dpbench.analysis.tables import make_grids
from dpbench.analysis.text_tables import make_text_tables, render_html, render_markdown
from dpbench.errors import SpecError
from dpbench.models import Model
from dpbench.records.metrics import METRICS, Metric
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.registry import load as load_plugins
from dpbench.registry.components import make_component_shortener
from dpbench.support.messages import format_unknown_name_message

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

DEFAULT_FOLDER = "dpbench-results"


@dataclass(frozen=True, eq=False, repr=False)
class Results(Sequence["Results"]):
    """One or several results; displayed as the table that `dpbench results` prints.

    Each item is a `Results` of a single result. `records` are the results as their files store them.
    """

    filed: tuple[StoredResult, ...]
    failed: Mapping[str, str] = field(default_factory=dict)  # runs that failed, and why
    models: Mapping[tuple[str, int], Model] = field(default_factory=dict)  # that were kept, by digest and seed
    plugins: Registry | None = None

    @property
    def records(self) -> tuple[Result, ...]:
        """The results: spec, guarantee, scores by seed, provenance."""
        return tuple(stored.result for stored in self.filed)

    @property
    def record(self) -> Result:
        """The only result.

        Raises:
            SpecError: there are several results.
        """
        return self._only_result.result

    @property
    def file(self) -> Path:
        """The file of the only result; raises the same errors as `record`."""
        return self._only_result.file

    @property
    def accuracy(self) -> float:
        """The mean accuracy over seeds of the only result, from 0 to 1; raises the same errors as `record`."""
        return self.record.metrics["accuracy"].mean

    def frame(self) -> DataFrame:
        """Return a pandas frame with a row per result and the columns of `dpbench results --csv`."""
        import pandas

        rows = [make_result_row(filed) for filed in self.filed]
        return pandas.DataFrame({column.name: [column.value(row) for row in rows] for column in FILE_COLUMNS})

    def plot(self, metric: Metric = "accuracy", ax: Axes | None = None) -> Axes:
        """Plot a metric against ε with a line per learner and 95% intervals; return the axes.

        Raises:
            SpecError: the results have several protocols or lack the metric, or matplotlib is missing.
        """
        from dpbench.analysis.figure import draw_panel, format_metric_axis_label
        from dpbench.analysis.figure_data import collect_figure_data

        tables = self._make_grids(check_metric(metric))
        if len(tables) != 1:
            said = "; ".join(table.title for table in tables) or f"none with {metric}"
            raise SpecError(f"Expected results of one protocol to draw, got {said}. Select some, like results[:3].")
        if ax is None:
            check_matplotlib()
            import matplotlib.pyplot as plt

            _, ax = plt.subplots()
        draw_panel(ax, collect_figure_data("results", tables), ())
        ax.set_ylabel(format_metric_axis_label(metric))
        ax.set_title(tables[0].title, parse_math=False, fontsize="medium")
        ax.legend(fontsize="small")
        return ax

    def model(self, seed: int | None = None, device: str = "auto") -> Model:
        """Return the model of a seed (default: the first), saved by the run or fitted again.

        A repeated fit must give the same labels as the run; otherwise an error is raised.

        Raises:
            SpecError: there are several results, no such seed, or the predictor cannot be kept.
            DpbenchError: the fit cannot be repeated. A fit with secure_rng never can be: run it with keep_models=True.
        """
        from dpbench.harness.session import open_session
        from dpbench.models.refit import refit_model

        result = self.record
        wanted = result.spec.seeds[0] if seed is None else seed
        kept = self.models.get((result.digest, wanted))
        if kept:
            return dataclasses.replace(kept, device=device)
        return refit_model(result, wanted, open_session(device, plugins=self.plugins))

    def __len__(self) -> int:
        return len(self.filed)

    @overload
    def __getitem__(self, index: int) -> Results: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> Results:
        """Return the results at an index or in a slice."""
        chosen = self.filed[index] if isinstance(index, slice) else (self.filed[index],)
        return Results(chosen, {}, self.models, self.plugins)

    def __iter__(self) -> Iterator[Results]:
        return (self[place] for place in range(len(self)))

    def __repr__(self) -> str:
        return render_markdown(make_text_tables(self._make_grids())).rstrip() + "".join(
            f"\nFailed: {line}" for line in self._describe_failures()
        )

    def _repr_html_(self) -> str:
        failures = "".join(f"<p>Failed: {html.escape(line)}</p>" for line in self._describe_failures())
        remarks = "".join(f"<p>{html.escape(said)}</p>" for record in self.records for said in record.remarks)
        return render_html(make_text_tables(self._make_grids())) + remarks + failures

    def _make_grids(self, metric: Metric = "accuracy") -> list[ResultGrid[ResultRow]]:
        return make_grids(self.filed, metric, make_component_shortener(self.plugins or load_plugins()))

    def _describe_failures(self) -> list[str]:
        return [f"{cell}: {why}" for cell, why in self.failed.items()]

    @property
    def _only_result(self) -> StoredResult:
        if len(self.filed) != 1:
            raise SpecError(f"Expected one result, got {len(self.filed)}: take one of them, like results[0].")
        return self.filed[0]


@dataclass(frozen=True)
class Comparison:
    """A comparison of two results by the boards' paired test."""

    said: tuple[str, ...]
    difference: float  # of the metric, first minus second, a share of 1
    half: float  # half its 95% interval; NaN for a single seed without examples to pair
    p: float
    differs: bool  # more than noise, at 5%

    def __str__(self) -> str:
        return "\n".join(self.said)

    def _repr_html_(self) -> str:
        return "".join(f"<p>{html.escape(line)}</p>" for line in self.said)


def results(*paths: str | Path) -> Results:
    """Return the results in files and folders (default: `dpbench-results`), the newest for each spec.

    Files that are damaged or were changed after they were written are skipped with a warning.

    Raises:
        DataError: a path does not exist, or no path holds a result.
    """
    filed, damaged = read_results([Path(place) for place in paths or (DEFAULT_FOLDER,)])
    for said in damaged:
        warnings.warn(f"{said} Skipped.", stacklevel=2)
    return Results(tuple(filed))


def load(*paths: str | Path) -> DataFrame:
    """Return results as a pandas frame with a row per result; see `results` and `Results.frame`."""
    return results(*paths).frame()


def compare(first: Results | str | Path, second: Results | str | Path, metric: Metric = "accuracy") -> Comparison:
    """Compare two results: their difference, and whether it is significant.

    Raises:
        SpecError: an argument holds several results, or the two share no test examples and seeds, or lack the metric.
        DataError: a path does not exist, or holds no result.
    """
    base, other = (each if isinstance(each, Results) else results(each) for each in (first, second))
    pair = base._only_result, other._only_result
    found = comparison.compare_results(*pair, check_metric(metric))
    return Comparison(
        tuple(comparison.describe_difference(*pair, metric)),
        found.difference,
        found.interval_half_width,
        found.p,
        bool(found.is_significant),
    )


def load_model(file: str | Path, device: str = "auto") -> Model:
    """Return a saved model.

    Raises:
        DataError: the file does not exist, is not a model, or was damaged or changed.
    """
    return Model.load(file, device=device)


def check_metric(metric: Metric) -> Metric:
    """Check that a metric exists, and return it.

    Raises:
        SpecError: the metric does not exist; the message lists all metrics.
    """
    if metric not in METRICS:
        raise SpecError(format_unknown_name_message("metric", metric, METRICS))
    return metric
