"""Norms and weighted sums in closed form equal those of the rows written out."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpbench.errors import SpecError
from dpbench.privacy.core.exact.quantised import convert_to_float_rows
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution, Joined, RankOne, Rows, Scaled

SIZES = st.tuples(st.integers(1, 9), st.integers(1, 6), st.integers(1, 12))
SEEDS = st.integers(0, 2**32 - 1)


def _forms(sizes: tuple[int, int, int], seed: int, dtype: torch.dtype) -> list[Contribution]:
    c, m, d = sizes
    draw = torch.Generator().manual_seed(seed)
    left, right = (torch.randn(c, width, generator=draw, dtype=dtype) for width in (m, d))
    plain, biased = RankOne(left, right), RankOne(left, right, bias=True)
    scales = [torch.rand(m, width, generator=draw, dtype=dtype) + 0.1 for width in (d, d + 1)]
    rows = torch.randn(c, m, d, generator=draw, dtype=dtype)
    joined = Joined((left, rows, right))
    return [Rows(rows), joined, plain, biased, Scaled(plain, scales[0]), Scaled(biased, scales[1])]


@given(SIZES, SEEDS)
def test_norms_in_float64_equal_those_of_dense_rows(sizes: tuple[int, int, int], seed: int) -> None:
    for form in _forms(sizes, seed, torch.float64):
        dense = form.dense().flatten(1).norm(dim=1)
        torch.testing.assert_close(form.norms(), dense, rtol=1e-10, atol=1e-10)


@given(SIZES, SEEDS, st.sampled_from([1e-30, 1e-12, 1.0, 1e12]))
def test_float32_norms_are_never_under_estimated(sizes: tuple[int, int, int], seed: int, magnitude: float) -> None:
    for form in _forms(sizes, seed, torch.float32):
        scaled = _times(form, magnitude)
        true = _doubled(scaled).dense().flatten(1).norm(dim=1)
        assert bool((scaled.norms() >= true).all())


def test_norms_of_very_long_rows_are_never_under_estimated_and_tight() -> None:
    draw = torch.Generator().manual_seed(0)
    for width, terms in ((2**16, 2**16), (2**16 + 1, 2**12), (2**20, 2**12), (2**20 + 4095, 2**12)):
        for rows in (torch.randn(2, width, generator=draw), torch.rand(1, 2, width, generator=draw)[0] + 1):
            true = rows.double().norm(dim=1)
            ratio = Rows(rows).norms() / true
            assert bool((ratio >= 1).all())
            assert bool((ratio <= 1 + (terms + 12) * 2**-24).all())


def test_no_part_of_a_very_long_row_is_left_out_of_its_norm() -> None:
    width = 2**16 + 17  # sixteen whole blocks, and a rest
    for place in (0, 4095, 4096, 2**16 - 1, 2**16, width - 1):
        rows = torch.zeros(1, width)
        rows[0, place] = -3
        assert 3 <= float(Rows(rows).norms()) < 3.01
        rows[0, place] = float("inf")
        assert float(Rows(rows).norms()) == float("inf")


@pytest.mark.parametrize("width", [5, 2**16 + 17])
def test_no_rows_have_no_norms(width: int) -> None:
    none = torch.empty(0, width)
    for form in (Rows(none), Joined((none, none[:, :1]))):
        assert form.norms().shape == (0,)
        assert not form.clipped_sum(1.0).total.any()


def test_a_very_long_row_in_float64_has_the_bound_of_its_length() -> None:
    rows = torch.randn(2, 2**17, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ratio = Rows(rows).norms() / rows.norm(dim=1)
    assert bool((ratio >= 1).all())
    assert bool((ratio <= 1 + 2**18 * 2**-53).all())


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float16, torch.int64, torch.bool, torch.complex64])
def test_kinds_of_numbers_whose_rounding_is_not_bounded_are_refused(kind: torch.dtype) -> None:
    with pytest.raises(SpecError, match="float32 or float64"):
        Rows(torch.ones(2, 3).to(kind))
    with pytest.raises(SpecError, match="float32 or float64"):
        RankOne(torch.ones(2, 3).to(kind), torch.ones(2, 3))


def test_float64_rows_are_clipped_in_float64() -> None:
    rows = torch.full((1, 3), 1 / 3, dtype=torch.float64)
    torch.testing.assert_close(Rows(rows).clipped_sum(1.0).value(), rows[0], rtol=0, atol=2**-25)


def test_a_row_of_zeros_has_a_norm_that_can_be_divided_by() -> None:
    for form in (Rows(torch.zeros(1, 3)), RankOne(torch.zeros(1, 2), torch.zeros(1, 3))):
        assert 0 < float(form.norms()) < 1e-14


def test_taking_rows_keeps_them_as_they_are() -> None:
    picks = torch.tensor([2, 0])
    for form in _forms((3, 2, 4), 7, torch.float64):
        assert torch.equal(form.take(picks).dense(), form.dense()[picks])
        assert len(form.take(picks)) == 2


@pytest.mark.parametrize("value", [0.0, -1.0, 1e-9, 1e9, float("nan"), float("inf")])
def test_a_scale_that_float32_cannot_bound_is_refused(value: float) -> None:
    outer = RankOne(torch.ones(1, 1), torch.ones(1, 2))
    with pytest.raises(SpecError, match="scale"):
        Scaled(outer, torch.tensor([[1.0, value]]))


@pytest.mark.parametrize(
    ("left", "right"), [((3, 2), (2, 4)), ((3,), (3, 4)), ((3, 2), (3, 3, 4)), ((3, 2), (1, 4)), ((1, 3, 2), (3, 4))]
)
def test_factors_that_would_broadcast_are_refused(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="factors"):
        RankOne(torch.ones(left), torch.ones(right))


@pytest.mark.parametrize("shape", [(2, 1), (1, 4), (4,), (1, 2, 4), (2, 5)])
def test_a_scale_that_would_broadcast_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match="like one row"):
        Scaled(RankOne(torch.ones(3, 2), torch.ones(3, 4)), torch.ones(shape))


@pytest.mark.parametrize("shapes", [(), ((3,),), ((3, 2), (4, 2)), ((3, 2), (3,))])
def test_parts_that_are_not_of_the_same_rows_are_refused(shapes: tuple[tuple[int, ...], ...]) -> None:
    with pytest.raises(SpecError, match="of one length c"):
        Joined(tuple(torch.ones(shape) for shape in shapes))
    with pytest.raises(SpecError, match="float32 or float64"):
        Joined((torch.ones(2, 1), torch.ones(2, 1, dtype=torch.float64)))


def test_joined_rows_are_clipped_as_one() -> None:
    """Adding an example moves the sum by at most the clip, however many parts it has and however they differ."""
    draw = torch.Generator().manual_seed(3)
    parts = tuple(10.0**power * torch.randn(5, 4, 7, generator=draw) for power in (-6, 0, 0, 3))
    for row in range(5):
        assert float(Joined(parts).take(torch.tensor([row])).clipped_sum(0.5).value().norm()) <= 0.5
    (block,) = wrap_blocks(Joined(parts))
    assert torch.equal(block.clipped_sum(0.5).total, Joined(parts).clipped_sum(0.5).total)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e25])
def test_a_joined_row_with_one_number_that_is_not_finite_counts_as_zero(value: float) -> None:
    """Two parts of 0.9e25 are below the bound each and above it together."""
    first, second = torch.ones(2, 3), torch.full((2, 1), 0.9 * value)
    first[1], second[1] = 0.0, 0.0
    assert not Joined((first, second, second)).clipped_sum(1.0).total.any()


def test_one_number_per_row_needs_an_axis_of_its_own() -> None:
    with pytest.raises(SpecError, match=r"return \(c, 1\)"):
        wrap_blocks(torch.ones(3))


def test_a_bare_tensor_is_one_block_of_rows() -> None:
    (block,) = wrap_blocks(torch.ones(2, 3))
    assert isinstance(block, Rows)


def _times(form: Contribution, factor: float) -> Contribution:
    if isinstance(form, Rows):
        return Rows(form.rows * factor)
    if isinstance(form, RankOne):
        return RankOne(form.left, convert_to_float_rows(form.right) * factor, form.bias)
    if isinstance(form, Joined):
        return Joined(tuple(part * factor for part in form.parts))
    assert isinstance(form, Scaled)
    outer = _times(form.outer, factor)
    assert isinstance(outer, RankOne)
    return Scaled(outer, form.scale)


def _doubled(form: Contribution) -> Contribution:
    def double(tensor: Tensor) -> Tensor:
        return tensor.double()

    if isinstance(form, Rows):
        return Rows(double(form.rows))
    if isinstance(form, RankOne):
        return RankOne(double(form.left), form.right.double(), form.bias)
    if isinstance(form, Joined):
        return Joined(tuple(map(double, form.parts)))
    assert isinstance(form, Scaled)
    outer = _doubled(form.outer)
    assert isinstance(outer, RankOne)
    return Scaled(outer, double(form.scale))
