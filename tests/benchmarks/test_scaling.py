"""The tables of how cost grows, on sizes of no account: that they are made, and what they hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.scaling import __main__ as command
from tests.benchmarks.scaling import tables
from tests.benchmarks.scaling.measures import MEASURES


@pytest.fixture(autouse=True)
def without_benchmarks(request: pytest.FixtureRequest) -> None:
    """Skip these beside benchmarks, which they would delay by running them all once more."""
    if request.config.getoption("benchmark_enable"):
        pytest.skip("measures nothing: run it without --benchmark-enable")


def here(measure: str, threads: int | None = 1, **given: Any) -> Any:
    return MEASURES[measure](**given)


@pytest.mark.parametrize("name", ["fits", "learners", "large", "leaderboards", "ratios", "way"])
def test_a_table_is_made_and_goes_into_the_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "scaling.md"
    page.write_text(f"before\n<!-- measured: {name} -->\nold\n<!-- end -->\nafter\n", encoding="utf-8")
    monkeypatch.setattr(command, "PAGES", [page])
    monkeypatch.setattr(tables, "_measured", here)
    command.main([name, "--quick", "--page"])
    before, first, *table, last, after = page.read_text(encoding="utf-8").splitlines()
    assert (before, after, last) == ("before", "after", "<!-- end -->") and name in first
    assert len(table) > 3 and all(line.startswith("| ") for line in table)


@pytest.mark.long
def test_a_sweep_is_measured_with_its_resumption() -> None:
    found = MEASURES["sweep"](cells=10, workers=1)
    assert isinstance(found, dict)
    assert 0 < found["own"] < found["all"]
    assert 0 < found["resume"] < found["all"]


def test_the_pages_have_their_tables_and_others_are_only_printed() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in command.PAGES)
    filled = re.findall(r"<!-- measured: (\w+) -->\n\|", text)
    assert filled == ["fits", "large", "leaderboards", "ratios", "way"]
    for name in tables.TABLES.keys() - {*filled}:
        with pytest.raises(SystemExit):
            command.main([name, "--quick", "--page"])
