"""Tables of what was measured, and the exponents of lines through log sizes and log costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tests.benchmarks.scaling.measures import Found
from tests.benchmarks.scaling.way import PHASES
from tests.helpers.readme import ROOT

MB, GIB = 2**20, 2**30
AVX2 = {  # holds a newer processor to AVX2, as many have no more
    "NUMBA_CPU_NAME": "haswell",
    "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2",  # without these, those of this processor stay
    "ATEN_CPU_CAPABILITY": "avx2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
STEPS = 8  # of learners that take steps
LEARNERS: Mapping[str, Mapping[str, Any]] = {
    "dp-sgd": {"steps": STEPS}, "pillar": {"k": 40, "steps": STEPS}, "jl": {"k": 40, "steps": STEPS},
    "whitened": {"k": 40, "steps": STEPS}, "thrift:graph=0": {"k": 40, "graph": 0.0, "steps": STEPS},
    "thrift:graph=0.5": {"k": 40, "graph": 0.5, "steps": STEPS},
    "dp-raft": {"steps": STEPS}, "adadps": {"steps": STEPS}, "gep": {"k": 20, "steps": STEPS, "anchors": 100},
    "class-means": {"k": 40},
}  # fmt: skip


@dataclass(frozen=True)
class Sizes:
    """What is measured; small to see that it works."""

    n: Sequence[int] = (1_000, 10_000, 100_000, 1_000_000)
    d: Sequence[int] = (64, 256, 1024, 4096)
    classes: Sequence[int] = (10, 30, 100, 300, 1000)
    base: tuple[int, int, int] = (20_000, 128, 10)  # n, d, classes of every learner; each is then taken 8 times
    large: Sequence[tuple[int, int]] = ((1_000_000, 1280), (10_000_000, 128), (1_300_000, 2048))
    cells: tuple[int, int] = (100, 1000)
    results: Sequence[int] = (1_000, 10_000, 100_000)
    way: tuple[str, str, float, int] = ("cifar10", "efficientnet-lite0:size=128", 0.2, 500)  # see `way.ours`
    benchmarks: Sequence[str] = ("test_linear_step.py", "test_extraction.py::test_extraction_against_onnxruntime_alone")
    enable: bool = True  # benchmarks time their full sizes


SMALL = Sizes(
    (200, 400), (8, 16), (2, 4), (300, 64, 3), ((500, 16), (900, 8), (400, 32)), (10, 20), (20, 40),
    ("digits", "pixels", 0.5, 20), ("test_linear_step.py::test_a_full_batch_against_its_two_products",), enable=False,
)  # fmt: skip


def fits(sizes: Sizes) -> str:
    """dp-sgd, full batches: against n, d and the number of classes."""
    rows: list[Sequence[object]] = []
    series = {
        "n": [(n, 64, 10) for n in sizes.n],
        "d": [(sizes.n[1], d, 10) for d in sizes.d],
        "classes": [(sizes.n[1], 64, classes) for classes in sizes.classes],
    }
    measured = iter(_fits([("dp-sgd", point) for points in series.values() for point in points]))
    for place, (name, points) in enumerate(series.items()):
        found = [next(measured) for _ in points]
        values = [point[place] for point in points]
        private = [measurement["private"] for measurement in found]
        beyond = [_beyond_rows(measurement, *point) for measurement, point in zip(found, points, strict=True)]
        rows += [
            (f"{name} = {value:,}", f"{1e3 * cost / STEPS:.1f}", f"{left:.0f}")
            for value, cost, left in zip(values, private, beyond, strict=True)
        ]
        slopes = f"{exponent(values, private):.2f}; the last two {exponent(values[-2:], private[-2:]):.2f}"
        rows.append((f"**exponent in {name}**", f"**{slopes}**", ""))
    head = ("varied", "ms a step", "MB beyond the features and their 8-bit rows")
    return table(head, rows)


def learners(sizes: Sizes) -> str:
    """Every learner: cost of the private part at a base size, and exponents from eight times n, d and classes."""
    n, d, classes = sizes.base
    grown = [(n, d, classes), (8 * n, d, classes), (n, 8 * d, classes), (n, d, 8 * classes)]
    measured, rows = iter(_fits([(name, size) for name in LEARNERS for size in grown])), []
    for name in LEARNERS:
        base, *others = (next(measured) for _ in grown)
        private, public = (
            [f"{exponent((1, 8), (base[part], other[part])):.2f}" for other in others] for part in ("private", "public")
        )
        beyond = [f"{measurement['beyond'] / MB:.0f}" for measurement in (base, *others)]
        rows.append(
            (f"`{name}`", f"{1e3 * base['private']:.0f}", *private, f"{1e3 * base['public']:.0f}", *public[1:], *beyond)
        )
    head = (
        "learner", "private part, ms", "in n", "in d", "in classes", "public part, ms", "in d", "in classes",
        "MB beyond the features", "n x 8", "d x 8", "classes x 8",
    )  # fmt: skip
    return table(head, rows)


def large(sizes: Sizes) -> str:
    """Private data of the size of ImageNet: features on disk in float32, the rows in 8 bits in memory, a few steps."""
    rows: list[Sequence[object]] = []
    for n, d in sizes.large:
        (found,) = _fits([("dp-sgd", (n, d, 10))], on_disk=True)
        memory = (4 * n * d, n * (d + 12), found["unmapped"], found["peak"])
        rows.append((f"{n:,} x {d:,}", *(f"{peak / GIB:.2f}" for peak in memory), f"{found['private']:.0f}"))
    head = (
        "n x d", "features on disk, GiB", "rows in 8 bits, GiB", "memory without the file, GiB", "with it, GiB",
        f"map and {STEPS} steps, s",
    )  # fmt: skip
    return table(head, rows)


def sweeps(sizes: Sizes) -> str:
    """A sweep of cells that cost next to nothing; what workers and their start cost is what many cells do not share."""
    few, many = sizes.cells
    runs = [(few, 1), (few, 2), (many, 2)]
    rows, found = [], [_measured("sweep", cells=cells, workers=workers) for cells, workers in runs]
    for (cells, workers), measurement in zip(runs, found, strict=True):
        own, resume = 1e3 * measurement["own"] / cells, 1e3 * measurement["resume"] / cells
        rows.append((f"{cells:,}", str(workers), f"{measurement['all']:.1f}", f"{own:.0f}", f"{resume:.1f}"))
    less, more = found[1], found[2]
    beyond = ((more["all"] - more["own"]) - (less["all"] - less["own"])) / (many - few)
    told = f"Each further cell costs {1e3 * beyond:.0f} ms beyond its own fit and score."
    head = ("cells", "workers", "processor s, start included", "ms a fit and score", "ms a cell to find all done")
    return f"{table(head, rows)}\n{told}\n"


def leaderboards(sizes: Sizes) -> str:
    """Synthetic results of one board, each with five seeds of 1,000 test examples."""
    rows: list[Sequence[object]] = []
    found = []
    for count in sizes.results:
        with tempfile.TemporaryDirectory() as folder:
            _measured("results", root=folder, count=count)
            measurement = _measured("leaderboard", root=folder, count=count)
        found.append(measurement)
        each = [f"{measurement[key]:.1f}" for key in ("verify", "index")]
        rows.append((f"{count:,}", *each, f"{measurement['peak'] / MB:,.0f}", f"{measurement['bytes'] / MB:.1f}"))
    slopes = [exponent(sizes.results, [row[key] for row in found]) for key in ("verify", "index", "peak", "bytes")]
    rows.append(("**exponent**", *(f"**{slope:.2f}**" for slope in slopes)))
    return table(("results", "`verify`, s", "index, s", "peak MB", "leaderboard.json, MB"), rows)


def ratios(sizes: Sizes) -> str:
    """What dpbench costs beside the bare work and beside Opacus, with all of this processor and with AVX2 alone."""
    columns = [_figures(sizes, surroundings) for surroundings in ({}, AVX2)]
    first, second = ({figure["what"]: figure for figure in column["figures"]} for column in columns)
    rows: list[Sequence[object]] = [
        (what, *(f"{found[what]['value']:.2f}" if what in found else "" for found in (first, second)), figure["target"])
        for what, figure in (first | second).items()
    ]
    rows.append(("measured on", columns[0]["machine"], "the same processor", ""))
    return table(("ratio", "integer dot products", "AVX2 only", "target"), rows)


def way(sizes: Sizes) -> str:
    """The whole way from images to an accuracy, beside the same by hand with torch and Opacus."""
    dataset, extractor, share, steps = sizes.way
    shared: dict[str, Any] = {"threads": None, "dataset": dataset, "extractor": extractor, "steps": steps}
    own = _measured("ours", share=share, **shared)
    other = _measured("theirs", n=int(own["n"]), **shared)
    rows: list[Sequence[object]] = [
        (name, *(f"{found.get(phase, 0.0):.1f}" for found in (own, other))) for name, phase in PHASES.items()
    ]
    totals = [sum(found.get(phase, 0.0) for phase in PHASES.values()) for found in (own, other)]
    rows.append(("**all**", *(f"**{total:.1f}**" for total in totals)))
    rows.append(("accuracy, %", *(f"{100 * found['accuracy']:.2f}" for found in (own, other))))
    return table((f"{own['n']:,.0f} private images", "dpbench, s", "torch and Opacus, s"), rows)


TABLES: Mapping[str, Callable[[Sizes], str]] = {
    "fits": fits, "learners": learners, "large": large, "sweeps": sweeps, "leaderboards": leaderboards,
    "ratios": ratios, "way": way,
}  # fmt: skip


def _figures(sizes: Sizes, surroundings: Mapping[str, str]) -> Any:
    """Return the figures of benchmarks, run in these surroundings."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        names = [f"tests/benchmarks/{name}" for name in sizes.benchmarks]
        enable = ["--benchmark-enable"] if sizes.enable else []
        command = [sys.executable, "-m", "pytest", "-q", "-n0", "-m", "not long", *enable, f"--figures={file}", *names]
        subprocess.run(command, stdout=sys.stderr, check=True, cwd=ROOT, env=os.environ | surroundings)
        return json.loads(file.read_bytes())


