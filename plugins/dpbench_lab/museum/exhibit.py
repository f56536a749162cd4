"""What an exhibit is, and what may stop it."""

from __future__ import annotations

import inspect
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from dpbench_lab.museum.record import GUARDS, Guard

Findings = Mapping[Guard, str | None]
"""What each guard said that was asked, None where it let the exhibit pass. Who comes after a refusal is not asked."""


class Epsilon(NamedTuple):
    """What is claimed, and what is true."""

    claimed: float
    true: float


@dataclass(frozen=True)
class Exhibit(ABC):
    """One bug. Its class or function is on show: the docstring tells what it does, and where it was found."""

    shown: Any

    def truth(self) -> Epsilon | None:
        """Return epsilon as claimed and as it is; None where nobody knows, or where it is not what is wrong."""
        return None

    @abstractmethod
    def visit(self) -> Findings:
        """Run it, and return what stopped it."""

    @property
    def name(self) -> str:
        """The name of what is shown, as a person types it."""
        return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])|_", "-", self.shown.__name__).lower()

    @property
    def summary(self) -> str:
        """What it does, in one paragraph."""
        return self._paragraphs[0]

    @property
    def source(self) -> str:
        """Where it was found."""
        return self._paragraphs[1].removeprefix("Source: ")

    @property
    def code(self) -> str:
        """The lines that are wrong."""
        source = inspect.getsource(self.shown)
        return re.sub(r'\n +"""(?:.|\n)*?"""\n(?:\n(?= +(?:def|from|import)))?', "\n", source, count=1).rstrip()

    @property
    def _paragraphs(self) -> list[str]:
        return [" ".join(part.split()) for part in (inspect.getdoc(self.shown) or "").split("\n\n")]


def stopped_by(findings: Findings) -> Guard | None:
    """Return the first guard that stopped an exhibit."""
    return next((guard for guard in GUARDS if findings.get(guard)), None)
