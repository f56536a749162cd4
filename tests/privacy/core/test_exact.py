"""Integer products are exact on every processor, and a row's floats have the same bits wherever it stands."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpbench import exact_linear, quantise, residuals, unit_norm
from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.core.chunk import Chunk
from dpbench.privacy.core.exact import products
from dpbench.privacy.core.exact.elementwise import exp_, folded, softmax_
from dpbench.privacy.core.exact.limits import LEFT_LIMIT
from dpbench.privacy.core.exact.quantised import QuantisedRows, exact_product, round_to_19_bits, round_to_integers
from dpbench.privacy.core.exact.sums import measure_lengths
from dpbench.privacy.core.head import HeadGradient
from dpbench.support import threads as support_threads

LENGTHS = (1, 2, 3, 7, 16, 17, 33, 64, 100, 129)
SEEDS = st.integers(0, 2**32 - 1)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Run with so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _numbers(draw: torch.Generator, *shape: int) -> Tensor:
    """Return whole numbers up to the largest that products take, a third of them at either end."""
    found = torch.randint(-LEFT_LIMIT, LEFT_LIMIT + 1, shape, generator=draw)
    ends = torch.randint(-1, 2, shape, generator=draw)
    return torch.where(ends == 0, found, ends * LEFT_LIMIT).float()


def _rows(draw: torch.Generator, *shape: int) -> Tensor:
    found = torch.randint(-127, 128, shape, generator=draw)
    ends = torch.randint(-1, 2, shape, generator=draw)
    return torch.where(ends == 0, found, ends * 127).to(torch.int8)


def _int_mm(a: Tensor, b: Tensor) -> Tensor:
    """As a GPU does it: int8 in, int32 out."""
    assert a.dtype == b.dtype == torch.int8
    return (a.double() @ b.double()).to(torch.int32)


@contextmanager
def on_a_gpu() -> Iterator[None]:
    """Take products as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "uses_compiled_loops", lambda device: False)
        patch.setattr(torch, "_int_mm", _int_mm)
        yield


