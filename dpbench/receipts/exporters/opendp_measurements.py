"""Read a measurement of OpenDP: what its privacy map states, and for which neighbours."""

from __future__ import annotations

import re
from typing import Any

from dpbench.errors import SpecError
from dpbench.receipts.events import Approximate, Concentrated, Event, Pure, Repeated
from dpbench.receipts.receipt import Accountant, Adjacency, Training, find_version

METRICS: dict[str, Adjacency] = {
    "SymmetricDistance": "add-or-remove-one", "InsertDeleteDistance": "add-or-remove-one",
    "ChangeOneDistance": "replace-one", "HammingDistance": "replace-one",
}  # fmt: skip


def from_opendp(
    measurement: Any, *, size: int | None = None, delta: float | None = None, d_in: int = 1, times: int = 1
) -> Training:
    """Return what a measurement of OpenDP costs, by its own map.

    Args:
        measurement: the `Measurement`; of a composition, all of it.
        size: rows of the private data, if the measurement's domain does not say.
        delta: where the map is a privacy profile, at which delta it is read.
        d_in: how far neighbours are apart; 2 in the symmetric distance is one row replaced.
        times: how often it was invoked.

    Raises:
        SpecError: the metric or the measure is one that receipts do not have.
    """
    metric, measure = str(measurement.input_metric), str(measurement.output_measure)
    adjacency = METRICS.get(metric.partition("(")[0])
    if adjacency == "add-or-remove-one" and d_in == 2:
        adjacency = "replace-one"
    elif adjacency is None or d_in != 1:
        raise SpecError(
            f"Receipts are about one row: expected a distance of 1 in {', '.join(METRICS)}, got {d_in} in {metric}."
        )
    event = _event(measure, measurement.map(d_in), delta)
    stated = re.search(r"size=(\d+)", str(measurement.input_domain))
    found = find_version("opendp")
    return Training(
        events=Repeated(event=event, times=times) if times != 1 else event,
        size=size if size is not None or stated is None else int(stated[1]),
        accountant=Accountant(name="privacy map", library="opendp", version=found, adjacency=adjacency),
        libraries={"opendp": found} if found else {},
    )


def _event(measure: str, cost: Any, delta: float | None) -> Event:
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
