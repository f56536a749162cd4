"""What checking and ranking 3,000 results costs, beside parsing the same files alone."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any

from dpbench import registry
from dpbench.board.build import build_index
from dpbench.records.board import find_board
from tests.benchmarks.conftest import Ratios
from tests.helpers import boards
from tests.helpers.readme import ROOT

BOARD = "digits-eps1"


def _parsed(root: Path) -> int:
    return len([json.loads(file.read_bytes()) for file in (root / "results" / BOARD).iterdir()])


def test_three_thousand_results_are_checked_and_ranked(benchmark: Any, ratios: Ratios, tmp_path: Path) -> None:
    count = 3000 if ratios.enabled else 30
    (tmp_path / "boards").mkdir()
    shutil.copy(ROOT / "leaderboard" / "boards" / f"{BOARD}.toml", tmp_path / "boards")
    boards.write(boards.synthetic(find_board(BOARD), count, seed=0), tmp_path / "results" / BOARD)
    plugins = registry.load()
    begin = time.perf_counter()
    assert _parsed(tmp_path) == count
    middle = time.perf_counter()
    index = build_index(tmp_path, plugins)  # once: it is long enough for a steady figure
    bare, whole = middle - begin, time.perf_counter() - middle
    assert [len(standing.entries) for standing in index.standings] == [count]
    benchmark.pedantic(index.encode, rounds=1)  # the rest is timed above
    what = f"leaderboard: {count:,} results read, checked and ranked / json.loads of the same files"
    ratios.add(what, whole / bare, "<= 15 on two cores, < 5 s", f"{whole:.1f} / {bare:.1f} s")
    benchmark.extra_info[what] = whole / bare
