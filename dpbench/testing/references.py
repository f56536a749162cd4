"""The laws of a reference: a learner without privacy, shown as a ceiling."""

from __future__ import annotations

import math
from typing import ClassVar

from dpbench.api import Budget
from dpbench.errors import DpbenchError
from dpbench.testing.laws import expect
from dpbench.testing.worlds import LearnerSuite


class ReferenceLaws(LearnerSuite):
    """Inherit and set `learner`, one that declares `reference = True`."""

    ample: ClassVar[float] = math.inf

    def test_it_says_that_it_is_a_reference(self) -> None:
        """What reads rows themselves must say so: results and boards keep it apart."""
        expect(self.subject().reference, "Expected `reference = True`.")

    def test_every_finite_budget_is_refused(self) -> None:
        """It has no guarantee, so it makes no plan for one."""
        for epsilon in (0.1, 1e6):
            try:
                self.subject().plan(self._task(1500), Budget(epsilon, 1e-5))
            except DpbenchError:
                continue
            expect(False, f"It made a plan for epsilon {epsilon:g}; expected a refusal at every finite epsilon.")
