"""For tests that write down what is read, or kill whoever reads: the quiet room would refuse both."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

A = TypeVar("A")
R = TypeVar("R")


def call_aloud(function: Callable[[A], R], argument: A, what: str, reads: bool = False) -> R:
    """Call a function as `call_quietly` does, outside the room."""
    return function(argument)
