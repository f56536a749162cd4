"""A sweep from file to summary: what is left to do is prepared once, run on workers and kept cell by cell."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpbench import registry
from dpbench.registry import Registry
from dpbench.registry.components import check_components
from dpbench.sweep.display import Count, shown
from dpbench.sweep.folder import Folder, State
from dpbench.sweep.grid import Cell, Grid, read_grid
from dpbench.sweep.using import Using


@dataclass(frozen=True)
class Survey:
    """Where a sweep stands before it is run."""

    grid: Grid
    folder: Folder
    states: tuple[State, ...]  # of the grid's cells
    seconds: float | None  # one worker's estimate for what is to do; None where no result tells

    def having(self, *states: State) -> list[Cell]:
        """Return the cells of these states."""
        return [cell for cell, its in zip(self.grid.cells, self.states, strict=True) if its in states]


@dataclass(frozen=True)
class Summary:
    """What became of a sweep."""

    grid: Grid
    folder: Folder
    ran: int  # cells finished by this sweep
    skipped: int  # cells that were done before
    failed: tuple[tuple[Cell, str], ...]  # of this sweep and of earlier ones, with what they failed of


def survey(source: Path | Mapping[str, Any], out: Path | None = None, plugins: Registry | None = None) -> Survey:
    """Return every cell of a sweep and its state; nothing is run.

    Args:
        source: a sweep file, or a mapping of its keys; see `sweep.grid`.
        out: the folder of results; by default `dpbench-results/` and the sweep's name.
        plugins: what is installed, if it is loaded already.

    Raises:
        SpecError: the sweep does not fit; see `read_grid`.
    """
    grid = read_grid(source, plugins or registry.load())
    return _survey(grid, _folder(out, grid))


def sweep(
    source: Path | Mapping[str, Any],
    out: Path | None = None,
    *,
    using: Using | None = None,
    retry_failed: bool = False,
    plugins: Registry | None = None,
) -> Summary:
    """Run every cell of a sweep that is not done; each result is a file of its own as soon as there is one.

    A cell whose result is in the folder is skipped, one that failed there too unless `retry_failed`. A sweep that was
    stopped, however hard, goes on when it is called again, to the same numbers. Arguments are those of `survey`.

    Raises:
        SpecError: the sweep, or what it should run on, does not fit; no cell is run.
        DataMissing: a dataset is not on this machine; no cell is run.
        OutputError: the folder cannot be written, any more or from the start; what is finished stays.
    """
    using, plugins = using or Using(), plugins or registry.load()
    grid = read_grid(source, plugins)
    for spec in {(str(cell.spec.dataset), str(cell.spec.public_dataset)): cell.spec for cell in grid.cells}.values():
        check_components(spec, plugins)
    folder = _folder(out, grid)
    with folder.held():
        whole = _survey(grid, folder)
        left = whole.having("to do", "failed") if retry_failed else whole.having("to do")
        folder.log(f"begin    {grid.name}: {len(left)} of {len(grid.cells)} cells to do, {using}")
        ran = _run(left, whole, using, plugins) if left else 0
        failed = tuple((cell, error) for cell in grid.cells if (error := folder.failure(cell)) is not None)
        folder.log(f"end      {grid.name}: {ran} cells done, {len(failed)} failed")
    return Summary(grid, folder, ran, len(whole.having("done")), failed)


def _folder(out: Path | None, grid: Grid) -> Folder:
    return Folder(out or Path("dpbench-results") / grid.name)


def _survey(grid: Grid, folder: Folder) -> Survey:
    states: list[State] = []
    took: dict[str, list[float]] = {}  # learner -> seconds of its results
    for cell in grid.cells:
        result = folder.result(cell)
        states.append("done" if result else "to do" if folder.failure(cell) is None else "failed")
        if result:
            took.setdefault(cell.spec.learner.name, []).append(sum(result.seconds.values()))
    means = {name: sum(seconds) / len(seconds) for name, seconds in took.items()}
    left = [cell.spec.learner.name for cell, its in zip(grid.cells, states, strict=True) if its == "to do"]
    known = [means[name] for name in left if name in means]
    # Learners that have no result yet are taken to be as slow as those that have.
    return Survey(grid, folder, tuple(states), sum(known) / len(known) * len(left) if known else None)


def _run(left: Sequence[Cell], whole: Survey, using: Using, plugins: Registry) -> int:
    """Run cells and keep what comes; return how many succeeded."""
    from dpbench.sweep import start  # which imports torch

    folder = whole.folder
    executor = start.executor(using, folder)
    ordered = start.prepared(left, folder, using.device_here, plugins)
    count = Count(len(ordered), executor)
    with closing(executor.run(ordered)) as outcomes, shown(whole.grid.name, count):
        for outcome in outcomes:
            if outcome.result is None:
                folder.note_failure(outcome.cell, outcome.error)
                count.failed += 1
            else:
                folder.keep(outcome.cell, outcome.result)
                count.done += 1
    return count.done
