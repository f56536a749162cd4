"""Integer products are exact by either way of taking them, and a row's floats have the same bits wherever it stands."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dpbench import exact_linear, quantise, residuals, unit_norm
from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.core.exact import products
from dpbench.privacy.core.exact.elementwise import exp_, folded, softmax_
from dpbench.privacy.core.exact.products import (
    choose_product_function,
    exact_int8_product,
    is_product_right,
    multiply_by_float,
    multiply_by_int8,
    multiply_by_narrow_int8,
)
from dpbench.privacy.core.exact.quantised import QuantisedRows, exact_product, round_numbers, slice_numbers
from dpbench.privacy.core.exact.sums import lengths

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


def _int8(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randint(-128, 128, shape, generator=draw, dtype=torch.int8)


@given(st.integers(1, 40), st.integers(1, 3000), st.integers(1, 40), SEEDS)
def test_products_are_exact_by_either_way(rows: int, inner: int, columns: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    a, b = _int8(draw, rows, inner), _int8(draw, inner, columns)
    expected = a.long() @ b.long()
    assert torch.equal(multiply_by_float(a, b).long(), expected)
    assert torch.equal(exact_int8_product(a, b).long(), expected)
    for multiply in (multiply_by_int8, multiply_by_narrow_int8):
        if is_product_right(multiply, "cpu"):
            assert torch.equal(multiply(a, b).long(), expected)
            assert torch.equal(multiply(a // 2, b.T.contiguous().T).long(), (a // 2).long() @ b.long())


@pytest.mark.parametrize("value", [-128, 127])
@pytest.mark.parametrize("inner", [products.LONGEST, products.LONGEST + 1, 2 * products.LONGEST + 5])
def test_the_longest_sums_do_not_overflow(value: int, inner: int) -> None:
    a = torch.full((2, inner), value, dtype=torch.int8)
    assert set(exact_int8_product(a, a.T).flatten().tolist()) == {value * value * inner}


@pytest.mark.parametrize("inner", [products.BLOCK, 2**11 + 1, 2**13 + 3])
def test_long_sums_are_exact_in_float32(inner: int) -> None:
    a = torch.full((1, inner), 127, dtype=torch.int8)
    assert multiply_by_float(a, a.T).item() == 127 * 127 * inner


@pytest.mark.parametrize("shape", [(0, 3, 2), (3, 0, 2), (3, 2, 0)])
def test_products_of_nothing_are_zero(shape: tuple[int, int, int]) -> None:
    rows, inner, columns = shape
    found = exact_int8_product(torch.ones(rows, inner, dtype=torch.int8), torch.ones(inner, columns, dtype=torch.int8))
    assert found.shape == (rows, columns)
    assert not found.any()


def test_instructions_that_saturate_are_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """As vpmaddubsw does: pairs of products of the first matrix, 128 added, are added up in 16 bits."""

    def either(a: Tensor, b: Tensor) -> Tensor:
        vector = len(a) == 1 or b.shape[1] == 1
        return saturating(b.T, a.T).T if vector else saturating(a, b)  # a library turns these around

    def saturating(a: Tensor, b: Tensor) -> Tensor:
        inner = a.shape[1] // 2 * 2
        terms = (a[:, :inner].int() + 128).unsqueeze(2) * b[:inner].int()  # (p, c, d)
        pairs = (terms[:, ::2] + terms[:, 1::2]).clamp(-(2**15), 2**15 - 1)
        total: Tensor = pairs.sum(1) - 128 * b[:inner].int().sum(0) + a[:, inner:].int() @ b[inner:].int()
        return total.int()

    monkeypatch.setattr(torch, "_int_mm", either)
    assert not is_product_right(multiply_by_int8, "cpu")
    assert is_product_right(multiply_by_narrow_int8, "cpu")
    monkeypatch.setattr(products, "_is_product_quick", lambda product, device: True)
    assert choose_product_function.__wrapped__("cpu") is multiply_by_narrow_int8


def test_instructions_that_a_library_emulates_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(a: Tensor, b: Tensor) -> Tensor:
        time.sleep(0.01)
        return (a.long() @ b.long()).int()

    monkeypatch.setattr(torch, "_int_mm", slow)
    assert is_product_right(multiply_by_int8, "cpu")
    assert choose_product_function.__wrapped__("cpu") is multiply_by_float


def test_without_int8_instructions_products_are_taken_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(a: Tensor, b: Tensor) -> Tensor:
        raise RuntimeError("no such operation")

    monkeypatch.setattr(torch, "_int_mm", missing)
    assert choose_product_function.__wrapped__("cpu") is multiply_by_float
    monkeypatch.setattr(products, "choose_product_function", choose_product_function.__wrapped__)
    a = _int8(torch.Generator().manual_seed(0), 5, 70)
    assert torch.equal(exact_int8_product(a, a.T).long(), a.long() @ a.long().T)


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
        lambda x, y: lengths(x),
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
def test_slices_add_up_to_the_numbers(count: int, width: int, power: int, seed: int) -> None:
    numbers = torch.randn(5, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 10.0**power
    slices, scale = slice_numbers(numbers, count)
    found = sum(part.double() * 2.0 ** (-7 * i) for i, part in enumerate(slices)) * scale.unsqueeze(1)
    assert bool(((found - numbers).abs() <= scale.unsqueeze(1) * 2.0 ** (-7 * (count - 1) - 1)).all())
    assert bool((scale <= numbers.abs().amax(1) / 32).all())
    assert torch.equal(scale.log2(), scale.log2().round())
    assert all(int(part.abs().max()) <= 64 for part in slices)


def test_numbers_are_rounded_to_whole_units() -> None:
    numbers = torch.randn(7, 11, generator=torch.Generator().manual_seed(0))
    found, unit = round_numbers(numbers)
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
