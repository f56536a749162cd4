"""Ratios measured in one run: what dpbench costs beside what cannot be avoided, and beside Opacus.

Run with ``pytest tests/benchmarks --benchmark-enable``; the table of ratios is printed at the end. Without the flag
each benchmark runs once on small data, to see that it still works.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest
import torch


@dataclass(frozen=True)
class Figure:
    """A figure of this run, beside the target that it should reach."""

    what: str
    value: float
    target: str
    detail: str = ""

    def __str__(self) -> str:
        said = f"target {self.target}" + (f"; {self.detail}" if self.detail else "")
        return f"{self.what:<78} {self.value:8.2f}  ({said})"


FIGURES: pytest.StashKey[list[Figure]] = pytest.StashKey()


SECONDS = 3.0
"""No further round of a ratio begins after so many: all benchmarks together must not take longer than people wait."""
ROUNDS = range(3, 16)
"""The fewest and the most rounds of a ratio, whatever they take."""


@dataclass(frozen=True)
class Ratios:
    """Times two functions in turn and keeps the ratio of their medians."""

    enabled: bool
    figures: list[Figure]

    def add(self, what: str, value: float, target: str, detail: str = "") -> None:
        """Keep a figure for the table at the end."""
        self.figures.append(Figure(what, value, target, detail))

    def record(
        self,
        what: str,
        over: Callable[[], object],
        under: Callable[[], object],
        target: str,
        steps: tuple[int, int],
        rounds: range = ROUNDS,
    ) -> float:
        """Return seconds a step of `over` divided by those of `under`, timed in turn so that noise hits both.

        `steps` is how many steps one call of each takes. Between the fewest and the most rounds, `SECONDS` decide.
        """
        times: tuple[list[float], list[float]] = ([], [])
        start = time.perf_counter()
        for done in range(rounds.stop - 1 if self.enabled else 1):
            if done >= rounds.start and time.perf_counter() - start > SECONDS:
                break
            for function, kept in zip((over, under), times, strict=True):
                begin = time.perf_counter()
                function()
                kept.append(time.perf_counter() - begin)
        over_time, under_time = (statistics.median(kept) / count for kept, count in zip(times, steps, strict=True))
        ratio = over_time / under_time
        self.add(what, ratio, target, f"{1e3 * over_time:.2f} / {1e3 * under_time:.2f} ms")
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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that keeps the table of ratios in a file, from which the page on speed is made."""
    parser.addoption("--figures", type=Path, help="write the ratios of this run to a JSON file")


@pytest.fixture
def ratios(request: pytest.FixtureRequest) -> Ratios:
    """Return the collector of ratios."""
    enabled = bool(request.config.getoption("benchmark_enable"))
    return Ratios(enabled, request.config.stash.setdefault(FIGURES, []))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Print the table of ratios."""
    figures = config.stash.get(FIGURES, [])
    if figures and config.getoption("benchmark_enable"):
        terminalreporter.section("ratios, measured in this run")
        terminalreporter.write_line(machine())
        for figure in figures:
            terminalreporter.write_line(str(figure))
    if file := config.getoption("figures", None):
        content = {"machine": machine(), "figures": [asdict(figure) for figure in figures]}
        file.write_text(json.dumps(content), encoding="utf-8")
