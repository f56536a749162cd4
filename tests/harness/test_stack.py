"""Settings fitted together are those fitted one by one: same samples, each with its own clip, noise and ledger."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.jl import JL
from dpbench_plugins.learners.pillar import Pillar
from dpbench_plugins.learners.whitened import WhitenedProbe
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import dpbench
from dpbench.api import Chunk, Predict, PublicData, Release, Task
from dpbench.errors import NotPlanned, SpecError
from dpbench.harness.tuning.stack import StackedCurators, StackedOuterProducts
from dpbench.harness.tuning.together import CachingPublicMap, MappedRowsCache, fit_probes_together
from dpbench.harness.tuning.trials import make_weighted_curator
from dpbench.learning import defaults
from dpbench.learning.probes import ProbeLearner
from dpbench.privacy.binding import bind
from dpbench.privacy.core.ledger_curator import LedgerCurator
from dpbench.privacy.core.map import MapQuestion
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from tests.helpers.worlds import private_rows

WIDTH, CLASSES = 6, 3
PUBLIC = PublicData(private_rows(n=60, d=WIDTH, seed=9).x, None)
OWN = [(0.1, 0.9, 1.0, 3.0), (1.0, 0.0, 0.1, 0.5), (3.0, 0.5, 50.0, 0.02), (0.3, 0.9, 0.01, 20.0)]  # and sigma
BASES = [
    DPSGD(),
    DPSGD(scaling="norm", init="uniform"),
    DPSGD(optimiser="adam"),
    Pillar(k=4, init="uniform"),
    JL(k=3, init="uniform"),
    WhitenedProbe(k=4, distil=False, init="uniform"),
    WhitenedProbe(k=4),
]

pytestmark = pytest.mark.usefixtures("telling")


def probes(base: ProbeLearner, rate: float = 1.0) -> list[ProbeLearner]:
    base = dataclasses.replace(base, steps=6, sample_rate=rate)
    return [
        dataclasses.replace(base, learning_rate=speed, momentum=momentum, clip=clip) for speed, momentum, clip, _ in OWN
    ]


def curators(learners: Sequence[ProbeLearner], rows: PrivateRows, size: int, noise: float = 1.0) -> list[LedgerCurator]:
    task = Task(rows.example_shape, CLASSES, size, torch.device("cpu"))
    return [
        bind(rows, task, [learner.probe.release()], own[3] * noise, Randomness.tuning(3, "a test", 1, place))
        for place, (learner, own) in enumerate(zip(learners, OWN, strict=True))
    ]


def together(
    learners: Sequence[ProbeLearner],
    rows: PrivateRows,
    weight: float = 1.0,
    size: int = 0,
    maps: MappedRowsCache | None = None,
) -> list[Predict]:
    asked = curators(learners, rows, size or len(rows), 1 / weight)
    return fit_probes_together(
        learners, StackedCurators(tuple(asked), weight), PUBLIC, asked[0].randomness.initialisation, maps
    )


def alone(learners: Sequence[ProbeLearner], rows: PrivateRows, weight: float = 1.0) -> list[Predict]:
    fits = []
    asked = curators(learners, rows, len(rows), 1 / weight)
    for learner, curator, own in zip(learners, asked, OWN, strict=True):
        handle = (
            make_weighted_curator(curator, {"gradient": own[3]}, weight)
            if weight != 1
            else make_learner_curator(curator)
        )
        fits.append(learner.fit(handle, PUBLIC, curator.randomness.initialisation))
    return fits


def assert_same(found: Sequence[Predict], expected: Sequence[Predict]) -> None:
    x = private_rows(n=50, d=WIDTH, seed=5).x
    for predict, other in zip(found, expected, strict=True):
        scale = float(other(x).abs().max())
        torch.testing.assert_close(predict(x), other(x), rtol=1e-3, atol=1e-3 * scale)


@pytest.mark.quick(8)
@pytest.mark.parametrize("weight", [1.0, 7.5])
@pytest.mark.parametrize("rate", [0.3, 1.0])
@pytest.mark.parametrize("base", BASES, ids=lambda base: f"{base.name}-{base.init}")
def test_settings_fitted_together_are_those_fitted_alone(base: ProbeLearner, rate: float, weight: float) -> None:
    learners, rows = probes(base, rate), private_rows(n=90, d=WIDTH)
    fits = together(learners, rows, weight)
    assert_same(fits, alone(learners, rows, weight))
    x = private_rows(n=50, d=WIDTH, seed=5).x
    assert not torch.allclose(fits[0](x), fits[1](x), rtol=0.1)  # else settings could be mixed up unseen


@pytest.mark.parametrize("weight", [1.0, 7.5])
@pytest.mark.parametrize("rate", [0.3, 1.0])
def test_settings_of_fewer_steps_train_beside_those_that_go_on(rate: float, weight: float) -> None:
    pairs = zip(probes(Pillar(k=4, init="uniform"), rate), (2, 7, 2, 5), strict=True)
    learners, rows = [dataclasses.replace(pair, steps=steps) for pair, steps in pairs], private_rows(n=90, d=WIDTH)
    assert len({learner.shared for learner in learners}) == 1
    x = private_rows(n=50, d=WIDTH, seed=5).x
    for model, other in zip(together(learners, rows, weight), alone(learners, rows, weight), strict=True):
        torch.testing.assert_close(model(x), other(x), rtol=1e-5, atol=1e-6 * float(other(x).abs().max()))


def test_rows_that_one_group_has_mapped_serve_the_next_group_of_the_same_map(monkeypatch: pytest.MonkeyPatch) -> None:
    maps, rows, mapped = MappedRowsCache(), private_rows(n=90, d=WIDTH), list[int]()
    honest = MapQuestion.compute_answer

    def counted(self: MapQuestion, curator: LedgerCurator, spent: Sequence[Any]) -> LedgerCurator:
        mapped.append(len(curator.rows))
        return honest(self, curator, spent)

    monkeypatch.setattr(MapQuestion, "compute_answer", counted)
    for base, rate in ((Pillar(k=4), 0.3), (Pillar(k=4), 1.0), (Pillar(k=3), 1.0)):
        together(probes(base, rate), rows, maps=maps)
    assert mapped == [90, 90]
    assert_same(together(probes(Pillar(k=3)), rows, maps=maps), alone(probes(Pillar(k=3)), rows))


def test_public_rows_are_mapped_once_for_all_settings_and_a_copy_written_to_reaches_no_other() -> None:
    asked, x = list[int](), PUBLIC.x.clone()

    def doubled(rows: Tensor) -> Tensor:
        asked.append(len(rows))
        return rows * 2

    shown = CachingPublicMap(doubled, x)
    shown(x).zero_()
    assert torch.equal(shown(x), x * 2)
    assert torch.equal(shown(x[:3]), x[:3] * 2)
    assert asked == [len(x)]
    for other in (x[1:], x.clone(), x[:, :2]):
        assert torch.equal(shown(other), other * 2)
    assert len(asked) == 4


@pytest.mark.quick(1)
@pytest.mark.parametrize("base", BASES, ids=lambda base: f"{base.name}-{base.init}")
def test_a_map_made_for_other_settings_serves_these_too(base: ProbeLearner) -> None:
    maps, rows = MappedRowsCache(), private_rows(n=90, d=WIDTH)
    for rate in (0.3, 1.0):
        learners = probes(base, rate)
        assert_same(together(learners, rows, maps=maps), alone(learners, rows))


@pytest.mark.parametrize("base", [DPSGD(), Pillar(k=4), WhitenedProbe(k=4)])
def test_a_setting_that_diverges_does_not_disturb_the_others(
    base: ProbeLearner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(defaults, "MAX_TRAVEL_PER_STEP", math.inf)  # such a rate is refused
    learners, rows = probes(base), private_rows(n=90, d=WIDTH)
    learners[3] = dataclasses.replace(learners[3], learning_rate=3e38, clip=1e4)  # and sigma 20
    fits = together(learners, rows)
    assert not bool(fits.pop()(rows.x).isfinite().all())
    assert_same(fits, alone(probes(base), rows)[:3])


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e30])
@pytest.mark.parametrize("base", [DPSGD(), Pillar(k=4)])
def test_a_row_that_is_not_finite_counts_as_no_row(base: ProbeLearner, value: float) -> None:
    rows, learners = private_rows(n=90, d=WIDTH), probes(base)
    spoilt = PrivateRows(
        torch.cat([rows.x, torch.full((1, WIDTH), value)]), torch.cat([rows.y, rows.y[:1]]), torch.arange(91)
    )
    assert_same(together(learners, spoilt, size=90), together(learners, rows))


def test_a_row_that_is_not_finite_under_one_setting_counts_under_the_others() -> None:
    left = torch.ones(2, 3, 4)
    left[0, 1, 2] = math.nan
    sums = StackedOuterProducts(left, torch.ones(4, 5)).clipped_sum((8.0, 8.0)).value()
    torch.testing.assert_close(sums[:, 0, 0], torch.tensor([3.0, 4.0]).double(), rtol=1e-3, atol=0)


def dense(stacked: StackedOuterProducts) -> Tensor:
    """Return the contributions themselves in float64, (s, c, m, d + 1)."""
    right = torch.nn.functional.pad(stacked.right.double(), (0, 1), value=1.0)
    return stacked.left.double().movedim(2, 1).unsqueeze(3) * right.unsqueeze(1)


@st.composite
def stackeds(draw: st.DrawFn, exponents: tuple[int, int] = (-3, 3)) -> StackedOuterProducts:
    s, m, c, d = (draw(st.integers(1, most)) for most in (4, 5, 8, 40))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 2**32 - 1)))
    scales = st.integers(*exponents).map(lambda power: 10.0**power)
    return StackedOuterProducts(
        torch.randn(s, m, c, generator=generator) * draw(scales), torch.randn(c, d, generator=generator) * draw(scales)
    )


@given(stackeds(), st.floats(1e-3, 1e3))
def test_clipped_sums_are_those_of_the_rows_themselves(stacked: StackedOuterProducts, clip: float) -> None:
    clips = clip * torch.logspace(0, 1, len(stacked.left), dtype=torch.float64)
    rows = dense(stacked)
    weights = (clips.unsqueeze(1) / rows.flatten(2).norm(dim=2)).clamp(max=1)  # (s, c)
    expected = torch.einsum("sc,scmd->smd", weights, rows)
    found = stacked.clipped_sum(tuple(clips.tolist())).value()
    largest = (weights[..., None, None] * rows).flatten(2).norm(dim=2).sum(1)  # (s,)
    assert bool(((found - expected).flatten(1).norm(dim=1) <= 0.02 * largest + 2e-3 * clips).all())


def noise_of(sigmas: Sequence[float], clips: Sequence[float], seed: int = 0, steps: int = 1) -> list[np.ndarray]:
    """Return each setting's answers to rows of zeros, one after another, divided by sigma times clip."""
    rows, plan = private_rows(n=4, d=2), [Release("gradient", steps)]
    task = Task((2,), 1, 4, torch.device("cpu"))
    members = tuple(
        bind(rows, task, plan, sigma, Randomness.tuning(seed, "a test", 0, place)) for place, sigma in enumerate(sigmas)
    )

    def zeros(chunk: Chunk) -> StackedOuterProducts:
        return StackedOuterProducts(torch.zeros(len(sigmas), 1, len(chunk)), torch.zeros(len(chunk), 19_999))

    answers = [StackedCurators(members).noisy_sums(zeros, release="gradient", clips=clips) for _ in range(steps)]
    return [answer[j].flatten().double().numpy() for answer in answers for j in range(len(sigmas))]


