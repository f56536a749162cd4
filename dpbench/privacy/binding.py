"""Bind a plan, its noise, its ledger and its randomness to private rows: the only way to make a curator."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from dpbench.errors import PrivacyError
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.plan import Ledger, Planned, Task, check_plan, release_sigmas
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import NO_WITNESS, AuditWitness
from dpbench.privacy.purity.guard import RowFunctionGuard


def bind(
    rows: PrivateRows,
    task: Task,
    plan: Sequence[Planned],
    sigma: float,
    randomness: Randomness,
    witness: AuditWitness = NO_WITNESS,
) -> LedgerCurator:
    """Make the curator of one fit over `rows`; runs, searches, re-runs, audits and laws all make their curators here.

    Noise, sample rates and the ledger follow from this plan and this base sigma, and from nothing else: a release has
    sigma * relative_noise as its noise multiplier, its own sample rate, and as many answers as it has steps.

    `harness.guarantee` calibrates sigma so that the plan's epsilon is at most the budget's, and `harness.fit` passes on
    this plan and this sigma.

    Covered: if an accountant states (epsilon, delta) for `plan` and `sigma` under add-or-remove-one neighbours, then
    all answers of this curator together are (epsilon, delta)-DP, however many questions are asked, as long as
    `randomness` is fresh and serves no other curator.
    Not covered: two curators over the same rows, whose costs compose; sigma = 0, for which epsilon is inf.

    Args:
        rows: the private split, or public stand-ins for it.
        task: the public facts about the rows. Learners may divide by `task.size`; the curator never does.
        plan: the calibrated plan; it is checked again.
        sigma: the base noise multiplier that was calibrated for the plan.
        randomness: the streams of this fit.
        witness: an audit's witness, which observes the sums before noise.

    Raises:
        PrivacyError: a sigma that is negative or not finite, or a witness with secure randomness.
        PlanError: the plan is invalid.
    """
    if not 0 <= sigma < math.inf:
        raise PrivacyError(f"Expected sigma={sigma} to be finite and at least 0: the plan's base noise multiplier.")
    if witness is not NO_WITNESS and randomness.key is None:
        raise PrivacyError(
            "An audit sees sums before noise is added. Use it with research randomness only, which is published anyway."
        )
    if task.device.type == "cpu":
        from dpbench.privacy.core.exact import kernels  # a third of a second, for fits alone

        kernels.compile_all_kernels()  # before a private row is read: it reads files, and may say that it compiles
    plan = check_plan(plan, "a curator")
    task = dataclasses.replace(task)  # of this fit alone: what a learner forces into it reaches no other
    return LedgerCurator(
        rows, task, release_sigmas(plan, sigma), Ledger(plan), randomness, RowFunctionGuard(randomness.checks), witness
    )
