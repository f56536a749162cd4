"""Sums on the device equal the processor's in every bit, given the same public values."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from types import CellType, FunctionType
from typing import Any

import torch
from dpbench_plugins.learners.adadps import compute_preconditioner
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.gep import compute_anchor_gradients, compute_leading_subspace
from dpbench_plugins.learners.jl import JL
from dpbench_plugins.learners.pillar import Pillar
from torch import Tensor

from dpbench import Budget, ProbeLearner, PublicData, Task, exact_linear, quantise, residuals
from dpbench.privacy.binding import bind
from dpbench.privacy.core.exact import products
from dpbench.privacy.core.exact.quantised import QuantisedRows, assemble_rows
from dpbench.privacy.core.forms.blocks import Blocks, wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution, Joined, RankOne, Scaled
from dpbench.privacy.core.forms.residual.form import Residual
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.core.witness import AuditWitness, SumObservation
from dpbench.privacy.curator import make_learner_curator
from tests.gpu.asked import CPU, Asked, Row

BUDGET = Budget(1.0, 1e-5)
SEEDS = 4


@dataclass(frozen=True)
class World:
    """Private rows and public examples, on the processor as every run holds them."""

    n: int
    d: int
    classes: int = 10

    def x(self, seed: int, count: int) -> Tensor:
        """Return (count, d) rows whose deviations differ."""
        drawn = torch.randn(count, self.d, generator=torch.Generator().manual_seed(seed))
        return drawn * torch.linspace(2, 0.1, self.d)

    def y(self, seed: int, count: int) -> Tensor:
        """Return (count,) labels."""
        return torch.randint(self.classes, (count,), generator=torch.Generator().manual_seed(seed))

    @property
    def public(self) -> PublicData:
        """Labelled public examples, twice as many as features."""
        return PublicData(self.x(1, 2 * self.d), self.y(1, 2 * self.d))


def rows(asked: Asked) -> Iterator[Row]:
    """Compare the sums of three learners' questions, and of each form at the same values."""
    world = World(400, 24) if asked.quick else World(45_000, 1280)
    yield Row("products are taken", "by compiled loops" if products.uses_compiled_loops(asked.device) else "by _int_mm")
    probes: tuple[type[ProbeLearner], ...] = (DPSGD, Pillar, JL)
    for kind in probes:
        options: dict[str, Any] = {} if kind is DPSGD else {"k": min(40, world.d)}
        learner = kind(steps=1, sample_rate=0.1, learning_rate=0.5, init="uniform", **options)
        heads = [[totals(learner, world, device, seed) for device in (CPU, asked.device)] for seed in range(SEEDS)]
        same = sum(equal(here, there) == 1 for here, there in heads)
        yield Row(
            f"{learner.name}: a step's integers equal the CPU's", f"{same} of {SEEDS} random heads", same == SEEDS
        )
        longer = dataclasses.replace(learner, steps=20)
        here, there = (totals(longer, world, device, seed=0) for device in (CPU, asked.device))
        yield Row(f"{learner.name}: of 20 steps in a row equal the CPU's", f"the first {equal(here, there)}")
    on_cpu, on_device = forms(world, CPU), forms(world, asked.device)
    for name, here in on_cpu.items():
        same = equal(here, on_device[name])
        yield Row(f"{name}: integers equal the CPU's", f"{same} of {len(here)} sums", same == len(here))


def equal(here: list[Tensor], there: list[Tensor]) -> int:
    """Return how many tensors are equal before the first that is not."""
    same = [torch.equal(tensor, other) for tensor, other in zip(here, there, strict=True)]
    return [*same, False].index(False)


def totals(learner: ProbeLearner, world: World, device: torch.device, seed: int) -> list[Tensor]:
    """Return the sums behind each answer of one fit. The learner's public map is made on the processor, and carried."""
    task = Task((world.d,), world.classes, world.n, CPU)
    seen: list[SumObservation] = []
    randomness = Randomness.research(seed, "tests.gpu")
    held = PrivateRows(world.x(0, world.n), world.y(0, world.n), torch.arange(world.n))
    there = dataclasses.replace(task, device=device)
    curator = bind(held, there, learner.plan(there, BUDGET), 3.0, randomness, AuditWitness(seen.append))
    generator, public = randomness.initialisation, world.public
    features = carried(learner.features(task, public, generator), device)
    learner.fit_on(features, make_learner_curator(curator), carried(public, device), generator)
    return [summed.total.cpu() for observation in seen for summed in observation.sums]


def forms(world: World, device: torch.device) -> dict[str, list[Tensor]]:
    """Return the integer sums of each form over one chunk, at a head, a scale and a basis that the processor made."""
    draw, count = torch.Generator().manual_seed(2), min(1024, world.n)
    head = torch.randn(world.classes, world.d + 1, generator=draw) / 10
    public = world.public
    scale = carried(compute_preconditioner(head, public.x, world.y(1, len(public.x)), 0.1), device)
    anchors = compute_anchor_gradients(head, public.x[: 2 * world.classes], draw)
    basis = carried(compute_leading_subspace(anchors, world.classes, 1, draw), device)
    x, y, head = world.x(0, count).to(device), world.y(0, count).to(device), head.to(device)
    projected = quantise(exact_linear(x, head[:, :-1], head[:, -1]))
    right = quantise(x)
    outer = RankOne(residuals(exact_linear(right, head[:, :-1], head[:, -1]), y), right, bias=True)
    rest = Residual(outer, basis)
    asked: dict[str, Contribution | Blocks] = {
        "Scaled (adadps)": Scaled(outer, scale), "Blocks (gep)": Blocks((rest.embedding, rest)),
        "RankOne of float rows": RankOne(outer.left, x, bias=True), "Joined (networks)": Joined((x, outer.left)),
    }  # fmt: skip
    sums = {name: [block.clipped_sum(0.7).total.cpu() for block in wrap_blocks(form)] for name, form in asked.items()}
    return {"exact_linear and quantise": [part.cpu() for part in projected.parts], **sums}


def carried(thing: Any, device: torch.device) -> Any:
    """Return a public map, or what it is made of, with its tensors on another device and their bits as they are."""
    if isinstance(thing, Tensor):
        return thing.to(device)
    if isinstance(thing, QuantisedRows):
        return assemble_rows(*(part.to(device) for part in thing.parts))
    if isinstance(thing, FunctionType) and thing.__closure__:
        cells = tuple(CellType(carried(cell.cell_contents, device)) for cell in thing.__closure__)
        return FunctionType(thing.__code__, thing.__globals__, thing.__name__, thing.__defaults__, cells)
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        fields = (field.name for field in dataclasses.fields(thing) if field.init)
        return dataclasses.replace(thing, **{name: carried(getattr(thing, name), device) for name in fields})
    return thing
