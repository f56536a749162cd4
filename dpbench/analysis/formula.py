"""Formulas in figures, such as `sqrt(learner.k) / (dataset.n * epsilon)`: parsed from a file and never executed.

A formula has numbers, `+ - * / **`, a few functions, and names: keys of a spec and options of its components.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

from dpbench.errors import SpecError
from dpbench.support.messages import format_unknown_name_message

_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Pow: math.pow,
}  # fmt: skip
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "sqrt": math.sqrt, "log": math.log, "exp": math.exp, "max": max, "min": min,
}  # fmt: skip


def evaluate_formula(text: str, settings: Mapping[str, float], where: str) -> float:
    """Return the value of a formula.

    `settings` has the value of each name, and `where` says in messages where the formula stands.

    >>> evaluate_formula("sqrt(learner.k) / (2 * epsilon)", {"learner.k": 16, "epsilon": 0.5}, "a figure")
    4.0

    Raises:
        SpecError: the text is not a formula, a name is not in `settings`, or the value is undefined, as in 1 / 0.
    """
    try:
        found = _evaluate_node(ast.parse(text, mode="eval").body, settings, where)
    except (SyntaxError, ValueError, ZeroDivisionError, OverflowError, TypeError, RecursionError) as error:
        raise SpecError(f"Expected a formula with a value in {where}, got {text!r}: {error}.") from None
    return found


def _evaluate_node(node: ast.expr, settings: Mapping[str, float], where: str) -> float:
    match node:
        case ast.Constant(value=bool()):
            raise SyntaxError("no number")
        case ast.Constant(value=int() | float() as number):
            return float(number)
        case ast.Name() | ast.Attribute():
            return _look_up_number(ast.unparse(node), settings, where)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_evaluate_node(operand, settings, where)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _OPERATORS:
            return _OPERATORS[type(sign)](_evaluate_node(left, settings, where), _evaluate_node(right, settings, where))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in _FUNCTIONS:
            return float(_FUNCTIONS[name](*(_evaluate_node(argument, settings, where) for argument in arguments)))
    raise SyntaxError(f"numbers, names, + - * / ** and {', '.join(_FUNCTIONS)} only")


def _look_up_number(name: str, settings: Mapping[str, float], where: str) -> float:
    if name not in settings:
        raise SpecError(format_unknown_name_message("number", name, settings, where))
    return settings[name]


def is_formula(text: str) -> bool:
    """Return whether a text is a formula rather than a single name.

    >>> is_formula("learner.k"), is_formula("dataset.n * epsilon")
    (False, True)
    """
    return any(sign in text for sign in "*/+(")


def collect_numeric_values(values: Mapping[str, Any]) -> dict[str, float]:
    """Return the numbers of a spec by name. Options of its components have names like `dataset.n`."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= {
                f"{key}.{option}": number for option, number in collect_numeric_values(value.get("options", {})).items()
            }
        elif isinstance(value, int | float) and not isinstance(value, bool):
            found[key] = float(value)
    return found
