"""Compute delta for cells that do not state it.

The file name of a cell's result contains a digest that depends on delta, so data is opened before cells run. Delta
depends only on the number of private units; up to 50,000 units it has its usual value. Data from the hub is fetched
before cells run, but not to list cells or draw their results. If data cannot be opened here, the run reports the
reason.
"""

from __future__ import annotations

import dataclasses

from dpbench.api import Splits
from dpbench.data import sources
from dpbench.data.units import check_units
from dpbench.errors import DpbenchError
from dpbench.harness.cutting import count_private_units
from dpbench.harness.delta import compute_default_delta
from dpbench.registry import Registry
from dpbench.registry.components import ResolvedSpec, resolve
from dpbench.support.plugin_calls import call_plugin
from dpbench.sweep.grid import Cell, SweepGrid


def fill_in_cell_deltas(grid: SweepGrid, plugins: Registry, *, fetch: bool = False) -> SweepGrid:
    """Return the grid with delta filled in for each cell whose data can be opened.

    Cells that are then equal are merged. `fetch` says whether data may be fetched from the hub.
    """
    splits: dict[str, Splits | None] = {}
    cells: dict[str, Cell] = {}
    for cell in grid.cells:
        settled = _fill_in_delta(cell, plugins, splits, fetch)
        cells.setdefault(settled.digest, settled)
    again = len(grid.cells) - len(cells)
    return dataclasses.replace(grid, cells=tuple(cells.values()), duplicates=grid.duplicates + again)


def _fill_in_delta(cell: Cell, plugins: Registry, splits: dict[str, Splits | None], fetch: bool) -> Cell:
    if "delta" in cell.spec.model_fields_set:
        return cell
    resolved = resolve(cell.spec, plugins)
    key = resolved.spec.dataset.model_dump_json()
    if key not in splits:
        splits[key] = _load_splits(resolved, fetch)
    found = splits[key]
    if found is None:
        return cell
    try:
        units = count_private_units(found, len(resolved.parts.dataset.classes), resolved.spec.split_rule)
    except DpbenchError:
        return cell  # a cell that runs says why
    delta = compute_default_delta(units)
    spec = cell.spec.with_default("delta", delta, given=True)
    return dataclasses.replace(cell, spec=spec, digest=resolved.with_delta(delta).spec.digest)


def _load_splits(resolved: ResolvedSpec, fetch: bool) -> Splits | None:
    """Return the splits of a dataset; None if the dataset is damaged or not on this machine."""
    dataset = resolved.parts.dataset
    try:
        source = sources.get_dataset_source(dataset)
        if source is not None and sources.find_dataset(dataset) is None and not (fetch and source.hub):
            return None
        found: object = call_plugin(f"load of dataset {dataset.name!r}", dataset.load)
        if not isinstance(found, Splits):
            return None
        check_units(found, len(dataset.classes), f"dataset {dataset.name!r}")
    except DpbenchError:
        return None
    return found
