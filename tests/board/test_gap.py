"""The smallest gap: found in four of five cases, before any entry, and larger on smaller or uneven test sets."""

from __future__ import annotations

import numpy as np
import pytest

from dpbench.analysis.paired import compare_over_examples
from dpbench.board.gap import ACCURACY, POWER, compute_smallest_gap
from dpbench.records.board import find_board
from dpbench.records.units import encode_units
from tests.helpers import boards

BOARD = find_board("digits-eps1")
_, RESULT = boards.synthetic(BOARD, 2, seed=0)


def test_a_gap_of_this_size_is_found_in_four_of_five_cases() -> None:
    found, chance = compute_smallest_gap(BOARD, RESULT, 5), np.random.default_rng(0)
    assert found is not None and found.examples == RESULT.task.test
    seen = 0
    for _ in range(500):
        better, worse = (
            np.tile(chance.random(RESULT.task.test) < ACCURACY + move, (5, 1))
            for move in (found.high / 2, -found.high / 2)
        )
        seen += compare_over_examples(better, worse).is_significant
    assert seen / 500 == pytest.approx(POWER, abs=0.06)
    assert found.low == pytest.approx(found.high / 5**0.5, abs=1e-5)


def test_units_count_in_place_of_images_and_rare_classes_count_more_than_common_ones() -> None:
    images = compute_smallest_gap(BOARD, RESULT, 5)
    task = RESULT.task.model_copy(update={"test_units": encode_units(np.arange(RESULT.task.test) // 4)})
    units = compute_smallest_gap(BOARD, RESULT.model_copy(update={"task": task}), 5)
    balanced = compute_smallest_gap(BOARD.model_copy(update={"metric": "balanced_accuracy"}), RESULT, 5)
    assert images is not None and units is not None and balanced is not None
    assert units.examples == RESULT.task.test / 4 and units.high == pytest.approx(2 * images.high, abs=1e-5)
    assert balanced.examples < images.examples
    assert compute_smallest_gap(BOARD.model_copy(update={"metric": "auroc"}), RESULT, 5) is None
