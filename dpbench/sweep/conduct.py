"""A sweep from file to summary: data is prepared once, cells run on workers, each result is saved as it comes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench import registry
from dpbench.errors import DpbenchError, OutputError
from dpbench.records.result import Result
from dpbench.registry import Registry
from dpbench.registry.components import check_components, kind_of
from dpbench.support.code import DPBENCH, code_of, core
from dpbench.sweep.display import Count, shown
from dpbench.sweep.folder import Folder, State
from dpbench.sweep.grid import Cell, Grid, read_grid
from dpbench.sweep.resources import Resources


@dataclass(frozen=True)
class Overview:
    """The cells of a sweep and what is left to do."""

    grid: Grid
    folder: Folder
    states: tuple[State, ...]  # one per cell of the grid
    seconds: float | None  # estimate for the cells to do, on one worker; None without a result to go by

    def cells(self, *states: State) -> list[Cell]:
        """Return the cells in these states."""
        return [cell for cell, state in zip(self.grid.cells, self.states, strict=True) if state in states]


@dataclass(frozen=True)
class Summary:
    """The outcome of a sweep."""

    grid: Grid
    folder: Folder
    ran: int  # cells finished by this call
    skipped: int  # cells that were done before
    failed: tuple[tuple[Cell, str], ...]  # in this call or an earlier one, with the error
    changed: tuple[Cell, ...] = ()  # left as they are: done by a plugin whose files have changed since


def overview(
    definition: Path | Mapping[str, Any], out: Path | None = None, plugins: Registry | None = None
) -> Overview:
    """Return every cell of a sweep and its state; nothing is run.

    Args:
        definition: a sweep file, or a mapping with its keys; see `sweep.grid`.
        out: the results folder; by default `dpbench-results/` and the sweep's name.
        plugins: the registry, if it is already loaded.

    Raises:
        SpecError: the definition is invalid; see `read_grid`.
    """
    plugins = plugins or registry.load()
    grid = read_grid(definition, plugins)
    return _overview(grid, _folder(out, grid), plugins)


def sweep(
    definition: Path | Mapping[str, Any],
    out: Path | None = None,
    *,
    resources: Resources | None = None,
    retry_failed: bool = False,
    refresh: bool = False,
    plugins: Registry | None = None,
) -> Summary:
    """Run every cell of a sweep that is not done; each result is written to its own file as it comes.

    Cells with a result in the folder are skipped, unless it is `refresh` and the code of a plugin has changed since;
    failed ones are skipped unless `retry_failed`. A sweep that was
    stopped, even killed, continues when it is called again and ends with the same numbers. Arguments as in `overview`.

    Raises:
        SpecError: the definition or the resources are invalid; no cell is run.
        DataMissing: a dataset is not on this machine; no cell is run.
        OutputError: the folder cannot be written, at the start or later; finished cells are kept.
    """
    resources, plugins = resources or Resources(), plugins or registry.load()
    grid = read_grid(definition, plugins)
    for spec in {(str(cell.spec.dataset), str(cell.spec.public_dataset)): cell.spec for cell in grid.cells}.values():
        check_components(spec, plugins)
    folder = _folder(out, grid)
    with folder.held():
        before = _overview(grid, folder, plugins)
        left = before.cells("to do", *["failed"] * retry_failed, *["other code"] * refresh)  # type: ignore[arg-type]
        folder.log(f"begin    {grid.name}: {len(left)} of {len(grid.cells)} cells to do, {resources}")
        ran = _run(left, before, resources, plugins) if left else 0
        failed = tuple((cell, error) for cell in grid.cells if (error := folder.failure(cell)) is not None)
        folder.log(f"end      {grid.name}: {ran} cells done, {len(failed)} failed")
    changed = () if refresh else tuple(before.cells("other code"))
    return Summary(grid, folder, ran, len(before.cells("done")) + len(changed), failed, changed)


def _folder(out: Path | None, grid: Grid) -> Folder:
    return Folder(out or Path("dpbench-results") / grid.name)


def _overview(grid: Grid, folder: Folder, plugins: Registry) -> Overview:
    states: list[State] = []
    took: dict[str, list[float]] = {}  # learner -> seconds of its results
    for cell in grid.cells:
        result = folder.result(cell)
        states.append(_state(cell, result, folder, plugins))
        if result:
            took.setdefault(cell.spec.learner.name, []).append(sum(result.seconds.values()))
    means = {name: sum(seconds) / len(seconds) for name, seconds in took.items()}
    left = [cell.spec.learner.name for cell, state in zip(grid.cells, states, strict=True) if state == "to do"]
    known = [means[name] for name in left if name in means]
    # Learners without a result are assumed to be as slow as those with one.
    return Overview(grid, folder, tuple(states), sum(known) / len(known) * len(left) if known else None)


def _state(cell: Cell, result: Result | None, folder: Folder, plugins: Registry) -> State:
    if result is None:
        return "to do" if folder.failure(cell) is None else "failed"
    if not result.privacy.repeatable:
        return "other code"
    made: Mapping[str, str] = result.provenance.get("code", {})  # empty in results from before it was noted
    now: dict[str, str | None] = {DPBENCH: core()}
    now |= {role: code_of(plugins.find(kind_of(role), part.name).cls) for role, part in cell.spec.roles.items()}
    return "other code" if any(now.get(role, digest) != digest for role, digest in made.items()) else "done"


def _run(left: Sequence[Cell], before: Overview, resources: Resources, plugins: Registry) -> int:
    """Run cells and save their results; return how many succeeded."""
    from dpbench.sweep.executors.start import executor  # imports torch

    folder, chosen = before.folder, executor(resources, before.folder)
    ordered = prepared(left, folder, resources.device_here, plugins)
    count = Count(len(ordered), chosen)
    with closing(chosen.run(ordered)) as outcomes, shown(before.grid.name, count):
        for outcome in outcomes:
            if outcome.result is None:
                folder.record_failure(outcome.cell, outcome.error)
                count.failed += 1
            else:
                folder.keep(outcome.cell, outcome.result)
                count.done += 1
    return count.done


def prepared(cells: Sequence[Cell], folder: Folder, device: str, plugins: Registry) -> list[Cell]:
    """Extract features and compare images once for all workers; return the cells grouped by their data.

    Raises:
        OutputError: the cache folder cannot be written.
    """
    from dpbench.harness.shared import data_of  # imports torch
    from dpbench.sweep.memory import Memory

    groups: dict[str, list[Cell]] = {}
    for cell in cells:
        groups.setdefault(data_of(cell.spec), []).append(cell)
    for group in groups.values():
        for cell in {cell.spec.delta: cell for cell in group}.values():  # one delta may be too large for this data
            try:
                Memory(plugins).prepare(cell.spec, device)
                break
            except OutputError:
                raise
            except DpbenchError as error:
                folder.log(f"prepare  {error}  ({cell})")  # a worker will report it too, cell by cell
    return [cell for group in groups.values() for cell in group]
