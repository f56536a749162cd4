"""An estimate is said once, after the first seconds, and where it is long."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from dpbench.support import progress
from dpbench.sweep import display
from dpbench.sweep.cell_files import SweepFolder
from dpbench.sweep.local import LocalPool


def told(monkeypatch: pytest.MonkeyPatch, seconds: list[float], left: int) -> None:
    """Finish 10 units at each of these times, `left` still to do."""
    clock = iter(seconds)
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    estimate = progress.TimeEstimatePrinter("Extracting raw")
    for _ in seconds:
        estimate.update(10, left)


def test_an_estimate_is_said_once(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    told(monkeypatch, [100.0, 102.0, 104.0, 106.0], 1_500)  # the first 10 came when nobody knows; then 20 in 4 s
    assert capsys.readouterr().err == "Extracting raw: 1,500 to go at 5 a second, 5 min 0 s.\n"


@pytest.mark.parametrize(("seconds", "left"), [([0.0, 1.0, 2.0], 10_000), ([0.0, 2.0, 4.0], 200)])
def test_what_is_short_or_unknown_is_not_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], seconds: list[float], left: int
) -> None:
    told(monkeypatch, seconds, left)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("flags", "said"),
    [({}, [": 0 done"]), ({"nothing": True}, []), ({"everything": True}, [".", ": 0 done"])],
)
def test_a_sweep_says_as_much_as_was_asked_for(
    flags: dict[str, bool],
    said: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(display, "INTERVAL", 0.05)
    progress.set_verbosity(**{"nothing": False, "everything": False, **flags})
    try:
        with display.show_cell_counts(
            "moods", display.CellCounter(3, LocalPool(1, 1, "cpu", (), SweepFolder(tmp_path)))
        ):
            time.sleep(0.2)
    finally:
        progress.set_verbosity(nothing=False, everything=False)
    lines = list(dict.fromkeys(capsys.readouterr().err.splitlines()))
    wanted = [f"dpbench: Sweep moods, 3 cells{ending}" for ending in said]
    assert len(lines) == len(wanted)
    assert all(line.startswith(want) for line, want in zip(lines, wanted, strict=True))
