"""The figure of attacks on released models, made from `released.csv` in this folder.

`python -m tests.helpers.released_attacks` runs the attacks and writes `released.csv`.
"""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpbench.analysis.draw import Line, draw_lines, format_tick_label, new_figure, render_figure, score_without_interval
from dpbench.analysis.palette import REFERENCE, assign_learner_styles
from dpbench.audit.released_scores import CONFIDENCE, clopper_pearson_interval
from dpbench.records.released import TARGET_WORDS, ReleasedModelAttack, Targets
from dpbench.records.result import Interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FILE = Path(__file__).with_name("released.csv")
TITLES = {"digits": "Digits", "pneumonia": "Chest X-rays", "cifar10": "CIFAR-10"}
SHOWN_RATE = 0.01  # of false positives
INFINITY_PLACE = 64.0  # of ε = ∞ on the axis of ε
BOUND = "bound by ε and δ"


@dataclass(frozen=True)
class AttackRow:
    """One membership test at one false-positive rate."""

    dataset: str
    private: int
    learner: str
    epsilon: float
    accuracy: float
    targets: str
    attack: str
    auc: float
    rate: float
    positives: int
    members: int
    false: int
    others: int
    bound: float

    @property
    def share(self) -> Interval:
        """The true-positive rate with its 95% interval."""
        low, high = clopper_pearson_interval(self.positives, self.members, 1 - CONFIDENCE)
        return Interval(mean=self.positives / self.members, low=low, high=high)


def list_attack_rows(attack: ReleasedModelAttack) -> list[AttackRow]:
    """Return a row for each membership test and false-positive rate of an attack."""
    private = next(test.records for test in attack.tests if test.targets == "average")
    spec = attack.spec
    return [
        AttackRow(
            spec.dataset.name, private, spec.learner.name, spec.epsilon, round(attack.accuracy, 5), test.targets,
            test.attack, round(test.auc, 5), found.rate, found.positives, test.members, found.false, test.others,
            found.bound,
        )
        for test in attack.tests
        for found in test.rates
    ]  # fmt: skip


def write_attack_rows(rows: Iterable[AttackRow], file: Path = FILE) -> None:
    """Write rows as CSV."""
    with file.open("w", encoding="utf-8", newline="") as out:
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(field.name for field in fields(AttackRow))
        writer.writerows(map(astuple, rows))


def read_attack_rows(file: Path = FILE) -> list[AttackRow]:
    """Read the rows that `write_attack_rows` wrote."""
    kinds: dict[str, Callable[[str], Any]] = {"str": str, "int": int, "float": float}
    columns = {field.name: str(field.type) for field in fields(AttackRow)}
    with file.open(encoding="utf-8", newline="") as lines:
        read = list(csv.DictReader(lines))
    return [AttackRow(**{name: kinds[kind](row[name]) for name, kind in columns.items()}) for row in read]


def render_attack_figure(rows: Sequence[AttackRow]) -> str:
    """Return the figure as SVG: share of members found against ε, for average and planted records of each dataset."""
    return render_figure(lambda: _make_figure(rows), "svg").decode()


def _select_shown_rows(rows: Sequence[AttackRow]) -> list[AttackRow]:
    return [row for row in rows if row.attack == "lira" and row.rate == SHOWN_RATE]


def _format_epsilon(epsilon: float) -> str:
    return "∞" if math.isinf(epsilon) else f"{epsilon:g}"


def _make_figure(rows: Sequence[AttackRow]) -> Figure:
    figure = new_figure(7.6, 5.0)
    kinds: tuple[Targets, ...] = ("average", "planted")
    grid = figure.subplots(len(kinds), len(TITLES), sharex=True, sharey=True)
    shown = _select_shown_rows(rows)
    drawn: list[Line] = []
    for axes_row, kind in zip(grid, kinds, strict=True):
        for axes, (dataset, title) in zip(axes_row, TITLES.items(), strict=True):
            panel = [row for row in shown if (row.dataset, row.targets) == (dataset, kind)]
            drawn = _draw_panel(axes, panel)
            axes.set_title(f"{title}, {TARGET_WORDS[kind]}", loc="left")
            axes.minorticks_off()
    places = {min(row.epsilon, INFINITY_PLACE): _format_epsilon(row.epsilon) for row in shown}
    grid[0][0].set_xticks(list(places), list(places.values()))  # axes are shared
    grid[0][0].set_yticks([0.1, 1, 10, 100], [format_tick_label(value) for value in (0.1, 1, 10, 100)])
    for axes in grid[:, 0]:
        axes.set_ylabel("members found, %")
    for axes in grid[-1]:
        axes.set_xlabel("ε")
    handles, _ = grid[0][0].get_legend_handles_labels()
    figure.legend(handles=handles, loc="lower center", ncols=len(drawn))
    figure.subplots_adjust(left=0.08, right=0.99, top=0.94, bottom=0.17, hspace=0.25, wspace=0.08)
    return figure


def _draw_panel(axes: Axes, panel: Sequence[AttackRow]) -> list[Line]:
    places = {row.epsilon: min(row.epsilon, INFINITY_PLACE) for row in panel}
    styles = assign_learner_styles({row.learner for row in panel})
    lines = [
        Line(
            learner, {places[row.epsilon]: _to_percent(row.share) for row in panel if row.learner == learner}, style,
            stroke="-",
        )
        for learner, style in sorted(styles.items())
    ]  # fmt: skip
    largest = {
        place: score_without_interval(100 * max(row.bound for row in panel if row.epsilon == epsilon))
        for epsilon, place in places.items()
    }
    lines.append(Line(BOUND, largest, REFERENCE, stroke="--", marked=False))
    draw_lines(axes, lines)
    axes.axhline(100 * SHOWN_RATE, color=REFERENCE.hex, linewidth=0.8, linestyle=":")
    axes.set(xscale="log", yscale="log", ylim=(0.1, 130))
    return lines


def _to_percent(share: Interval) -> Interval:
    low, high = (None if end is None else 100 * end for end in (share.low, share.high))
    return Interval(mean=100 * share.mean, low=low, high=high)
