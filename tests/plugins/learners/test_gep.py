"""GEP: its subspace is that of the anchors, it loses nothing without noise, and it never holds a batch of gradients."""

from __future__ import annotations

import contextlib
import dataclasses
import math
from typing import Any

import pytest
import torch
from dpbench_plugins.learners import gep as dpbench_gep
from dpbench_plugins.learners.dp_sgd import DPSGD
from dpbench_plugins.learners.gep import GEP, compute_anchor_gradients, compute_leading_subspace
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench import AnchorBasis, Budget, DenseBasis, Learner, PublicData, RankOne, Task, quantise
from dpbench.privacy.core.forms.residual.bases import Basis
from dpbench.testing.curators import WatchingProxy
from tests.cli.test_cli import refusal
from tests.helpers.worlds import curator_over, private_rows

BUDGET = Budget(math.inf, 1e-5)


def _draw(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def _anchors(s: int, m: int, d: int, seed: int, decay: float = 0.7) -> RankOne:
    """Return gradients of public examples whose features vary less and less."""
    features = torch.randn(s, d, generator=_draw(seed)) * decay ** torch.arange(d)
    return compute_anchor_gradients(torch.zeros(m, d + 1), features, _draw(seed + 1))


def _dense(anchors: RankOne) -> Tensor:
    return RankOne(anchors.left.double(), anchors.right.double(), bias=True).dense().flatten(1)


def _vectors(basis: Basis) -> Tensor:
    """Return the basis written out, (m (d + 1), k) float64."""
    if isinstance(basis, DenseBasis):
        return basis.vectors.double().flatten(0, 1)
    assert isinstance(basis, AnchorBasis)
    return _dense(basis.anchors).T @ basis.mixing.double()


def _energy(vectors: Tensor, rows: Tensor) -> float:
    return float((rows @ vectors).square().sum())


SHAPES = pytest.mark.parametrize(
    ("s", "m", "d", "k", "form"), [(6, 4, 40, 3, AnchorBasis), (30, 3, 8, 5, DenseBasis), (12, 10, 20, 12, AnchorBasis)]
)


@SHAPES
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("iterations", [1, 3])
def test_a_subspace_is_orthonormal_and_lies_in_the_span_of_the_anchors(
    s: int, m: int, d: int, k: int, form: type[Basis], seed: int, iterations: int
) -> None:
    anchors = _anchors(s, m, d, seed)
    basis = compute_leading_subspace(anchors, k, iterations, _draw(seed))
    vectors, rows = _vectors(basis), _dense(anchors)
    assert 1 <= basis.k == vectors.shape[1] <= k
    torch.testing.assert_close(vectors.T @ vectors, torch.eye(basis.k).double(), rtol=0, atol=1e-4)
    span = torch.linalg.svd(rows, full_matrices=False)[2].T  # (p, s)
    torch.testing.assert_close(span @ (span.T @ vectors), vectors, rtol=0, atol=1e-4)
    assert type(basis) is form


@SHAPES
@pytest.mark.parametrize("seed", range(4))
def test_a_subspace_holds_at_least_the_energy_of_random_directions(
    s: int, m: int, d: int, k: int, form: type[Basis], seed: int
) -> None:
    anchors = _anchors(s, m, d, seed)
    rows = _dense(anchors)
    energies = [
        _energy(_vectors(compute_leading_subspace(anchors, k, count, _draw(seed))), rows) for count in (1, 5, 25)
    ]
    for other in range(10):
        mixed = torch.randn(min(k, s), s, generator=_draw(100 + other)).double() @ rows
        assert _energy(torch.linalg.qr(mixed.T).Q, rows) <= energies[0] * (1 + 1e-3)  # dropped directions are faint
    assert energies[0] <= energies[1] * (1 + 1e-6) <= energies[2] * (1 + 1e-5)  # each iteration gains


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("s", "m", "d", "k"), [(8, 4, 40, 3), (30, 3, 8, 5)])
def test_many_power_iterations_give_the_leading_eigenvectors(s: int, m: int, d: int, k: int, seed: int) -> None:
    anchors = _anchors(s, m, d, seed)
    exact = torch.linalg.svd(_dense(anchors), full_matrices=False)[2][:k].T
    cosines = torch.linalg.svdvals(exact.T @ _vectors(compute_leading_subspace(anchors, k, 2000, _draw(seed))))
    torch.testing.assert_close(cosines, torch.ones(k).double(), rtol=0, atol=1e-5)  # of the principal angles


