"""Public prior: it starts from the public head, leaves it as far as the noise allows, and asks for labels."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from dpbench_plugins.learners.public_only import PublicOnly
from dpbench_plugins.learners.public_prior import PublicPrior, public_head
from dpbench_plugins.learners.thrift import Thrift, spectrum
from torch import Tensor

from dpbench import Budget, GaussianPrior, LinearProbe, PublicData, SpecError, Task
from dpbench.privacy.core.rows import PrivateRows
from tests.test_thrift import clusters
from tests.worlds import curator_over, private_rows

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
    alone = public_head(spectrum(public[0]), *public, len(COUNTS), learner.regularisation)
    expected, labels = clusters(COUNTS, seed=2, apart=1.5)
    assert found == pytest.approx(float((alone(expected).argmax(1) == labels).double().mean()), abs=0.01)
    torch.testing.assert_close(scores, alone(expected), atol=0.3, rtol=0.1)
    assert fitted(Thrift(graph=0.0), sigma)[0] < found - 0.3


def test_a_stronger_prior_stays_nearer_to_the_public_head() -> None:
    public = clusters((15, 15, 15, 15), seed=1, apart=1.5)
    alone = public_head(spectrum(public[0]), *public, len(COUNTS), PublicPrior().regularisation)
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


def test_public_scores_are_linear_whatever_the_number_of_classes() -> None:
    for counts in ((40, 40), (30, 30, 30)):
        x, y = clusters(counts)
        scores = public_head(spectrum(x), x, y, len(counts), 8.0)(x)
        assert scores.shape == (len(x), len(counts))
        assert float((scores.argmax(1) == y).double().mean()) > 0.8


@pytest.mark.parametrize("labels", [None, torch.zeros(60, dtype=torch.int64)])
def test_public_labels_of_two_classes_are_asked_for(labels: Tensor | None) -> None:
    rows = private_rows(n=60, d=6)
    task = Task((6,), 3, 60, torch.device("cpu"), public=60)
    learner = PublicPrior().settle(task, BUDGET)
    with pytest.raises(SpecError, match="--public-labels"):
        learner.fit(
            curator_over(rows, learner.plan(task, BUDGET)).handle(), PublicData(rows.x, labels), torch.Generator()
        )


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
@pytest.mark.parametrize("name", ["strength", "regularisation"])
def test_a_strength_that_is_none_is_refused(name: str, value: float) -> None:
    with pytest.raises(SpecError, match=name):
        dataclasses.replace(PublicPrior(), **{name: value})  # type: ignore[arg-type]


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
