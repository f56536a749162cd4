"""Gradient embedding in closed form equals rows and bases written out, and no residual's norm is under-estimated."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from dpbench_plugins.learners.gep import compute_leading_subspace
from hypothesis import given, reject
from hypothesis import strategies as st
from torch import Tensor

from dpbench import AnchorBasis, DenseBasis, RankOne, Residual
from dpbench.errors import PrivacyError, SpecError
from dpbench.privacy.core.exact.quantised import convert_to_float_rows, quantise
from dpbench.privacy.core.forms.blocks import Blocks, wrap_blocks
from dpbench.privacy.core.forms.contributions import Contribution, Rows
from dpbench.privacy.core.forms.residual.bases import Basis
from tests.helpers.oracles import clipped_sum

World = tuple[RankOne, tuple[AnchorBasis, DenseBasis]]
FORMS = pytest.mark.parametrize("form", [0, 1], ids=["anchors", "whole"])


def _normal(draw: torch.Generator, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=draw, dtype=torch.float64)


def _doubled(outer: RankOne) -> RankOne:
    return RankOne(outer.left.double(), convert_to_float_rows(outer.right).double(), outer.bias)


def _written_out(basis: Basis) -> Tensor:
    """Return V as a float64 matrix, (m * d, k)."""
    if isinstance(basis, DenseBasis):
        return basis.vectors.double().flatten(0, 1)
    assert isinstance(basis, AnchorBasis)
    return _doubled(basis.anchors).dense().flatten(1).T @ basis.mixing.double()


def _stored(residual: Residual) -> Tensor:
    """Return G - V ê in float64, (c, m * d): what the stored factors, basis and embedding say, without rounding."""
    rows = _doubled(residual.outer).dense().flatten(1)
    return rows - residual.embedding.double() @ _written_out(residual.basis).T


def _both(residual: Residual) -> tuple[Contribution, ...]:
    return wrap_blocks(Blocks((residual.embedding, residual)))


def _bases(anchors: RankOne, k: int, smallest: float = 0.2) -> tuple[AnchorBasis, DenseBasis]:
    """Return both forms of the span of the anchors' (at most) k leading directions, in the anchors' precision."""
    dense, kind = _doubled(anchors).dense(), anchors.left.dtype
    values, vectors = torch.linalg.eigh(dense.flatten(1) @ dense.flatten(1).T)
    kept = (values > smallest**2 * values[-1]).nonzero().flatten()[-k:]
    mixing = vectors[:, kept] / values[kept].sqrt()  # (s, k)
    whole = torch.linalg.qr(dense.flatten(1).T @ mixing).Q.reshape(*dense.shape[1:], len(kept))
    return AnchorBasis(anchors, mixing.to(kind)), DenseBasis(whole.to(kind))


def _world(c: int, m: int, d: int, s: int, k: int, bias: bool, seed: int) -> World:
    draw = torch.Generator().manual_seed(seed)

    def factor(n: int, width: int) -> Tensor:  # norms in [1, 2]: beside them the guard against underflow is nothing
        unit = torch.nn.functional.normalize(_normal(draw, n, width), dim=1)
        return unit * (1 + torch.rand(n, 1, generator=draw, dtype=torch.float64))

    anchors = RankOne(factor(s, m).float(), factor(s, d).float(), bias)
    return RankOne(factor(c, m).float(), quantise(factor(c, d).float()), bias), _bases(anchors, k)


SEEDS, FEW = st.integers(0, 2**32 - 1), st.integers(1, 6)
WORLDS = st.builds(_world, st.integers(0, 7), FEW, st.integers(1, 9), FEW, FEW, st.booleans(), SEEDS)


@given(WORLDS)
def test_residual_norms_are_upper_bounds_and_tight(world: World) -> None:
    """Squares are found by subtraction, so what a bound adds is a share of the whole row."""
    outer, bases = world
    for basis in bases:
        residual = Residual(outer, basis)
        true, whole = _stored(residual).norm(dim=1), _doubled(outer).dense().flatten(1).norm(dim=1)
        slack = (
            4 * (basis.rounding + basis.vector_rounding_bound)
            + 4 * (basis.defect + 3 * basis.vector_rounding_bound)
            + 1e-5
        ) * whole.square()
        assert bool((residual.norms() >= true).all())
        assert bool(
            (
                (residual.norms() - basis.vector_rounding_bound * whole * 2).clamp(min=0).square()
                <= true.square() + slack
            ).all()
        )
        torch.testing.assert_close(residual.dense().flatten(1).double(), _stored(residual), rtol=1e-4, atol=1e-5)


@given(WORLDS, st.sampled_from([0.2, 1.0, 4.0]))
def test_embeddings_and_their_sums_equal_those_of_dense_rows(world: World, clip: float) -> None:
    outer, bases = world
    for basis in bases:
        residual, embedding = Residual(outer, basis), _doubled(outer).dense().flatten(1) @ _written_out(basis)
        torch.testing.assert_close(residual.embedding.double(), embedding, rtol=1e-4, atol=1e-5)
        found = _both(residual)[0].clipped_sum(clip).value()
        torch.testing.assert_close(found, clipped_sum(Rows(embedding), clip), rtol=0, atol=1e-4 * (clip + 1))


@FORMS
@pytest.mark.parametrize("clip", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("bias", [True, False])
def test_sums_of_residuals_equal_those_of_dense_rows(form: int, clip: float, bias: bool) -> None:
    outer, bases = _world(6, 3, 60, 6, 4, bias, seed=form)
    residual = Residual(outer, bases[form])
    rest = Rows(_stored(residual))
    found = residual.clipped_sum(clip).value().flatten()
    torch.testing.assert_close(found, clipped_sum(rest, clip), rtol=0, atol=4e-3 * clip)


@given(WORLDS)
def test_both_forms_of_one_span_leave_the_same_residual(world: World) -> None:
    by_anchors, whole = (Residual(world[0], basis) for basis in world[1])
    torch.testing.assert_close(by_anchors.dense(), whole.dense(), rtol=1e-3, atol=1e-4)
    torch.testing.assert_close(by_anchors.embedding.norm(dim=1), whole.embedding.norm(dim=1), rtol=1e-4, atol=1e-4)


def _hard(seed: int, magnitude: float, jitter: float, bias: bool, form: str) -> Residual:
    """Return float32 rows almost in the span of badly conditioned anchors."""
    draw = torch.Generator().manual_seed(seed)
    m, d, s, rank = (int(torch.randint(1, top, (), generator=draw)) for top in (4, 13, 13, 4))
    mixed = _normal(draw, s, rank) @ _normal(draw, rank, d)  # correlated features
    right = mixed[:1] + 10.0 ** -(seed % 4) * _normal(draw, s, d)  # and nearly parallel ones
    left = right[:, :1] + _normal(draw, s, m) if seed % 3 else _normal(draw, s, m) * (4 * _normal(draw, s, 1)).exp()
    anchors = RankOne(left.float(), (right if seed % 5 else mixed).float(), bias or form == "subspace")
    try:
        if form == "subspace":
            basis: Basis = compute_leading_subspace(anchors, min(s, 1 + seed % 5), 1 + seed % 3, draw)
        else:
            basis = _bases(anchors, s, 1e-5)[form == "qr"]
    except SpecError:  # float32 cannot hold every one of them orthonormal
        reject()
    places = torch.randint(s, (6,), generator=draw)
    left, right = anchors.left[places].double(), anchors.right[places].double()
    if m == 1:  # any vector is a row, one in the span as well
        inside = _normal(draw, 6, basis.k) @ _written_out(basis).T
        left, right = (inside[:, -1:], inside[:, :-1] / inside[:, -1:]) if anchors.bias else (left, inside)
    left, right = (factor * (1 + jitter * _normal(draw, *factor.shape)) for factor in (left * magnitude, right))
    return Residual(RankOne(left.float(), right.float(), anchors.bias), basis)


HARD = st.builds(
    _hard, SEEDS, st.sampled_from([1e-30, 1e-12, 1e-3, 1.0, 1e3, 1e12, 1e28]),
    st.sampled_from([0.0, 1e-7, 1e-4, 1e-1, 1.0]), st.booleans(), st.sampled_from(["anchors", "qr", "subspace"]),
)  # fmt: skip


@given(HARD)
def test_float32_residual_norms_are_never_under_estimated(residual: Residual) -> None:
    finite = residual.norms().isfinite()  # the others count as zero
    assert bool((residual.norms() >= _stored(residual).norm(dim=1))[finite].all())


@given(HARD)
def test_one_row_moves_each_of_the_two_sums_by_at_most_its_clip(residual: Residual) -> None:
    for row in range(len(residual)):
        alone = residual.take(torch.tensor([row]))
        written_out = (alone.embedding.double(), _stored(alone))
        for block, dense, clip in zip(_both(alone), written_out, (0.3, 0.06), strict=True):
            norm, bound = float(block.norms()), clip * float(block.norms().isfinite())
            assert not bound or min(1.0, clip / norm) * float(dense.norm()) <= bound * (1 + 1e-12)
            assert float(block.clipped_sum(clip).value().norm()) <= bound


@FORMS
def test_rows_along_a_basis_that_is_as_skew_as_allowed_have_upper_bounds(form: int) -> None:
    anchors = RankOne(torch.eye(3), torch.eye(5)[:3])
    stretch = torch.tensor([1 + 3e-5, 1, 1 - 3e-5])
    whole = (anchors.dense().permute(1, 2, 0) * stretch).contiguous()
    basis = (AnchorBasis(anchors, torch.diag(stretch)), DenseBasis(whole))[form]
    residual = Residual(RankOne(1e3 * anchors.left, anchors.right), basis)
    assert bool((residual.norms() >= _stored(residual).norm(dim=1)).all())


def _few(rows: int = 3, m: int = 3, d: int = 5, bias: bool = False) -> RankOne:
    draw = torch.Generator().manual_seed(rows)
    return RankOne(_normal(draw, rows, m).float(), _normal(draw, rows, d).float(), bias)


@FORMS
def test_an_empty_chunk_has_no_residuals_and_sums_to_zero(form: int) -> None:
    residual = Residual(_few(0), _bases(_few(4), 2)[form])
    assert (residual.embedding.shape, residual.norms().shape, residual.dense().shape) == ((0, 2), (0,), (0, 3, 5))
    assert torch.equal(residual.clipped_sum(1.0).total, torch.zeros(3, 5, dtype=torch.int64))


@FORMS
def test_taking_rows_keeps_their_residuals_as_they_are(form: int) -> None:
    residual, picks = Residual(_few(bias=True), _bases(_few(4, bias=True), 2)[form]), torch.tensor([2, 0])
    taken = residual.take(picks)
    torch.testing.assert_close(taken.dense(), residual.dense()[picks], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(taken.dense().flatten(1), _stored(taken).float(), rtol=1e-5, atol=1e-5)


@FORMS
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 3e38])
def test_a_residual_that_is_not_finite_counts_as_zero(form: int, poison: float) -> None:
    rows, basis = _few(), _bases(_few(4), 2)[form]
    assert isinstance(rows.right, Tensor)
    rows.right[1] = poison
    others = Residual(rows.take(torch.tensor([0, 2])), basis)
    for block, kept in zip(_both(Residual(rows, basis)), _both(others), strict=True):
        assert torch.equal(block.clipped_sum(1.0).total, kept.clipped_sum(1.0).total)


@pytest.mark.parametrize("stretch", [1 + 1e-3, 1 - 1e-3, 2.0, 0.0, math.nan, math.inf])
def test_a_basis_that_is_not_orthonormal_is_refused(stretch: float) -> None:
    anchors, whole = _bases(_few(4), 2)
    for factor in (torch.tensor([[1.0, 0.0], [0.0, stretch]]), torch.tensor([[1.0, 0.0], [1e-3, 1.0]])):
        with pytest.raises(SpecError, match=r"orthonormal basis, .* by QR"):
            DenseBasis(whole.vectors @ factor)
        with pytest.raises(SpecError, match=r"orthonormal basis, .* by QR"):
            AnchorBasis(anchors.anchors, anchors.mixing @ factor)


@FORMS
def test_a_basis_that_was_changed_in_place_is_refused(form: int) -> None:
    """A basis that follows public gradients in place, between questions: residuals would be those of another."""
    basis = _bases(_few(4), 2)[form]
    made = Residual(_few(), basis)
    basis.tensors[0].mul_(1.3)
    with pytest.raises(PrivacyError, match="changed in place"):
        Residual(_few(), basis)
    with pytest.raises(PrivacyError, match="changed in place"):
        Residual(_few(), made.basis).clipped_sum(1.0)


def _bent(form: type) -> Any:
    return type("Bent", (form,), {})


@pytest.mark.parametrize(
    "made",
    [
        lambda: Residual(_bent(RankOne)(_few().left, _few().right), _bases(_few(4), 2)[0]),
        lambda: Residual(_few(), _bent(DenseBasis)(_bases(_few(4), 2)[1].vectors)),
        lambda: wrap_blocks(_bent(Residual)(_few(), _bases(_few(4), 2)[0])),
    ],
)
def test_a_subclass_which_could_give_any_norm_is_refused(made: Callable[[], object]) -> None:
    with pytest.raises(PrivacyError, match="Subclasses are not accepted"):
        made()


@FORMS
@pytest.mark.parametrize("rows", [_few(m=2), _few(d=4), _few(m=5, d=3), _few(bias=True), _few(d=6)])
def test_a_basis_of_other_rows_is_refused(rows: RankOne, form: int) -> None:
    with pytest.raises(SpecError, match="Expected a basis of rows"):
        Residual(rows, _bases(_few(4), 2)[form])


@FORMS
def test_two_kinds_of_numbers_are_refused(form: int) -> None:
    anchors, whole = _bases(_few(4), 2)
    with pytest.raises(SpecError, match="float32 or float64"):
        Residual(_doubled(_few()), (anchors, whole)[form])
    with pytest.raises(SpecError, match="float32 or float64"):
        AnchorBasis(anchors.anchors, anchors.mixing.double())
    with pytest.raises(SpecError, match="in float32, got float64"):
        DenseBasis(whole.vectors.double())
    with pytest.raises(SpecError, match="in float32, got float64"):
        AnchorBasis(_doubled(anchors.anchors), anchors.mixing.double())