@pytest.mark.parametrize(("m", "d"), [(4, 40), (3, 2)])
def test_anchors_of_low_rank_give_fewer_directions(m: int, d: int) -> None:
    few = _anchors(3, m, d, 0)
    basis = compute_leading_subspace(few.take(torch.arange(12) % 3), 8, 1, _draw(0))
    assert basis.k == 3
    assert bool(_vectors(basis).isfinite().all())


@pytest.mark.parametrize("s", [2, 5, 11, 40])
@pytest.mark.parametrize(("m", "d", "k"), [(2, 3, 2), (3, 30, 5), (10, 64, 20)])
def test_the_form_with_the_cheaper_embedding_is_made(s: int, m: int, d: int, k: int) -> None:
    basis = compute_leading_subspace(_anchors(s, m, d, 1, decay=1.0), min(k, s), 1, _draw(1))
    by_anchors, whole = s * (m + d + 1 + basis.k), m * (d + 1) * basis.k  # multiplications a row
    assert type(basis) is (AnchorBasis if by_anchors < whole else DenseBasis)


def _fitted(learner: Learner) -> Tensor:
    """Return the logits of a fit without noise on rows that it did not see."""
    rows, public = private_rows(n=60, d=8, seed=1), private_rows(n=50, d=8, seed=2).x
    curator = curator_over(rows, learner.plan(Task((8,), 3, 60, torch.device("cpu")), BUDGET))
    predict = learner.fit(curator.handle(), PublicData(public, None), _draw(5))
    return predict(private_rows(n=20, d=8, seed=3).x)


SMALL = GEP(k=4, anchors=9, refresh=3, steps=12, learning_rate=0.7, clip=20.0, residual_ratio=1.0)


@pytest.mark.quick(2)
@pytest.mark.parametrize("anchors", [4, 9, 27])
@pytest.mark.parametrize("sample_rate", [1.0, 0.4])
def test_without_noise_and_clipping_embedding_and_residual_are_the_gradient(anchors: int, sample_rate: float) -> None:
    ours = dataclasses.replace(SMALL, anchors=anchors, sample_rate=sample_rate)
    theirs = DPSGD(steps=12, learning_rate=0.7, clip=20.0, sample_rate=sample_rate)
    torch.testing.assert_close(_fitted(ours), _fitted(theirs), rtol=0, atol=3e-2)


