"""Read a measurement of OpenDP: the cost that its privacy map states, and its neighbouring relation."""

from __future__ import annotations

import re
from typing import Any

from dpbench.errors import SpecError
from dpbench.receipts.events import Approximate, Concentrated, Event, Pure, Repeated
from dpbench.receipts.receipt import Accountant, Adjacency, Training, find_installed_version

ADJACENCIES: dict[str, Adjacency] = {
    "SymmetricDistance": "add-or-remove-one", "InsertDeleteDistance": "add-or-remove-one",
    "ChangeOneDistance": "replace-one", "HammingDistance": "replace-one",
}  # fmt: skip


def from_opendp(
    measurement: Any, *, size: int | None = None, delta: float | None = None, d_in: int = 1, times: int = 1
) -> Training:
    """Return the training that a measurement of OpenDP describes; its own privacy map gives the cost.

    Args:
        measurement: the `Measurement`; for a composition, all of it.
        size: number of rows of the private data, if the measurement's domain does not state it.
        delta: the delta at which to evaluate a privacy map that is a privacy profile.
        d_in: the distance between neighbours; 2 in the symmetric distance means one replaced row.
        times: how often the measurement was invoked.

    Raises:
        SpecError: receipts cannot express this metric, distance or measure.
    """
    metric, measure = str(measurement.input_metric), str(measurement.output_measure)
    adjacency = ADJACENCIES.get(metric.partition("(")[0])
    if adjacency == "add-or-remove-one" and d_in == 2:
        adjacency = "replace-one"
    elif adjacency is None or d_in != 1:
        raise SpecError(
            f"Receipts are about one row: expected a distance of 1 in {', '.join(ADJACENCIES)}, got {d_in} in {metric}."
        )
    event = _convert_privacy_loss(measure, measurement.map(d_in), delta)
    stated = re.search(r"size=(\d+)", str(measurement.input_domain))
    found = find_installed_version("opendp")
    return Training(
        events=Repeated(event=event, times=times) if times != 1 else event,
        size=size if size is not None or stated is None else int(stated[1]),
        accountant=Accountant(name="privacy map", library="opendp", version=found, adjacency=adjacency),
        libraries={"opendp": found} if found else {},
    )


def _convert_privacy_loss(measure: str, cost: Any, delta: float | None) -> Event:
    if measure == "MaxDivergence":
        return Pure(epsilon=float(cost))
    if measure == "ZeroConcentratedDivergence":
        return Concentrated(rho=float(cost))
    if measure == "Approximate(MaxDivergence)":
        return Approximate(epsilon=float(cost[0]), delta=float(cost[1])) if cost[1] else Pure(epsilon=float(cost[0]))
    if measure == "SmoothedMaxDivergence" and delta:
        return Approximate(epsilon=float(cost.epsilon(delta)), delta=delta)
    if measure == "SmoothedMaxDivergence":
        raise SpecError("Expected delta for a measurement whose map is a privacy profile.")
    raise SpecError(f"Receipts have no measure {measure}. Convert it with OpenDP's combinators first.")
