"""The command: its words, its report and its exit status."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import torch

from tests.gpu import networks, pretraining, speed, sums
from tests.gpu.asked import Asked, Row

PARTS: Mapping[str, Callable[[Asked], Iterator[Row]]] = {
    "sums": sums.rows, "speed": speed.rows, "pretraining": pretraining.rows, "networks": networks.rows,
}  # fmt: skip
HEAD = "| what | found | holds |\n|---|---|---|"


def main(words: Sequence[str]) -> int:
    """Return 0 if all holds that must, 1 if something does not, 2 without the device."""
    given = _parser().parse_args(words)
    if given.device.startswith("cuda") and not torch.cuda.is_available():
        print("No GPU was found: torch.cuda.is_available() is false. Run this where there is one, with torch for CUDA.")
        return 2
    asked = Asked(torch.device(given.device), given.out, given.quick, given.full, given.minutes)
    asked.out.mkdir(parents=True, exist_ok=True)
    begin, found, lines = time.monotonic(), list[Row](), [_device(asked.device), "", *HEAD.splitlines()]
    print(*lines, sep="\n", flush=True)
    for part in given.parts or PARTS:
        for row in PARTS[part](asked):
            print(row, flush=True)
            found.append(row)
    broken = sum(row.holds is False for row in found)
    last = f"{(time.monotonic() - begin) / 60:.1f} minutes; {broken} of {len(found)} rows do not hold."
    print("", last, sep="\n")
    (asked.out / "report.md").write_text("\n".join([*lines, *map(str, found), "", last, ""]), encoding="utf-8")
    return int(broken > 0)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m tests.gpu", description="What only a GPU can show; see tests/gpu.")
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="which parts; without, all")
    parser.add_argument("--device", default="cuda", help="cuda, cuda:1 ... or, for a rehearsal, cpu")
    parser.add_argument("--out", type=Path, default=Path("dpbench-results/gpu"), help="folder of report and weights")
    parser.add_argument("--minutes", type=float, default=1.0, help="for each measurement that could go on")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to see that it works")
    parser.add_argument("--full", action="store_true", help="the papers' whole runs, hours; the same command resumes")
    return parser


def _device(device: torch.device) -> str:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "the processor"
    return f"{name}, torch {torch.__version__}"
