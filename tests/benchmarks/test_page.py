"""What the leaderboard's site costs with ten thousand entries: to build it, to see it, to filter it."""

from __future__ import annotations

import statistics
import time
from pathlib import Path
from typing import Any

import pytest

from dpbench.board.index import Index
from dpbench.records.board import find_board
from dpbench.site import build_site
from tests.benchmarks.conftest import Ratios
from tests.helpers.boards import synthetic
from tests.helpers.browser import address, browser, opened
from tests.site.test_site import filed

pytestmark = pytest.mark.serial
BOARDS = ("cifar10-lite0-eps0.1", "cifar10-lite0-eps0.7", "cifar10-lite0-eps1", "digits-eps1")

FILTER = """() => {
  const times = [];
  const timed = (change) => {
    const begin = performance.now();
    change();
    document.body.offsetHeight;
    times.push(performance.now() - begin);
  };
  for (const field of document.querySelectorAll("form.filters select"))
    for (const value of [...field.options].slice(0, 8).map((option) => option.value).concat(""))
      timed(() => {
        field.value = value;
        field.dispatchEvent(new Event("input", { bubbles: true }));
      });
  const search = document.querySelector("input[type=search]");
  for (const text of ["s", "synthetic-00", "synthetic-0012", "eps0.7 synthetic", ""])
    timed(() => {
      search.value = text;
      search.dispatchEvent(new Event("input", { bubbles: true }));
    });
  return times;
}"""
PAINT = """() => new Promise((told) => new PerformanceObserver((list) => {
  const found = list.getEntriesByName("first-contentful-paint");
  if (found.length) told(found[0].startTime);
}).observe({ type: "paint", buffered: true }))"""


def _built(root: Path, ratios: Ratios) -> tuple[Path, float]:
    results = synthetic(find_board(BOARDS[0]), 2500 if ratios.enabled else 10, seed=0)
    standings = tuple(filed(root, find_board(name), results) for name in BOARDS)
    begin = time.perf_counter()
    build_site(Index(ranking="", standings=standings), root, root / "site")
    return root / "site", time.perf_counter() - begin


def test_ten_thousand_entries_are_built_seen_and_filtered(benchmark: Any, ratios: Ratios, tmp_path: Path) -> None:
    site, seconds = _built(tmp_path, ratios)
    times, paints = [], []
    with browser() as chromium:
        for _ in range(3 if ratios.enabled else 1):
            with opened(chromium, address(site, "index.html")) as (page, seen):
                paints.append(page.evaluate(PAINT))
                assert seen.complaints == []
            with opened(chromium, address(site, "entries.html")) as (page, seen):
                page.locator("form.filters").wait_for()
                times.append(page.evaluate(FILTER))
                assert seen.complaints == []
    benchmark.pedantic(lambda: None, rounds=1)  # timed above, in the browser
    loaded = ("index.html", "assets/site.css", "assets/header.css", "assets/site.js", "assets/icon.svg")
    size = sum((site / path).stat().st_size for path in loaded)
    table = (
        ("seconds to build it", seconds, "< 30 on two cores of one's own"),
        ("ms to the first paint of the first page, from disk", statistics.median(paints), "< 300"),
        ("ms of a filter, the median", statistics.median(time for run in times for time in run), "< 100"),
        ("ms of a filter, the slowest of all, median over openings", statistics.median(map(max, times)), "< 100"),
        ("kB that the first page loads", size / 1e3, "< 300"),
    )
    for what, value, target in table:
        ratios.add(f"page: {what}", value, target)
        benchmark.extra_info[what] = value
