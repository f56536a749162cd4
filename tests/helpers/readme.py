"""The README and the documentation, cut into the parts that tests run; and their tables, made from committed results.

`python -m tests.helpers.readme` writes the tables into the pages.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from dpbench import registry
from dpbench.analysis.grid import GridLine, ResultGrid, make_numeric_grid
from dpbench.analysis.rows import ResultFacts, best_score, distance_behind
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import EntryRow, make_board_rows
from dpbench.docs.tables import distance_tables, heat_map, label_tables, learner_tables, unit_tables
from dpbench.docs.tables.grid_tables import epsilon_table, render_grid
from dpbench.records.metrics import Metric
from dpbench.records.packed import list_records
from dpbench.records.result import Interval, Result
from dpbench.site.overall import count_data_sets, list_overall_results
from dpbench.site.view import uncorrected_rank
from tests.helpers import forgeries, fresh, hostile_plugins, receipt_loops

if TYPE_CHECKING:
    from dpbench_lab.inspect.report import Prediction

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "dpbench" / "docs"
LEADERBOARD = ROOT / "leaderboard"
FIGURES = LEADERBOARD / "figures"
FIGURE = FIGURES / "pillar-figure-4"
RULES = {"default": "default", "public-validation": "tuned"}


@cache
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
    """Return one line a board of epsilon 1 that has results: who is first, and what no privacy would give."""
    lines = [
        "| board | rank 1 | best private score | rank 1 with public labels | `non-private` |",
        "|---|---|---|---|---|",
    ]
    for standing in (standing for standing in _filled() if standing.board.epsilon == 1):
        first, _, ceiling = _told(standing)
        scores = [_percent(standing, found) for found in (first, ceiling)]
        cells = [standing.board.title, _names(first), scores[0], _with_labels(standing), scores[1]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def boards_table() -> str:
    """Return one line a board that has results: who is first, beside public labels alone and no privacy."""
    lines = [
        "| board | entries | rank 1 | best private score | best on how many of 1,000 random halves "
        "| worth in public labels | rank 1 with public labels | all public labels alone | `non-private` |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for standing in _filled():
        first, *_ = found = _told(standing)
        scores = [_percent(standing, entries) for entries in found]
        cells = [standing.board.title, str(len(_of_role(standing, "entry"))), _names(first)]
        halves = f"{standing.stability.first:,}" if standing.stability else ""
        cells += [scores[0], halves, str(first[0].worth or "") if first else "", _with_labels(standing), *scores[1:]]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verified_table() -> str:
    """Return how many entries of each data set were audited and run again, and how."""
    counts: dict[str, list[int]] = {}
    for standing in _filled():
        found = counts.setdefault(standing.board.dataset.name, [0] * 4)
        for entry in _of_role(standing, "entry"):
            seeds = len(entry.again.seeds) if entry.again else 0
            for column, counted in enumerate((True, entry.audit is not None, entry.reproduced, seeds == 1)):
                found[column] += counted
    counts["all"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    lines = [
        "| data | entries | audited | all seeds re-run by the same code | one seed re-run |",
        "|---|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(f'{n:,}' for n in row)} |" for name, row in counts.items())])


def distances_table() -> str:
    """Return how far each learner at its defaults is behind the best entry, over all boards."""
    found, whole = list_overall_results(index()), count_data_sets(index())
    lines = [
        "| learner, default settings | points behind the best | 95% interval | datasets | boards | rank 1 on |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for place in found:
        sets = f"{place.distance.data_sets} of {whole}"
        cells = [f"`{place.distance.learner}`", place.points, place.interval, sets, place.distance.boards, place.firsts]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _told(standing: Standing) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """Return who is on rank 1 without public labels, who reads these alone, and the ceiling."""
    first = [entry for entry in _of_role(standing, "entry") if entry.rank == 1 and not entry.reads_labels]
    alone = _of_role(standing, "control")
    alone.sort(key=lambda entry: entry.selection != "default")  # whose learning curve it is
    return first, alone, _of_role(standing, "ceiling")


def _with_labels(standing: Standing) -> str:
    """Return who reads public labels and is on rank 1 of all entries, with the best of their scores."""
    first = [entry for entry in _of_role(standing, "entry") if entry.rank == 1 and entry.reads_labels]
    return f"{_names(first)}: {_percent(standing, first)}" if first else ""


def _of_role(standing: Standing, role: str) -> list[Entry]:
    return [entry for entry in standing.entries if entry.role == role]


def _names(entries: list[Entry]) -> str:
    """Return learners in order, each with the uncorrected rank of its first entry in brackets where it is another."""
    found = {entry.learner: uncorrected_rank(entry) for entry in reversed(entries)}
    order = dict.fromkeys(entry.learner for entry in entries)
    return ", ".join(f"`{name}`" + (f" ({found[name]})" if found[name] else "") for name in order)


def ladder_table(family: str) -> str:
    """Return learners, by default and tuned, against the boards of a family, from the smallest epsilon up."""
    found: dict[str, dict[float, EntryRow]] = {}
    for standing in _family(family):
        for row in make_board_rows(standing):
            found.setdefault(_row(row.entry), {})[standing.board.epsilon] = row
    grid = make_numeric_grid("", None, "ε", found)
    best = [best_score("accuracy", [grid.score(row) for _, row in grid.column(place)]) for place in range(len(grid.x))]
    lines = sorted(grid.lines, key=lambda line: _place(grid, line, best))
    return render_grid(replace(grid, lines=tuple(lines)), ("learner",), lambda row: _both(row.facts))


def lead_table() -> str:
    """Return what `thrift` at its defaults is ahead of PILLAR, default and tuned, and behind whoever is best."""
    lines = [
        "| data | mean lead over `pillar`, default | mean lead over `pillar`, tuned "
        "| largest gap to the best | boards at rank 1 |",
        "|---|---|---|---|---|",
    ]
    for family, title in LADDERS.items():
        ahead: dict[str, list[float]] = {rule: [] for rule in RULES}
        behind, first, boards = [(0.0, "")], 0, 0  # nobody is ahead
        for standing in _family(family):
            by_rule, metric = {rule: _of(standing, rule) for rule in RULES}, standing.board.metric
            ours = by_rule["default"].get("thrift")
            if ours is None:
                continue
            boards, first = boards + 1, first + (ours.rank == 1)
            for rule, entries in by_rule.items():
                if standing.board.epsilon <= 1 and "pillar" in entries:
                    ahead[rule].append(_points(ours, metric) - _points(entries["pillar"], metric))
                for entry in entries.values():
                    if entry.role == "entry" and entry is not ours and entry.reads != "features and labels":
                        named = f"`{entry.learner}`, {RULES[rule]}, ε {standing.board.epsilon:g}"
                        behind.append((_points(entry, metric) - _points(ours, metric), named))
        worst, who = max(behind)
        means = [f"{sum(points) / len(points):+.1f}" if points else "" for points in ahead.values()]
        lines.append(
            f"| {title} | {' | '.join(means)} | {f'{worst:.1f} ({who})' if who else 'none'} | {first} of {boards} |"
        )
    return "\n".join(lines)


def _family(family: str) -> list[Standing]:
    found = (standing for standing in _filled() if re.fullmatch(rf"{re.escape(family)}-eps[\d.]+", standing.board.name))
    return sorted(found, key=lambda standing: standing.board.epsilon)


def _place(grid: ResultGrid[EntryRow], line: GridLine[EntryRow], best: list[Interval]) -> tuple[bool, float]:
    """Return where a line stands: references last, then by how far it is behind the best, over the epsilons it has."""
    pairs = [(row, top) for row, top in zip(line.rows, best, strict=True) if row]
    gaps = [100 * distance_behind(grid.row_metric(row), grid.score(row), top) for row, top in pairs]
    return line.filled[0].entry.role != "entry", sum(gaps) / len(gaps)


def _row(entry: Entry) -> str:
    words = [] if entry.selection == "default" else [RULES[entry.selection]]
    words += ["reads public labels"] * entry.reads_labels + ["no privacy"] * (entry.role == "ceiling")
    return f"`{entry.learner}`" + (f" ({', '.join(words)})" if words else "")


def _points(entry: Entry, metric: Metric) -> float:
    return 100 * entry.metrics[metric].mean


def _both(facts: ResultFacts) -> str:
    """Return accuracy, and balanced accuracy beside it where classes are not equally large."""
    accuracy, balanced = (100 * facts.metrics[name].mean for name in ("accuracy", "balanced_accuracy"))
    return f"{accuracy:.1f}" + (f" / {balanced:.1f}" if abs(accuracy - balanced) > 0.3 else "")


LADDERS = {
    "cifar10-lite0": "CIFAR-10, 45,000 private images",
    "cifar10-10000-lite0": "CIFAR-10, 10,000 private images",
    "cifar10-3000-lite0": "CIFAR-10, 3,000 private images",
    "cifar10-1000-lite0": "CIFAR-10, 1,000 private images",
    "cifar10-20to1-lite0": "CIFAR-10, classes 20 to 1",
    "pneumonia-lite0": "Chest X-rays",
    "fashion-mnist-lite0-128": "Fashion-MNIST",
    "digits": "Digits",
    "ham10000-lesion-lite0-128": "Skin lesions, ε for a lesion",
    "ham10000-image-lite0-128": "Skin lesions, ε for an image",
}
OTHERS = ("cifar10-randp", "cifar10-patches-randp", "cifar10-lite012", "gtsrb-track-lite0-128", "gtsrb-image-lite0-128")


def compute_table() -> str:
    """Return the processor hours that all results on boards took together, each result once."""
    results = {result.digest: result for result in map(Result.read, list_records(LEADERBOARD / "results"))}
    hours: dict[str, float] = {}
    for result in results.values():
        for phase, seconds in result.cpu_seconds.items():
            name = {"fit": "fits", "tune": "searches on public labels"}.get(phase, "loading, calibration, scores")
            hours[name] = hours.get(name, 0.0) + seconds / 3600
    fits = sum(len(result.seeds) for result in results.values())
    lines = [f"| {len(results)} results, {fits:,} fits | processor hours |", "|---|---:|"]
    lines += [f"| {name} | {spent:.1f} |" for name, spent in sorted(hours.items(), key=lambda pair: -pair[1])]
    return "\n".join([*lines, f"| all | {sum(hours.values()):.1f} |"])


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
    from dpbench_lab.figures import literature

    series = literature.read().series["pillar-table-2b-supervised"]
    printed = {(point.at["dataset"], point.at["public_fraction"]): f"{point.percent:.2f}" for point in series.points}
    lines = ["| dataset | public images | measured | published |", "|---|---|---|---|"]
    for result in sorted(
        _results("pillar-table-2b"), key=lambda result: (result.spec.dataset.name, result.spec.public_fraction)
    ):
        dataset, share = result.spec.dataset.name, result.spec.public_fraction
        measured, published = _said(result.metrics["accuracy"]), printed.get((dataset, share), "")
        lines.append(f"| {dataset} | {result.task.public:,} ({share:.0%}) | {measured} | {published} |")
    return "\n".join(lines)


def without_data_table() -> str:
    """Return accuracy against epsilon of features that saw no photograph, from the results of `dp-randp-table-4`."""
    from dpbench_lab.figures import literature

    found: dict[float, dict[str, str]] = {}
    for result in _results("dp-randp-table-4"):
        extractor = result.spec.extractor.name
        found.setdefault(result.spec.epsilon, {})[extractor] = _said(result.metrics["accuracy"])
    series = literature.read().series
    theirs = {point.at["epsilon"]: f"{point.percent:.2f}" for point in series["dp-randp-table-4"].points}
    others = {
        point.at["epsilon"]: f"{point.percent:.2f}"
        for point in series["dp-randp-table-1"].points
        if point.at["learner"] == "scatternet"
    }
    lines = ["| ε | pixels | `randp-wrn16-4` | published | `scatternet` | published |", "|---|---|---|---|---|---|"]
    for epsilon, by_extractor in sorted(found.items()):
        pixels, network, wavelets = (by_extractor.get(name, "") for name in ("pixels", "randp-wrn16-4", "scatternet"))
        cells = [f"{epsilon:g}", pixels, network, theirs[epsilon], wavelets, others.get(epsilon, "")]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def scores_table(figure: str, metric: Metric) -> str:
    """Return the score of every learner on every dataset against epsilon, from the results of a figure."""
    results = sorted(_results(figure), key=lambda result: (result.spec.dataset.name, result.spec.learner.name))
    return epsilon_table(
        results,
        metric,
        _said,
        ("data", "learner"),
        lambda result: (result.spec.dataset.name, f"`{result.spec.learner.name}`"),
    )


def extractors_table() -> str:
    """Return what networks, pixels and precision are worth, from the results of `extractors`."""
    found: dict[str, dict[tuple[str, float], str]] = {}
    for result in _results("extractors"):
        name = re.sub(r",?(precision=float32|size=None|views=one)", "", str(result.spec.extractor))
        at = found.setdefault(re.sub(r":(?=\+|$)", "", name.replace(":,", ":")), {})
        at[result.spec.learner.name, result.spec.epsilon] = _said(result.metrics["accuracy"])
    asked = {
        "`public-only`": ("public-only", 1.0), "`thrift`, ε 0.1": ("thrift", 0.1),
        "`thrift`, ε 1": ("thrift", 1.0),
    }  # fmt: skip
    lines = [f"| extractor | {' | '.join(asked)} |", "|---|" + "---|" * len(asked)]
    for extractor, scores in sorted(found.items(), key=lambda pair: pair[1].get(("thrift", 1.0), "")):
        lines.append(f"| `{extractor}` | {' | '.join(scores.get(column, '') for column in asked.values())} |")
    return "\n".join(lines)


def prediction_table() -> str:
    """Return what PILLAR's theorem predicts of features, from the inspections, beside what was measured at each k."""
    lines = [
        "| features | γ | k and gain by the printed bounds | k and gain by the noise of a score | ε | best measured k "
        "| accuracy at that k | accuracy in all dimensions |",
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


def tail_table() -> str:
    """Return how many examples an error of 10% takes by the tail's energy, from the results of `theory-pillar-tail`."""
    errors: dict[tuple[float, int], list[tuple[int, float]]] = {}
    for result in _results("theory-pillar-tail"):
        data, k = result.spec.dataset.options, int(result.spec.learner.options["k"])
        least = 1 / (2 * len(result.seeds) * result.task.test)
        error = max(least, 1 - result.metrics["accuracy"].mean)
        errors.setdefault((float(data["tau"]), k), []).append((int(data["n"]), error))
    lines = ["| τ | n with projection | n without projection | gain | 1 / √(1 − τ) |", "|---|---:|---:|---:|---:|"]
    for tau in sorted({tau for tau, _ in errors}):
        projected, whole = (_needed(sorted(errors[tau, k]), 0.1) for k in (5, 0))
        gains = f"{whole / projected:.1f} | {1 / math.sqrt(1 - tau):.1f}"
        lines.append(f"| {tau:g} | {projected:.0f} | {whole:.0f} | {gains} |")
    return "\n".join(lines)


def _needed(measured: list[tuple[int, float]], wanted: float) -> float:
    """Return the n at which the error comes down to `wanted`, on the line between two cells in a log-log plot."""
    for (n, above), (more, below) in pairwise(measured):
        if above > wanted >= below:
            return float(n * (more / n) ** (math.log(above / wanted) / math.log(above / below)))
    raise AssertionError(f"no two cells have {wanted} between them: {measured}")


def verdicts_table() -> str:
    """Return the verdict on each theorem that has a figure, and what was found, in a sentence."""
    from dpbench_lab.reproduce.document import compare_studies, count_compared

    lines = ["| figure | compared | verdict | finding |", "|---|---|---|---|"]
    for study in compare_studies(LEADERBOARD, registry.load()):
        if study.study.finding:
            lines.append(
                f"| `{study.study.name}` | {count_compared(study)} | {study.verdict} | {study.study.finding} |"
            )
    return "\n".join(lines)


def advice_table() -> str:
    """Return how well `dpbench advise` predicts the boards, each from all others."""
    from tests.lab import advice

    return advice.table()


def predicted(dataset: str) -> tuple[tuple[int, ...], int, Prediction]:
    """Return the k that were inspected of a dataset, its dimensions, and what PILLAR's theorem makes of each k."""
    from dpbench_lab.inspect.prediction import predict
    from dpbench_lab.inspect.report import Inspection

    extractor = "pixels" if dataset == "digits" else "efficientnet-lite0"
    (file,) = (LEADERBOARD / "inspections").glob(f"inspection-{dataset}-{extractor}-*.json")
    found = Inspection.model_validate_json(file.read_text(encoding="utf-8"))
    assert found.separability is not None
    by_k = found.asked.k
    return by_k, found.features, predict(by_k, found.features, found.spectrum, found.separability)


@cache
def _results(figure: str) -> list[Result]:
    return [Result.read(file) for file in list_records(FIGURES / figure)]


def _filled() -> list[Standing]:
    return [standing for standing in index().standings if _of_role(standing, "entry")]


def _of(standing: Standing, rule: str) -> dict[str, Entry]:
    """Return the entries of one rule of selection by learner; the ceiling stands among the defaults."""
    return {entry.learner: entry for entry in standing.entries if entry.selection == rule}


def _percent(standing: Standing, entries: list[Entry]) -> str:
    """Return the first one's score by the board's metric, which is accuracy where nothing is said."""
    metric = standing.board.metric
    said = "" if metric == "accuracy" else f" ({metric.removesuffix('_accuracy').replace('_', ' ')})"
    return _said(entries[0].metrics[metric]) + said if entries else ""


def _said(value: Interval) -> str:
    half = 0.0 if value.high is None else 100 * (value.high - value.mean)
    return f"{100 * value.mean:.2f}" + (f" ± {half:.2f}" if half >= 0.005 else "")


TABLES: Mapping[str, Callable[[], str]] = {
    "head": head_table,
    "forgeries": forgeries.table,
    "hostile-plugins": hostile_plugins.table,
    "learners-by-data": fresh.learners_table,
    "extractors-run": fresh.extractors_table,
    "receipt-faults": receipt_loops.table,
    "boards": boards_table,
    "distances": distances_table,
    "distance-by-data": lambda: distance_tables.render_distance_table(index().standings),
    "verified": verified_table,
    "compute": compute_table,
    "lead": lead_table,
    **{family: partial(ladder_table, family) for family in (*LADDERS, *OTHERS)},
    "pillar-figure-4": figure_table,
    "pillar-figure-4-steps": lambda: learner_tables.render_steps_table(
        _results("pillar-figure-4-steps"), _results("pillar-figure-4-dimensions"), _said
    ),
    "pillar-table-2b": public_table,
    "dp-randp-table-4": without_data_table,
    "extractors": extractors_table,
    "theory-prediction": prediction_table,
    "theory-pillar-tail": tail_table,
    "least-squares": lambda: learner_tables.render_least_squares(_results("least-squares"), _said),
    "fine-tuning": lambda: learner_tables.render_fine_tuning(_results("fine-tuning"), _said),
    "fine-tuning-boards": lambda: learner_tables.render_fine_tuning_boards(index().standings, _said),
    "dp-randp-phase-3": lambda: learner_tables.render_third_phase(_results("dp-randp-phase-3"), _said),
    "without-photographs": lambda: learner_tables.render_without_photographs(_results("without-photographs"), _said),
    "theory-verdicts": verdicts_table,
    "public-labels": lambda: label_tables.render_score_table(_results("public-labels"), "accuracy", _said),
    "public-labels-gain": lambda: label_tables.render_gain_table(_results("public-labels")),
    "unequal-classes": lambda: label_tables.render_score_table(_results("unequal-classes"), "balanced_accuracy", _said),
    "calibration": lambda: label_tables.render_score_table(
        [result for result in _results("unequal-classes") if result.spec.metric == "accuracy"], "ece", _said
    ),
    "calibration-labels": lambda: label_tables.render_score_table(_results("public-labels"), "ece", _said),
    "prototypes": partial(scores_table, "prototypes", "balanced_accuracy"),
    "advice": advice_table,
    "unit-epsilons": lambda: unit_tables.render_unit_epsilons(_results("price-of-the-unit")),
    "unit-price": lambda: unit_tables.render_price_table(_results("price-of-the-unit")),
    "unit-promise": lambda: unit_tables.render_promise_table(_results("price-of-the-unit")),
    "unit-scores-ham10000": lambda: unit_tables.render_score_table(_results("price-of-the-unit"), "ham10000"),
    "unit-scores-gtsrb": lambda: unit_tables.render_score_table(_results("price-of-the-unit"), "gtsrb"),
}


def file_named(name: str) -> str:
    """Return the code block that follows a line naming the file, in the page on adding a learner."""
    text = Page(DOCS / "how-to" / "add-a-learner.md").text
    found = re.search(rf"^`{re.escape(name)}`:\n\n```\w+\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert found, f"the page shows no file {name}"
    return found.group(1)


def heat_map_drawn() -> str:
    """Return the picture of all families of boards with a ladder of epsilon."""
    groups = []
    for family, title in LADDERS.items():
        data, _, part = title.removesuffix(" private images").partition(", ")
        groups.append(heat_map.HeatMapGroup((data, part), tuple(_family(family))))
    return heat_map.render_heat_map(groups)


HEAT_MAP = DOCS / "images" / "heat-map.svg"


if __name__ == "__main__":
    HEAT_MAP.write_text(heat_map_drawn(), encoding="utf-8")
    for page in PAGES:
        page.file.write_text(page.with_tables(), encoding="utf-8")
