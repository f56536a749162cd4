"""The row function of dpbench's own: it gives what a stranger's gives, and no stranger's passes for it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from dpbench.api import Chunk, Release
from dpbench.errors import NotPure, SpecError
from dpbench.privacy.core.exact.quantised import quantise
from dpbench.privacy.core.forms.contributions import RankOne, Scaled
from dpbench.privacy.core.head import HeadGradient, as_builtin_row_function
from dpbench.privacy.core.sum import Sum
from tests.helpers.worlds import curator_over, private_rows

PLAN = [Release("gradient", sample_rate=0.5)]
MEMORY: list[int] = []


def gradient(bias: bool, divided: bool, classes: int = 3, features: int = 5) -> HeadGradient:
    draw = torch.Generator().manual_seed(1)
    shape = (classes, features + bias)
    return HeadGradient(
        torch.randn(shape, generator=draw), bias, torch.rand(shape, generator=draw) + 0.5 if divided else None
    )


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("chunk_size", [None, 7])
def test_its_answer_has_the_bits_of_the_same_function_by_a_stranger(
    bias: bool, divided: bool, chunk_size: int | None
) -> None:
    own = gradient(bias, divided)

    def strangers(chunk: Chunk) -> RankOne | Scaled:
        return own(chunk)

    answers = [
        curator_over(private_rows(), PLAN, sigma=2.0)
        .map(lambda x: x)
        .handle()
        .answer(Sum(rows, "gradient", 0.7, chunk_size))
        for rows in (own, strangers)
    ]
    assert torch.equal(*answers)


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("features", [1, 5, 600])
def test_the_sum_over_no_rows_has_the_shape_and_the_grid_of_every_sum(bias: bool, divided: bool, features: int) -> None:
    own, x = gradient(bias, divided, features=features), torch.randn(9, features)
    chunk = Chunk(quantise(x), torch.arange(9) % 3, torch.zeros(9, dtype=torch.int64))
    zero, found = own.sum_of_empty_chunk(features, 0.7), own.clipped_sum(chunk, 0.7)
    assert torch.equal((zero + found).total, found.total)
    assert (zero.largest, zero.grid.tolist()) == (found.largest, found.grid.tolist())
    assert torch.equal(found.total, own(chunk).clipped_sum(0.7).total)


class Remembers(HeadGradient):
    """A stranger's, that counts rows."""

    def __call__(self, chunk: Chunk) -> RankOne | Scaled:
        MEMORY.append(len(chunk))
        return super().__call__(chunk)


def test_a_strangers_subclass_is_held_to_purity_as_strangers_are() -> None:
    own = gradient(bias=True, divided=False)
    assert as_builtin_row_function(own) is own
    taken = Remembers(own.head, own.bias)
    assert as_builtin_row_function(taken) is None
    with pytest.raises(NotPure, match="MEMORY"):
        curator_over(private_rows(), PLAN).handle().noisy_sum(taken, release="gradient", clip=1.0)


def test_tensors_that_could_see_what_is_computed_with_them_are_refused() -> None:
    class Spy(Tensor):
        pass

    head = torch.zeros(3, 6)
    with pytest.raises(SpecError, match="got a Spy"):
        HeadGradient(head.as_subclass(Spy), bias=True)
    with pytest.raises(SpecError, match="got a Spy"):
        HeadGradient(head, bias=True, divisor=head.as_subclass(Spy))


@pytest.mark.parametrize("shape", [(2, 6), (3, 5), (3, 7)])
def test_a_head_that_does_not_fit_the_task_is_refused_by_public_shapes_alone(shape: tuple[int, int]) -> None:
    """Of fewer classes than labels it would fail over rows, and say which label."""
    asked = Sum(HeadGradient(torch.zeros(shape), bias=True), "gradient", 1.0)
    with pytest.raises(SpecError, match=r"Expected a head and its divisor to be \(3, 6\)"):
        curator_over(private_rows(), PLAN).map(lambda x: x).handle().answer(asked)
