"""What a sweep costs: the rate of two workers beside that of one, and the time a cell takes beyond fit and score."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from dpbench import registry
from dpbench.sweep.cell_files import SweepFolder
from dpbench.sweep.conduct import prepare_cells
from dpbench.sweep.grid import read_grid
from dpbench.sweep.resources import SweepResources
from dpbench.sweep.start import make_sweep_executor
from tests.benchmarks.conftest import Ratios

WARM = 8  # cells before time counts: workers start, and plans are accounted for once


def _timed(out: Path, workers: int) -> tuple[float, float]:
    """Return seconds a cell from the first `WARM` cells on, and those beyond the cells' own fit and score."""
    axes = {"learner": ["jl", "pillar"], "learner.k": [5, 10, 20, 40]}
    epsilons = [0.5, 1.0, 2.0, 4.0]
    fixed = {"seeds": 3}
    plugins = registry.load()
    grid = read_grid({"name": "rate", "fixed": fixed, "grid": {**axes, "epsilon": epsilons}}, plugins)
    folder, own, count = SweepFolder(out), 0.0, 0
    folder.path.mkdir()
    pool = make_sweep_executor(SweepResources(workers=workers, threads=1, device="cpu"), folder)
    cells = prepare_cells(grid.cells, folder, "cpu", plugins)
    with closing(pool.run(cells)) as outcomes:
        for place, outcome in enumerate(outcomes):
            assert outcome.result is not None, outcome.error
            folder.save_result(outcome.cell, outcome.result)
            if place + 1 == WARM:
                begin = time.perf_counter()
            elif place + 1 > WARM:
                own += outcome.result.seconds["fit"] + outcome.result.seconds["score"]
                count += 1
        spent = time.perf_counter() - begin
    assert len(list(out.glob("*.json"))) == len(cells)
    return spent / count, (workers * spent - own) / count


SPIN = """
import time
done, end = 0, time.perf_counter() + 2
while time.perf_counter() < end:
    done += len([place * place for place in range(10_000)])
print(done)
"""


def _bare(count: int) -> int:
    """Return what so many processes get done that share nothing: what this machine has to give just now."""
    command = [sys.executable, "-c", SPIN]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
    return sum(int(process.communicate()[0]) for process in processes)


def test_rate_of_two_workers_and_overhead_of_a_cell(benchmark: Any, ratios: Ratios, tmp_path: Path) -> None:
    if not ratios.enabled:
        pytest.skip("starts workers twice, which tests of sweeps do too: ask for it with --benchmark-enable")
    (alone, beyond), (double, beyond_double) = (_timed(tmp_path / str(count), count) for count in (1, 2))
    rate, bare = alone / (2 * double), _bare(2) / (2 * _bare(1))
    benchmark.pedantic(lambda: None, rounds=1)  # timed above, in turn
    table = (
        ("rate of two workers / twice the rate of one", rate, ">= 0.85 on two cores of one's own"),
        ("the same of two bare processes: what the cores give just now", bare, "none"),
        ("the first / the second", rate / bare, ">= 0.85"),
        ("ms a cell beyond its own fit and score, one worker", 1e3 * beyond, f"< 50; of {1e3 * alone:.0f}"),
        ("ms a cell beyond its own fit and score, two workers", 1e3 * beyond_double, "< 50"),
    )
    for what, ratio, target in table:
        ratios.add(f"sweep: {what}", ratio, target)
        benchmark.extra_info[what] = ratio
