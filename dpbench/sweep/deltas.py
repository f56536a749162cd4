"""Delta of the cells that leave it to their data: a cell's name holds the number, so data is opened before it is named.

Only sizes are needed: of data with up to 50,000 private units delta is the usual one. Data that is not on this machine
is not fetched for it; a cell that runs settles delta as a run of its own does.
"""

from __future__ import annotations

import dataclasses

from dpbench.api import Splits
from dpbench.data import sources
from dpbench.data.units import check_units
from dpbench.errors import DpbenchError
from dpbench.harness.cutting import count_private_units
from dpbench.harness.delta import default_delta
from dpbench.records.spec import Spec
from dpbench.registry import Registry
from dpbench.registry.components import ResolvedSpec, resolve
from dpbench.support.plugin_calls import call_plugin
from dpbench.sweep.grid import Cell, Grid


def settle_deltas(grid: Grid, plugins: Registry) -> Grid:
    """Return the cells with delta as a number, wherever it follows from data that can be opened here."""
    splits: dict[str, Splits | None] = {}
    return dataclasses.replace(grid, cells=tuple(_settled(cell, plugins, splits) for cell in grid.cells))


def _settled(cell: Cell, plugins: Registry, splits: dict[str, Splits | None]) -> Cell:
    if "delta" in cell.spec.model_fields_set:
        return cell
    resolved = resolve(cell.spec, plugins)
    key = resolved.spec.dataset.model_dump_json()
    if key not in splits:
        splits[key] = _splits(resolved)
    found = splits[key]
    if found is None:
        return cell
    try:
        units = count_private_units(found, len(resolved.parts.dataset.classes), resolved.spec.split_rule)
    except DpbenchError:
        return cell  # a cell that runs says why
    return dataclasses.replace(
        cell, spec=_with_delta(cell.spec, units), digest=_with_delta(resolved.spec, units).digest
    )


def _with_delta(spec: Spec, units: int) -> Spec:
    return spec.model_copy(update={"delta": default_delta(units)})


def _splits(resolved: ResolvedSpec) -> Splits | None:
    """Return the splits of a dataset, None if it is damaged or not on this machine."""
    dataset = resolved.parts.dataset
    try:
        source = sources.describe_source(dataset)
        if source is not None and sources.find(dataset) is None:
            return None
        found = call_plugin(f"load of dataset {dataset.name!r}", dataset.load)
        check_units(found, len(dataset.classes), f"dataset {dataset.name!r}")
    except DpbenchError:
        return None
    return found
