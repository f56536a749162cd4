"""Formulas of figures: numbers of a spec put together, and nothing executed."""

from __future__ import annotations

import pytest

from dpbench.analysis.formula import collect_numeric_values, evaluate_formula
from dpbench.errors import SpecError
from dpbench.records.spec import make_spec

SETTINGS = {"epsilon": 0.5, "dataset.n": 1000.0, "learner.k": 4.0}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1 / (dataset.n * epsilon)", 0.002),
        ("max(0.001, -learner.k + 3)", 0.001),
        ("sqrt(learner.k) ** 3 + log(exp(2))", 10.0),
    ],
)
def test_a_formula_has_the_value_of_arithmetic(text: str, expected: float) -> None:
    assert evaluate_formula(text, SETTINGS, "a figure") == pytest.approx(expected)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1 / 0", "division by zero"),
        ("log(-1)", "got 'log"),
        ("__import__('os').system('x')", "numbers, names"),
        ("[1][0]", "numbers, names"),
        ("1 +", "Expected a formula"),
        ("dataset.m * 2", "Unknown number 'dataset.m'"),
        ("sqrt(1, 2)", "Expected a formula"),
        ("True + 1", "no number"),
        ("10.0 ** 10.0 ** 10.0", "Expected a formula"),
        ("(" * 500 + "1" + ")" * 500, "Expected a formula"),
    ],
)
def test_what_is_no_formula_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said.replace("(", r"\(")):
        evaluate_formula(text, SETTINGS, "a figure")


def test_numbers_of_a_spec_go_by_its_keys_and_options() -> None:
    spec = make_spec({"learner": {"name": "pillar", "options": {"k": 4, "center": True}}, "epsilon": 2}, "a test")
    found = collect_numeric_values(spec.model_dump())
    assert (found["learner.k"], found["epsilon"], found["public_fraction"]) == (4.0, 2.0, 0.1)
    assert "learner.center" not in found
