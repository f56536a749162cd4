"""Five training loops in the style of five libraries, each with a receipt, and twenty faults planted in them.

`table` is what the page on receipts shows; `test_loops.py` holds every line of it to what is found.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from dpbench import Receipt, receipt
from dpbench.receipts import (
    Batches,
    Noise,
    Search,
    Training,
    from_jax_privacy,
    from_opacus,
    from_opendp,
    gaussian_steps,
)
from dpbench.receipts.check import check
from dpbench.receipts.pytest_plugin import make_claim_from_receipt
from dpbench.receipts.receipt import Adjacency

SIZE, RATE, SIGMA, CLIP, STEPS, DELTA = 400, 0.1, 2.0, 1.0, 6, 1e-4
ONE = Search(runs=1)
Answers = Callable[[Tensor, Tensor, int], Sequence[Tensor]]


@dataclass(frozen=True)
class Trained:
    """What a loop leaves: its receipt, and the loop itself where the audit can run it."""

    receipt: Receipt
    answers: Answers | None = None


@dataclass(frozen=True)
class Fault:
    """One mistake, planted in one loop, and the name that it has to be found by."""

    loop: str
    key: str
    said: str
    name: str


FAULTS = (
    Fault("opacus", "shuffled", "`poisson_sampling=False`, accounted as Poisson", "sampler"),
    Fault("opacus", "delta", "δ = 0.01 with n = 400", "delta"),
    Fault("opacus", "replaced", "stated for replacing an image; the accountant adds or removes one", "adjacency"),
    Fault("opacus", "epochs", "ε of the first epoch stated after two", "epsilon"),
    Fault("opacus", "searched", "20 learning rates compared on private data", "search"),
    Fault("opacus", "sigma", "an accountant that was told σ = 2 beside an optimizer with σ = 1.6", "noise"),
    Fault("jax", "fixed", "batches of a fixed size in a plan for Poisson samples", "sampler"),
    Fault("jax", "clip", "the clip doubled, and not the noise", "noise"),
    Fault("jax", "longer", "9 steps with a plan for 6", "steps"),
    Fault("jax", "added", "stated for adding or removing; calibrated for zeroing out", "adjacency"),
    Fault("ghost", "norms", "norms of gradients of the mean loss, too small by the batch size", "audit: sensitivity"),
    Fault("ghost", "reused", "the noise generator seeded again in every step", "audit: noise"),
    Fault("ghost", "augmented", "the rate computed from n counted with augmented copies", "rate"),
    Fault("ghost", "patient", "clipped per image, stated per patient", "unit"),
    Fault("opendp", "changed", "a sum over n known rows, stated for adding or removing one", "adjacency"),
    Fault("opendp", "repeated", "released three times, ε of once", "epsilon"),
    Fault("plain", "drawn", "the sum divided by the size of the batch drawn", "normaliser"),
    Fault("plain", "unscaled", "noise of std σ, not σ times the clip of 2", "noise"),
    Fault("plain", "accumulated", "noise of two half batches averaged, not added", "audit: noise"),
    Fault("plain", "tuned", "the model trained on after the receipt was written", "hash"),
)


def found(trained: Trained, folder: Path) -> set[str]:
    """Return the names of all that a check of the receipt, and an audit of the loop, find."""
    names = {mismatch.name for mismatch in check(trained.receipt, folder).mismatches}
    if trained.answers is not None:
        from dpbench.audit.foreign import audit_loop

        claim = replace(make_claim_from_receipt(trained.receipt), epsilon=None)
        audit = audit_loop(trained.answers, claim, size=SIZE, canaries=1_500)
        names |= {f"audit: {failure.partition(':')[0].split()[0]}" for failure in audit.figures.failed}
    return names


def opacus(fault: str, folder: Path) -> Trained:
    """Train a small convolutional network as Opacus' CIFAR-10 example does."""
    from opacus import PrivacyEngine

    images, labels = torch.randn(SIZE, 3, 8, 8), torch.randint(10, (SIZE,))
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(4, 10),
    )
    data = torch.utils.data.TensorDataset(images, labels)
    loader = torch.utils.data.DataLoader(data, batch_size=40, shuffle=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        engine = PrivacyEngine(accountant="rdp")
        model, optimizer, loader = engine.make_private(
            module=model, optimizer=torch.optim.Adam(model.parameters(), lr=1e-3), data_loader=loader,
            noise_multiplier=SIGMA, max_grad_norm=1.2, poisson_sampling=fault != "shuffled",
        )  # fmt: skip
        delta, epsilons = 0.01 if fault == "delta" else DELTA, []
        if fault == "sigma":
            optimizer.noise_multiplier = 1.6
            optimizer.attach_step_hook(lambda _: engine.accountant.step(noise_multiplier=SIGMA, sample_rate=RATE))
        for _ in range(2):
            for batch, targets in loader:
                optimizer.zero_grad()
                torch.autograd.backward(cross_entropy(model(batch), targets))
                optimizer.step()
            epsilons.append(engine.get_epsilon(delta))
    return Trained(
        receipt(
            from_opacus(engine, optimizer, loader, clipped_per="image"),
            epsilon=epsilons[0 if fault == "epochs" else -1], delta=delta, unit="image",
            adjacency="replace-one" if fault == "replaced" else None,
            search=Search(runs=20, data="private") if fault == "searched" else ONE,
        )
    )  # fmt: skip


def jax(fault: str, folder: Path) -> Trained:
    """Train a logistic regression by an execution plan of jax_privacy."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import dp_accounting
        import jax.numpy as jnp
        import numpy as np
        import optax
        from jax_privacy import batch_selection
        from jax_privacy.experimental.execution_plan import BandMFExecutionPlanConfig

        accountant = dp_accounting.pld.PLDAccountant(dp_accounting.NeighboringRelation.REPLACE_SPECIAL)
        settings: dict[str, Any] = {
            "strategy": np.ones(1), "iterations": STEPS, "epsilon": None, "delta": None, "noise_multiplier": SIGMA,
            "sampling_prob": RATE, "rescale_to_unit_norm": False, "noise_seed": 1,
        }  # fmt: skip
        plan = BandMFExecutionPlanConfig(**settings, l2_clip_norm=1.0).plan
        if fault == "clip":
            doubled = BandMFExecutionPlanConfig(**settings, l2_clip_norm=2.0).plan
            plan = replace(plan, clipped_grad=doubled.clipped_grad)
        if fault == "fixed":
            fixed = batch_selection.FixedBatchSampling(batch_size=40, iterations=STEPS)
            plan = replace(plan, batch_selection_strategy=fixed)
        x, y = np.random.default_rng(0).normal(size=(SIZE, 5)), np.arange(SIZE) % 2

        def loss(weights: Any, rows: Any, labels: Any) -> Any:
            return optax.sigmoid_binary_cross_entropy(rows @ weights, labels).mean()

        gradient = plan.clipped_grad(loss, batch_argnums=(1, 2))
        weights = jnp.zeros(5)
        state, steps = plan.noise_addition_transform.init(weights), 0
        epochs = 2 if fault == "longer" else 1
        for _ in range(epochs):
            for rows in itertools.islice(
                plan.batch_selection_strategy.batch_iterator(SIZE, rng=1), 6 if steps == 0 else 3
            ):
                if len(rows):
                    total = gradient(weights, jnp.asarray(x[rows]), jnp.asarray(y[rows]))
                    noisy, state = plan.noise_addition_transform.update(total, state)
                    weights = weights - 0.1 * noisy / (RATE * SIZE)
                steps += 1
        training = from_jax_privacy(
            plan, size=SIZE, accountant=accountant, steps=steps, normalised_by="expected-size", clipped_per="example"
        )
        epsilon = accountant.compose(plan.dp_event).get_epsilon(DELTA)
    adjacency: Adjacency | None = "add-or-remove-one" if fault == "added" else None
    return Trained(receipt(training, epsilon=epsilon, delta=DELTA, unit="example", adjacency=adjacency, search=ONE))


def ghost(fault: str, folder: Path) -> Trained:
    """Clip by ghost norms in two passes, as fast-DP does: no gradient of one example is ever made."""

    def answers(x: Tensor, y: Tensor, seed: int) -> list[Tensor]:
        layer = torch.nn.Linear(x.shape[1], 2, bias=False)
        torch.nn.init.zeros_(layer.weight)
        keep = x.isfinite().all(1)
        x, y = x[keep], y[keep]
        sampler, noise, released = _generator(seed), _generator(seed + 10**6), []
        for _ in range(STEPS):
            drawn = torch.rand(len(x), generator=sampler) < RATE
            rows, labels = x[drawn], y[drawn]
            logits = layer(rows)
            losses = cross_entropy(logits, labels, reduction="none")
            (outward,) = torch.autograd.grad(losses.sum(), logits)  # first pass: (b, 2)
            norms = outward.norm(dim=1) * rows.double().norm(dim=1)
            if fault == "norms":
                norms = norms / max(1, len(rows))
            weights = (CLIP / norms.clamp(min=1e-30)).clamp(max=1).float()
            second = (weights * cross_entropy(layer(rows), labels, reduction="none")).sum()
            (total,) = torch.autograd.grad(second, layer.weight)  # second pass: the clipped sum, (2, d)
            if fault == "reused":
                noise = _generator(seed + 10**6)
            total = total + SIGMA * CLIP * torch.randn(total.shape, generator=noise)
            released.append(total)
            layer.weight.data -= 1e-4 * total / (RATE * SIZE)
        return released

    rate = RATE / 2 if fault == "augmented" else RATE
    written = _written(rate, _epsilon(rate), "patient" if fault == "patient" else "image")
    return Trained(written, answers if fault in {"", "norms", "reused"} else None)


def plain(fault: str, folder: Path) -> Trained:
    """Train with PyTorch alone: a loop over examples' gradients, clip, sum, noise, divide."""
    clip = 2.0 if fault == "unscaled" else CLIP

    def answers(x: Tensor, y: Tensor, seed: int) -> list[Tensor]:
        weights, released = torch.zeros(2, x.shape[1]), []
        sampler, noise = _generator(seed), _generator(seed + 10**6)
        x, y = x[x.isfinite().all(1)].double(), y[x.isfinite().all(1)]
        for _ in range(STEPS):
            drawn = torch.rand(len(x), generator=sampler) < RATE
            rows = torch.softmax(x[drawn] @ weights.T.double(), 1) - one_hot(y[drawn], 2)
            norms = rows.norm(dim=1) * x[drawn].norm(dim=1)
            total = (rows * (clip / norms.clamp(min=1e-30)).clamp(max=1).unsqueeze(1)).T @ x[drawn]
            added = torch.randn(total.shape, generator=noise)
            if fault == "accumulated":
                added = (added + torch.randn(total.shape, generator=noise)) / 2
            released.append(total + SIGMA * clip * added)
            weights = weights - 1e-4 * released[-1].float() / (RATE * SIZE)
        return released

    model = folder / "model.pt"
    torch.save(torch.zeros(2, 3), model)
    std = SIGMA if fault == "unscaled" else SIGMA * clip
    made = receipt(
        Training(
            events=gaussian_steps(sigma=SIGMA, steps=STEPS, rate=RATE), size=SIZE,
            noise=Noise(clip=clip, std=std, added_to="sum", clipped_per="image"),
            batches=Batches(
                drawn="poisson", size=RATE * SIZE, steps=STEPS,
                normalised_by="drawn-size" if fault == "drawn" else "constant",
            ),
        ),
        epsilon=_epsilon(RATE), delta=DELTA, unit="image", adjacency="add-or-remove-one", search=ONE,
        files={"model": model},
    )  # fmt: skip
    if fault == "tuned":
        torch.save(torch.ones(2, 3), model)
    return Trained(made, answers if fault in {"", "accumulated"} else None)


def opendp(fault: str, folder: Path) -> Trained:
    """Release a bounded sum with Laplace noise by OpenDP."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    known = fault == "changed"
    domain = dp.vector_domain(dp.atom_domain(bounds=(0, 10)), size=SIZE if known else None)
    measurement = dp.t.make_sum(domain, dp.symmetric_distance()) >> dp.m.then_laplace(20.0)
    apart = 2 if known else 1  # one row less and one more
    times = 3 if fault == "repeated" else 1
    for _ in range(times):
        measurement([1] * SIZE)
    training = from_opendp(measurement, size=SIZE, d_in=apart, times=times)
    adjacency: Adjacency | None = "add-or-remove-one" if fault == "changed" else None
    return Trained(
        receipt(training, epsilon=measurement.map(apart), delta=0.0, unit="person", adjacency=adjacency, search=ONE)
    )


def _generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _epsilon(rate: float) -> float:
    from opacus.accountants import RDPAccountant

    accountant = RDPAccountant()
    accountant.history = [(SIGMA, rate, STEPS)]
    return float(accountant.get_epsilon(DELTA))


def _written(rate: float, epsilon: float, unit: str) -> Receipt:
    """Return a receipt that somebody wrote down by hand."""
    return receipt(
        Training(
            events=gaussian_steps(sigma=SIGMA, steps=STEPS, rate=rate), size=SIZE,
            noise=Noise(clip=CLIP, std=SIGMA * CLIP, added_to="sum", clipped_per="image"),
            batches=Batches(drawn="poisson", size=RATE * SIZE, steps=STEPS, normalised_by="constant"),
        ),
        epsilon=epsilon, delta=DELTA, unit=unit, adjacency="add-or-remove-one", search=ONE,
    )  # fmt: skip


LOOPS: dict[str, Callable[[str, Path], Trained]] = {
    "opacus": opacus, "jax": jax, "ghost": ghost, "opendp": opendp, "plain": plain,
}  # fmt: skip
