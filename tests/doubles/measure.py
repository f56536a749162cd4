"""What a double of published size costs: imported, described and run in fresh processes, each with its own cache.

`python -m tests.doubles.measure pcam dermnet` measures these (all for none), and keeps the numbers in
`record.json`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dpbench.records.result import Result
from tests.doubles.catalogue import EXPECTED, NAMES, SHARES, build, write
from tests.helpers.readme import ROOT

RECORD = Path(__file__).parent / "record.json"
EXTRACTOR = "pixels:size=16,mode=RGB"
PUBLIC = {"cifar10.1"}  # without a test split: run as the public data of the digits
RUN = ("--learner", "pillar", "--epsilon", "1", "--seeds", "1", "--json")
LIMIT = 8 * 2**30  # bytes of memory that no command may need
WATCH = """
import os, subprocess, sys, time
begin = time.perf_counter()
_, status, used = os.wait4(subprocess.Popen(sys.argv[1:]).pid, 0)
print()
print(time.perf_counter() - begin, used.ru_utime + used.ru_stime, used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""  # a process of its own: the peak of a child is at least what its parent has


@dataclass(frozen=True)
class Cost:
    """One command: seconds on the clock and of processors, and the peak of memory in bytes."""

    seconds: float
    processor: float
    peak: int


@dataclass(frozen=True)
class Measured:
    """One double: how much of it, its files, and what the three commands cost."""

    share: float
    train: int
    test: int
    files: int  # bytes of the double
    features: int  # bytes of the run's features
    accuracy: float
    patched: list[str]  # what the loader expected of the double and not of the published data
    day: str
    costs: dict[str, Cost]  # by command: import, run, info


def measure(name: str, share: float, folder: Path) -> Measured:
    """Write a double into an empty folder, put it through the three commands, and return what they cost."""
    given, data, cache = (folder / part for part in ("given", "data", "cache"))
    data.mkdir()
    expected = write(name, given, share)
    size = _size(given)  # before the import: it copies
    of = ("digits", "--public-dataset", name) if name in PUBLIC else (name,)
    run = ("run", "--dataset", *of, "--extractor", EXTRACTOR, *RUN, "--out", str(folder / "out"))
    commands: Mapping[str, Sequence[str]] = {
        "import": ("data", "import", name, str(given), "--to", str(data)),
        "run": run,
        "info": ("data", "info", name, "--json"),
    }
    places = {"DPBENCH_DATA": data, "DPBENCH_CACHE": cache, "XDG_DATA_HOME": folder / "own"}
    environment = {**os.environ, **{variable: str(place) for variable, place in places.items()}}
    costs, said = {}, {}
    for command, words in commands.items():
        costs[command], said[command] = _timed([str(given), *words], environment)
    counts = json.loads(said["info"])
    return Measured(
        share=share, train=sum(counts["train"]), test=sum(counts["test"]),
        files=size, features=_size(cache / "features"),
        accuracy=Result.model_validate_json(said["run"]).metrics["accuracy"].mean, patched=sorted(expected),
        day=datetime.now(UTC).date().isoformat(), costs=costs,
    )  # fmt: skip


def _timed(words: Sequence[str], environment: Mapping[str, str]) -> tuple[Cost, str]:
    """Run a command of dpbench; return what it cost and printed.

    Raises:
        RuntimeError: it failed; the text is what it said.
    """
    command = [sys.executable, "-c", WATCH, sys.executable, "-m", "tests.doubles.command", *words]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words)}: {done.stderr[-2000:]}")
    said, _, used = done.stdout.rstrip("\n").rpartition("\n")
    seconds, processor, peak = map(float, used.split())
    return Cost(round(seconds, 1), round(processor, 1), 1024 * int(peak)), said


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and file.name != EXPECTED)


def read_record() -> dict[str, Measured]:
    """Return what was measured, by dataset, in the order of `NAMES`."""
    kept = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    return {name: _read_row(kept[name]) for name in sorted(kept, key=NAMES.index)}


def _read_row(row: dict[str, Any]) -> Measured:
    return Measured(**{**row, "costs": {command: Cost(**cost) for command, cost in row["costs"].items()}})


def main(words: list[str]) -> None:
    """Measure and keep."""
    parser = argparse.ArgumentParser("python -m tests.doubles.measure")
    parser.add_argument("names", nargs="*", help=", ".join(NAMES))
    parser.add_argument("--share", type=float, help="how much of each; the record is left alone then")
    parser.add_argument("--folder", type=Path, help="where the files go meanwhile [default: a temporary folder]")
    given = parser.parse_args(words)
    for name in given.names or NAMES:
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            share = given.share or SHARES.get(build(name).name, 1.0)
            found = measure(name, share, Path(folder))
        print(json.dumps({name: asdict(found)}, indent=2), flush=True)
        if given.share is None:
            kept = {**{at: asdict(row) for at, row in read_record().items()}, name: asdict(found)}
            RECORD.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
