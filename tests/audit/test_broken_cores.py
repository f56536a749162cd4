"""Cores that are broken on purpose are rejected by the audit; an honest one is not, whatever the seed."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dpbench.audit import auditing_curator
from dpbench.audit.audit_fit import audit_of
from dpbench.harness.prepare import PreparedRun
from dpbench.privacy import binding
from dpbench.privacy.core import plan as plans
from dpbench.privacy.core import randomness
from dpbench.privacy.core import sum as questions
from dpbench.privacy.core.exact import sums
from dpbench.privacy.core.exact.quantised import QuantisedRows
from dpbench.privacy.core.exact.sums import IntegerSum
from dpbench.privacy.core.forms import contributions
from dpbench.privacy.core.forms.contributions import RankOne
from dpbench.privacy.core.randomness import Draws, Randomness
from dpbench.privacy.core.sum import Sum
from dpbench.privacy.mechanisms.choice.parts import PartLosses
from dpbench.records.audit import Audit, Part
from dpbench.records.spec import make_spec
from tests.helpers.sessions import session

CANARIES = 4_000
SAMPLED = "dp-sgd:steps=12,sample_rate=0.3"
WHOLE = "dp-sgd:steps=12"
GEP = "gep:steps=6,k=20"
BROKEN: dict[str, tuple[str, Callable[[pytest.MonkeyPatch], None]]] = {}
Patch = pytest.MonkeyPatch
Seeded: Any = randomness._SeededDraws


@functools.cache
def prepared(learner: str) -> PreparedRun:
    values = {"learner": learner, "dataset": "digits", "public_labels": True, "seeds": 1}
    return session().prepare(make_spec(values, "a test"))


def audited(learner: str, seed: int = 0) -> Audit:
    return audit_of(prepared(learner), seed, CANARIES)


def broken(what: str, learner: str = WHOLE) -> Callable[[Callable[[Patch], None]], Callable[[Patch], None]]:
    def keep(patch: Callable[[Patch], None]) -> Callable[[Patch], None]:
        BROKEN[what] = learner, patch
        return patch

    return keep


def noise_by(patch: Patch, made: Callable[[Any, Sequence[int], Any], np.ndarray]) -> None:
    """Have research noise made otherwise, given the plain one."""
    plain = Seeded.noise
    patch.setattr(Seeded, "noise", lambda self, shape, std: made(functools.partial(plain, self), shape, std))


@broken("noise: half as large")
def _(patch: Patch) -> None:
    noise_by(patch, lambda plain, shape, std: plain(shape, np.asarray(std) / 2))


@broken("noise: five percent short")
def _(patch: Patch) -> None:
    noise_by(patch, lambda plain, shape, std: plain(shape, np.asarray(std) * 0.95))


@broken("noise: of the right size, and not normal")
def _(patch: Patch) -> None:
    def uniform(plain: Any, shape: Sequence[int], std: Any) -> np.ndarray:
        ranks = plain(shape, 2.0**40) / 2.0**40
        shares = np.vectorize(math.erf)(ranks / math.sqrt(2)) * math.sqrt(3)
        noise: np.ndarray = np.rint(shares * std).astype(np.int64)
        return noise

    noise_by(patch, uniform)


@broken("noise: sigma of the plan halved where it is bound")
def _(patch: Patch) -> None:
    plain = plans.sigmas
    patch.setattr(binding, "sigmas", lambda plan, sigma: plain(plan, sigma / 2))


@broken("noise: the same for every class")
def _(patch: Patch) -> None:
    noise_by(patch, lambda plain, shape, std: np.broadcast_to(plain(shape, std)[:1], shape).copy())


def keyed(patch: Patch, key: Callable[[Randomness, str, int], tuple[str, ...]]) -> None:
    """Derive noise from another key than that of the question; samples stay fresh."""
    plain = Randomness.draws

    def draws(self: Randomness, release: str, step: int) -> Draws:
        made: Any = plain(self, release, step)
        made._normals = randomness._stream((*key(self, release, step), "noise"))
        found: Draws = made
        return found

    patch.setattr(Randomness, "draws", draws)


@broken("noise: the same in every step")
def _(patch: Patch) -> None:
    keyed(patch, lambda self, release, step: (*(self.key or ()), release))


@broken("noise: from a generator that is seeded again every fourth step")
def _(patch: Patch) -> None:
    keyed(patch, lambda self, release, step: (*(self.key or ()), release, str(step % 4)))


@broken("noise: the same in every release", "dp-raft:steps=6,private_mean=true")
def _(patch: Patch) -> None:
    keyed(patch, lambda self, release, step: (*(self.key or ()), str(step)))


@broken("noise: whatever the seed is")
def _(patch: Patch) -> None:
    keyed(patch, lambda self, release, step: ("a generator of its own", release, str(step)))


@broken("noise: sqrt(2) forgotten where there are two blocks", GEP)
def _(patch: Patch) -> None:
    patch.setattr(questions, "math", SimpleNamespace(sqrt=lambda blocks: 1.0))


@broken("sums: divided by the size of the sample that was drawn", SAMPLED)
def _(patch: Patch) -> None:
    sizes: list[tuple[int, float]] = []
    plain_sample, plain_sum = Seeded.sample, Sum.compute_answer

    def sample(self: Any, size: int, rate: float) -> Any:
        drawn = plain_sample(self, size, rate)
        sizes.append((len(drawn), size * rate))
        return drawn

    def answered(self: Sum, *given: Any) -> Any:
        answer = plain_sum(self, *given)
        drawn, expected = sizes[-1]
        return answer * (expected / max(1, drawn)) if isinstance(answer, Tensor) else answer

    patch.setattr(Seeded, "sample", sample)
    patch.setattr(Sum, "compute_answer", answered)


def outer_by(patch: Patch, total: Callable[[Tensor, float], Tensor]) -> None:
    """Sum rank-one rows otherwise: `total` makes the sum of the dense rows (c, m, d) and the clip."""

    def integers(self: RankOne, clip: float, shares: Tensor | None = None) -> IntegerSum:
        grid = clip * 2.0**-20
        rows = self.columns()[0].T.double().unsqueeze(2) * self.quantised().double().unsqueeze(1)
        if self.bias:
            rows = torch.cat([rows, self.left.double().unsqueeze(2)], 2)
        rows = torch.where(rows.flatten(1).norm(dim=1).isfinite().reshape(-1, 1, 1), rows, 0.0)
        return IntegerSum((total(rows, clip) / grid).round().to(torch.int64), torch.tensor(grid, dtype=torch.float64))

    patch.setattr(contributions.RankOne, "integers", integers)


def _clipped(rows: Tensor, clip: float) -> Tensor:
    norms = rows.flatten(1).norm(dim=1).clamp(min=1e-300)
    weights: Tensor = (clip * (1 - 1e-3) / norms).clamp(max=1)
    return rows * weights.reshape(-1, 1, 1)


@broken("sums: rows are not clipped")
def _(patch: Patch) -> None:
    outer_by(patch, lambda rows, clip: rows.clamp(-1e6, 1e6).sum(0))


@broken("sums: clipped after they are taken")
def _(patch: Patch) -> None:
    outer_by(patch, lambda rows, clip: _clipped(rows.clamp(-1e6, 1e6).sum(0, keepdim=True), clip)[0])


@broken("sums: of averages over two rows")
def _(patch: Patch) -> None:
    def averaged(rows: Tensor, clip: float) -> Tensor:
        pairs = [part.mean(0) for part in torch.split(rows.clamp(-1e6, 1e6), 2)]
        return 2 * _clipped(torch.stack(pairs), clip).sum(0) if pairs else rows.sum(0)

    outer_by(patch, averaged)


@broken("sums: the clips of later blocks are ignored", GEP)
def _(patch: Patch) -> None:
    def integers(self: Sum, blocks: Sequence[Any], *given: Any) -> list[IntegerSum]:
        pairs = zip(blocks, self.clips, strict=True)
        return [block.integers(clip * (100 if place else 1)) for place, (block, clip) in enumerate(pairs)]

    patch.setattr(Sum, "_integers", integers)


@broken("sums: added up in float32")
def _(patch: Patch) -> None:
    plain = sums.rounded_outer_sum

    def rounded(left: Tensor, right: QuantisedRows, weights: Tensor, grids: sums.OuterGrids) -> IntegerSum:
        found = plain(left, right, weights, grids)
        return IntegerSum(found.total.float().to(torch.int64), found.grid)

    patch.setattr(sums, "rounded_outer_sum", rounded)


@broken("sums: chunks are added up in bfloat16", SAMPLED)
def _(patch: Patch) -> None:
    def added(self: IntegerSum, other: IntegerSum) -> IntegerSum:
        return IntegerSum((self.total.bfloat16() + other.total.bfloat16()).to(torch.int64), self.grid)

    patch.setattr(IntegerSum, "__add__", added)


@broken("samples: of a fixed size, by shuffling", SAMPLED)
def _(patch: Patch) -> None:
    def shuffled(size: int, rate: float, generator: np.random.Generator) -> np.ndarray:
        return np.sort(generator.permutation(size)[: round(size * rate)])

    patch.setattr(randomness, "poisson_sample", shuffled)


@broken("sums: what a row loses is added to two parts of a choice", "prototypes:groups=2")
def _(patch: Patch) -> None:
    plain = PartLosses.integers

    def integers(self: PartLosses, clip: float, shares: Tensor | None = None) -> IntegerSum:
        found = plain(self, clip, shares)
        by_part = found.total.reshape(self.parts, -1)
        return IntegerSum((by_part + by_part.roll(1, 0)).flatten(), found.grid)

    patch.setattr(PartLosses, "integers", integers)


@broken("samples: the same in every step", SAMPLED)
def _(patch: Patch) -> None:
    plain = Randomness.draws

    def draws(self: Randomness, release: str, step: int) -> Draws:
        made: Any = plain(self, release, step)
        made._shared = (*(self.key or ()), release)
        found: Draws = made
        return found

    patch.setattr(Randomness, "draws", draws)


@broken("samples: at a higher rate than planned", SAMPLED)
def _(patch: Patch) -> None:
    plain = Seeded.sample
    patch.setattr(Seeded, "sample", lambda self, size, rate: plain(self, size, min(1.0, 1.5 * rate)))


@pytest.fixture(autouse=True)
def fewer_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask two questions of a release again, the first among them: enough, and quick."""
    monkeypatch.setattr(auditing_curator, "QUESTIONS", 2)


@pytest.mark.long
@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_core_is_rejected(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    learner, patch = BROKEN[what]
    prepared(learner)
    patch(monkeypatch)
    found = audited(learner)
    assert not found.passed
    part: Part = "sensitivity" if what.startswith("sums") else "noise"
    assert found.part(part) is False, found.figures.failed


@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(5, 10))])
def test_an_honest_core_passes_whatever_the_seed(seed: int) -> None:
    learner = (WHOLE, SAMPLED, GEP, "adadps:steps=6", "class-means")[seed % 5]
    found = audited(learner, seed)
    assert found.passed, found.figures.failed
    assert all(found.part(part) for part in ("sensitivity", "noise", "attack"))
