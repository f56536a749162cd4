"""Tables of the committed boards: the best entries, the data sets, the evidence, and ladders of epsilon."""

from __future__ import annotations

import re
from dataclasses import replace

from dpbench.analysis.grid import GridLine, ResultGrid, make_numeric_grid
from dpbench.analysis.rows import ResultFacts, best_score, distance_behind
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import EntryRow, make_board_rows
from dpbench.docs.tables import heat_map
from dpbench.docs.tables.grid_tables import format_score, render_grid, render_markdown_table
from dpbench.records.metrics import Metric
from dpbench.records.result import Interval
from dpbench.site.overall import count_data_sets, list_overall_results
from dpbench.site.view import uncorrected_rank

SEEDS = {"challenge seeds": "challenge", "seeds chosen by the submitter": "submitter's"}
RULES = {"default": "default", "public-validation": "tuned"}
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


def render_head_table(index: Index) -> str:
    """Return a Markdown table with a line for each board at epsilon 1: its winners and the non-private score."""
    heads = ["board", "rank 1", "best private score", "rank 1 with public labels", "`non-private`"]
    rows = []
    for standing in _list_filled_standings(index):
        if standing.board.epsilon != 1:
            continue
        first, _, ceiling = _list_leaders_and_references(standing)
        scores = [_format_best(standing, found) for found in (first, ceiling)]
        with_labels = _format_label_leaders(standing)
        rows.append([standing.board.title, _format_learners(first), scores[0], with_labels, scores[1]])
    return render_markdown_table(heads, rows)


def render_boards_table(index: Index) -> str:
    """Return a Markdown table with a line per board: the winners, public labels alone, and the non-private score."""
    heads = [
        "board", "entries", "seeds", "smallest gap", "rank 1", "best private score",
        "best on how many of 1,000 random halves", "worth in public labels", "rank 1 with public labels",
        "all public labels alone", "`non-private`",
    ]  # fmt: skip
    rows = []
    for standing in _list_filled_standings(index):
        first, *_ = found = _list_leaders_and_references(standing)
        scores = [_format_best(standing, entries) for entries in found]
        gap = f"{100 * standing.gap.low:.1f} to {100 * standing.gap.high:.1f}" if standing.gap else ""
        count = str(len(_entries_with_role(standing, "entry")))
        cells = [standing.board.title, count, SEEDS[standing.scored], gap, _format_learners(first)]
        halves = f"{standing.stability.first:,}" if standing.stability else ""
        worth = str(first[0].worth or "") if first else ""
        rows.append([*cells, scores[0], halves, worth, _format_label_leaders(standing), *scores[1:]])
    return render_markdown_table(heads, rows)


def render_verified_table(index: Index) -> str:
    """Return how many entries of each data set were audited and run again, and how."""
    counts: dict[str, list[int]] = {}
    for standing in _list_filled_standings(index):
        found = counts.setdefault(standing.board.dataset.name, [0] * 4)
        for entry in _entries_with_role(standing, "entry"):
            seeds = len(entry.again.seeds) if entry.again else 0
            for column, counted in enumerate((True, entry.audit is not None, entry.reproduced, seeds == 1)):
                found[column] += counted
    counts["all"] = [sum(column) for column in zip(*counts.values(), strict=True)]
    lines = [
        "| data | entries | audited | all seeds re-run by the same code | one seed re-run |",
        "|---|---:|---:|---:|---:|",
    ]
    return "\n".join([*lines, *(f"| {name} | {' | '.join(f'{n:,}' for n in row)} |" for name, row in counts.items())])


