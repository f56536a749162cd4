"""Taking one row away moves a clipped sum by at most the clip, in integers, whatever the other rows are."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from fractions import Fraction
from itertools import repeat
from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from dpbench import (
    AnchorBasis,
    Blocks,
    Chunk,
    DenseBasis,
    Joined,
    RankOne,
    Release,
    Residual,
    Scaled,
    SpecError,
    exact_linear,
    quantise,
    residuals,
)
from dpbench.errors import ComponentFailed, NotPerExample, PrivacyError
from dpbench.harness.tuning.stack import StackedOuterProducts
from dpbench.privacy.core.exact.sums import IntegerSum, _weighted_squares, weights_within
from dpbench.privacy.core.forms.blocks import wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution, Rows
from dpbench.privacy.core.rows import PrivateRows
from dpbench.privacy.purity import spotchecks
from tests.helpers.worlds import curator_over, private_rows
from tests.privacy.core.test_exact import on_a_gpu, threads

SEEDS = st.integers(0, 2**32 - 1)
POWERS = st.sampled_from([-30, -12, -3, 0, 0, 3, 12, 24, 30])
CLIPS = st.sampled_from([1e-9, 0.3, 1.0, 1e3, 1e9])
FORMS = ("rows", "joined", "rank one", "with bias", "scaled", "scaled with bias", "residual", "residual of anchors")


def _rows(draw: torch.Generator, c: int, width: int, power: int) -> Tensor:
    """Return rows of very different lengths, some with one large entry, some with one that is not finite."""
    rows = torch.randn(c, width, generator=draw) * 10.0**power
    rows *= 10.0 ** torch.randint(-3, 4, (c, 1), generator=draw)
    rows[::3, 0] *= 50
    for place, poison in ((4, torch.nan), (5, torch.inf), (6, -torch.inf)):
        rows[place : place + 1, -1] = poison
    return rows


def _basis(draw: torch.Generator, m: int, d: int, anchored: bool) -> AnchorBasis | DenseBasis:
    anchors = RankOne(torch.randn(4, m, generator=draw), quantise(torch.randn(4, d, generator=draw)), bias=True)
    dense = anchors.left.double().unsqueeze(2) * torch.nn.functional.pad(
        anchors.right.double(), (0, 1), value=1.0
    ).unsqueeze(1)
    values, vectors = torch.linalg.eigh(dense.flatten(1) @ dense.flatten(1).T)
    kept = values > 1e-4 * values[-1]
    mixing = (vectors[:, kept] / values[kept].sqrt()).float()
    if anchored:
        return AnchorBasis(anchors, mixing)
    whole = torch.linalg.qr(dense.flatten(1).T @ mixing.double()).Q
    return DenseBasis(whole.reshape(m, d + 1, -1).float())


def _form(name: str, c: int, m: int, d: int, power: int, seed: int) -> Contribution:
    draw = torch.Generator().manual_seed(seed)
    left, right = _rows(draw, c, m, power // 2), _rows(draw, c, d, power - power // 2)
    outer = RankOne(left, right, bias="bias" in name or "residual" in name)
    if name == "rows":
        return Rows(right)
    if name == "joined":
        return Joined((left, right, right[:, :1]))
    if "scaled" in name:
        return Scaled(outer, 10 ** (torch.rand(m, d + outer.bias, generator=draw) * 4 - 2))
    if "residual" in name:
        return Residual(outer, _basis(draw, m, d, "anchors" in name))
    return outer


def _length(moved: Tensor, grid: Tensor) -> Fraction:
    """Return the exact square of the norm of what moved, in rational numbers."""
    steps = torch.broadcast_to(grid, moved.shape).flatten().tolist()
    entries = zip(steps, moved.flatten().tolist(), strict=True)
    return sum(((Fraction(step) * whole) ** 2 for step, whole in entries), Fraction(0))


def _without(form: Contribution, place: int) -> Contribution:
    return form.take(torch.tensor([i for i in range(len(form)) if i != place], dtype=torch.int64))


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", FORMS)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 40), POWERS, CLIPS, SEEDS)
@settings(max_examples=25, deadline=None)
def test_one_row_moves_the_integers_by_at_most_the_clip(
    name: str, c: int, m: int, d: int, power: int, clip: float, seed: int
) -> None:
    form = _form(name, c, m, d, power, seed)
    whole = form.clipped_sum(clip)
    for place in range(min(c, 7)):
        rest = _without(form, place).clipped_sum(clip)
        assert torch.equal(whole.grid, rest.grid)
        assert _length(whole.total - rest.total, whole.grid) <= Fraction(clip) ** 2


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", FORMS)
@given(st.integers(0, 9), st.integers(1, 4), st.integers(1, 20), POWERS, SEEDS)
@settings(max_examples=8, deadline=None)
def test_the_same_integers_on_two_threads_in_any_order_in_any_chunks_and_on_a_gpu(
    name: str, c: int, m: int, d: int, power: int, seed: int
) -> None:
    form = _form(name, c, m, d, power, seed)
    expected = form.clipped_sum(0.7)
    order = torch.randperm(c, generator=torch.Generator().manual_seed(seed))
    with threads(2):
        assert torch.equal(form.take(order).clipped_sum(0.7).total, expected.total)
    with on_a_gpu():
        assert torch.equal(form.clipped_sum(0.7).total, expected.total)
    if c:
        parts = [form.take(part) for part in torch.split(order, max(1, c // 3))]
        together = sum((part.clipped_sum(0.7) for part in parts[1:]), parts[0].clipped_sum(0.7))
        assert torch.equal(together.total, expected.total)


def _value(summed: IntegerSum) -> Tensor:
    return summed.value().flatten()


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", FORMS)
@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 40), SEEDS, st.sampled_from([0.05, 1.0, 30.0]))
@example(8, 2, 4, 952, 0.05)  # a residual of 0.21 of its row
@example(10, 1, 4, 1916, 0.05)  # one of 0.243
@settings(max_examples=25, deadline=None)
def test_integers_are_those_of_the_clipped_rows(name: str, c: int, m: int, d: int, seed: int, clip: float) -> None:
    """To two hundredths of the clip for each row.

    A row is weighed down by what rounding needs, below 0.4%, and so that its left factor fits into the 16,254 steps of
    14 bits. That of an outer product at the clip is 2^21 / |q| long, |q| >= 127: at most 2^21 / 16,254 / 127 - 1 = 1.6%
    too long. A scale within 10^0.1 leaves a grid that is coarser by four or two: it fits. At the clip a residual's row
    is clip / share long, share = |residual| / |row|: 2^19 / (share |q|) steps of its grid, which fits from 0.254 on.
    """
    form = _form(name, c, m, d, 0, seed)
    if isinstance(form, Residual):
        outer = RankOne(form.outer.left, form.outer.quantised_right(), True)
        form = Residual(outer, form.basis)
        form = form.take((form.norms() > 0.26 * outer.norms()).nonzero().squeeze(1))
    elif isinstance(form, RankOne | Scaled):
        outer = form if isinstance(form, RankOne) else form.outer
        outer = RankOne(outer.left, outer.quantised_right(), outer.bias)
        form = outer if isinstance(form, RankOne) else Scaled(outer, form.scale**0.05)
    kept = form.norms().isfinite().nonzero().squeeze(1)
    dense = form.take(kept).dense().double().flatten(1)
    norms = dense.norm(dim=1).clamp(min=1e-12)
    expected = (clip / norms).clamp(max=1) @ dense
    assert float((_value(form.clipped_sum(clip)) - expected).norm()) <= 0.02 * clip * len(kept)


EQUAL: dict[str, Callable[[int], Contribution]] = {
    "rows": lambda width: Rows(torch.ones(1, 64 * width)),
    "joined": lambda width: Joined((torch.ones(1, 32 * width),) * 2),
    "rank one": lambda width: RankOne(torch.ones(1, 64), torch.ones(1, width)),
    "scaled": lambda width: Scaled(RankOne(torch.ones(1, 64), torch.ones(1, width)), torch.ones(64, width)),
}


@pytest.mark.parametrize("name", EQUAL)
def test_a_row_that_rounds_up_everywhere_stays_within_the_clip(name: str) -> None:
    """Entries are equal: all of a row is rounded up, or all of it down, as its width has it."""
    for width in range(1000, 1020):
        summed = EQUAL[name](width).clipped_sum(1.0)
        squares = sum(entry * entry for entry in summed.total.flatten().tolist())
        room = Fraction(1 / float(summed.grid.max())) ** 2
        assert room * 15 / 16 <= squares <= room


@given(SEEDS)
def test_a_weight_leaves_room_for_two_roundings_in_float32(seed: int) -> None:
    norms = torch.rand(50, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) * 100 + 1
    for norm, weight in zip(norms.tolist(), weights_within(norms, 1.0).float().tolist(), strict=True):
        assert Fraction(norm) * Fraction(weight) * (1 + Fraction(2) ** -23) <= 1


@given(st.integers(1, 5), st.integers(1, 4), st.integers(1, 30), SEEDS)
def test_squares_under_a_scale_are_never_under_estimated(c: int, m: int, d: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    right, shares = quantise(torch.randn(c, d, generator=draw)), torch.rand(m, d, generator=draw).double()
    found = _weighted_squares(right, shares)
    for i in range(c):
        for j in range(m):
            pairs = zip(right.q[i].tolist(), shares[j].tolist(), strict=True)
            assert Fraction(float(found[j, i])) >= sum(q * q * Fraction(share) for q, share in pairs)


@pytest.mark.quick(2)
@pytest.mark.parametrize("total", [8192.0, 2.0**20])
@pytest.mark.parametrize("d", [1, 40])
def test_sums_that_sit_at_powers_of_two_hide_no_row(total: float, d: int) -> None:
    """In float32 the ulp of such a sum is the size of many a row, and each rounds with the rows before it."""
    count = 100_000
    rows = torch.zeros(count, d)
    rows[: int(min(total, count - 1)), 0] = 1.0
    rows[int(min(total, count - 1)) :, 0] = 2.0**-12 * (1 + 2.0**-9)
    for form in (Rows(rows), RankOne(torch.ones(count, 1), rows)):
        whole = form.clipped_sum(1.0)
        for place in (0, count // 2, count - 1):
            rest = _without(form, place).clipped_sum(1.0)
            assert _length(whole.total - rest.total, whole.grid) <= 1


@pytest.mark.quick(4)
@pytest.mark.parametrize("chunk_size", [1, 7, 30, 31])
@pytest.mark.parametrize("name", ["rank one", "rows", "residual"])
def test_one_example_moves_a_curators_sum_by_at_most_the_clips_in_any_chunks(
    name: str, chunk_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sums are read before noise is added."""
    draw = torch.Generator().manual_seed(3)
    x = torch.randn(31, 6, generator=draw) * 10.0 ** torch.randint(-3, 3, (31, 1), generator=draw)
    y, weights, basis = torch.arange(31) % 3, torch.randn(3, 6, generator=draw), _basis(draw, 3, 6, anchored=False)
    summed: list[IntegerSum] = []

    def kept(total: IntegerSum, noise: object) -> Tensor:
        summed.append(total)
        return total.value()

    def rows(chunk: Chunk) -> Any:
        left = chunk.x @ weights.T
        if name == "rows":
            return left
        outer = RankOne(left, chunk.rows, bias=True)
        rest = Residual(outer, basis)
        return Blocks((rest.embedding, rest)) if name == "residual" else outer

    monkeypatch.setattr("dpbench.privacy.core.sum.add_drawn_noise", kept)
    clips = (0.3, 0.1) if name == "residual" else (0.3,)
    for size in (31, 30):
        private = PrivateRows(x[:size].clone(), y[:size], torch.arange(size))
        curator = curator_over(private, [Release("sum")], sigma=1.0).map(lambda rows: rows)
        curator.noisy_sum(rows, release="sum", clip=clips, chunk_size=chunk_size)
    for bound, part, other in zip(clips, summed[: len(clips)], summed[len(clips) :], strict=True):
        assert _length(part.total - other.total, part.grid) <= Fraction(bound) ** 2


