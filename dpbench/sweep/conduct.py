"""Run a sweep from its file to its summary: prepare data once, run cells on workers, save each result at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench import registry
from dpbench.api import Dataset
from dpbench.data import sources
from dpbench.errors import DpbenchError, OutputError
from dpbench.records.protocol import Component
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.registry.components import build, resolve
from dpbench.registry.same_code import FingerprintStore, is_same_code
from dpbench.support.plugin_calls import call_plugin
from dpbench.sweep.cell_files import TO_RUN, State, SweepFolder
from dpbench.sweep.deltas import fill_in_cell_deltas
from dpbench.sweep.display import CellCounter, show_cell_counts
from dpbench.sweep.grid import Cell, SweepGrid, read_grid
from dpbench.sweep.resources import SweepResources


@dataclass(frozen=True)
class SweepOverview:
    """The cells of a sweep with their states, and the estimated time of the unfinished cells."""

    grid: SweepGrid
    folder: SweepFolder
    states: tuple[State, ...]  # one per cell of the grid
    seconds: float | None  # estimate for the cells to do, on one worker; None without a result to go by

    def cells(self, *states: State) -> list[Cell]:
        """Return the cells that are in one of these states."""
        return [cell for cell, state in zip(self.grid.cells, self.states, strict=True) if state in states]


@dataclass(frozen=True)
class SweepSummary:
    """The outcome of a sweep."""

    grid: SweepGrid
    folder: SweepFolder
    ran: int  # cells finished by this call
    skipped: int  # cells that were done before
    failed: tuple[tuple[Cell, str], ...]  # in this call or an earlier one, with the error
    changed: tuple[Cell, ...] = ()  # left as they are: done by other code (see `State`)
    renewed: tuple[Cell, ...] = ()  # begun again: done before, on other data than are here


def get_sweep_overview(
    definition: Path | Mapping[str, Any],
    out: Path | None = None,
    plugins: Registry | None = None,
    *,
    data: bool = False,
) -> SweepOverview:
    """Return the cells of a sweep and their states without running any.

    Args:
        definition: a sweep file, or a mapping with its keys; see `sweep.grid`.
        out: the results folder; by default `dpbench-results/` and the sweep's name.
        plugins: the registry, if it is already loaded.
        data: whether to open the datasets, to find cells that were run on other data; drawing figures needs no data.

    Raises:
        SpecError: the definition is invalid; see `read_grid`.
    """
    plugins = plugins or registry.load()
    grid = fill_in_cell_deltas(read_grid(definition, plugins), plugins)
    return _survey_cells(grid, _sweep_folder(out, grid), plugins, _DatasetDigestCache(plugins) if data else None)


def sweep(
    definition: Path | Mapping[str, Any],
    out: Path | None = None,
    *,
    resources: SweepResources | None = None,
    retry_failed: bool = False,
    refresh: bool = False,
    plugins: Registry | None = None,
) -> SweepSummary:
    """Run all cells of a sweep that are not done; write each result to its own file as soon as it arrives.

    Cells with a result in the folder are skipped, unless the data have changed since. If a sweep was stopped, or even
    killed, another call continues it, with the same numbers in the end.

    Args:
        definition: a sweep file, or a mapping with its keys; see `sweep.grid`.
        out: the results folder; by default `dpbench-results/` and the sweep's name.
        resources: the workers, their threads and their device; by default those of `Resources`.
        retry_failed: run failed cells again; by default they are skipped.
        refresh: run cells again if their code has changed (of a plugin, of dpbench's core or of the mechanism).
        plugins: the registry, if it is already loaded.

    Raises:
        SpecError: the definition or the resources are invalid; no cell is run.
        DataMissing: a dataset is not on this machine; no cell is run.
        OutputError: the folder cannot be written, at the start or later; finished cells are kept.
        DpbenchError: no worker can be started or reached; finished cells are kept.
    """
    resources, plugins = resources or SweepResources(), plugins or registry.load()
    grid = fill_in_cell_deltas(read_grid(definition, plugins), plugins, fetch=True)
    for spec in {(str(cell.spec.dataset), str(cell.spec.public_dataset)): cell.spec for cell in grid.cells}.values():
        resolve(spec, plugins).check_data()
    folder = _sweep_folder(out, grid)
    with folder.lock():
        before = _survey_cells(grid, folder, plugins, _DatasetDigestCache(plugins))
        for cell in before.cells("done"):
            folder.delete_failure(cell)  # a run of its own may have written the result since
        also = (*["failed"] * retry_failed, *["other code"] * refresh)
        left = before.cells(*TO_RUN, *also)  # type: ignore[arg-type]
        folder.log(f"begin    {grid.name}: {len(left)} of {len(grid.cells)} cells to do, {resources}")
        ran = _run_unfinished_cells(left, before, resources, plugins) if left else 0
        failed = tuple((cell, error) for cell in grid.cells if (error := folder.read_failure(cell)) is not None)
        folder.log(f"end      {grid.name}: {ran} cells done, {len(failed)} failed")
    changed = () if refresh else tuple(before.cells("other code"))
    done, renewed = len(before.cells("done")) + len(changed), tuple(before.cells("other data"))
    return SweepSummary(grid, folder, ran, done, failed, changed, renewed)


def _sweep_folder(out: Path | None, grid: SweepGrid) -> SweepFolder:
    return SweepFolder(out or Path("dpbench-results") / grid.name)


def _survey_cells(
    grid: SweepGrid, folder: SweepFolder, plugins: Registry, data: _DatasetDigestCache | None
) -> SweepOverview:
    states: list[State] = []
    prints = FingerprintStore()  # takes none: nothing is fitted to tell a state
    took: dict[str, list[float]] = {}  # learner -> seconds of its results
    for cell in grid.cells:
        result = folder.result(cell)
        states.append(_find_cell_state(cell, result, folder, plugins, data, prints))
        if result:
            took.setdefault(cell.spec.learner.name, []).append(sum(result.seconds.values()))
    means = {name: sum(seconds) / len(seconds) for name, seconds in took.items()}
    left = [cell.spec.learner.name for cell, state in zip(grid.cells, states, strict=True) if state in TO_RUN]
    known = [means[name] for name in left if name in means]
    # Learners without a result are assumed to be as slow as those with one.
    return SweepOverview(grid, folder, tuple(states), sum(known) / len(known) * len(left) if known else None)


class _DatasetDigestCache:
    """Caches the current digests of the datasets; each dataset is opened only once."""

    def __init__(self, plugins: Registry) -> None:
        self._plugins, self._digests = plugins, dict[tuple[str, int], str | None]()

    def matches_current_data(self, cell: Cell, result: Result) -> bool | None:
        """Return whether a result was computed on the current data; None if the data cannot be read here."""
        spec = cell.spec
        parts = {"private": spec.dataset, "public": spec.public_dataset or spec.dataset}
        now = {role: self._digest(part, spec.seeds[0]) for role, part in parts.items()}
        return None if None in now.values() else now == result.task.digests

    def _digest(self, part: Component, seed: int) -> str | None:
        key = (part.model_dump_json(), seed)
        if key not in self._digests:
            self._digests[key] = _compute_current_digest(build(self._plugins, "dataset", part), seed)
        return self._digests[key]


def _compute_current_digest(dataset: Dataset, seed: int) -> str | None:
    """Return a dataset's digest; None if the dataset is drawn anew for each seed, or cannot be read here."""
    try:
        source = sources.get_dataset_source(dataset)
        away = source is not None and source.hub and sources.find_dataset(dataset) is None
        if away or dataset.drawn(seed) != dataset:
            return None
        return call_plugin(f"load of dataset {dataset.name!r}", dataset.load).digest
    except DpbenchError:
        return None  # a cell that runs says why


def _find_cell_state(
    cell: Cell,
    result: Result | None,
    folder: SweepFolder,
    plugins: Registry,
    data: _DatasetDigestCache | None,
    fingerprints: FingerprintStore,
) -> State:
    if result is None:
        return "to do" if folder.read_failure(cell) is None else "failed"
    same_data = None if data is None else data.matches_current_data(cell, result)
    if same_data is False:
        return "other data" if folder.read_failure(cell) is None else "failed"
    if not result.privacy.uses_current_mechanism:
        return "other code"
    if is_same_code(result, plugins, fingerprints, same_data=same_data):
        return "done"
    return "other code" if folder.read_failure(cell) is None else "failed"


def _run_unfinished_cells(
    unfinished: Sequence[Cell], before: SweepOverview, resources: SweepResources, plugins: Registry
) -> int:
    """Run cells and save their results; return the number of cells that succeeded."""
    from dpbench.sweep.start import make_sweep_executor  # imports torch

    folder, chosen = before.folder, make_sweep_executor(resources, before.folder)
    ordered = prepare_cells(unfinished, folder, resources.local_device, plugins)
    count = CellCounter(len(ordered), chosen)
    with closing(chosen.run(ordered)) as outcomes, show_cell_counts(before.grid.name, count):
        for outcome in outcomes:
            if outcome.result is None:
                folder.record_failure(outcome.cell, outcome.error)
                count.failed += 1
            else:
                folder.save_result(outcome.cell, outcome.result)
                count.done += 1
    return count.done


def prepare_cells(cells: Sequence[Cell], folder: SweepFolder, device: str, plugins: Registry) -> list[Cell]:
    """Extract features and compare the images of the splits once for all workers; return the cells grouped by data.

    Raises:
        OutputError: the cache folder cannot be written.
    """
    from dpbench.harness.session import open_session  # imports torch

    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(cell.spec.data_key, []).append(cell)
    for group in groups.values():
        for cell in {cell.spec.delta: cell for cell in group}.values():  # one delta may be too large for this data
            try:
                open_session(device, plugins=plugins).extract(cell.spec)
                break
            except OutputError:
                raise
            except DpbenchError as error:
                folder.log(f"prepare  {error}  ({cell})")  # a worker will report it too, cell by cell
    return [cell for group in groups.values() for cell in group]
