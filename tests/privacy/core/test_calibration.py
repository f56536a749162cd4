"""Calibrations are remembered, and a remembered one is never evidence."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from dpbench.api import Budget, Release
from dpbench.privacy.core.accounting import accountant
from dpbench.privacy.core.accounting.calibration import calibrate

PLAN, BUDGET = [Release("gradient", steps=500, sample_rate=0.02)], Budget(1.0, 1e-5)


def _file(cache: Path) -> Path:
    (file,) = (cache / "calibrations").glob("*.json")
    return file


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """Return a cache that remembers one calibration, and what was found."""
    cache = tmp_path_factory.mktemp("calibrated")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("DPBENCH_CACHE", str(cache))
        return cache, calibrate(PLAN, BUDGET, "pld")


@pytest.fixture
def remembered(first: tuple[Path, float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> float:
    """Put a copy of that cache in place; return the sigma that it remembers."""
    shutil.copytree(first[0], tmp_path / "calibrated")
    monkeypatch.setenv("DPBENCH_CACHE", str(tmp_path / "calibrated"))
    return first[1]


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
def test_a_damaged_or_wrong_calibration_is_made_again(remembered: float, tmp_path: Path, content: str) -> None:
    file = _file(tmp_path / "calibrated")
    before = file.read_text()
    file.write_text(content)
    assert calibrate(PLAN, BUDGET, "pld") == remembered
    assert file.read_text() == before


def test_a_calibration_by_other_code_is_not_used(
    remembered: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = _file(tmp_path / "calibrated")
    before.write_text(json.dumps({"sigma": remembered * 1.0001}))  # near enough to be believed
    assert calibrate(PLAN, BUDGET, "pld") == remembered * 1.0001
    monkeypatch.setattr("dpbench.privacy.core.accounting.calibration.core_digest", lambda: "other")
    assert calibrate(PLAN, BUDGET, "pld") == remembered


@pytest.mark.slow
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
    remembered: float, plan: list[Release], budget: Budget, name: accountant.AccountantName
) -> None:
    assert calibrate(plan, budget, name) != remembered


def test_a_cache_that_cannot_be_written_does_not_stop_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPBENCH_CACHE", "/dev/null/cache")
    assert calibrate(PLAN, BUDGET, "pld") > 0
