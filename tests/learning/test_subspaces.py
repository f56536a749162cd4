"""Principal components and subspace iteration: those of the whole matrix, which is not made where rows are few."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpbench import Budget, Chunk, Learner, PrincipalComponents, PublicData, Release, Task, subspace_iteration
from dpbench.learning import subspaces
from dpbench.registry import load
from tests.helpers.worlds import curator_over, private_rows
from tests.plugins.learners.test_gep import Largest


def drawn(m: int, d: int, seed: int) -> Tensor:
    """Return rows (m, d) float64 whose features vary less and less."""
    rows = torch.randn(m, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return rows * 0.8 ** torch.arange(d)


@given(st.integers(1, 12), st.integers(0, 12), st.booleans(), st.integers(0, 2**32 - 1))
def test_where_features_are_no_more_than_rows_components_are_the_bits_of_the_second_moment(
    d: int, more: int, divided: bool, seed: int
) -> None:
    rows = drawn(d + more, d, seed)
    count = len(rows) if divided else 1
    values, vectors = torch.linalg.eigh(rows.T @ rows / count if divided else rows.T @ rows)
    found = PrincipalComponents.of(rows, count)
    assert torch.equal(found.values, values)
    assert all(torch.equal(found.leading(k), vectors[:, -k:]) for k in range(1, d + 1))


@given(st.integers(1, 8), st.integers(1, 30), st.integers(0, 2**32 - 1))
def test_where_features_are_more_than_rows_components_are_those_of_the_second_moment_too(
    m: int, more: int, seed: int
) -> None:
    rows = drawn(m, m + more, seed)
    values, vectors = torch.linalg.eigh(rows.T @ rows / m)
    found = PrincipalComponents.of(rows, m)
    torch.testing.assert_close(found.values, values[-m:], rtol=1e-9, atol=1e-12 * float(values[-1]))
    known = int((found.values > 1e-8 * found.values[-1]).sum())  # apart from the others by more than rounding
    leading = found.leading(known)
    torch.testing.assert_close(leading.T @ leading, torch.eye(known).double(), rtol=0, atol=1e-6)
    explained = leading * found.values[-known:] @ leading.T  # whatever the signs
    exact = vectors[:, -known:] * values[-known:] @ vectors[:, -known:].T
    torch.testing.assert_close(explained, exact, rtol=0, atol=1e-7 * float(values[-1]))


@pytest.fixture
def decompositions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sides of the matrices that are decomposed in a test."""
    sides, eigh = [], torch.linalg.eigh
    subspaces._decompose_gram_matrix_cached.cache_clear()

    def counted(matrix: Tensor) -> Any:
        sides.append(len(matrix))
        return eigh(matrix)

    monkeypatch.setattr(torch.linalg, "eigh", counted)
    return sides


def test_the_same_rows_are_decomposed_once_and_what_a_caller_writes_reaches_no_other(decompositions: list[int]) -> None:
    rows = drawn(9, 4, 5)
    first = PrincipalComponents.of(rows.clone())
    expected = first.values.clone(), first.leading(3).clone()
    first.values.zero_()
    first.leading(4).zero_()
    other = PrincipalComponents.of(rows)
    assert torch.equal(other.values, expected[0])
    assert torch.equal(other.leading(3), expected[1])
    assert decompositions == [4]


@pytest.mark.parametrize("changed", [lambda x: x[:-1], lambda x: x.reshape(-1, 4), lambda x: x.nextafter(x + 1)])
def test_other_rows_are_decomposed_on_their_own(changed: Callable[[Tensor], Tensor], decompositions: list[int]) -> None:
    rows = drawn(8, 5, 6)
    PrincipalComponents.of(rows)
    PrincipalComponents.of(rows, 8)
    PrincipalComponents.of(changed(rows))
    assert len(decompositions) == 3


def test_rows_whose_content_cannot_be_read_are_decomposed_all_the_same() -> None:
    stack = torch.stack([drawn(6, 4, seed) for seed in range(3)])
    found = torch.vmap(lambda rows: PrincipalComponents.of(rows).values)(stack)
    for values, rows in zip(found, stack, strict=True):
        torch.testing.assert_close(values, PrincipalComponents.of(rows).values)


def test_of_what_a_row_function_is_called_with_nothing_is_kept(decompositions: list[int]) -> None:
    world = curator_over(private_rows(20, 4, 2), [Release("sum", steps=2)])

    def rows(chunk: Chunk) -> Tensor:
        of_row = lambda row: PrincipalComponents.of(row.double().unsqueeze(0)).values
        return torch.stack([chunk.x.new_zeros(1).double(), *map(of_row, chunk.x)])[1:]

    world.noisy_sum(rows, release="sum", clip=1.0)
    once = len(decompositions)
    world.noisy_sum(rows, release="sum", clip=1.0)
    assert len(decompositions) >= once + 20


def test_a_direction_in_which_few_rows_do_not_vary_is_zero_and_the_others_stay() -> None:
    rows = drawn(5, 40, 0)
    rows[4] = rows[3]
    centred = rows - rows.mean(0)  # of rank 3
    leading = PrincipalComponents.of(centred, 5).leading(5)
    assert torch.equal(leading[:, :2], torch.zeros(40, 2).double())
    torch.testing.assert_close(leading[:, 2:].T @ leading[:, 2:], torch.eye(3).double())
    assert torch.equal(PrincipalComponents.of(torch.zeros(3, 9).double()).leading(3), torch.zeros(9, 3).double())


def test_many_products_give_the_leading_eigenvectors() -> None:
    matrix = drawn(30, 8, 1).T @ drawn(30, 8, 1)
    start = torch.randn(8, 3, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    basis, exact = subspace_iteration(lambda x: matrix @ x, start, 200), torch.linalg.eigh(matrix).eigenvectors[:, -3:]
    torch.testing.assert_close(basis @ basis.T, exact @ exact.T)


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", ["class-means", "gep", "jl", "pate", "pillar", "pillar-theory", "thrift", "whitened"])
def test_no_learner_makes_a_matrix_of_features_by_features_of_large_images(name: str) -> None:
    features, budget = 3 * 40 * 40, Budget(1.0, 1e-5)
    task = Task((features,), 2, 20, torch.device("cpu"), public=12)
    learner: Learner = load().find("learner", name).cls(**({"k": 3} if name == "pillar-theory" else {}))
    learner = learner.settle(task, budget)
    curator = curator_over(private_rows(20, features, 2), learner.plan(task, budget), 1.0, 2)
    public = private_rows(12, features, 2, seed=1).x
    with Largest() as largest:  # type: ignore[no-untyped-call]
        predict = learner.fit(curator.handle(), PublicData(public, None), torch.Generator().manual_seed(0))
    assert features * 12 <= largest.numel < features * features
    assert bool(predict(public).isfinite().all())
