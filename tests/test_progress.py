"""An estimate is said once, after the first seconds, and where it is long."""

from __future__ import annotations

import pytest

from dpbench.support import progress


def told(monkeypatch: pytest.MonkeyPatch, seconds: list[float], left: int) -> None:
    """Finish 10 units at each of these times, `left` still to do."""
    clock = iter(seconds)
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    estimate = progress.Estimate("Extracting raw")
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