def test_each_setting_gets_normal_noise_of_its_own_sigma_times_its_own_clip() -> None:
    sigmas, clips = (1.0, 3.0, 0.2), (0.5, 2.0, 10.0)
    for noise, sigma, clip in zip(noise_of(sigmas, clips), sigmas, clips, strict=True):
        assert noise.std() == pytest.approx(sigma * clip, rel=5 / math.sqrt(4e4))
        assert stats.kstest(noise / (sigma * clip), "norm").pvalue > 1e-3


def test_noise_is_independent_across_settings_steps_and_seeds() -> None:
    columns = [*noise_of((1.0,) * 4, (1.0,) * 4, steps=2), *noise_of((1.0,) * 4, (1.0,) * 4, seed=1, steps=2)]
    correlations = np.corrcoef(columns)[np.triu_indices(len(columns), 1)]
    assert np.abs(correlations).max() < 5 / math.sqrt(20_000)


def ones(chunk: Chunk) -> StackedOuterProducts:
    return StackedOuterProducts(torch.ones(4, 1, len(chunk)), chunk.x)


def test_every_ledger_is_spent_and_none_is_spent_beyond_its_plan() -> None:
    learners = probes(DPSGD())
    stack = StackedCurators(tuple(curators(learners, private_rows(d=WIDTH), 40)))
    with pytest.raises(ZeroDivisionError):
        stack.noisy_sums(lambda chunk: 1 / 0, release="gradient", clips=[1.0] * 4)  # type: ignore[arg-type,return-value]
    assert [curator.ledger.spent for curator in stack.curators] == [{"gradient": 1}] * 4  # before anything is read
    stack = StackedCurators(tuple(curators(learners, private_rows(d=WIDTH), 40)))
    fit_probes_together(learners, stack, PUBLIC, torch.Generator())
    assert [curator.ledger.spent for curator in stack.curators] == [{"gradient": 6}] * 4
    for asked in (stack, stack.map(lambda x: x[:, :2])):
        with pytest.raises(NotPlanned, match="All 6 planned steps of release 'gradient' are spent"):
            asked.noisy_sums(ones, release="gradient", clips=[1.0] * 4)
    with pytest.raises(NotPlanned, match="'other' is not in the plan"):
        stack.noisy_sums(ones, release="other", clips=[1.0] * 4)