def render_distances_table(index: Index) -> str:
    """Return a table of the distance of each learner, with default settings, from the best entry over all boards."""
    found, whole = list_overall_results(index), count_data_sets(index)
    lines = [
        "| learner, default settings | points behind the best | 95% interval | datasets | boards | rank 1 on |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for place in found:
        sets = f"{place.distance.data_sets} of {whole}"
        cells = [
            f"`{place.distance.learner}`",
            place.points,
            place.interval,
            sets,
            place.distance.boards,
            place.first_ranks,
        ]
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def _list_leaders_and_references(standing: Standing) -> tuple[list[Entry], list[Entry], list[Entry]]:
    """Return the rank-1 entries without public labels, the entries on public labels alone, and the ceiling."""
    first = [entry for entry in _entries_with_role(standing, "entry") if entry.rank == 1 and not entry.reads_labels]
    alone = _entries_with_role(standing, "control")
    alone.sort(key=lambda entry: entry.selection != "default")  # whose learning curve it is
    return first, alone, _entries_with_role(standing, "ceiling")


def _format_label_leaders(standing: Standing) -> str:
    """Format the rank-1 entries that read public labels, with the best score; empty if there are none."""
    first = [entry for entry in _entries_with_role(standing, "entry") if entry.rank == 1 and entry.reads_labels]
    return f"{_format_learners(first)}: {_format_best(standing, first)}" if first else ""


def _entries_with_role(standing: Standing, role: str) -> list[Entry]:
    return [entry for entry in standing.entries if entry.role == role]


def _format_learners(entries: list[Entry]) -> str:
    """Return the learners by rank; the uncorrected rank of a first entry follows in brackets if it differs."""
    found = {entry.learner: uncorrected_rank(entry) for entry in reversed(entries)}
    order = dict.fromkeys(entry.learner for entry in entries)
    return ", ".join(f"`{name}`" + (f" ({found[name]})" if found[name] else "") for name in order)


def render_ladder_table(index: Index, family: str) -> str:
    """Return learners, by default and tuned, against the boards of a family, from the smallest epsilon up."""
    found: dict[str, dict[float, EntryRow]] = {}
    for standing in _list_family(index, family):
        for row in make_board_rows(standing):
            found.setdefault(_line_label(row.entry), {})[standing.board.epsilon] = row
    grid = make_numeric_grid("", None, "ε", found)
    best = [best_score("accuracy", [grid.score(row) for _, row in grid.column(place)]) for place in range(len(grid.x))]
    lines = sorted(grid.lines, key=lambda line: _line_sort_key(grid, line, best))
    return render_grid(replace(grid, lines=tuple(lines)), ("learner",), lambda row: _format_accuracies(row.facts))


def render_lead_table(index: Index) -> str:
    """Return a table of the lead of `thrift` over PILLAR (default and tuned), and its gap to the best entry."""
    heads = [
        "data", "mean lead over `pillar`, default", "mean lead over `pillar`, tuned", "largest gap to the best",
        "boards at rank 1",
    ]  # fmt: skip
    rows = []
    for family, title in LADDERS.items():
        ahead: dict[str, list[float]] = {rule: [] for rule in RULES}
        behind, first, boards = [(0.0, "")], 0, 0  # nobody is ahead
        for standing in _list_family(index, family):
            by_rule, metric = {rule: _entries_by_learner(standing, rule) for rule in RULES}, standing.board.metric
            ours = by_rule["default"].get("thrift")
            if ours is None:
                continue
            boards, first = boards + 1, first + (ours.rank == 1)
            for rule, entries in by_rule.items():
                if standing.board.epsilon <= 1 and "pillar" in entries:
                    ahead[rule].append(_score_in_points(ours, metric) - _score_in_points(entries["pillar"], metric))
                for entry in entries.values():
                    if entry.role == "entry" and entry is not ours and entry.reads != "features and labels":
                        named = f"`{entry.learner}`, {RULES[rule]}, ε {standing.board.epsilon:g}"
                        behind.append((_score_in_points(entry, metric) - _score_in_points(ours, metric), named))
        worst, who = max(behind)
        means = [f"{sum(points) / len(points):+.1f}" if points else "" for points in ahead.values()]
        rows.append([title, *means, f"{worst:.1f} ({who})" if who else "none", f"{first} of {boards}"])
    return render_markdown_table(heads, rows)


def _list_family(index: Index, family: str) -> list[Standing]:
    pattern = re.compile(rf"{re.escape(family)}-eps[\d.]+")
    found = (standing for standing in _list_filled_standings(index) if pattern.fullmatch(standing.board.name))
    return sorted(found, key=lambda standing: standing.board.epsilon)


def _line_sort_key(grid: ResultGrid[EntryRow], line: GridLine[EntryRow], best: list[Interval]) -> tuple[bool, float]:
    """Return the sort key of a line: entries before references, then the mean distance from the best."""
    pairs = [(row, top) for row, top in zip(line.rows, best, strict=True) if row]
    gaps = [100 * distance_behind(grid.row_metric(row), grid.score(row), top) for row, top in pairs]
    return line.present_rows[0].entry.role != "entry", sum(gaps) / len(gaps)


def _line_label(entry: Entry) -> str:
    words = [] if entry.selection == "default" else [RULES[entry.selection]]
    words += ["reads public labels"] * entry.reads_labels + ["no privacy"] * (entry.role == "ceiling")
    return f"`{entry.learner}`" + (f" ({', '.join(words)})" if words else "")


def _format_accuracies(facts: ResultFacts) -> str:
    """Return accuracy, and balanced accuracy beside it where classes are not equally large."""
    accuracy, balanced = (100 * facts.metrics[name].mean for name in ("accuracy", "balanced_accuracy"))
    return f"{accuracy:.1f}" + (f" / {balanced:.1f}" if abs(accuracy - balanced) > 0.3 else "")


def _score_in_points(entry: Entry, metric: Metric) -> float:
    return 100 * entry.metrics[metric].mean


def _entries_by_learner(standing: Standing, rule: str) -> dict[str, Entry]:
    """Return the entries with one selection rule, by learner; the ceiling counts as default."""
    return {entry.learner: entry for entry in standing.entries if entry.selection == rule}


def _list_filled_standings(index: Index) -> list[Standing]:
    return [standing for standing in index.standings if _entries_with_role(standing, "entry")]


def _format_best(standing: Standing, entries: list[Entry]) -> str:
    """Format the score of the first entry, naming the board's metric unless it is accuracy."""
    metric = standing.board.metric
    said = "" if metric == "accuracy" else f" ({metric.removesuffix('_accuracy').replace('_', ' ')})"
    return format_score(entries[0].metrics[metric]) + said if entries else ""


def render_families_heat_map(index: Index) -> str:
    """Return the heat map of all families of boards with a ladder of epsilon, as SVG."""
    groups = []
    for family, title in LADDERS.items():
        data, _, part = title.removesuffix(" private images").partition(", ")
        groups.append(heat_map.HeatMapGroup((data, part), tuple(_list_family(index, family))))
    return heat_map.render_heat_map(groups)
