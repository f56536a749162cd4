"""Measurements for a study: the results of its sweep, or inspections, each with its values of the axes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench.analysis import formula
from dpbench.analysis.plots import Plot, is_fitted_cell
from dpbench.records import storage
from dpbench.records.result import Interval, Result
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.sweep import ready_made_sweeps
from dpbench.sweep.conduct import get_sweep_overview
from dpbench.sweep.grid import Cell
from dpbench_lab.figures.collect import read_metric_interval
from dpbench_lab.inspect.report import Inspection
from dpbench_lab.reproduce.catalogue import ReproductionStudy
from dpbench_lab.reproduce.protocol import RunFacts

FIXED = ("dataset", "extractor", "epsilon", "public_fraction", "train_fraction", "learner", "public_dataset")


@dataclass(frozen=True)
class TheoremRate:
    """A theorem's rate at one cell of a sweep."""

    at: Mapping[str, Any]  # the cell's axes -> value
    value: float  # of the formula as it is written, its constant left out
    fitted: bool  # whether the constant is fitted here
    unseen: float  # the share that one test example of one seed is: a rate below it cannot be told from 0


@dataclass(frozen=True)
class Measurement:
    """A number that we measured, with its position on the axes."""

    at: Mapping[str, Any]  # axis -> value
    interval: Interval  # of the accuracy, a share; of the error, beside a rate; or of what an inspection measures
    today: bool  # whether this code sums and adds noise as the code did that measured it
    rate: TheoremRate | None = None
    tested: int = 0  # test examples that one seed was scored on; 0 for what is not a share of any
    chance: float = 0.0  # the accuracy of always guessing the largest class of the test split
    facts: RunFacts | None = None

    @classmethod
    def from_result(cls, result: Result, at: Mapping[str, Any], rate: TheoremRate | None = None) -> Measurement:
        """Return the accuracy of a result or, if a rate is given, its error."""
        score, today = (
            read_metric_interval(result, "error" if rate else "accuracy"),
            result.privacy.uses_current_mechanism,
        )
        task = result.task
        return cls(at, score, today, rate, task.test, task.largest, RunFacts.from_result(result))

    @property
    def is_above_chance(self) -> bool:
        """Whether the 95% interval of the accuracy lies above chance; True if the number is not an accuracy."""
        return not self.tested or self.interval.mean - self.margin > self.chance

    @property
    def margin(self) -> float:
        """Half the width of the 95% interval: over seeds or, if all seeds agree, of drawing the test examples.

        0 if the number is not an accuracy and has no interval.
        """
        interval = self.interval
        if interval.low is not None and interval.high is not None and interval.high > interval.low:
            return (interval.high - interval.low) / 2
        return 1.96 * math.sqrt(interval.mean * (1 - interval.mean) / self.tested) if self.tested else 0.0


def read_measurements(study: ReproductionStudy, folder: Path, plugins: Registry) -> list[Measurement]:
    """Return the measurements in `folder` for a study: results of its sweep, or inspections; an empty list if none."""
    if study.sweep:
        return _read_sweep_measurements(study.sweep, folder, plugins)
    return _read_inspections(study, folder) if study.inspection else []


def _read_sweep_measurements(sweep: str, folder: Path, plugins: Registry) -> list[Measurement]:
    found = get_sweep_overview(ready_made_sweeps.find_sweep_file(Path(sweep)), folder, plugins)
    kept = []
    for cell in found.grid.cells:
        result = found.folder.result(cell)
        if result:
            varied = {axis: value for axis, value in cell.values.items() if "." in axis}  # options of components
            rate = _evaluate_rate(found.grid.plot, cell, result)
            kept.append(Measurement.from_result(result, varied | read_axis_values(cell.spec), rate))
    return kept


def _evaluate_rate(plot: Plot | None, cell: Cell, result: Result) -> TheoremRate | None:
    if plot is None or plot.bound is None:
        return None
    rate = formula.evaluate_formula(plot.bound, cell.numbers, "the bound of [plot]")
    return TheoremRate(cell.values, rate, is_fitted_cell(plot, cell.values), 1 / (len(result.seeds) * result.task.test))


def read_axis_values(spec: Spec) -> dict[str, Any]:
    """Return a spec's values on the axes of papers' tables and figures."""
    fixed = spec.model_dump(mode="json", include=set(FIXED))
    plain = {
        axis: value["name"] if isinstance(value, Mapping) else value
        for axis, value in fixed.items()
        if value is not None
    }
    options = {f"learner.{option}": float(value) for option, value in spec.learner.options.items() if option == "k"}
    return {**plain, **options}


def _read_inspections(study: ReproductionStudy, folder: Path) -> list[Measurement]:
    kept = []
    for file in sorted(folder.rglob("inspection-*.json")):
        inspection = storage.read_validated_record(Inspection, file)
        if inspection.separability is None or inspection.margins is None:
            continue
        values = inspection.separability.own.median if study.inspection == "xi" else inspection.margins.smallest[0]
        facts = RunFacts(inspection.asked.dataset.name, inspection.asked.extractor.name)
        for k, value in zip(inspection.asked.k, values, strict=True):
            at = {"dataset": facts.data, "extractor": facts.network, "k": float(k)}
            kept.append(Measurement(at, Interval(mean=value, low=None, high=None), True, facts=facts))
    return kept