@pytest.mark.parametrize("magnitude", [1e-30, 1e-8, 1.0, 1e8, 1e15, 1e30, math.nan, math.inf])
@pytest.mark.parametrize("label", range(CLASSES))
def test_one_row_moves_each_settings_sum_by_at_most_its_clip(magnitude: float, label: int) -> None:
    rows, clips = private_rows(n=30, d=WIDTH), [own[2] for own in OWN]
    draw = torch.Generator().manual_seed(label)
    heads, evil = torch.randn(4, CLASSES, WIDTH, generator=draw), torch.randn(1, WIDTH, generator=draw) * magnitude
    joined = PrivateRows(torch.cat([rows.x, evil]), torch.cat([rows.y, torch.tensor([label])]), torch.arange(31))

    def gradient(chunk: Chunk) -> StackedOuterProducts:
        shares = torch.einsum("skd,cd->skc", heads, chunk.x).softmax(1)
        return StackedOuterProducts(shares - torch.nn.functional.one_hot(chunk.y, CLASSES).T, chunk.x)

    without, with_it = (
        StackedCurators(tuple(curators(probes(DPSGD()), world, 30, noise=0.0)))
        .noisy_sums(gradient, release="gradient", clips=clips)
        .double()
        for world in (rows, joined)
    )
    for moved, clip, total in zip((with_it - without).flatten(1).norm(dim=1), clips, without, strict=True):
        assert float(moved) <= clip * (1 + 1e-5) + 1e-6 * float(total.norm())  # the sum itself is float32


@pytest.mark.parametrize("clip", [0.0, -1.0, 2e9, math.nan, math.inf])
def test_a_clip_that_a_curator_refuses_is_refused_by_a_stack_too(clip: float) -> None:
    stack = StackedCurators(tuple(curators(probes(DPSGD()), private_rows(d=WIDTH), 40)))
    with pytest.raises(SpecError, match="Expected clip="):
        stack.noisy_sums(ones, release="gradient", clips=[1.0, clip, 1.0, 1.0])


@pytest.mark.parametrize("change", [{"sample_rate": 0.5}, {"init": "uniform"}, {"k": 5}, {"scaling": "none"}])
def test_settings_of_other_features_or_samples_do_not_train_together(change: dict[str, object]) -> None:
    assert dataclasses.replace(Pillar(), **change).shared != Pillar().shared  # type: ignore[arg-type]
    assert JL().shared != Pillar().shared


def test_a_stack_serves_searches_alone() -> None:
    root = Path(dpbench.__file__).parent
    users = [file for file in root.rglob("*.py") if re.search(r"\bStackedCurators\(", file.read_text())]
    assert [file.relative_to(root).as_posix() for file in users] == ["harness/tuning/trials.py"]
