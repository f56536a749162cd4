"""Public origin: what private examples contribute, how far one of them moves a sum, and where its two rules end up."""

from __future__ import annotations

import pytest
import torch
from dpbench_plugins.learners.public_only import PublicOnly
from dpbench_plugins.learners.public_origin import PublicOrigin, make_contribution_rows
from dpbench_plugins.learners.thrift import Thrift
from torch import Tensor

from dpbench import Budget, Chunk, PublicData, RankOne, SpecError, Task
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers.worlds import curator_over
from tests.plugins.learners.test_thrift import clusters

BUDGET = Budget(1.0, 1e-6)
COUNTS = (500, 500, 500, 500)


def accuracy(learner: PublicOrigin | PublicOnly, sigma: float) -> float:
    (x, y), (fresh, expected) = clusters(COUNTS, apart=1.5), clusters(COUNTS, seed=2, apart=1.5)
    public = PublicData(*clusters((15, 15, 15, 15), seed=1, apart=1.5))
    task = Task((12,), len(COUNTS), len(x), torch.device("cpu"), public=60)
    settled = learner.settle(task, BUDGET)
    curator = curator_over(PrivateRows(x, y, torch.arange(len(x))), settled.plan(task, BUDGET), sigma, len(COUNTS))
    scores = settled.fit(curator.handle(), public, torch.Generator().manual_seed(0))(fresh)
    return float((scores.argmax(1) == expected).double().mean())


def draw_chunk() -> tuple[Tensor, Chunk]:
    draw = torch.Generator().manual_seed(0)
    x, y = torch.randn(6, 4, generator=draw), torch.arange(6) % 3
    return torch.randn(3, 5, generator=draw), Chunk(x, y, torch.arange(6))


def test_a_row_is_its_gradient_less_the_origin() -> None:
    head, chunk = draw_chunk()
    origin = torch.randn(head.shape, generator=torch.Generator().manual_seed(1))
    found = make_contribution_rows(head, origin)(chunk)
    assert isinstance(found, Tensor)
    for place in range(len(chunk)):
        free = head.clone().requires_grad_()
        logits = chunk.x[[place]] @ free[:, :-1].T + free[:, -1]
        (gradient,) = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, chunk.y[[place]]), free)
        torch.testing.assert_close(found[place], gradient - origin, rtol=1e-3, atol=1e-3)


def test_without_an_origin_rows_stay_outer_products() -> None:
    head, chunk = draw_chunk()
    found = make_contribution_rows(head, None)(chunk)
    assert isinstance(found, RankOne)
    torch.testing.assert_close(found.dense(), make_contribution_rows(head, torch.zeros_like(head))(chunk))


@pytest.mark.parametrize("rule", ["origin", "mixing"])
def test_without_noise_private_examples_add_to_public_labels(rule: str) -> None:
    assert accuracy(PublicOrigin(rule=rule), 0.0) > accuracy(PublicOnly(), 0.0) + 0.02  # type: ignore[arg-type]


def test_an_origin_leaves_less_to_clip() -> None:
    tight = accuracy(PublicOrigin(clip=0.001, start="zero"), 0.0)
    assert tight > 0.5  # the public gradient alone trains, where nearly all of a private one is cut off


def test_settings_follow_from_the_budget_as_in_thrift_without_its_graph() -> None:
    task = Task((1280,), 10, 45_000, torch.device("cpu"), public=5_000)
    chosen = dict(Thrift().auto(task, BUDGET))
    del chosen["graph"]
    assert PublicOrigin().auto(task, BUDGET) == chosen
    (release,) = PublicOrigin().settle(task, BUDGET).plan(task, BUDGET)
    assert (release.steps, release.sample_rate, release.relative_noise) == (chosen["steps"], 1.0, 1.0)


@pytest.mark.parametrize("labels", [None, torch.zeros(60, dtype=torch.int64)], ids=["none", "of one class"])
def test_public_labels_of_two_classes_are_asked_for(labels: Tensor | None) -> None:
    (x, y), task = clusters((30, 30)), Task((12,), 2, 60, torch.device("cpu"), public=60)
    settled = PublicOrigin().settle(task, BUDGET)
    curator = curator_over(PrivateRows(x, y, torch.arange(60)), settled.plan(task, BUDGET), 0.0, 2)
    with pytest.raises(SpecError, match=r"public-origin.*two classes"):
        settled.fit(curator.handle(), PublicData(x, labels), torch.Generator())
