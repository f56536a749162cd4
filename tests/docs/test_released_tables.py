"""The figure of attacks on released models, and the rows that it shows."""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path

import pytest

from dpbench.docs.tables.released_tables import (
    AttackRow,
    read_attack_rows,
    render_attack_figure,
    write_attack_rows,
)

ROW = AttackRow("digits", 1_294, "thrift", 1.0, 0.88, "average", "lira", 0.53, 0.01, 150, 10_000, 100, 10_000, 0.02)
OTHERS = {
    "planted": dataclasses.replace(ROW, targets="planted", positives=30, members=1_500),
    "without noise": dataclasses.replace(ROW, epsilon=math.inf, bound=1.0),
    "planted without noise": dataclasses.replace(ROW, targets="planted", epsilon=math.inf, positives=5_000, bound=1.0),
    "at another rate": dataclasses.replace(ROW, rate=0.001, positives=9),
    "by RMIA": dataclasses.replace(ROW, attack="rmia", positives=140),
}
ROWS = [ROW, *OTHERS.values()]


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    write_attack_rows(ROWS, tmp_path / "rows.csv")
    assert read_attack_rows(tmp_path / "rows.csv") == ROWS


def test_the_figure_has_a_panel_for_each_dataset_and_kind_of_record() -> None:
    pytest.importorskip("matplotlib")
    rows = [dataclasses.replace(row, dataset=name) for name in ("digits", "pneumonia", "cifar10") for row in ROWS]
    drawn = render_attack_figure(rows)
    for words in ("Digits, private records", "CIFAR-10, planted outliers", "thrift", "bound by ε and δ", "∞"):
        assert words in drawn


def test_no_committed_attack_finds_more_than_its_bound_allows() -> None:
    from dpbench.audit.released_scores import make_roc_point

    rows = read_attack_rows()
    assert len({(row.dataset, row.learner, row.epsilon) for row in rows}) == len(rows) / 8
    for row in rows:
        counts = row.positives, row.members, row.false, row.others
        assert not make_roc_point(row.rate, *counts, row.bound).exceeded
