"""The README and the documentation, cut into the parts that tests run; and their tables, made from committed results.

`python -m tests.readme` writes the tables into the pages.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from dpbench import registry
from dpbench.board.index import Entry, Index, Standing
from dpbench.inspection.prediction import predict
from dpbench.inspection.report import Inspection, Prediction
from dpbench.records.result import Interval, Result
from dpbench.reproduce.document import compared, coverage
from dpbench.sweep.figures import published

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "dpbench" / "docs"
LEADERBOARD = ROOT / "leaderboard"
FIGURES = LEADERBOARD / "figures"
FIGURE = FIGURES / "pillar-figure-4"
RULES = {"default": "default", "public-validation": "tuned"}


def index() -> Index:
    """Return the committed leaderboard."""
    return Index.read(LEADERBOARD / "leaderboard.json")


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


def head_table() -> str:
    """Return one line a board that has results: who is first, and what no privacy would give."""
    lines = ["| board | rank 1 | the first of them | without privacy |", "|---|---|---|---|"]
    for standing in _filled():
        first, _, ceiling = _told(standing)
        cells = [standing.board.title, _names(first), _percent(first[0]), _percent(ceiling[0] if ceiling else None)]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def boards_table() -> str:
    """Return one line a board that has results: who is first, beside public labels alone and no privacy."""
    lines = [
        "| board | entries | rank 1 | the first of them | is worth so many public labels | all of those alone "
        "| without privacy |",
        "|---|---|---|---|---|---|---|",
    ]
    for standing in _filled():
        first, *_ = found = _told(standing)
        scores = [_percent(entries[0] if entries else None) for entries in found]
        cells = [standing.board.title, str(len(_of_role(standing, "entry"))), _names(first)]
        cells += [scores[0], str(first[0].worth or ""), *scores[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _told(standing: Standing) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """Return who is on rank 1, who reads public labels alone, and the ceiling."""
    ranked = _of_role(standing, "entry")
    first = [entry for entry in ranked if entry.rank == ranked[0].rank]
    alone = _of_role(standing, "control")
    alone.sort(key=lambda entry: entry.selection != "default")  # whose learning curve it is
    return first, alone, _of_role(standing, "ceiling")


def _of_role(standing: Standing, role: str) -> list[Entry]:
    return [entry for entry in standing.entries if entry.role == role]


def _names(entries: list[Entry]) -> str:
    return ", ".join(dict.fromkeys(f"`{entry.learner}`" for entry in entries))


def dataset_table(start: str) -> str:
    """Return learners against boards whose names begin with `start`, by default settings and tuned."""
    standings = [standing for standing in _filled() if standing.board.name.startswith(start)]
    columns = [(standing, rule) for standing in standings for rule in RULES if _of(standing, rule)]
    titles = [f"ε {standing.board.epsilon:g}, {RULES[rule]}" for standing, rule in columns]
    head = ["learner", *titles, *(["published, ε 0.7"] if start == CIFAR else [])]
    lines = [f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for learner in _order(columns):
        cells = [_name(learner, columns), *(_percent(_of(standing, rule).get(learner)) for standing, rule in columns)]
        if start == CIFAR:
            cells.append(_table_1(learner, standings))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


CIFAR, CHEST, FASHION, DIGITS = "cifar10-lite0", "pneumonia-lite0", "fashion-mnist-lite0", "digits"
RANDP = "cifar10-randp"


def figure_table() -> str:
    """Return accuracy against k, from the results of `pillar-figure-4`."""
    found = {}
    for result in _results("pillar-figure-4"):
        found[result.spec.learner.options.get("k", math.inf), result.spec.epsilon] = result.metrics["accuracy"]
    lines = ["| k | ε 0.1 | ε 0.7 | ε ∞ |", "|---|---|---|---|"]
    for k in sorted({k for k, _ in found}):
        cells = [_said(found[k, epsilon]) for epsilon in (0.1, 0.7, math.inf)]
        lines.append(f"| {'all (`dp-sgd`)' if k == math.inf else k} | {' | '.join(cells)} |")
    return "\n".join(lines)


def public_table() -> str:
    """Return accuracy against the amount of public data, from the results of `pillar-table-2b`."""
    found = {result.spec.public_fraction: result for result in _results("pillar-table-2b")}
    series = published.read().series["pillar-table-2b-supervised"]
    printed = {one.at["public_fraction"]: one.percent for one in series.points if one.at["dataset"] == "cifar10"}
    lines = ["| public images | measured | published |", "|---|---|---|"]
    for share, result in sorted(found.items()):
        measured = _said(result.metrics["accuracy"])
        lines.append(f"| {result.task.public:,} ({share:.0%}) | {measured} | {printed[share]:.2f} |")
    return "\n".join(lines)


def without_data_table() -> str:
    """Return accuracy against epsilon of features that saw no photograph, from the results of `dp-randp-table-4`."""
    found: dict[float, dict[str, str]] = {}
    for result in _results("dp-randp-table-4"):
        extractor = result.spec.extractor.name
        found.setdefault(result.spec.epsilon, {})[extractor] = _said(result.metrics["accuracy"])
    points = published.read().series["dp-randp-table-4"].points
    printed = {one.at["epsilon"]: f"{one.percent:.2f}" for one in points}
    lines = ["| ε | pixels | ScatterNet | `randp-wrn16-4` | published |", "|---|---|---|---|---|"]
    for epsilon, by_extractor in sorted(found.items()):
        cells = [by_extractor.get(name, "") for name in ("pixels", "scatternet", "randp-wrn16-4")]
        lines.append(f"| {epsilon:g} | {' | '.join(cells)} | {printed[epsilon]} |")
    return "\n".join(lines)


def prediction_table() -> str:
    """Return what PILLAR's theorem predicts of features, from the inspections, beside what was measured at each k."""
    lines = [
        "| features | γ | as printed: k, gain | by noise: k, gain | ε | best k measured | accuracy there "
        "| in all dimensions |",
        "|---|---|---|---|---|---|---|---|",
    ]
    found: dict[tuple[str, float], dict[int, Interval]] = {}
    for result in _results("theory-prediction"):
        at = found.setdefault((result.spec.dataset.name, result.spec.epsilon), {})
        at[int(result.spec.learner.options["k"])] = result.metrics["accuracy"]
    for (dataset, epsilon), measured in sorted(found.items()):
        by_k, features, told = predicted(dataset)
        best = max(measured, key=lambda k: measured[k].mean)
        cells = [f"{dataset}, {features} dimensions", f"{told.gamma:.3f}"]
        for k, gains in ((told.best_printed, told.printed), (told.best_noise, told.noise)):
            cells.append(f"{k}, {gains[by_k.index(k)]:.2f}")
        cells += [f"{epsilon:g}", str(best), _said(measured[best]), _said(measured[max(measured)])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdicts_table() -> str:
    """Return the verdict on each theorem that has a figure, and what was found, in a sentence."""
    lines = ["| figure | compared | verdict | found |", "|---|---|---|---|"]
    for one in coverage(LEADERBOARD, registry.load()):
        if one.study.finding:
            lines.append(f"| `{one.study.name}` | {compared(one)} | {one.verdict} | {one.study.finding} |")
    return "\n".join(lines)


def predicted(dataset: str) -> tuple[tuple[int, ...], int, Prediction]:
    """Return the k that were inspected of a dataset, its dimensions, and what PILLAR's theorem makes of each k."""
    extractor = "pixels" if dataset == "digits" else "efficientnet-lite0"
    (file,) = (LEADERBOARD / "inspections").glob(f"inspection-{dataset}-{extractor}-*.json")
    found = Inspection.model_validate_json(file.read_text(encoding="utf-8"))
    assert found.separability is not None
    by_k = found.asked.k
    return by_k, found.features, predict(by_k, found.features, found.spectrum, found.separability)


def _results(figure: str) -> list[Result]:
    return [Result.read(file) for file in sorted((FIGURES / figure).glob("*.json"))]


def _filled() -> list[Standing]:
    return [standing for standing in index().standings if standing.entries]


def _of(standing: Standing, rule: str) -> dict[str, Entry]:
    """Return the entries of one rule of selection by learner; the ceiling stands among the defaults."""
    return {entry.learner: entry for entry in standing.entries if entry.selection == rule}


def _order(columns: list[tuple[Standing, str]]) -> list[str]:
    """Return every learner, by its best mean over the columns of the largest epsilon."""
    largest = max(standing.board.epsilon for standing, _ in columns)
    best: dict[str, float] = {}
    for standing, rule in columns:
        for learner, entry in _of(standing, rule).items():
            mean = entry.metrics["accuracy"].mean if standing.board.epsilon == largest else 0.0
            last = 1.0 if entry.role == "ceiling" else mean
            best[learner] = max(best.get(learner, 0.0), last)
    return sorted(best, key=lambda learner: (best[learner], learner))


def _name(learner: str, columns: list[tuple[Standing, str]]) -> str:
    entries = [found[learner] for standing, rule in columns if learner in (found := _of(standing, rule))]
    words = "reads public labels" if any(entry.reads == "features and labels" for entry in entries) else ""
    words = "no privacy" if any(entry.role == "ceiling" for entry in entries) else words
    return f"`{learner}`" + (f" ({words})" if words else "")


def _table_1(learner: str, standings: list[Standing]) -> str:
    for standing in standings:
        for one in standing.board.published:
            if standing.board.epsilon == 0.7 and one.learner == learner:
                return f"{100 * one.value:.2f}"
    return ""


def _percent(entry: Entry | None) -> str:
    return "" if entry is None else _said(entry.metrics["accuracy"])


def _said(value: Interval) -> str:
    half = 0.0 if value.high is None else 100 * (value.high - value.mean)
    return f"{100 * value.mean:.2f}" + (f" ± {half:.2f}" if half >= 0.005 else "")


TABLES: Mapping[str, Callable[[], str]] = {
    "head": head_table,
    "boards": boards_table,
    **{start: partial(dataset_table, start) for start in (CIFAR, CHEST, FASHION, DIGITS, RANDP)},
    "pillar-figure-4": figure_table,
    "pillar-table-2b": public_table,
    "dp-randp-table-4": without_data_table,
    "theory-prediction": prediction_table,
    "theory-verdicts": verdicts_table,
}


def file_named(name: str) -> str:
    """Return the code block that follows a line naming the file, in the page on adding a learner."""
    text = Page(DOCS / "how-to" / "add-a-learner.md").text
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"the page shows no file {name}"
    return found.group(1)


if __name__ == "__main__":
    for page in PAGES:
        page.file.write_text(page.with_tables(), encoding="utf-8")
