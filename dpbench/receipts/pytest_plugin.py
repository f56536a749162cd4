"""The pytest plugin `dpbench-audit`: fail a test whose training loop is looser than its receipt.

>>> def test_my_loop(dpbench_audit):
...     dpbench_audit(answers, "model.receipt.json", steps=20)

Nothing heavy is imported before the fixture is called.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from dpbench.audit.foreign import Claim
    from dpbench.receipts.receipt import Receipt
    from dpbench.records.audit import Audit

Answers = Callable[[Any, Any, int], Sequence[Any]]
"""See `dpbench.audit.foreign.Answers`: (x, y, seed) -> the noisy sum of clipped gradients of each step."""


class LoopAudit:
    """Audits training loops against their receipts; what the fixture `dpbench_audit` gives."""

    def __call__(
        self,
        answers: Answers,
        receipt: Receipt | Path | str,
        *,
        steps: int | None = None,
        size: int = 1_000,
        canaries: int = 2_000,
        seed: int = 0,
    ) -> Audit:
        """Check a receipt, audit the loop that it is of, and return the audit; fail the test where either is wrong.

        Args:
            answers: (x, y, seed) -> what each step released; see `dpbench.audit.foreign.Answers`.
            receipt: the receipt, or its file; only with its file are the files that it hashes looked at.
            steps: how many steps the loop does here, if fewer than it trained: the audit then holds these to sigma.
            size: examples beside the canaries.
            canaries: examples that are planted or left out.
            seed: of the loop.
        """
        from dpbench.audit.foreign import audit_loop
        from dpbench.errors import DataError, SpecError
        from dpbench.receipts.check import check
        from dpbench.receipts.receipt import Receipt

        try:
            stated = receipt if isinstance(receipt, Receipt) else Receipt.read(Path(receipt))
            folder = None if isinstance(receipt, Receipt) else Path(receipt).absolute().parent
            wrong = [f"{one.name}: {one.said}" for one in check(stated, folder).mismatches]
        except (DataError, SpecError) as error:
            pytest.fail(str(error), pytrace=False)
        if wrong:
            pytest.fail("The receipt contradicts itself.\n" + "\n".join(wrong), pytrace=False)
        try:
            audit = audit_loop(answers, claim_of(stated, steps), size=size, canaries=canaries, seed=seed)
        except SpecError as error:
            pytest.fail(f"The loop cannot be audited. {error}", pytrace=False)
        if not audit.passed:
            failed = "\n".join(audit.figures.failed)
            pytest.fail(f"The loop is less private than its receipt states.\n{failed}", pytrace=False)
        return audit


def claim_of(receipt: Receipt, steps: int | None = None) -> Claim:
    """Return what a receipt states of its loop, as the audit of foreign loops takes it.

    Args:
        receipt: the receipt of a loop with one Gaussian mechanism, over Poisson samples or all rows.
        steps: how many steps are audited; epsilon is then that of these steps.

    Raises:
        SpecError: the receipt is of something else.
    """
    from dpbench.audit.foreign import Claim
    from dpbench.errors import SpecError
    from dpbench.receipts.events import BestOf, Gaussian, flatten

    event = receipt.training.events
    terms = [] if isinstance(event, BestOf) else flatten(event)
    if len(terms) != 1 or not isinstance(leaf := terms[0].leaf, Gaussian) or terms[0].sampler not in (None, "poisson"):
        raise SpecError("Expected a receipt of steps of one Gaussian mechanism, over Poisson samples or all rows.")
    whole = steps is None or steps == terms[0].times
    return Claim(
        sigma=leaf.sigma, steps=terms[0].times if steps is None else steps, sample_rate=terms[0].rate,
        clip=receipt.training.noise.clip if receipt.training.noise else 1.0,
        delta=receipt.delta or 1e-5, epsilon=receipt.epsilon if whole else None,
    )  # fmt: skip


@pytest.fixture
def dpbench_audit() -> LoopAudit:
    """Audit a training loop against its receipt: call it with the loop and the receipt's file."""
    return LoopAudit()
