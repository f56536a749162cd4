"""The command; see the package."""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys

from tests.benchmarks.scaling.measures import MEASURES
from tests.benchmarks.scaling.tables import SMALL, TABLES, Sizes
from tests.helpers.readme import DOCS

PAGES = [DOCS / "explanation" / "scaling.md", DOCS / "explanation" / "speed.md"]


def main(words: list[str]) -> None:
    """Print the tables that were asked for, and write them into the page on request."""
    parser = argparse.ArgumentParser("python -m tests.benchmarks.scaling")
    parser.add_argument("tables", nargs="*", help=", ".join(TABLES))
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--page", action="store_true", help="write the tables into the documentation")
    parser.add_argument("--results", type=int, nargs="+", help="how many results a leaderboard has")
    parser.add_argument("--measure", nargs=2, metavar=("NAME", "JSON"), help=argparse.SUPPRESS)
    given = parser.parse_args(words)
    if given.measure:
        name, options = given.measure
        print(json.dumps(MEASURES[name](**json.loads(options))))
        return
    pages = _read_pages() if given.page else []
    without = [name for name in given.tables if not any(map(_block(name).search, pages))]
    if pages and without:
        parser.error(f"no page has a table for {', '.join(without)}: leave out --page")
    sizes = SMALL if given.quick else Sizes()
    sizes = dataclasses.replace(sizes, results=given.results) if given.results else sizes
    for name in given.tables or TABLES:
        made = TABLES[name](sizes)
        print(f"\n{name}\n\n{made}", flush=True)
        if given.page:
            _write_table(name, made)


def _block(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- measured: {name} -->\n).*?(?=<!-- end -->)", re.DOTALL)


def _read_pages() -> list[str]:
    return [file.read_text(encoding="utf-8") for file in PAGES]


def _write_table(name: str, made: str) -> None:
    """Replace a table in the page that has it."""
    for file, page in zip(PAGES, _read_pages(), strict=True):
        file.write_text(_block(name).sub(lambda found: f"{found[1]}{made}", page), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
