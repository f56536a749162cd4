"""The exhibits of the museum, and the guards that may stop them."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpbench_lab.museum.record import GUARDS, Guard

Findings = Mapping[Guard, str | None]
"""Guard -> its message, or None if it missed the bug. Guards that did not run have no entry."""


class ClaimedAndTrueEpsilon(NamedTuple):
    """The claimed epsilon, and the actual epsilon."""

    claimed: float
    true: float


@dataclass(frozen=True)
class Exhibit(ABC):
    """A privacy bug. `shown` is its class or function, whose docstring says how it works and where it was found."""

    shown: Any

    def claimed_and_true_epsilon(self) -> ClaimedAndTrueEpsilon | None:
        """Return the claimed and the actual epsilon; None if the latter is unknown or epsilon is not what is wrong."""
        return None

    @abstractmethod
    def visit(self) -> Findings:
        """Run the exhibit, and return what each guard found."""

    @property
    def name(self) -> str:
        """The exhibit's name on the command line, from the name of its class or function."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", "-", self.shown.__name__).lower()

    @property
    def summary(self) -> str:
        """What the bug does: the first paragraph of the docstring."""
        return self._paragraphs[0]

    @property
    def source(self) -> str:
        """Where the bug was found: the second paragraph of the docstring."""
        return self._paragraphs[1].removeprefix("Source: ")

    @property
    def code(self) -> str:
        """The source of the class or function, without its docstring."""
        source = inspect.getsource(self.shown)
        return re.sub(r'\n +"""(?:.|\n)*?"""\n(?:\n(?= +(?:def|from|import)))?', "\n", source, count=1).rstrip()

    @property
    def _paragraphs(self) -> list[str]:
        return [" ".join(part.split()) for part in (inspect.getdoc(self.shown) or "").split("\n\n")]


def find_first_catching_guard(findings: Findings) -> Guard | None:
    """Return the first guard that caught an exhibit; None if no guard did."""
    return next((guard for guard in GUARDS if findings.get(guard)), None)
