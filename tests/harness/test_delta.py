"""Delta beside the number of private units: what it is by default, and what is said of a large one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import dpbench
from dpbench.errors import SpecError
from dpbench.harness.delta import compute_default_delta
from dpbench.records.protocol import Protocol
from dpbench.records.spec import make_spec
from tests.cli.test_cli import refusal
from tests.helpers.commands import call
from tests.helpers.sessions import session

Output = pytest.CaptureFixture[str]
LARGE = 60_000
ASKED = ("run", "--learner", "jl:steps=2", "--dataset", "digits", "--seeds", "1", "--device", "cpu")


def large_data() -> dpbench.Dataset:
    """Return as many vectors as need a smaller delta, each its own."""
    x = np.arange(2 * (LARGE + 10), dtype=np.float32).reshape(-1, 2) / LARGE
    y = np.arange(LARGE + 10) % 2
    return dpbench.dataset(x[:LARGE], y[:LARGE], x[LARGE:], y[LARGE:], processing="numbers")


@given(st.integers(1, 10**9))
def test_the_default_is_the_largest_power_of_ten_of_at_most_one_in_2n_and_at_most_the_usual(units: int) -> None:
    exponent = round(-np.log10(compute_default_delta(units)))
    assert compute_default_delta(units) == float(f"1e-{exponent}")
    assert 2 * units <= 10**exponent
    assert exponent == 5 or 2 * units > 10 ** (exponent - 1)


def test_the_usual_delta_is_that_of_a_protocol() -> None:
    assert compute_default_delta(1) == Protocol.model_fields["delta"].default


@pytest.mark.quick(1)
@pytest.mark.parametrize("fraction", [0.01, 0.5])
def test_a_result_states_the_delta_that_its_size_asks_for(fraction: float, tmp_path: Path) -> None:
    found = dpbench.run("dp-sgd:steps=2", large_data(), seeds=1, public_fraction=fraction, out=tmp_path)
    spec = found.records[0].spec
    assert (spec.delta, found.records[0].privacy.delta) == ((1e-6, 1e-6) if fraction == 0.01 else (1e-5, 1e-5))
    assert found.records[0].digest == spec.digest


@pytest.mark.slow
def test_several_runs_find_the_results_whose_delta_followed_from_the_data(capsys: Output, tmp_path: Path) -> None:
    many: dict[str, Any] = {"seeds": 1, "public_fraction": 0.01, "out": tmp_path}
    first = dpbench.run(["dp-sgd:steps=2", "jl:steps=2,k=1"], large_data(), **many)
    assert {record.spec.delta for record in first.records} == {1e-6}
    written = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
    dpbench.run(["dp-sgd:steps=2", "jl:steps=2,k=1"], large_data(), **many)
    assert written == {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}


def test_auto_says_the_same_as_nothing() -> None:
    spec = make_spec({"learner": "pillar", "delta": "auto", "extractor": "auto"}, "the test")
    assert spec == make_spec({"learner": "pillar"}, "the test")
    assert not {"delta", "extractor"} & spec.model_fields_set


@pytest.mark.quick(1)
@pytest.mark.parametrize(("delta", "warned"), [(0.5 / 1294, False), (0.999 / 1294, True)])
def test_a_delta_just_below_one_in_n_is_said_to_be_too_large(
    delta: float, warned: bool, capsys: Output, tmp_path: Path
) -> None:
    assert call(*ASKED, "--delta", str(delta), "--out", str(tmp_path)) == 0
    assert ("is just below 1/n=0.000773 with n=1,294 private examples" in capsys.readouterr().err) is warned


def test_a_delta_of_one_in_n_is_accepted_and_said_to_be_worth_a_record(capsys: Output, tmp_path: Path) -> None:
    assert call(*ASKED, "--delta", "1e-3", "--out", str(tmp_path)) == 0
    captured = capsys.readouterr()
    assert captured.err.count("a mechanism that publishes one of them whole would satisfy it") == 1
    assert "No board accepts the result" in " ".join(captured.out.split())


def test_a_delta_above_a_thousandth_is_refused(capsys: Output, tmp_path: Path) -> None:
    said = refusal(capsys, *ASKED, "--delta", "0.0011", "--out", str(tmp_path))
    assert "Expected delta=0.0011 in (0, 1/n) with n=1294" in said


def test_a_run_for_a_board_refuses_a_delta_of_one_in_n() -> None:

    spec = make_spec({"learner": "jl:steps=2", "delta": 1e-3, "seeds": 1}, "the test")
    with pytest.raises(SpecError, match=r"No board accepts this run: delta=0.001 is at least 1/n"):
        session().run(spec, sharing="board")
