"""Exhibits that print private values. They run with standard output and error captured at the file descriptors."""

from __future__ import annotations

import os
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass

from dpbench_lab.museum.exhibit import Findings
from dpbench_lab.museum.strangers import ContractViolation, run_learner


@dataclass(frozen=True)
class PrintingExhibit(ContractViolation):
    """A learner whose row function prints private values, which no noise covers."""

    says: str = ""

    def visit(self) -> Findings:
        """Run the learner; the bug is caught if the output does not contain `says`."""
        with warnings.catch_warnings():
            warnings.simplefilter("always")  # as a person has them, wherever this is run
            heard = capture_output(lambda: run_learner(self.shown))
        return {"while running": None if self.says in heard else "Nothing of what it said was shown."}


def capture_output(run: Callable[[], object]) -> str:
    """Run a function, and return everything that is written to standard output and error."""
    with tempfile.TemporaryFile() as heard:
        sys.stdout.flush()
        sys.stderr.flush()
        kept = [(number, os.dup(number)) for number in (1, 2)]
        try:
            for number, _ in kept:
                os.dup2(heard.fileno(), number)
            run()
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            for number, copy in kept:
                os.dup2(copy, number)
                os.close(copy)
        heard.seek(0)
        return heard.read().decode(errors="replace")