def _fits(asked: Sequence[tuple[str, tuple[int, int, int]]], on_disk: bool = False) -> list[Found]:
    """Return what fits of learners cost at sizes (n, d, classes), with features in memory or in a file."""
    given = [{"learner": name.partition(":")[0], "options": dict(LEARNERS[name]), "size": size} for name, size in asked]
    found: list[Found] = _measured("fits", asked=given, on_disk=on_disk)
    return found


def _beyond_rows(found: Found, n: int, d: int, classes: int) -> float:
    """Return MB beyond the features and what a mapped row is kept as: d bytes, a scale and a length."""
    return (found["beyond"] - n * (d + 12)) / MB


def _measured(measure: str, threads: int | None = 1, **given: Any) -> Any:
    """Return what a measure finds, in a process of its own, with one thread unless more are wanted (None: all)."""
    command = [sys.executable, "-m", "tests.benchmarks.scaling", "--measure", measure, json.dumps(given)]
    environment = os.environ | ({} if threads is None else {"OMP_NUM_THREADS": str(threads)})
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment, cwd=ROOT)
    print(done.stdout, file=sys.stderr, flush=True)
    return json.loads(done.stdout.splitlines()[-1])


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the slope of the least-squares line through (log size, log cost).

    >>> round(exponent((1, 10, 100), (5, 50, 500)), 6)
    1.0
    """
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(costs, 1e-4)), 1)[0])


def table(head: Sequence[object], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in lines)
