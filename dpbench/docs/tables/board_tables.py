"""Tables of the committed boards: best entries, checked entries, a user's options, distances, and the heat map."""

from __future__ import annotations

import re
from collections.abc import Sequence

from dpbench.board.index import Entry, Index, Standing
from dpbench.docs.tables import heat_map
from dpbench.docs.tables.grid_tables import format_score, render_markdown_table
from dpbench.site.overall import count_data_sets, list_overall_results

RULES = {"default": "default", "public-validation": "tuned"}
FAMILIES = {
    "cifar10-lite0": "CIFAR-10, 45,000 private images",
    "cifar10-10000-lite0": "CIFAR-10, 10,000 private images",
    "cifar10-3000-lite0": "CIFAR-10, 3,000 private images",
    "cifar10-1000-lite0": "CIFAR-10, 1,000 private images",
    "cifar10-20to1-lite0": "CIFAR-10, classes 20 to 1",
    "pneumonia-lite0": "Chest X-rays",
    "pcam-lite0-128": "PatchCamelyon",
    "fashion-mnist-lite0-128": "Fashion-MNIST",
    "digits": "Digits",
    "ham10000-lesion-lite0-128": "Skin lesions, ε for a lesion",
    "ham10000-image-lite0-128": "Skin lesions, ε for an image",
    "odir-patient-lite0-128": "Eye fundus, ε for a patient",
    "odir-image-lite0-128": "Eye fundus, ε for an image",
    "cifar100-coarse-lite0-128": "CIFAR-100, 20 classes",
    "gtsrb-track-lite0-128": "Traffic signs, ε for a track",
    "gtsrb-image-lite0-128": "Traffic signs, ε for an image",
}
TOO_MANY_TO_NAME = 4  # tied learners in a cell


def render_winners_table(index: Index) -> str:
    """Return a Markdown table with a row per family of boards: the leading and the reference scores at epsilon 1."""
    heads = ["data", "best without public labels", "best with public labels", "`non-private`", "public labels alone"]
    rows = []
    for family, title in FAMILIES.items():
        (standing,) = (standing for standing in _list_family_standings(index, family) if standing.board.epsilon == 1)
        leaders = [
            [entry for entry in _list_entries_with_role(standing, "entry") if entry.reads_labels == labels]
            for labels in (False, True)
        ]
        references = [next(iter(_list_entries_with_role(standing, role)), None) for role in ("ceiling", "control")]
        balanced = "" if standing.board.metric == "accuracy" else " (balanced)"
        cells = [_format_leaders(standing, found) for found in leaders]
        rows.append([title + balanced, *cells, *(_format_points(standing, entry) for entry in references)])
    return render_markdown_table(heads, rows)


def _format_leaders(standing: Standing, entries: Sequence[Entry]) -> str:
    """Format the score of the best of sorted entries, with its learner and the others that share its rank."""
    best = entries[0]
    tied = [f"`{name}`" for name in dict.fromkeys(entry.learner for entry in entries if entry.rank == best.rank)]
    names = ", ".join(tied) if len(tied) < TOO_MANY_TO_NAME else f"{tied[0]}, {len(tied) - 1} tied"
    rank = "" if best.rank == 1 else f", rank {best.rank}"
    return f"{format_score(best.metrics[standing.board.metric], digits=1)}, {names}{rank}"


def render_verification_table(index: Index) -> str:
    """Return a table with the number of ranked entries, and how many are audited or re-run with all seeds."""
    entries = [
        entry
        for standing in _list_standings_with_entries(index)
        for entry in _list_entries_with_role(standing, "entry")
    ]
    audited, reproduced = sum(entry.audit is not None for entry in entries), sum(entry.reproduced for entry in entries)
    lines = ["| ranked entries | audited | all seeds re-run by the same code |", "|---:|---:|---:|"]
    return "\n".join([*lines, f"| {len(entries):,} | {audited:,} | {reproduced:,} |"])


def render_distances_table(index: Index) -> str:
    """Return a table of each learner's distance from the best entry over all boards, with default settings.

    Learners with entries on less than half of the datasets are left out: their mean is over other boards.
    """
    whole = count_data_sets(index)
    found = [place for place in list_overall_results(index) if 2 * place.distance.data_sets >= whole]
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


def _list_entries_with_role(standing: Standing, role: str) -> list[Entry]:
    return [entry for entry in standing.entries if entry.role == role]


def render_user_options_table(index: Index) -> str:
    """Return a table of a user's options at epsilon 1: public labels, `dp-sgd`, `thrift`, the best other learner."""
    heads = [
        "data", "`public-only`", "`public-prior`", "`dp-sgd`", "`thrift`", "best other learner without public labels",
        "`non-private`",
    ]  # fmt: skip
    rows = []
    for family, title in FAMILIES.items():
        (standing,) = (standing for standing in _list_family_standings(index, family) if standing.board.epsilon == 1)
        default = {entry.learner: entry for entry in standing.entries if entry.selection == "default"}
        named = ("public-only", "public-prior", "dp-sgd", "thrift", "non-private")
        *scores, ceiling = (_format_points(standing, default.get(name)) for name in named)
        others = [entry for entry in _list_entries_with_role(standing, "entry") if not entry.reads_labels]
        best = next(entry for entry in others if entry.learner != "thrift")
        tuned = "" if best.selection == "default" else f" ({RULES[best.selection]})"
        rows.append([title, *scores, f"{_format_points(standing, best)}, `{best.learner}`{tuned}", ceiling])
    return render_markdown_table(heads, rows)


def _format_points(standing: Standing, entry: Entry | None) -> str:
    return f"{100 * entry.metrics[standing.board.metric].mean:.1f}" if entry else ""


def _list_family_standings(index: Index, family: str) -> list[Standing]:
    pattern = re.compile(rf"{re.escape(family)}-eps[\d.]+")
    found = (standing for standing in _list_standings_with_entries(index) if pattern.fullmatch(standing.board.name))
    return sorted(found, key=lambda standing: standing.board.epsilon)


def _list_standings_with_entries(index: Index) -> list[Standing]:
    return [standing for standing in index.standings if _list_entries_with_role(standing, "entry")]


def render_families_heat_map(index: Index) -> str:
    """Return the heat map, as SVG, of the families of boards in `FAMILIES`, whose boards differ only in epsilon."""
    groups = []
    for family, title in FAMILIES.items():
        data, _, part = title.removesuffix(" private images").partition(", ")
        groups.append(heat_map.HeatMapGroup((data, part), tuple(_list_family_standings(index, family))))
    return heat_map.render_heat_map(groups)
