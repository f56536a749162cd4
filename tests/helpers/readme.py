"""The README and the documentation, cut into the parts that tests run; and their tables, made from committed results.

`python -m tests.helpers.readme` writes the tables into the pages.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench import registry
from dpbench.board.index import Index
from dpbench.docs.tables import (
    board_tables,
    challenge_tables,
    distance_tables,
    label_tables,
    learner_overview,
    learner_tables,
    released_tables,
    sweep_tables,
    unit_tables,
    unseen_data,
)
from dpbench.docs.tables.grid_tables import format_score
from dpbench.records.packed import list_records
from dpbench.records.result import Interval, Result
from tests.helpers import forgeries, hostile_plugins

if TYPE_CHECKING:
    from dpbench_lab.inspect.report import GainPrediction

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "dpbench" / "docs"
LEADERBOARD = ROOT / "leaderboard"
FIGURES = LEADERBOARD / "figures"
FIGURE = FIGURES / "pillar-figure-4"


@cache
def index() -> Index:
    """Return the committed leaderboard."""
    return Index.read(LEADERBOARD / "leaderboard.json")


@cache
def compared_orders() -> unseen_data.UnseenDataComparison:
    """Return the orders of learners on unseen data and on the other data."""
    return unseen_data.compare_orders(index().standings)


@dataclass(frozen=True)
class Page:
    """A page of Markdown that somebody wrote."""

    file: Path

    @property
    def name(self) -> str:
        """Its path within the documentation, or the README's name."""
        return str(self.file.relative_to(DOCS if self.file.is_relative_to(DOCS) else ROOT))

    @property
    def text(self) -> str:
        """All of it."""
        return self.file.read_text(encoding="utf-8")

    def blocks(self, language: str) -> list[str]:
        """Return the code blocks of a language, in order."""
        return re.findall(rf"^```{language}\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE)

    def commands(self) -> list[str]:
        """Return every command of every console block, in order."""
        lines = [line for block in self.blocks("console") for line in block.splitlines()]
        return [line[2:] for line in lines if line.startswith("$ ")]

    def code(self) -> str:
        """Return the Python blocks, in order, but for those that the line above names a file, or says why not."""
        found = re.findall(r"^([^\n]*)\n\n?```python\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE)
        return "\n".join(code for above, code in found if not re.fullmatch(r"`[^`]+`:|<!-- not run .+: .+ -->", above))

    def not_run(self) -> Iterator[tuple[str, list[list[str]]]]:
        """Yield what is said above each text block with commands, and the words of each command."""
        for above, block in re.findall(r"^([^\n]*)\n```text\n(.*?)^```", self.text, re.DOTALL | re.MULTILINE):
            lines = [line.split("  #")[0] for line in block.splitlines()]
            if any(line.startswith(("dpbench ", "pip ")) for line in lines):
                yield above, [shlex.split(line)[1:] for line in lines if line.startswith("dpbench ")]

    def with_tables(self) -> str:
        """Return the text with its tables as the committed results have them."""

        def made(found: re.Match[str]) -> str:
            return f"<!-- table: {found[1]} -->\n{TABLES[found[1]]()}\n<!-- end -->"

        return re.sub(r"<!-- table: (\S+) -->\n.*?<!-- end -->", made, self.text, flags=re.DOTALL)


README = Page(ROOT / "README.md")
PAGES = [README, *(Page(file) for file in sorted(DOCS.rglob("*.md")))]


def prediction_table() -> str:
    """Return what PILLAR's theorem predicts of features, from the inspections, beside what was measured at each k."""
    lines = [
        "| features | γ | k, gain by the printed bounds | k, gain by the noise of a score | ε | best measured k "
        "| accuracy | accuracy in all dimensions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found: dict[tuple[str, float], dict[int, Interval]] = {}
    for result in _results("theory-prediction"):
        at = found.setdefault((result.spec.dataset.name, result.spec.epsilon), {})
        at[int(result.spec.learner.options["k"])] = result.metrics["accuracy"]
    for (dataset, epsilon), measured in sorted(found.items()):
        by_k, features, told = predicted(dataset)
        best = max(measured, key=lambda k: measured[k].mean)
        cells = [f"{dataset}, d {features}", f"{told.gamma:.3f}"]
        for k, gains in ((told.best_printed, told.printed), (told.best_noise, told.noise)):
            cells.append(f"{k}, {gains[by_k.index(k)]:.2f}")
        cells += [f"{epsilon:g}", str(best), format_score(measured[best]), format_score(measured[max(measured)])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def clipping_table() -> str:
    """Return what each clipping rule gains on the boards of the study at epsilon 1, and on all of them."""
    from dpbench_lab.clipping.study import read_scores, render_table

    return render_table(read_scores())


def advice_table() -> str:
    """Return how well `dpbench advise` predicts the boards, each from all others."""
    from tests.lab import advice

    return advice.table()


def predicted(dataset: str) -> tuple[tuple[int, ...], int, GainPrediction]:
    """Return the k that were inspected of a dataset, its dimensions, and what PILLAR's theorem makes of each k."""
    from dpbench_lab.inspect.prediction import predict_gains
    from dpbench_lab.inspect.report import Inspection

    extractor = "pixels" if dataset == "digits" else "efficientnet-lite0"
    (file,) = (LEADERBOARD / "inspections").glob(f"inspection-{dataset}-{extractor}-*.json")
    found = Inspection.model_validate_json(file.read_text(encoding="utf-8"))
    assert found.separability is not None
    by_k = found.asked.k
    return by_k, found.features, predict_gains(by_k, found.features, found.spectrum, found.separability)


@cache
def _results(figure: str) -> list[Result]:
    return [Result.read(file) for file in list_records(FIGURES / figure)]


TAIL_SWEEPS = ("tails", "tails-45000", "tails-private")
TABLES: Mapping[str, Callable[[], str]] = {
    "head": lambda: board_tables.render_winners_table(index()),
    "forgeries": forgeries.table,
    "hostile-plugins": hostile_plugins.table,
    "learners": lambda: learner_overview.render_learner_overview(index(), registry.load()),
    "distances": lambda: board_tables.render_distances_table(index()),
    "distance-by-data": lambda: distance_tables.render_chance_distance_table(index().standings),
    "challenge-seeds": lambda: challenge_tables.render_challenge_table(index().standings),
    "unseen-data": lambda: unseen_data.render_order_table(compared_orders()),
    "verified": lambda: board_tables.render_verification_table(index()),
    "choice": lambda: board_tables.render_user_options_table(index()),
    "extractors": lambda: sweep_tables.render_extractors_table(_results("extractors")),
    "theory-prediction": prediction_table,
    "theory-pillar-tail": lambda: sweep_tables.render_tail_energy_table(_results("theory-pillar-tail")),
    "tails": lambda: learner_tables.render_trained_tails_table([r for sweep in TAIL_SWEEPS for r in _results(sweep)]),
    "without-photographs": lambda: learner_tables.render_without_photographs_table(_results("without-photographs")),
    "public-labels-gain": lambda: label_tables.render_public_prior_gain_table(_results("public-labels")),
    "calibration": lambda: label_tables.render_calibration_table(_results("public-labels")),
    "advice": advice_table,
    "clipping-rules": clipping_table,
    "unit-epsilons": lambda: unit_tables.render_unit_epsilon_table(_results("price-of-the-unit")),
    "unit-price": lambda: unit_tables.render_unit_price_table(_results("price-of-the-unit")),
    "unit-promise": lambda: unit_tables.render_equal_protection_table(_results("price-of-the-unit")),
}


def file_named(name: str) -> str:
    """Return the code block that follows a line naming the file, in the page on adding a learner."""
    text = Page(DOCS / "how-to" / "add-a-learner.md").text
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"the page shows no file {name}"
    return found.group(1)


def draw_images() -> dict[Path, str]:
    """Return the drawn images of pages by file, as the committed results have them."""
    drawn = {
        "heat-map": board_tables.render_families_heat_map(index()),
        "released": released_tables.render_attack_figure(released_tables.read_attack_rows()),
        "unseen-data": unseen_data.render_order_figure(compared_orders()),
    }
    return {DOCS / "images" / f"{name}.svg": text for name, text in drawn.items()}


if __name__ == "__main__":
    for image, text in draw_images().items():
        image.write_text(text, encoding="utf-8")
    for page in PAGES:
        page.file.write_text(page.with_tables(), encoding="utf-8")
