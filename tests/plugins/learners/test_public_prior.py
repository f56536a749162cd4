"""Public prior: it starts from the public head, leaves it as far as the noise allows, and asks for labels."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from dpbench_plugins.learners.coordinates import ROWS
from dpbench_plugins.learners.public_only import PublicOnly
from dpbench_plugins.learners.public_prior import PublicPrior, PublicTail, fit_kernel_head
from dpbench_plugins.learners.spectrum import compute_spectrum
from dpbench_plugins.learners.thrift import Thrift
from safetensors.torch import save_file
from torch import Tensor

from dpbench import (
    Budget,
    DataError,
    DataMissing,
    DpbenchError,
    GaussianPrior,
    LinearProbe,
    PublicData,
    SpecError,
    Task,
)
from dpbench.privacy.binding import bind
from dpbench.privacy.core.randomness import Randomness
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.curator import make_learner_curator
from tests.helpers.worlds import curator_over, private_rows
from tests.plugins.learners.test_thrift import clusters

BUDGET = Budget(1.0, 1e-6)
COUNTS = (500, 500, 500, 500)


def fitted(
    learner: PublicPrior | PublicOnly | Thrift, sigma: float, labels: tuple[int, ...] = (15, 15, 15, 15)
) -> tuple[float, Tensor]:
    """Return the accuracy on fresh rows and their scores, with a noise multiplier of one release, or of each step."""
    (x, y), (fresh, expected) = clusters(COUNTS, apart=1.5), clusters(COUNTS, seed=2, apart=1.5)
    public = PublicData(*clusters(labels, seed=1, apart=1.5))
    task = Task((12,), len(COUNTS), len(x), torch.device("cpu"), public=sum(labels))
    settled = learner.settle(task, BUDGET)
    curator = curator_over(PrivateRows(x, y, torch.arange(len(x))), settled.plan(task, BUDGET), sigma, len(COUNTS))
    scores = settled.fit(curator.handle(), public, torch.Generator().manual_seed(0))(fresh)
    return float((scores.argmax(1) == expected).double().mean()), scores


def test_without_noise_it_learns_what_few_public_labels_do_not_say() -> None:
    private, _ = fitted(PublicPrior(graph=0.0), 0.0)
    alone, _ = fitted(PublicOnly(), 0.0)
    assert private > alone + 0.03


def test_where_noise_is_large_the_public_head_stands() -> None:
    sigma = 1e5
    learner = PublicPrior(graph=0.0)
    found, scores = fitted(learner, sigma)
    public = clusters((15, 15, 15, 15), seed=1, apart=1.5)
    alone = fit_kernel_head(compute_spectrum(public[0]), *public, len(COUNTS), learner.ridge)
    expected, labels = clusters(COUNTS, seed=2, apart=1.5)
    assert found == pytest.approx(float((alone(expected).argmax(1) == labels).double().mean()), abs=0.01)
    torch.testing.assert_close(scores, alone(expected), atol=0.3, rtol=0.1)
    assert fitted(Thrift(graph=0.0), sigma)[0] < found - 0.2


def test_a_stronger_prior_stays_nearer_to_the_public_head() -> None:
    public = clusters((15, 15, 15, 15), seed=1, apart=1.5)
    alone = fit_kernel_head(compute_spectrum(public[0]), *public, len(COUNTS), PublicPrior().ridge)
    expected = alone(clusters(COUNTS, seed=2, apart=1.5)[0])
    away = [
        float((fitted(PublicPrior(strength=by, graph=0.0), 100.0)[1] - expected).norm()) for by in (1.0, 10.0, 100.0)
    ]
    assert away == sorted(away, reverse=True)
    assert away[-1] < 0.5 * away[0]


def test_private_examples_raise_a_class_without_a_public_label_where_it_is() -> None:
    _, scores = fitted(PublicPrior(graph=0.0), 0.0, labels=(20, 20, 20, 0))
    own = clusters(COUNTS, seed=2, apart=1.5)[1] == 3
    chances = scores.softmax(1)[:, 3]
    assert float(chances[own].mean()) > 2 * float(chances[~own].mean()) > 0
    assert float(chances[own].mean()) > 10 / 120  # ten times what the public head starts it with


@pytest.mark.parametrize("metric", ["accuracy", "balanced_accuracy"])
@pytest.mark.parametrize("learner", [PublicPrior(), PublicOnly(), Thrift()])
def test_a_class_of_one_example_and_a_class_of_none_are_a_result(
    learner: PublicPrior | PublicOnly | Thrift, metric: Any
) -> None:
    public, (x, y) = PublicData(*clusters((20, 20, 1, 0), seed=1)), clusters((200, 200, 1, 0))
    task = Task((12,), 4, len(x), torch.device("cpu"), public=len(public.x), metric=metric)
    settled = learner.settle(task, BUDGET)
    rows, draws = PrivateRows(x, y, torch.arange(len(x))), Randomness.research(0, "a test")
    curator = make_learner_curator(bind(rows, task, settled.plan(task, BUDGET), 1.0, draws))
    fresh, expected = clusters((200, 200, 0, 0), seed=2)
    scores = settled.fit(curator, public, torch.Generator().manual_seed(0))(fresh)
    assert bool(scores.isfinite().all())
    assert float((scores[:, :2].argmax(1) == expected).double().mean()) > 0.75


def test_scores_of_unseen_rows_are_those_of_a_head_that_was_fitted_without_them() -> None:
    x, y = clusters((20, 20, 20), d=30)
    spectral = compute_spectrum(x)  # of all rows: what is left out is a row's label
    found = fit_kernel_head(spectral, x, y, 3, 0.3).unseen
    for row in (0, 31, 59):
        rest = torch.arange(len(x)) != row
        without = fit_kernel_head(spectral, x[rest], y[rest], 3, 0.3)(x[row : row + 1])
        directions = torch.stack([found[row], without[0]]).double()
        assert float(torch.corrcoef(directions)[0, 1]) > 0.999  # but for the labels' mean


def test_a_head_of_all_axes_is_the_kernels() -> None:
    x, y = clusters((30, 30, 30), d=20)
    spectral, (fresh, _) = compute_spectrum(x), clusters((5, 5, 5), seed=3, d=20)
    head = fit_kernel_head(spectral, x, y, 3, 0.3)
    rows, others = head.place(x).double(), head.place(fresh).double()
    labels = torch.nn.functional.one_hot(y).double()
    solved = torch.linalg.solve((1 + rows @ rows.T).square() / 4 + 0.3 * torch.eye(len(x)), labels - labels.mean(0))
    expected = (1 + others @ rows.T).square() / 4 @ solved
    found = head(fresh).double()
    torch.testing.assert_close(found / found.norm(), expected / expected.norm(), atol=1e-4, rtol=1e-3)


def test_more_labels_than_one_kernel_holds_are_dealt_into_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpbench_plugins.learners.public_prior.ROWS", 40)
    assert ROWS > 40
    x, y = clusters((60, 60))
    fresh, expected = clusters((60, 60), seed=2)
    head = fit_kernel_head(compute_spectrum(x), x, y, 2, 0.3)
    assert float((head(fresh).argmax(1) == expected).double().mean()) > 0.8
    assert float((head.unseen.argmax(1) == y).double().mean()) > 0.8


@pytest.mark.slow
def test_it_aims_for_balanced_accuracy_where_the_protocol_does() -> None:
    counts = (900, 60, 40)
    (x, y), (fresh, expected) = clusters(counts, apart=1.0), clusters((300, 300, 300), seed=2, apart=1.0)
    public = PublicData(*clusters(counts, seed=1, apart=1.0))
    balanced = {}
    for metric in ("accuracy", "balanced_accuracy"):
        task = Task((12,), 3, len(x), torch.device("cpu"), public=len(public.x), metric=metric)
        settled = PublicPrior().settle(task, BUDGET)
        rows, draws = PrivateRows(x, y, torch.arange(len(x))), Randomness.research(0, "a test")
        curator = make_learner_curator(bind(rows, task, settled.plan(task, BUDGET), 0.0, draws))
        scores = settled.fit(curator, public, torch.Generator().manual_seed(0))(fresh)
        balanced[metric] = float((scores.argmax(1) == expected).double().mean())
    assert balanced["balanced_accuracy"] > balanced["accuracy"] + 0.03


@pytest.mark.parametrize("learner", [PublicPrior(), PublicOnly()])
@pytest.mark.parametrize(
    ("labels", "said"), [(None, "--public-labels"), (torch.full((60,), 2), "all 60 are of class 2")]
)
def test_public_labels_of_two_classes_are_asked_for(
    learner: PublicPrior | PublicOnly, labels: Tensor | None, said: str
) -> None:
    rows = private_rows(n=60, d=6)
    task = Task((6,), 3, 60, torch.device("cpu"), public=60)
    settled = learner.settle(task, BUDGET)
    with pytest.raises(SpecError, match=f"{learner.name}.*{said}"):
        settled.fit(
            curator_over(rows, settled.plan(task, BUDGET)).handle(), PublicData(rows.x, labels), torch.Generator()
        )


def test_what_follows_from_the_budget_is_as_in_thrift() -> None:
    task = Task((1280,), 10, 45_000, torch.device("cpu"), public=5_000)
    for epsilon in (0.03, 1.0, math.inf):
        budget = Budget(epsilon, 1e-6)
        assert PublicPrior().auto(task, budget) == Thrift().auto(task, budget)


def test_training_with_a_prior_reaches_the_minimum_of_loss_and_prior() -> None:
    rows = private_rows(n=80, d=4, classes=3)
    draw = torch.Generator().manual_seed(0)
    mean, precision = torch.randn(3, 5, generator=draw), torch.tensor([1.0, 10.0, 100.0, math.inf, 5.0])
    probe = LinearProbe(steps=400, sample_rate=1.0, learning_rate=0.5, momentum=0.0, clip=100.0)
    handle = curator_over(rows, [probe.release()], classes=3).handle()
    head = probe.descend(handle.map(lambda x: x), draw, prior=GaussianPrior(mean, precision))
    torch.testing.assert_close(head[:, 3], mean[:, 3], rtol=0, atol=0)

    free = head.clone().requires_grad_()
    loss = torch.nn.functional.cross_entropy(rows.x @ free[:, :-1].T + free[:, -1], rows.y, reduction="sum")
    finite = precision.where(precision.isfinite(), 0.0)
    (loss + 0.5 * (finite * (free - mean).square()).sum()).backward()  # type: ignore[no-untyped-call]
    assert free.grad is not None
    assert float(free.grad[:, precision.isfinite()].abs().max()) < 1.0  # of 80 examples; what 8 bits of a row leave


class TestPriorFiles:
    """Heads that were made elsewhere."""

    @staticmethod
    def _write(folder: Path, **tensors: Tensor) -> dict[str, Any]:
        save_file(tensors, folder / "head.safetensors")
        digest = hashlib.sha256((folder / "head.safetensors").read_bytes()).hexdigest()
        return {"prior": str(folder / "head.safetensors"), "prior_digest": digest}

    @staticmethod
    def _class_means() -> Tensor:
        x, y = clusters(COUNTS, seed=5, apart=1.5)
        return torch.stack([x[y == label].mean(0) for label in range(len(COUNTS))])

    def test_it_stands_where_noise_is_large(self, tmp_path: Path) -> None:
        given = self._write(tmp_path, weight=self._class_means())
        found, _ = fitted(PublicPrior(graph=0.0, **given), 1e5)
        wrong, _ = fitted(PublicPrior(graph=0.0, **self._write(tmp_path, weight=torch.ones(4, 12))), 1e5)
        assert found > wrong + 0.2

    def test_its_temperature_is_that_of_the_public_labels(self, tmp_path: Path) -> None:
        warm = fitted(PublicPrior(graph=0.0, **self._write(tmp_path, weight=self._class_means())), 1e5)[1]
        cold = fitted(PublicPrior(graph=0.0, **self._write(tmp_path, weight=10 * self._class_means())), 1e5)[1]
        torch.testing.assert_close(warm, cold, rtol=0.1, atol=0.3)

    def test_private_examples_mend_it(self, tmp_path: Path) -> None:
        given = self._write(tmp_path, weight=torch.zeros(4, 12), bias=torch.tensor([5.0, 0.0, 0.0, 0.0]))
        assert fitted(PublicPrior(graph=0.0, **given), 0.0)[0] > 0.5

    @pytest.mark.parametrize(
        ("tensors", "said"),
        [
            ({"weight": torch.zeros(3, 12)}, r"4 classes and 12 features .*\(3, 12\)"),
            ({"weight": torch.zeros(4, 13)}, r"4 classes and 12 features .*\(4, 13\)"),
            ({"weight": torch.zeros(4, 12), "bias": torch.zeros(3)}, r"4 classes and 12 features .*\(3,\)"),
            ({"weight": torch.full((4, 12), math.nan)}, r"numbers from -1e\+06 to 1e\+06"),
            ({"weight": torch.full((4, 12), 3e38)}, r"numbers from -1e\+06 to 1e\+06"),
            ({"weight": torch.ones((4, 12), dtype=torch.int8)}, "floating-point numbers .* got torch.int8"),
            ({"weight": torch.ones((4, 12), dtype=torch.complex64)}, "cannot be read|floating-point numbers"),
            ({"weight": torch.zeros(4, 12)}, "says nothing of any class"),
            ({"kernel": torch.zeros(4, 12)}, "tensors weight and bias"),
            ({"weight": torch.zeros(4, 12), "other": torch.zeros(1)}, "tensors weight and bias"),
        ],
        ids=["classes", "features", "bias", "nan", "large", "whole", "complex", "zeros", "names", "more"],
    )
    def test_a_head_that_does_not_fit_is_refused(self, tensors: dict[str, Tensor], said: str, tmp_path: Path) -> None:
        with pytest.raises(DpbenchError, match=said):
            fitted(PublicPrior(**self._write(tmp_path, **tensors)), 0.0)

    def test_the_digest_is_asked_for_and_held_to(self, tmp_path: Path) -> None:
        given = self._write(tmp_path, weight=self._class_means())
        for digest in ("", "0" * 64):
            with pytest.raises(SpecError, match=f"prior_digest={given['prior_digest']}"):
                fitted(PublicPrior(**{**given, "prior_digest": digest}), 0.0)

    def test_no_file_and_no_safetensors_are_refused(self, tmp_path: Path) -> None:
        with pytest.raises(DataMissing, match=r"no such file \(looked at"):
            fitted(PublicPrior(prior=str(tmp_path / "absent")), 0.0)
        (tmp_path / "head").write_bytes(b"text")
        digest = hashlib.sha256(b"text").hexdigest()
        with pytest.raises(DataError, match="cannot be read as safetensors"):
            fitted(PublicPrior(prior=str(tmp_path / "head"), prior_digest=digest), 0.0)

    def test_public_tail_makes_the_features_that_a_head_reads(self) -> None:
        with pytest.raises(SpecError, match="no prior in learner 'public-tail'"):
            PublicTail(prior="head.safetensors")