@pytest.mark.parametrize("dense", [True, False])
def test_one_example_moves_a_curators_sum_by_its_own_integers(dense: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(5000, 6, generator=torch.Generator().manual_seed(3)) + 1
    y, summed = torch.zeros(5000, dtype=torch.int64), list[IntegerSum]()

    def kept(total: IntegerSum, noise: object) -> Tensor:
        summed.append(total)
        return total.value()

    monkeypatch.setattr("dpbench.privacy.core.sum.add_drawn_noise", kept)
    for part in (x, x[:-1], x[-1:]):
        curator = curator_over(PrivateRows(part, y[: len(part)], torch.arange(len(part))), [Release("sum")], sigma=1.0)
        rows: Callable[[Chunk], Any] = lambda chunk: chunk.x if dense else RankOne(chunk.x[:, :2], chunk.x)
        curator.noisy_sum(rows, release="sum", clip=1.0)
    whole, rest, alone = (total.total for total in summed)
    assert torch.equal(whole - rest, alone)


@given(st.integers(1, 4), st.integers(1, 5), st.integers(0, 9), st.integers(1, 30), SEEDS)
@settings(max_examples=40, deadline=None)
def test_settings_together_have_the_integers_that_each_has_alone(s: int, m: int, c: int, d: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    left, right = torch.randn(s, m, c, generator=draw), quantise(torch.randn(c, d, generator=draw))
    clips = tuple(torch.logspace(-1, 1, s, dtype=torch.float64).tolist())
    together = StackedOuterProducts(left, right).clipped_sum(clips)
    for index, clip in enumerate(clips):
        alone = RankOne(left[index].T, right, bias=True).clipped_sum(clip)
        assert torch.equal(together.total[index], alone.total)
        assert torch.equal(together.grid[index], alone.grid)


def test_a_form_that_lies_about_its_tensors_is_measured_as_what_it_is() -> None:
    """A subclass of Tensor may redefine how it is squared: forms keep plain tensors, at every depth."""

    class Small(Tensor):
        @classmethod
        def __torch_function__(
            cls, function: object, types: object, args: tuple[object, ...] = (), kwargs: object = None
        ) -> object:
            found = super().__torch_function__(function, types, args, kwargs or {})  # type: ignore[no-untyped-call]
            return found * 1e-6 if getattr(function, "__name__", "") in {"square", "abs", "amax"} else found

    big = (torch.ones(2, 3) * 100).as_subclass(Small)
    outer = RankOne(big, big)
    for form in (
        Rows(big),
        Joined((big, big)),
        outer,
        RankOne(big, quantise(big)),
        Scaled(outer, torch.ones(3, 3).as_subclass(Small)),
    ):
        for (block,) in (wrap_blocks(form), wrap_blocks(dataclasses.replace(form))):
            summed = block.clipped_sum(1.0)
            assert type(summed.total) is Tensor
            row = block.take(torch.tensor([0])).clipped_sum(1.0)
            assert _length(row.total, row.grid) <= 1


class Doubling(TorchFunctionMode):
    """Redefines functions of torch, as a mode of a framework may."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        return found * 2 if isinstance(found, Tensor) and found.is_floating_point() else found


class Coarse(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Redefines operations, as an emulation of low precision does."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = function(*args, **(kwargs or {}))
        return found.bfloat16().to(found.dtype) if isinstance(found, Tensor) and found.is_floating_point() else found


@contextmanager
def _set(setter: Callable[[Any], None], value: object, before: object) -> Iterator[None]:
    setter(value)
    try:
        yield
    finally:
        setter(before)


@pytest.mark.quick(6)
@pytest.mark.parametrize("arithmetic", [nullcontext, on_a_gpu])
@pytest.mark.parametrize(
    "surroundings",
    [
        lambda: torch.autocast("cpu", dtype=torch.bfloat16),
        lambda: torch.inference_mode(),
        lambda: _set(torch.set_float32_matmul_precision, "medium", "highest"),
        lambda: _set(torch.set_default_dtype, torch.float64, torch.float32),
        Doubling,
        Coarse,
    ],
    ids=["autocast", "inference", "precision", "dtype", "functions", "operations"],
)
def test_answers_do_not_depend_on_what_is_set_around_the_question(
    surroundings: Callable[[], AbstractContextManager[object]],
    arithmetic: Callable[[], AbstractContextManager[None]],
) -> None:
    rows, weights = private_rows(500, 20), torch.randn(3, 20, generator=torch.Generator().manual_seed(0))
    scale = torch.rand(3, 21, generator=torch.Generator().manual_seed(1)) + 0.5
    basis = _basis(torch.Generator().manual_seed(2), 3, 20, anchored=True)

    def question(chunk: Chunk) -> Blocks:
        outer = RankOne(residuals(exact_linear(chunk.rows, weights), chunk.y), chunk.rows, bias=True)
        return Blocks((outer, Scaled(outer, scale), chunk.x, Residual(outer, basis)))

    def answers() -> tuple[Tensor, ...]:
        curator = curator_over(rows, [Release("sum", 2)], sigma=0.5).handle().map(lambda x: x * 2)
        return tuple(curator.noisy_sum(question, release="sum", clip=(0.5, 0.5, 0.5, 0.5)))

    with arithmetic():
        expected = answers()
        with surroundings():
            found = answers()
    for tensor, other in zip(found, expected, strict=True):
        assert tensor.dtype == torch.float32
        assert torch.equal(tensor, other)


def test_a_residual_moves_a_sum_by_itself_alone_however_later_rows_fall_into_chunks() -> None:
    """Rounded in every chunk, V times the embeddings would move by a step with each pair that is split otherwise."""
    basis, clip = DenseBasis(torch.full((4, 1024, 1), 2.0**-6)), 1.0
    half_a_step = torch.tensor([1.0, 1.0, 0.0, 0.0]).repeat(50) * 1.0001 * 2.0**-22
    left, right = half_a_step[:, None].expand(-1, 4), quantise(torch.ones(200, 1024))
    form = Residual(RankOne(left, right), basis)
    whole, rest = (
        sum((part.clipped_sum(clip) for part in parts[1:]), parts[0].clipped_sum(clip))
        for parts in ([form.take(part) for part in torch.split(torch.arange(start, 200), 2)] for start in (0, 1))
    )
    assert torch.equal(whole.grid, rest.grid)
    assert int((whole.total - rest.total).abs().max()) <= 1


def test_chunks_of_other_shapes_or_scales_are_not_added() -> None:
    """One-hot labels are as wide as a chunk's largest label: added by broadcasting, a row would count several times."""

    def one_hot(chunk: Chunk) -> Tensor:
        return torch.eye(3)[chunk.y, : int(chunk.y.max()) + 1 if len(chunk) else 3]

    y = torch.tensor([2, 2, 2, 2, 0, 0, 0, 0])
    private = PrivateRows(torch.ones(8, 1), y, torch.arange(8))
    curator = curator_over(private, [Release("sum", steps=2)], sigma=1.0)
    with pytest.raises(NotPerExample, match=r"task\.classes"):
        curator.noisy_sum(one_hot, release="sum", clip=1.0, chunk_size=4)
    with pytest.raises(NotPerExample):
        curator.noisy_sum(lambda chunk: chunk.x, release="sum", clip=1.0)
    outer = RankOne(torch.ones(2, 1), torch.ones(2, 2))
    with pytest.raises(NotPerExample):
        Scaled(outer, torch.ones(1, 2)).clipped_sum(1.0) + Scaled(outer, torch.full((1, 2), 1.5)).clipped_sum(1.0)
    with pytest.raises(NotPerExample):
        outer.clipped_sum(1.0) + Rows(torch.ones(2, 1)).clipped_sum(1.0)


def test_the_scale_of_a_bias_leaves_room_for_sums_in_64_bits() -> None:
    outer = RankOne(torch.ones(2, 1), torch.ones(2, 1), bias=True)
    with pytest.raises(SpecError, match="Raise the small scales"):
        Scaled(outer, torch.tensor([[1e-6, 1e7]])).clipped_sum(1.0)
    form = Scaled(RankOne(torch.full((20_000, 1), 1e3), torch.ones(20_000, 1), bias=True), torch.tensor([[1.0, 6e7]]))
    row = form.take(torch.tensor([0])).clipped_sum(1.0)
    assert torch.equal(form.clipped_sum(1.0).total, 20_000 * row.total)


def test_no_private_row_has_a_part_in_the_shape_or_the_scale_of_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spotchecks, "_draw_moments", lambda *_: repeat(False))  # as most chunks of a long fit

    def wide(chunk: Chunk) -> Tensor:
        return chunk.x.new_ones(len(chunk), 1 + int((chunk.y == 2).any()))

    def scaled(chunk: Chunk) -> Scaled:
        return Scaled(RankOne(chunk.x, chunk.x), torch.full((1, 1), 1.0 + 0.5 * int((chunk.y == 2).any())))

    private = PrivateRows(torch.ones(4, 1), torch.tensor([0, 1, 0, 2]), torch.arange(4))
    for rows in (wide, scaled, lambda chunk: torch.nn.functional.one_hot(chunk.y).float()):
        for row in (torch.arange(4), torch.arange(3)):  # with the one example of class 2, and without it
            curator = curator_over(dataclasses.replace(private, index=row), [Release("sum")], sigma=1.0)
            if int(row[-1]) == 3 or rows not in (wide, scaled):
                with pytest.raises((NotPerExample, ComponentFailed)):
                    curator.noisy_sum(rows, release="sum", clip=1.0)
            else:
                answer = curator.noisy_sum(rows, release="sum", clip=1.0)
                assert isinstance(answer, Tensor)
                assert answer.shape[-1] == 1


def test_a_sum_that_64_bits_may_not_hold_is_refused_before_any_row_is_read() -> None:
    scale = torch.tensor([[1.0, 2.0**26]])
    form = Scaled(RankOne(torch.zeros(0, 1), torch.zeros(0, 1), bias=True), scale)
    form.clipped_sum(1.0).check_fits_64_bits(2**17)
    with pytest.raises(SpecError, match="262,144 rows to fit into 64 bits"):
        form.clipped_sum(1.0).check_fits_64_bits(2**18)


def test_rows_in_8_bits_whose_integers_were_replaced_are_refused() -> None:
    right = quantise(torch.eye(2, 40))
    right.q = torch.full_like(right.q, 127)
    with pytest.raises(PrivacyError, match=r"\.float\(\)"):
        RankOne(torch.ones(2, 1), right).clipped_sum(1.0)
