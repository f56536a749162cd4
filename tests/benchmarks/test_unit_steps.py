"""A step whose units are several rows each, against a step over the same rows, each a unit of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dpbench import LinearProbe, Task
from dpbench.privacy.binding import bind
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivacyUnits, PrivateRows
from dpbench.privacy.curator import make_learner_curator
from dpbench.support.malloc import keep_freed_memory
from tests.benchmarks.conftest import Ratios

ROWS = 45_000


def _training(n: int, d: int, rate: float, steps: int, owners: np.ndarray | None) -> Callable[[], object]:
    """Return steps of a head on rows that are mapped already."""
    keep_freed_memory()  # as every run does
    draw = torch.Generator().manual_seed(0)
    units = None if owners is None else PrivacyUnits(owners)
    rows = PrivateRows(
        torch.randn(n, d, generator=draw), torch.randint(10, (n,), generator=draw), torch.arange(n), units
    )
    task = Task((d,), 10, rows.count, torch.device("cpu"))
    probe = LinearProbe(steps, rate, learning_rate=0.1, momentum=0.0, clip=1.0)
    mapped = bind(rows, task, [probe.release()], 3.0, Randomness.research(0, "a map")).answer(MapQuestion(lambda x: x))

    def train() -> object:
        curator = bind(mapped.rows, task, [probe.release()], 3.0, Randomness.research(0, "a benchmark"))
        return probe.descend(make_learner_curator(curator), curator.randomness.initialisation)

    return train


@pytest.mark.parametrize(
    ("d", "batch", "size"), [(2048, 1024, 3), (100, 1024, 3), (100, 1024, 30), (1280, ROWS, 3), (100, ROWS, 30)]
)
def test_a_step_of_units_against_a_step_of_rows(benchmark: Any, ratios: Ratios, d: int, batch: int, size: int) -> None:
    n, d = (ROWS, d) if ratios.enabled else (300, 16)
    steps = (4 if batch == ROWS else 64) if ratios.enabled else 2
    owners = np.random.default_rng(0).permutation(np.arange(n) // size)  # as many rows a step, wherever they lie
    ours = _training(n, d, batch / ROWS, steps, owners)
    base = _training(n, d, batch / ROWS, steps, None)
    benchmark.pedantic(ours, rounds=1)
    what = f"a step of units of {size} rows / a step: d {d}, {'full batches' if batch == ROWS else 'batch 1,024'}"
    ratio = ratios.record(what, ours, base, "<= 1.3", (steps, steps))
    benchmark.extra_info["ratio"] = ratio
    if ratios.enabled:
        assert ratio <= 1.3
