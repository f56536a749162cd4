"""The pytest plugin `dpbench-audit`: fails a test if its training loop is less private than its receipt states.

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


class LoopAuditor:
    """Audits training loops against their receipts; the fixture `dpbench_audit` returns it."""

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
        """Check the receipt, audit the loop and return the audit; fail the test if the check or the audit fails.

        Args:
            answers: (x, y, seed) -> the numbers that each step released; see `dpbench.audit.foreign.Answers`.
            receipt: the receipt, or its file; the files that it hashes are checked only if you give its file.
            steps: the number of steps that the loop takes here, if fewer than in training; sigma is checked for these
                steps only.
            size: number of examples besides the canaries.
            canaries: number of canaries: examples that are planted or left out.
            seed: the seed that the loop gets.
        """
        from dpbench.audit.foreign import audit_loop
        from dpbench.errors import DataError, SpecError
        from dpbench.receipts.check import check
        from dpbench.receipts.receipt import Receipt

        try:
            stated = receipt if isinstance(receipt, Receipt) else Receipt.read(Path(receipt))
            folder = None if isinstance(receipt, Receipt) else Path(receipt).absolute().parent
            wrong = [f"{mismatch.name}: {mismatch.said}" for mismatch in check(stated, folder).mismatches]
        except (DataError, SpecError) as error:
            pytest.fail(str(error), pytrace=False)
        if wrong:
            pytest.fail("The receipt contradicts itself.\n" + "\n".join(wrong), pytrace=False)
        try:
            audit = audit_loop(answers, make_claim_from_receipt(stated, steps), size=size, canaries=canaries, seed=seed)
        except SpecError as error:
            pytest.fail(f"The loop cannot be audited. {error}", pytrace=False)
        if not audit.passed:
            failed = "\n".join(audit.figures.failed)
            pytest.fail(f"The loop is less private than its receipt states.\n{failed}", pytrace=False)
        return audit


def make_claim_from_receipt(receipt: Receipt, steps: int | None = None) -> Claim:
    """Convert a receipt's statement about its loop to a claim that `dpbench.audit.foreign` can audit.

    Args:
        receipt: the receipt of a loop with one Gaussian mechanism, over Poisson samples or all rows.
        steps: the number of audited steps; epsilon is then that of these steps.

    Raises:
        SpecError: the receipt is that of another kind of loop.
    """
    from dpbench.audit.foreign import Claim
    from dpbench.errors import SpecError
    from dpbench.receipts.events import BestOf, Gaussian, flatten_to_terms

    event = receipt.training.events
    terms = [] if isinstance(event, BestOf) else flatten_to_terms(event)
    if len(terms) != 1 or not isinstance(leaf := terms[0].leaf, Gaussian) or terms[0].sampler not in (None, "poisson"):
        raise SpecError("Expected a receipt of steps of one Gaussian mechanism, over Poisson samples or all rows.")
    whole = steps is None or steps == terms[0].times
    return Claim(
        sigma=leaf.sigma, steps=terms[0].times if steps is None else steps, sample_rate=terms[0].rate,
        clip=receipt.training.noise.clip if receipt.training.noise else 1.0,
        delta=receipt.delta or 1e-5, epsilon=receipt.epsilon if whole else None,
    )  # fmt: skip


@pytest.fixture
def dpbench_audit() -> LoopAuditor:
    """Return a `LoopAuditor`, which the test calls with its training loop and the receipt."""
    return LoopAuditor()
