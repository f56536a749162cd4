"""Read a training with Opacus: its accountant's history, its optimizer's noise and its loader's batches."""

from __future__ import annotations

from typing import Any, cast, get_args

from dpbench.errors import SpecError
from dpbench.receipts.events import Composed, Event
from dpbench.receipts.receipt import (
    Accountant,
    Batches,
    BatchSampling,
    Divisor,
    Noise,
    NumberType,
    SecondRelease,
    Training,
    find_installed_version,
)
from dpbench.receipts.steps import gaussian_steps


def from_opacus(
    engine: Any, optimizer: Any, loader: Any, *, steps: int | None = None, clipped_per: str | None = None
) -> Training:
    """Return the training of an Opacus loop that has ended.

    The facts are the accountant's history (noise multiplier, rate and steps), the optimizer's clip, noise, reduction
    and divisor, and whether the loader draws Poisson samples. One fact is missing, because no object records it:
    whether an optimizer without the engine's hook took steps, too.

    Args:
        engine: the `PrivacyEngine`, or an accountant of Opacus.
        optimizer: the `DPOptimizer` that `make_private` returned.
        loader: the loader that the loop iterated over.
        steps: the number of steps that the loop counted; by default Adam's own count, if there is one.
        clipped_per: the unit whose gradient is clipped: image, example ...

    Raises:
        SpecError: an object is not of the expected Opacus class, or the accountant has recorded no step.
    """
    from opacus.accountants import IAccountant
    from opacus.optimizers import DPOptimizer

    accountant = engine if isinstance(engine, IAccountant) else getattr(engine, "accountant", None)
    if not isinstance(accountant, IAccountant) or not isinstance(optimizer, DPOptimizer):
        raise SpecError(
            "Expected a PrivacyEngine and the DPOptimizer that make_private returned, got "
            f"{type(engine).__name__} and {type(optimizer).__name__}."
        )
    if not accountant.history:
        raise SpecError(
            "Expected an accountant that has recorded steps, got one with none. Write the receipt after training."
        )
    events: list[Event] = [
        gaussian_steps(sigma=float(sigma), rate=float(rate), steps=int(times))
        for sigma, rate, times in accountant.history
    ]
    averaged = optimizer.loss_reduction == "mean"
    return Training(
        events=events[0] if len(events) == 1 else Composed(events=tuple(events)),
        size=len(loader.dataset),
        noise=_read_noise(optimizer, clipped_per),
        batches=_read_batches(loader, steps or _count_steps(optimizer), "expected-size" if averaged else "nothing"),
        accountant=Accountant(
            name=str(accountant.mechanism()), library="opacus", version=find_installed_version("opacus"),
            adjacency="add-or-remove-one",
        ),
        libraries={name: found for name in ("opacus", "torch") if (found := find_installed_version(name))},
    )  # fmt: skip


def _read_noise(optimizer: Any, clipped_per: str | None) -> Noise | None:
    clip = float(optimizer.max_grad_norm)
    sigma, second = float(optimizer.noise_multiplier), None
    if not sigma > 0:
        return None
    if (count := getattr(optimizer, "unclipped_num_std", None)) is not None:
        second = SecondRelease(name="the number of rows that were not clipped", sigma=2 * float(count))
        if not _is_noise_multiplier_replaced():
            sigma = (sigma**-2 - second.sigma**-2) ** -0.5
    dtype = str(optimizer.params[0].dtype).removeprefix("torch.")
    return Noise(
        clip=clip, std=sigma * clip, added_to="sum", clipped_per=clipped_per, second=second,
        dtype=cast("NumberType", dtype) if dtype in get_args(NumberType) else None,
    )  # fmt: skip


def _is_noise_multiplier_replaced() -> bool:
    """Return whether adaptive clipping replaces the optimizer's noise multiplier with that of the gradient alone.

    Since 1.6, Opacus computes the gradient's noise multiplier when it adds noise (Andrew et al. 2021, theorem 1: the
    count is centred, so that a row moves the count by 1/2).
    """
    major, minor = (find_installed_version("opacus") or "0.0").split(".")[:2]
    return (int(major), int(minor)) < (1, 6)


def _read_batches(loader: Any, steps: int | None, divisor: Divisor) -> Batches:
    from opacus.utils.batch_memory_manager import BatchSplittingSampler
    from opacus.utils.uniform_sampler import DistributedUniformWithReplacementSampler, UniformWithReplacementSampler

    sampler, rows = loader.batch_sampler, len(loader.dataset)
    if isinstance(sampler, BatchSplittingSampler):  # of a memory manager: the logical batches are another's
        sampler = sampler.sampler
    batch = getattr(sampler, "batch_size", None)
    drawn: BatchSampling
    if isinstance(sampler, UniformWithReplacementSampler | DistributedUniformWithReplacementSampler):
        drawn, size = "poisson", float(sampler.sample_rate) * rows
    elif batch is None:
        raise SpecError(
            f"Expected Opacus' loader or one with a batch size, got one whose batches {type(sampler).__name__} makes."
        )
    elif getattr(getattr(sampler, "sampler", None), "replacement", False):
        drawn, size = "fixed-size-with-replacement", float(batch)
    else:
        drawn, size = "everything" if batch >= rows else "shuffled", float(min(batch, rows))
    return Batches(drawn=drawn, size=size, steps=steps, normalised_by=divisor)


def _count_steps(optimizer: Any) -> int | None:
    """Return the number of steps that the optimizer itself has counted, as Adam does; None if it does not count."""
    counts = [int(state["step"]) for state in optimizer.original_optimizer.state.values() if "step" in state]
    return max(counts, default=None)