@given(st.integers(1, 30), st.one_of(st.integers(1, 300), st.sampled_from([1023, 1024, 1025, 2049])), SEEDS)
def test_products_are_exact_and_those_of_a_gpu(count: int, inner: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    numbers, q = _numbers(draw, count, inner), _rows(draw, 37, inner)
    scores, sums = numbers.double() @ q.double().T, _numbers(draw, count, 37)
    totals = (sums.double() @ q.double()).long()
    assert torch.equal(products.exact_matmul_transposed(numbers, q), scores.float())
    assert torch.equal(products.exact_matmul(sums, q), totals)
    turned = q.T.contiguous()
    assert torch.equal(products.exact_matmul(numbers, turned), scores.long())
    with on_a_gpu():
        assert torch.equal(products.exact_matmul_transposed(numbers, q), scores.float())
        assert torch.equal(products.exact_matmul(sums, q), totals)


@pytest.mark.parametrize("inner", [1023, 1024, 1025, 4097])
@pytest.mark.parametrize("sign", [-1, 1])
def test_the_largest_numbers_do_not_overflow(sign: int, inner: int) -> None:
    numbers, q = torch.full((2, inner), sign * float(LEFT_LIMIT)), torch.full((inner, 3), 127, dtype=torch.int8)
    assert set(products.exact_matmul(numbers, q).flatten().tolist()) == {sign * LEFT_LIMIT * 127 * inner}
    assert set(products.exact_matmul_transposed(numbers, q.T).flatten().tolist()) == {
        float(np.float32(sign * LEFT_LIMIT * 127 * inner))
    }


@pytest.mark.parametrize("inner", [products.LONGEST, products.LONGEST + 1])
def test_the_longest_sums_of_a_gpu_do_not_overflow(inner: int) -> None:
    numbers, q = torch.full((1, inner), float(LEFT_LIMIT)), torch.full((inner, 1), 127, dtype=torch.int8)
    with on_a_gpu():
        assert products.exact_matmul(numbers, q).item() == LEFT_LIMIT * 127 * inner


@pytest.mark.parametrize("inner", [products.DEEPEST, products.DEEPEST + 1])
def test_long_products_are_exact_in_float64(inner: int) -> None:
    numbers = torch.full((1, inner), 2.0**20 - 1)
    assert products.multiply_long_numbers(numbers, numbers).item() == float((2**20 - 1) ** 2 * inner)


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_products_of_nothing_are_zero(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    numbers, q = torch.ones(rows, inner), torch.ones(inner, columns, dtype=torch.int8)
    for found in (products.exact_matmul(numbers, q), products.exact_matmul_transposed(numbers, q.T)):
        assert found.shape == (rows, columns)
        assert not found.any()
    with on_a_gpu():
        assert not products.exact_matmul(numbers, q).any()


@given(
    st.integers(1, 13), st.sampled_from([1, 2, 15, 16, 17, 40, 1025]), st.integers(0, 150), st.booleans(),
    st.booleans(), st.sampled_from([1e-9, 0.3, 1.0, 1e9]), SEEDS,
)  # fmt: skip
def test_the_compiled_step_has_the_bits_of_the_one_on_a_gpu(
    classes: int, width: int, count: int, bias: bool, units: bool, clip: float, seed: int
) -> None:
    draw = torch.Generator().manual_seed(seed)
    x = torch.randn(count, width, generator=draw) * 10.0 ** torch.randint(-6, 7, (count, 1), generator=draw)
    for place, poison in ((4, torch.nan), (5, torch.inf), (6, 0.0), (7, 1e30)):
        x[place : place + 1] = poison
    head = torch.randn(classes, width + bias, generator=draw) * 10.0 ** (seed % 7 - 3)
    shares = torch.rand(count, generator=draw, dtype=torch.float64) if units else None
    chunk = Chunk(quantise(x), torch.randint(classes, (count,), generator=draw), torch.zeros(count, dtype=torch.int64))
    own = HeadGradient(head, bias)
    found = own.clipped_sum(chunk, clip, shares)
    with threads(1):
        assert torch.equal(own.clipped_sum(chunk, clip, shares).total, found.total)
    with on_a_gpu():
        expected = own.clipped_sum(chunk, clip, shares)
    assert torch.equal(found.total, expected.total)
    assert torch.equal(found.grid, expected.grid)


@pytest.mark.parametrize("poison", [torch.nan, torch.inf])
def test_a_head_that_is_not_finite_adds_nothing(poison: float) -> None:
    head = torch.ones(3, 6)
    head[1, 2] = poison
    chunk = Chunk(quantise(torch.randn(9, 5)), torch.arange(9) % 3, torch.zeros(9, dtype=torch.int64))
    assert not HeadGradient(head, bias=True).clipped_sum(chunk, 1.0).total.any()


def test_a_label_that_is_none_reads_and_writes_nothing_else() -> None:
    rows, y = quantise(torch.randn(9, 5)), torch.arange(9) % 3
    own, seeds = HeadGradient(torch.ones(3, 6), bias=True), torch.zeros(9, dtype=torch.int64)
    y[[2, 4]] = torch.tensor([3, -1])
    kept = torch.tensor([0, 1, 3, 5, 6, 7, 8])
    found = own.clipped_sum(Chunk(rows, y, seeds), 1.0)
    assert torch.equal(found.total, own.clipped_sum(Chunk(rows[kept], y[kept], seeds[kept]), 1.0).total)


@pytest.mark.parametrize("begun", [False, True])
def test_large_products_are_the_same_on_two_threads(begun: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    draw = torch.Generator().manual_seed(0)
    numbers, q = _numbers(draw, 30, 2000), _rows(draw, 2000, 90)
    assert numbers.numel() * q.shape[1] > products.WORTH
    if not begun:  # a thread that begins when this one has finished has nothing to do
        monkeypatch.setattr(support_threads, "thread_pool", lambda count, process: _Asleep())
    with threads(2):
        assert torch.equal(products.exact_matmul(numbers, q), (numbers.double() @ q.double()).long())


class _Asleep:
    def submit(self, work: Callable[[], object]) -> Future[object]:
        return Future()


def _moved(function: Callable[[Tensor, Tensor], Tensor], row: Tensor, others: Tensor) -> list[Tensor]:
    """Return what the function gives for a row first, last and in the middle of chunks, on one thread and on two."""
    found = []
    for length in LENGTHS:
        for place in {0, length // 2, length - 1}:
            chunk = others[:length].clone()
            chunk[place] = row
            for count in (1, 2):
                with threads(count):
                    found.append(function(chunk, torch.arange(length) % 3)[place].clone())
    chunk = others.repeat(40, 1)  # long enough to be split among threads
    chunk[-1] = row
    for count in (1, 2):
        with threads(count):
            labels = torch.full((len(chunk),), 0)
            found.append(function(chunk, labels)[-1].clone())
    return found


@pytest.mark.quick(1)
@pytest.mark.parametrize("width", [5, 64, 301])
def test_a_row_has_the_same_bits_wherever_it_stands(width: int) -> None:
    draw = torch.Generator().manual_seed(width)
    weight, others = torch.randn(13, width, generator=draw), torch.randn(200, width, generator=draw)
    functions: list[Callable[[Tensor, Tensor], Tensor]] = [
        lambda x, y: unit_norm(x),
        lambda x, y: exact_linear(x, weight, weight[:, 0]),
        lambda x, y: exact_linear(quantise(x), weight, weight[:, 0]),
        lambda x, y: residuals(exact_linear(quantise(x), weight), torch.zeros_like(y)),
        lambda x, y: exact_product(weight, x, 4).T,
        lambda x, y: measure_lengths(x),
        lambda x, y: quantise(x).double(),
    ]
    row = torch.randn(width, generator=draw)
    for function in functions:
        found = _moved(function, row, others)
        assert all(torch.equal(tensor, found[0]) for tensor in found)


@given(st.integers(0, 70), st.integers(1, 9), SEEDS)
def test_folding_adds_up_along_either_axis(count: int, width: int, seed: int) -> None:
    terms = torch.randn(count, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(folded(terms), terms.sum(0))
    torch.testing.assert_close(folded(terms.T, 1), terms.sum(0))


def test_the_exponential_is_that_of_the_library_to_float32() -> None:
    x = -torch.cat([torch.linspace(0, 2, 100_001), torch.linspace(2, 79, 100_001)]).double()
    error = (exp_(x.float()).double() / x.float().double().exp() - 1).abs()
    assert float(error[: len(x) // 2].max()) < 5e-7
    assert float(error.max()) < 1e-5
    assert exp_(torch.tensor([0.0, -100.0, -math.inf, math.nan]))[:3].tolist() == pytest.approx(
        [1, 2e-35, 2e-35], rel=0.1
    )
    assert bool(exp_(torch.tensor([math.nan])).isnan())


@given(st.integers(1, 12), SEEDS, st.sampled_from([0.1, 3.0, 30.0]))
def test_the_softmax_is_that_of_the_library(classes: int, seed: int, spread: float) -> None:
    logits = torch.randn(2, classes, 17, generator=torch.Generator().manual_seed(seed)) * spread
    torch.testing.assert_close(softmax_(logits.clone()), logits.softmax(1), rtol=2e-5, atol=1e-7)


@given(st.integers(1, 60), st.integers(-25, 20), SEEDS)
def test_rows_in_8_bits_are_within_half_a_step_and_their_lengths_are_exact(width: int, power: int, seed: int) -> None:
    rows = torch.randn(9, width, generator=torch.Generator().manual_seed(seed)) * 10.0**power
    kept = quantise(rows)
    largest = rows.abs().amax(1, keepdim=True)
    assert bool(((kept.double() - rows.double()).abs() <= largest * (0.5 / 127 + 1e-6)).all())
    assert bool((kept.q.abs().amax(1) == 127).all())
    torch.testing.assert_close(kept.lengths, kept.q.double().norm(dim=1), rtol=1e-14, atol=0)
    assert bool((kept.lengths >= kept.q.double().norm(dim=1)).all())


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e30])
def test_rows_that_are_not_finite_are_marked_and_others_are_not(poison: float) -> None:
    rows = torch.ones(3, 4)
    rows[1, 2] = poison
    kept = quantise(rows)
    assert kept.scale.isnan().tolist() == [False, True, False]
    assert kept.q[1].tolist() == [0] * 4
    assert torch.equal(kept.float()[[0, 2]], rows[[0, 2]])


def test_rows_of_zeros_stay_zero() -> None:
    kept = quantise(torch.zeros(2, 3))
    assert torch.equal(kept.float(), torch.zeros(2, 3))


def test_rows_that_were_changed_in_place_are_refused() -> None:
    kept = quantise(torch.ones(3, 4))
    kept[torch.tensor([0])].check_unchanged()
    kept.q.mul_(0)
    with pytest.raises(PrivacyError, match="changed in place"):
        exact_linear(kept, torch.ones(2, 4))


def test_rows_made_by_hand_get_lengths_of_their_own() -> None:
    q = torch.tensor([[3, 4]], dtype=torch.int8)
    assert QuantisedRows(q, torch.ones(1)).lengths.tolist() == pytest.approx([5.0])


def test_lengths_are_taken_from_no_caller_and_integers_from_no_other_range() -> None:
    kept = quantise(torch.ones(2, 3))
    twice = type(kept)(torch.cat([kept.q, kept.q], 1), kept.scale)
    assert twice.lengths.tolist() == pytest.approx((kept.lengths * 2**0.5).tolist())
    with pytest.raises(TypeError):
        type(kept)(kept.q, kept.scale, kept.lengths)  # type: ignore[call-arg]
    with pytest.raises(SpecError, match="-128"):
        QuantisedRows(torch.full((1, 2), -128, dtype=torch.int8), torch.ones(1))
    with pytest.raises(SpecError, match="int8"):
        QuantisedRows(torch.ones(1, 2), torch.ones(1))


@given(st.integers(1, 4), st.integers(1, 30), st.integers(-20, 20), SEEDS)
def test_whole_numbers_times_their_unit_are_the_numbers(count: int, width: int, power: int, seed: int) -> None:
    numbers = torch.randn(5, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 10.0**power
    whole, unit = round_to_integers(numbers, count)
    step = unit.unsqueeze(1) * 2.0 ** (-7 * (count - 1))
    assert bool(((whole * step - numbers).abs() <= step / 2).all())
    assert bool((unit <= numbers.abs().amax(1) / 32).all())
    assert torch.equal(unit.log2(), unit.log2().round())
    assert torch.equal(whole, whole.round())
    assert float(whole.abs().max()) <= 64 * 128 ** (count - 1)


def test_numbers_are_rounded_to_whole_units() -> None:
    numbers = torch.randn(7, 11, generator=torch.Generator().manual_seed(0))
    found, unit = round_to_19_bits(numbers)
    assert torch.equal(found / unit, (found / unit).round())
    torch.testing.assert_close(found, numbers, rtol=0, atol=float(numbers.abs().max()) * 2**-19)


@pytest.mark.parametrize("bias", [None, torch.linspace(-1, 1, 6)])
def test_exact_products_of_rows_and_weights_are_products_of_rows_and_weights(bias: Tensor | None) -> None:
    draw = torch.Generator().manual_seed(1)
    x, weight = torch.randn(20, 300, generator=draw), torch.randn(6, 300, generator=draw)
    offset = 0 if bias is None else bias.double()
    expected = x.double() @ weight.double().T + offset
    torch.testing.assert_close(exact_linear(x, weight, bias).double(), expected, rtol=0, atol=4e-4)
    assert torch.equal(exact_linear(x.double(), weight.double()), x.double() @ weight.double().T)
    kept = quantise(x)
    torch.testing.assert_close(
        exact_linear(kept, weight, bias).double(), kept.double() @ weight.double().T + offset, rtol=0, atol=2e-2
    )


@pytest.mark.parametrize(("rows", "weights"), [((3, 4), (2, 5)), ((3, 4), (4,)), ((3, 2, 4), (2, 4))])
def test_shapes_that_do_not_fit_are_refused(rows: tuple[int, ...], weights: tuple[int, ...]) -> None:
    with pytest.raises(SpecError, match=r"rows \(c, d\) and weights \(k, d\)"):
        exact_linear(torch.ones(rows), torch.ones(weights))
