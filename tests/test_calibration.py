"""Calibrations are remembered, and a remembered one is never evidence."""

from __future__ import annotations

from pathlib import Path

import pytest

from dpbench.api import Budget, Release
from dpbench.privacy.accounting import accountant
from dpbench.privacy.accounting.calibration import calibrate

PLAN, BUDGET = [Release("gradient", steps=500, sample_rate=0.02)], Budget(1.0, 1e-5)


def _file(cache: Path) -> Path:
    (file,) = (cache / "calibrations").glob("*.json")
    return file


def test_the_second_calibration_is_one_evaluation(fresh_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sigma = calibrate(PLAN, BUDGET, "pld")
    evaluated: list[float] = []
    honest = accountant.epsilon

    def counted(plan: list[Release], sigma: float, *rest: object) -> float:
        evaluated.append(sigma)
        return honest(plan, sigma, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(accountant, "epsilon", counted)
    assert calibrate(PLAN, BUDGET, "pld") == sigma
    assert evaluated == [sigma]


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", *(f'{{"sigma": {value}}}' for value in ('"x"', "Infinity", "NaN", "-1", "1e-300", "1.5", "50"))],
)
def test_a_damaged_or_wrong_calibration_is_made_again(fresh_cache: Path, content: str) -> None:
    sigma = calibrate(PLAN, BUDGET, "pld")
    file = _file(fresh_cache)
    remembered = file.read_text()
    file.write_text(content)
    assert calibrate(PLAN, BUDGET, "pld") == sigma
    assert file.read_text() == remembered


@pytest.mark.parametrize(
    ("plan", "budget", "name"),
    [
        ([Release("gradient", steps=501, sample_rate=0.02)], BUDGET, "pld"),
        (PLAN, Budget(1.1, 1e-5), "pld"),
        (PLAN, Budget(1.0, 1e-6), "pld"),
        (PLAN, BUDGET, "rdp"),
    ],
)
def test_another_question_has_another_answer(
    fresh_cache: Path, plan: list[Release], budget: Budget, name: accountant.AccountantName
) -> None:
    assert calibrate(PLAN, BUDGET, "pld") != calibrate(plan, budget, name)


def test_a_cache_that_cannot_be_written_does_not_stop_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_CACHE", "/dev/null/cache")
    assert calibrate(PLAN, BUDGET, "pld") > 0
