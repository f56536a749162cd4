"""Prototypes: the candidate that is nearest in all, each class alike, and what cannot be chosen from."""

from __future__ import annotations

import math

import pytest
import torch
from dpbench_plugins.learners.prototypes import Prototypes, compute_candidate_prototypes
from dpbench_plugins.learners.spectrum import compute_spectrum
from torch import Tensor

from dpbench import Budget, Choice, PublicData, SpecError, Task
from dpbench.privacy.core.exact.quantised import quantise
from dpbench.privacy.core.plan import check_plan
from dpbench.privacy.core.rows import PrivateRows
from tests.helpers.worlds import curator_over
from tests.plugins.learners.test_thrift import clusters

BUDGET = Budget(1.0, 1e-6)
COUNTS = (300, 300, 300, 300)
APART = 3.0
PUBLIC = clusters((60, 60, 60, 60), seed=1, apart=APART)[0]


def fitted(learner: Prototypes, sigma: float, counts: tuple[int, ...] = COUNTS) -> tuple[Tensor, Tensor]:
    """Return the classes of fresh rows, as predicted and as they are."""
    x, y = clusters(counts, apart=APART)
    fresh, expected = clusters(COUNTS, seed=2, apart=APART)
    task = Task((12,), len(counts), len(x), torch.device("cpu"), public=len(PUBLIC))
    settled = learner.settle(task, BUDGET)
    curator = curator_over(PrivateRows(x, y, torch.arange(len(x))), settled.plan(task, BUDGET), sigma, len(counts))
    scores = settled.fit(curator.handle(), PublicData(PUBLIC, None), torch.Generator().manual_seed(0))(fresh)
    return scores.argmax(1), expected


@pytest.mark.parametrize("groups", [1, 5])
def test_without_noise_test_rows_are_nearest_to_their_class(groups: int) -> None:
    found, expected = fitted(Prototypes(groups=groups), 0.0)
    assert float((found == expected).double().mean()) > 0.9


def test_a_class_of_few_examples_counts_like_the_others() -> None:
    found, expected = fitted(Prototypes(groups=1), 2.0, (300, 300, 300, 60))  # eps0 = 1
    assert float((found[expected == 3] == 3).double().mean()) > 0.9


def test_noise_alone_chooses_anything() -> None:
    found, expected = fitted(Prototypes(groups=1), 1e6)
    assert float((found == expected).double().mean()) < 0.6


def test_without_noise_the_choice_is_that_of_the_least_loss_written_out() -> None:
    x, y = clusters(COUNTS)
    learner = Prototypes(k=5, groups=1, reach=0.7)
    task = Task((12,), 4, len(x), torch.device("cpu"), public=len(PUBLIC))
    curator = curator_over(PrivateRows(x, y, torch.arange(len(x))), learner.plan(task, BUDGET), 0.0, 4)
    predict = learner.fit(curator.handle(), PublicData(PUBLIC, None), torch.Generator().manual_seed(0))

    features = compute_spectrum(PUBLIC).make_whitening_map(5, 0.3)
    order = torch.randperm(len(PUBLIC), generator=torch.Generator().manual_seed(0))
    candidates = compute_candidate_prototypes(features(PUBLIC[order])).double()
    cosines = quantise(features(x)).double() @ candidates.T
    lost = (1 - cosines / 0.7).clamp(0, 1)
    expected = torch.stack([candidates[lost[y == label].sum(0).argmin()] for label in range(4)])
    torch.testing.assert_close(predict(x).double(), features(x).double() @ expected.T, atol=1e-3, rtol=1e-3)


def test_candidates_are_public_rows_and_means_of_their_neighbours() -> None:
    rows = torch.nn.functional.normalize(torch.randn(30, 4, generator=torch.Generator().manual_seed(0)))
    found = compute_candidate_prototypes(rows)
    assert found.shape == (90, 4)
    torch.testing.assert_close(found[:30], rows)
    torch.testing.assert_close(found.norm(dim=1), torch.ones(90))
    nearest = (rows @ rows[7]).topk(5).indices
    torch.testing.assert_close(found[37], torch.nn.functional.normalize(rows[nearest].mean(0), dim=0))
    assert compute_candidate_prototypes(rows[:3]).shape == (9, 4)  # fewer than the largest neighbourhood


@pytest.mark.parametrize(
    ("size", "epsilon", "metric", "groups"),
    [
        (1_294, 0.1, "accuracy", 1),
        (1_294, 1.0, "accuracy", 6),
        (15_000, 0.3, "balanced_accuracy", 4),
        (45_000, math.inf, "accuracy", 16),
        (20, 0.01, "accuracy", 1),
    ],
)
def test_groups_follow_the_budget(size: int, epsilon: float, metric: str, groups: int) -> None:
    task = Task((64,), 10, size, torch.device("cpu"), public=144, metric=metric)
    settled = Prototypes().settle(task, Budget(epsilon, 1e-6))
    assert settled.groups == groups
    assert settled.plan(task, BUDGET) == [Choice("prototypes", candidates=3 * 144, parts=10 * groups)]


def test_candidates_of_a_thousand_classes_can_be_held() -> None:
    task = Task((64,), 1_000, 10**6, torch.device("cpu"), public=50_000)
    (choice,) = check_plan(Prototypes().settle(task, Budget(8.0, 1e-8)).plan(task, BUDGET), "prototypes")
    assert isinstance(choice, Choice)
    assert choice.candidates > 100


@pytest.mark.parametrize(
    ("learner", "public", "said"),
    [
        (Prototypes(), 0, "Expected public images for learner 'prototypes' to choose from, got 0"),
        (Prototypes(), 1, "got 1. Add --public-fraction or --public-dataset"),
        (Prototypes(k=65), 144, r"Expected k=65 in 1\.\.64 in learner 'prototypes'"),
    ],
)
def test_what_cannot_be_chosen_from_is_refused(learner: Prototypes, public: int, said: str) -> None:
    task = Task((64,), 10, 1_294, torch.device("cpu"), public=public)
    with pytest.raises(SpecError, match=said):
        learner.settle(task, BUDGET).plan(task, BUDGET)
