"""Hypothesis classes: every labelling of the public points has one representative, and no other has."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from dpbench_plugins.theory.learners.classes import (
    CLASSES,
    CellCandidates,
    HalfPlaneClass,
    RectangleClass,
    RowCandidates,
    find_hypothesis_class,
)
from dpbench_plugins.theory.learners.graph import label_variable_components
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dpbench import SpecError


def _points(count: int, features: int, seed: int) -> Tensor:
    return torch.randn(count, features, generator=torch.Generator().manual_seed(seed))


def _patterns(found: CellCandidates | RowCandidates, points: Tensor) -> list[tuple[bool, ...]]:
    said = found.yes[found.cell(points)] if isinstance(found, CellCandidates) else found.answers(points)
    return [tuple(column) for column in said.T.tolist()]


def _labelled(points: Tensor, name: str) -> set[tuple[bool, ...]]:
    """Return every pattern of a class, by brute force over cuts between points."""
    lines = [
        [-math.inf, *((a + b) / 2 for a, b in itertools.pairwise(sorted(axis))), math.inf] for axis in points.T.tolist()
    ]
    if name == "thresholds":
        return {tuple(x >= t for (x,) in points.tolist()) for t in lines[0]}
    if name == "intervals":
        return {tuple(a <= x < b for (x,) in points.tolist()) for a in lines[0] for b in lines[0]}
    if name == "rectangles":
        return {
            tuple(a <= x < b and c <= y < d for x, y in points.tolist())
            for a, b in itertools.product(lines[0], repeat=2)
            for c, d in itertools.product(lines[1], repeat=2)
        }
    return {
        sign
        for axis, cuts in zip(points.T.tolist(), lines, strict=True)
        for t in cuts
        for sign in (tuple(x >= t for x in axis), tuple(x < t for x in axis))
    }


@pytest.mark.parametrize(
    ("name", "features"), [("thresholds", 1), ("intervals", 1), ("rectangles", 2), ("stumps", 1), ("stumps", 3)]
)
@given(count=st.integers(1, 7), seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_every_pattern_of_the_class_is_represented(name: str, features: int, count: int, seed: int) -> None:
    points, hypotheses = _points(count, features, seed), find_hypothesis_class(name, features, "sspp")
    patterns = _patterns(hypotheses.representatives(points), points)
    assert set(patterns) == _labelled(points, name)
    assert len(patterns) <= hypotheses.max_representatives(count, features)
    assert name == "stumps" or len(set(patterns)) == len(patterns)


@given(count=st.integers(1, 12), seed=st.integers(0, 10**6))
@settings(max_examples=40, deadline=None)
def test_half_planes_have_covers_number_of_patterns(count: int, seed: int) -> None:
    points = _points(count, 2, seed)  # in general position
    patterns = _patterns(HalfPlaneClass().representatives(points), points)
    assert len(set(patterns)) == len(patterns) == count * count - count + 2


@given(seed=st.integers(0, 10**6), far=st.sampled_from([1e-18, 1.0, 1e12]))
@settings(max_examples=20, deadline=None)
def test_random_half_planes_label_points_as_a_representative_does(seed: int, far: float) -> None:
    points, normals = _points(9, 2, seed) * far, _points(50, 2, seed + 1)
    known = set(_patterns(HalfPlaneClass().representatives(points), points))
    for normal in normals:
        scores = points @ normal
        assert tuple((scores >= scores.median()).tolist()) in known


@given(coordinates=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8, unique=True))
@settings(max_examples=40, deadline=None)
def test_points_in_a_row_make_fewer_rectangles(coordinates: list[tuple[int, int]]) -> None:
    points = torch.tensor(coordinates).float()
    patterns = _patterns(RectangleClass().representatives(points), points)
    assert set(patterns) == _labelled(points, "rectangles")
    assert len(set(patterns)) == len(patterns) <= RectangleClass().max_representatives(len(points), 2)


def test_a_row_says_the_same_alone_and_among_others() -> None:
    points, rows = _points(30, 2, 1), _points(500, 2, 2)
    found = HalfPlaneClass().representatives(points)
    assert torch.equal(torch.cat([found.answers(row.unsqueeze(0)) for row in rows]), found.answers(rows))


def test_a_class_of_the_plane_takes_two_features() -> None:
    with pytest.raises(SpecError, match=r"Expected 2 feature\(s\) for hypotheses=rectangles in learner 'sspp', got 5"):
        find_hypothesis_class("rectangles", 5, "sspp")
    assert all(name == "stumps" or hypotheses.dimension for name, hypotheses in CLASSES.items())


def test_variables_that_are_active_together_are_one_component() -> None:
    on = torch.tensor([[1, 1, 0, 0, 0, 0], [0, 1, 0, 1, 0, 0], [0, 0, 0, 0, 1, 1]]).bool()
    assert label_variable_components(on).tolist() == [0, 0, 1, 0, 2, 2]
    assert label_variable_components(on[:0]).tolist() == [0, 1, 2, 3, 4, 5]
