"""Read an execution plan of jax_privacy: its event, batch selection, clip and noise."""

from __future__ import annotations

from typing import Any

from dpbench.errors import SpecError
from dpbench.receipts.exporters.dp_events import convert_dp_event, make_accountant_record, read_adjacency
from dpbench.receipts.receipt import (
    Accountant,
    Batches,
    BatchSampling,
    Divisor,
    Noise,
    Training,
    find_installed_version,
)

NOISE_DRAW_COUNT = 200_000  # of noise: their standard deviation is known to 0.2%


def from_jax_privacy(
    plan: Any,
    *,
    size: int,
    accountant: Any = None,
    steps: int | None = None,
    normalised_by: Divisor | None = None,
    clipped_per: str | None = None,
) -> Training:
    """Return the training of a loop that follows a `DPExecutionPlan` of jax_privacy.

    The facts are the plan's event, its batch selection, the norm bound of `clipped_grad`, and the standard deviation of
    the noise that `noise_addition_transform` adds to zeros (if the steps' noise is independent).

    Args:
        plan: the `DPExecutionPlan` that the loop uses, or an object with the same fields.
        size: number of rows of the private data.
        accountant: the accountant that calibrated the plan; by default that of jax_privacy: PLD under zero-out.
        steps: the number of steps that the loop counted.
        normalised_by: what the noisy sums of gradients are divided by.
        clipped_per: the unit whose gradient is clipped: image, example ...

    Raises:
        SpecError: the plan has an event or a batch selection that receipts cannot express.
    """
    adjacency = read_adjacency(accountant) if accountant is not None else "zero-out"
    selection = plan.batch_selection_strategy
    name = Accountant(
        name="pld", library="dp-accounting", version=find_installed_version("dp-accounting"), adjacency=adjacency
    )  # fmt: skip
    return Training(
        events=convert_dp_event(plan.dp_event, 2.0 if adjacency == "replace-one" else 1.0),
        size=size,
        noise=_measure_noise(plan, clipped_per),
        batches=_read_batches(selection, size, steps, normalised_by),
        accountant=make_accountant_record(accountant) or name,
        libraries={package: found for package in ("jax-privacy", "jax") if (found := find_installed_version(package))},
    )


def _read_batches(selection: Any, size: int, steps: int | None, normalised_by: Divisor | None) -> Batches:
    from jax_privacy import batch_selection as kinds

    drawn: BatchSampling
    cycle: int | None = None
    if isinstance(selection, kinds.CyclicPoissonSampling):
        drawn = "poisson" if selection.cycle_length == 1 else "cyclic-poisson"
        drawn = "truncated-poisson" if selection.truncated_batch_size is not None else drawn
        rows, cycle = selection.sampling_prob * (size // selection.cycle_length), selection.cycle_length
    elif isinstance(selection, kinds.BallsInBinsSampling):
        drawn, rows = "balls-in-bins", size / selection.cycle_length
    elif isinstance(selection, kinds.FixedBatchSampling):
        drawn = "fixed-size-with-replacement" if selection.replace else "fixed-size"
        rows = selection.batch_size
    else:
        raise SpecError(f"Receipts have no batch selection of type {type(selection).__name__}.")
    taken = selection.iterations if steps is None else steps
    return Batches(drawn=drawn, size=float(rows) or None, steps=taken, cycle=cycle, normalised_by=normalised_by)


def _measure_noise(plan: Any, clipped_per: str | None) -> Noise | None:
    """Measure the clip and the noise of a step.

    Returns None if batches cycle through several groups, because steps may then share noise (banded factorisations), or
    if there is no noise or no clip.
    """
    import jax.numpy as jnp

    if plan.batch_selection_strategy.iterations and getattr(plan.batch_selection_strategy, "cycle_length", 1) != 1:
        return None
    zeros = jnp.zeros(NOISE_DRAW_COUNT)
    transform = plan.noise_addition_transform
    added, _ = transform.update(zeros, transform.init(zeros))
    std, clip = float(jnp.std(added)), float(plan.clipped_grad(lambda weights, row: 0.0).l2_norm_bound)
    if not (std > 0 and clip > 0):
        return None
    return Noise(clip=clip, std=std, added_to="sum", clipped_per=clipped_per)
