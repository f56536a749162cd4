"""Ratios measured in one run: what dpbench costs beside what cannot be avoided, and beside Opacus.

Run with ``pytest tests/benchmarks --benchmark-enable``; the table of ratios is printed at the end. Without the flag
each benchmark runs once on small data, to see that it still works.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch

ROWS: pytest.StashKey[list[str]] = pytest.StashKey()


@dataclass(frozen=True)
class Ratios:
    """Times two functions in turn and keeps the ratio of their medians."""

    enabled: bool
    rows: list[str]

    def record(
        self,
        what: str,
        over: Callable[[], object],
        under: Callable[[], object],
        target: str,
        steps: tuple[int, int],
        rounds: int = 15,
    ) -> float:
        """Return seconds a step of `over` divided by those of `under`, timed in turn so that noise hits both.

        `steps` is how many steps one call of each takes.
        """
        times: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds if self.enabled else 1):
            for function, kept in zip((over, under), times, strict=True):
                begin = time.perf_counter()
                function()
                kept.append(time.perf_counter() - begin)
        over_time, under_time = (statistics.median(kept) / count for kept, count in zip(times, steps, strict=True))
        ratio = over_time / under_time
        self.rows.append(
            f"{what:<78} {ratio:8.2f}  (target {target}; {1e3 * over_time:.2f} / {1e3 * under_time:.2f} ms)"
        )
        return ratio


def machine() -> str:
    """Return what products are taken with: instruction sets, threads, and how much else is running."""
    from llvmlite import binding

    features = binding.get_host_cpu_features()
    sets = [name for name in ("avx2", "avx512bw", "avxvnni", "avx512vnni", "amx-int8", "dotprod") if features.get(name)]
    forced = os.environ.get("NUMBA_CPU_NAME")
    torchs = torch.backends.cpu.get_cpu_capability()
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else float("nan")
    return (
        f"{binding.get_host_cpu_name()} ({', '.join(sets)}){f' held to {forced}' if forced else ''}, "
        f"torch with {torchs}, {torch.get_num_threads()} of {os.cpu_count()} threads, load {load:.1f}"
    )


@pytest.fixture
def ratios(request: pytest.FixtureRequest) -> Ratios:
    """Return the collector of ratios."""
    enabled = bool(request.config.getoption("benchmark_enable"))
    return Ratios(enabled, request.config.stash.setdefault(ROWS, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table of ratios."""
    rows = config.stash.get(ROWS, [])
    if rows and config.getoption("benchmark_enable"):
        terminalreporter.section("ratios, measured in this run")
        terminalreporter.write_line(machine())
        for row in rows:
            terminalreporter.write_line(row)