@pytest.mark.parametrize("anchors", [4, 27])
def test_without_the_residual_the_gradient_is_projected_on_the_basis(
    anchors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    bases: list[Tensor] = []

    def recorded(*arguments: Any) -> Basis:
        basis = compute_leading_subspace(*arguments)
        bases.append(_vectors(basis))
        return basis

    monkeypatch.setattr(dpbench_gep, "compute_leading_subspace", recorded)
    found = _fitted(dataclasses.replace(SMALL, anchors=anchors, residual=False))
    rows, public = private_rows(n=60, d=8, seed=1), private_rows(n=50, d=8, seed=2).x

    def scale(x: Tensor) -> Tensor:
        return ((x - public.mean(0)) / public.std(0, correction=0)).double()

    kept = quantise(scale(rows.x).float()).double()
    head, velocity = torch.zeros(3, 9).double(), torch.zeros(3, 9).double()
    for step in range(12):
        variable = head.clone().requires_grad_()
        loss = torch.nn.functional.cross_entropy(kept @ variable[:, :-1].T + variable[:, -1], rows.y)
        gradient, vectors = torch.autograd.grad(loss, variable)[0].flatten(), bases[step // 3]
        velocity = 0.9 * velocity + (vectors @ (vectors.T @ gradient)).reshape(3, 9)
        head = head - 0.7 * velocity
    assert len(bases) == 4
    expected = scale(private_rows(n=20, d=8, seed=3).x) @ head[:, :-1].T + head[:, -1]
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=1e-2)


@pytest.mark.quick(1)
@pytest.mark.parametrize("residual", [True, False])
def test_noise_on_each_part_is_for_the_norm_of_all_parts_together(residual: bool) -> None:
    """Nobody is sampled, so answers are noise alone."""
    sigma, clip, ratio = 3.0, 0.5, 0.2
    learner = GEP(k=20, anchors=40, steps=100, refresh=100, sample_rate=1e-9, learning_rate=1e-12, clip=clip)
    learner = dataclasses.replace(learner, residual=residual, residual_ratio=ratio)
    rows = private_rows(n=50, d=30)
    watcher = WatchingProxy(
        curator_over(rows, learner.plan(Task((30,), 3, 50, torch.device("cpu")), BUDGET), sigma).curator
    )
    learner.fit(watcher.handle(), PublicData(private_rows(n=50, d=30, seed=1).x, None), _draw(0))
    answers = [answer if residual else (answer,) for answer in watcher.log.answers]
    assert len(answers) == 100
    for part, bound in enumerate((clip, ratio * clip)[: 1 + residual]):
        noise = torch.stack([answer[part] for answer in answers]).double()
        expected = sigma * math.sqrt(1 + residual) * bound
        assert float(noise.std()) == pytest.approx(expected, rel=4 / math.sqrt(2 * noise.numel()))
        assert abs(float(noise.mean())) < 4 * expected / math.sqrt(noise.numel())


class Largest(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the size of the largest storage that any operation gives back, in numbers of four bytes."""

    numel = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        answer = function(*args, **(kwargs or {}))
        for part in answer if isinstance(answer, (tuple, list)) else [answer]:
            if isinstance(part, Tensor):
                self.numel = max(self.numel, part.untyped_storage().nbytes() // 4)
        return answer


@pytest.mark.parametrize(("anchors", "form"), [(20, AnchorBasis), (200, DenseBasis)])
def test_nothing_as_large_as_a_batch_of_gradients_is_ever_made(
    anchors: int, form: type[Basis], monkeypatch: pytest.MonkeyPatch
) -> None:
    n, d, classes, k = 2000, 64, 10, 10
    monkeypatch.setattr("torch.utils._python_dispatch._disable_current_modes", contextlib.nullcontext)  # to look inside
    made: list[Basis] = []

    def recorded(*given: Any) -> Basis:
        made.append(compute_leading_subspace(*given))
        return made[-1]

    monkeypatch.setattr(dpbench_gep, "compute_leading_subspace", recorded)
    learner = GEP(k=k, anchors=anchors, steps=2, learning_rate=0.1)
    rows, public = private_rows(n, d, classes), private_rows(300, d, classes, seed=1)
    curator = curator_over(rows, learner.plan(Task((d,), classes, n, rows.x.device), BUDGET), 1.0, classes)
    with Largest() as largest:  # type: ignore[no-untyped-call]
        learner.fit(curator.handle(), PublicData(public.x, None), _draw(0))
    assert [type(basis) for basis in made] == [form]
    assert n * d <= largest.numel <= 1.5 * n * d < n * classes * (d + 1) / 5  # the chunk of features itself


def test_the_length_of_a_chunk_changes_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, public = private_rows(5000, 8), private_rows(100, 8, seed=1)
    heads = []
    for held in (1, dpbench_gep.HELD):
        monkeypatch.setattr(dpbench_gep, "HELD", held)
        watcher = WatchingProxy(curator_over(rows, SMALL.plan(Task((8,), 3, 5000, rows.x.device), BUDGET), 1.0).curator)
        heads.append(SMALL.fit(watcher.handle(), PublicData(public.x, None), _draw(0))(public.x))
    assert torch.equal(*heads)


@pytest.mark.quick(1)
@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("k=300", "Expected k=300 <= anchors=144 <= 144 in learner 'gep': there are 144 public examples"),
        ("k=30,anchors=20", "Expected k=30 in 1..anchors=20 in learner 'gep': that many public gradients span no more"),
        ("k=10,anchors=150", "Expected k=10 <= anchors=150 <= 144 in learner 'gep': there are 144 public examples"),
        ("k=10,anchors=700 --public-fraction 0.6", "Expected k=10 <= anchors=700 <= 650 in learner 'gep'"),
    ],
)
def test_a_subspace_that_cannot_be_is_refused_in_one_line(capsys: Any, tmp_path: Any, options: str, said: str) -> None:
    arguments = f"run --device cpu --seeds 1 --epsilon inf --out {tmp_path} --learner gep:{options}".split()
    message = refusal(capsys, *arguments)
    assert said in message
    assert "Set gep:k=..." in message


def test_a_public_share_counts_all_training_examples_and_cuts_k_to_them() -> None:
    features, task = torch.arange(100.0).reshape(100, 1).repeat(1, 4), Task((4,), 3, 900, torch.device("cpu"))
    learner = GEP(k=50, public_share=0.01)
    assert len(learner._choose_anchors(features, task, _draw(0))) == 10
    assert len(GEP(k=10)._choose_anchors(features, task, _draw(0))) == 15  # as many as there are parameters
    rows = private_rows(n=900, d=4)
    settled = dataclasses.replace(learner, steps=2).settle(task, BUDGET)
    public = PublicData(torch.randn(100, 4, generator=_draw(1)), None)
    curator = curator_over(rows, settled.plan(task, BUDGET), sigma=0.0)
    assert settled.fit(curator.handle(), public, _draw(2))(public.x).shape[0] == 100
