"""The README of the leaderboard on the Hugging Face hub: a dataset card generated from the index."""

from __future__ import annotations

from dpbench.analysis.formats import format_percent_score
from dpbench.board.index import Entry, Index, Standing
from dpbench.board.rows import describe_trust
from dpbench.site import view
from dpbench.site.cost import make_cost_cells
from dpbench.site.text import escape_markdown

ENTRIES_FILE = "entries.parquet"  # what the hub shows and `datasets.load_dataset` reads
MAX_ENTRIES = 10  # entries of a board; the rest is in leaderboard.json
SIZES = ((1_000, "n<1K"), (10_000, "1K<n<10K"), (100_000, "10K<n<100K"))

INTRODUCTION = """\
# The dpbench leaderboard

Which private learner is best on this data, at this ε? Every number here comes from a result file in `results/` that
passed `dpbench leaderboard verify`, which computes ε from plan and noise with two accountants. A board is a frozen
protocol in `boards/`, and only results of the same board are ranked together. `entries.parquet` has a row per entry,
with typed columns and `settings` as JSON text; `pandas.read_parquet` reads it, and so does
`datasets.load_dataset("OWNER/NAME", split="entries")`. `leaderboard.json` holds all boards and entries at full
precision; `schema.json` describes its keys. A rank in brackets is the one without correction for the number of
comparisons; one "with labels" is that of a learner that reads public labels. CPU is the processor time of one fit, and
memory is the peak of the whole run. An empty cell means that the result does not record the value.
"""


def make_dataset_card(index: Index) -> bytes:
    """Return the dataset card: the header that the hub reads, then a table for each board that has entries."""
    from huggingface_hub import DatasetCardData

    count = sum(len(standing.entries) for standing in index.standings)
    header = DatasetCardData(
        pretty_name="dpbench leaderboard",
        license="apache-2.0",
        task_categories=["image-classification"],
        size_categories=[next((name for limit, name in SIZES if count < limit), "100K<n<1M")],
        tags=["dpbench", "leaderboard", "differential-privacy"],
        configs=[{"config_name": "entries", "data_files": [{"split": "entries", "path": ENTRIES_FILE}]}],
    ).to_yaml()
    parts = [INTRODUCTION, f"{escape_markdown(index.ranking)}\n", *map(_render_board_table, index.standings)]
    empty = [f"`{standing.board.name}`" for standing in index.standings if not standing.entries]
    if empty:
        parts.append(f"Boards without results yet: {', '.join(empty)}.\n")
    body = "\n".join(filter(None, parts))
    return f"---\n{header.strip()}\n---\n\n{body}".encode()


def _render_board_table(standing: Standing) -> str:
    board, entries = standing.board, standing.entries
    if not entries:
        return ""
    first = view.list_top_entries(standing, MAX_ENTRIES)
    rest = [] if len(first) == MAX_ENTRIES else entries[len(first) : MAX_ENTRIES]
    rows = [_render_table_row(entry, board.metric) for entry in (*first, *rest)]
    more = f"\n{len(entries) - MAX_ENTRIES} more in `leaderboard.json`.\n" if len(entries) > MAX_ENTRIES else ""
    dataset, extractor = escape_markdown(str(board.dataset)), escape_markdown(str(board.extractor))
    facts = f"`{board.name}`: {dataset}, {extractor}, ε {board.epsilon:g}"
    columns = ("rank", "learner", f"{board.metric.replace('_', ' ')}, %", "ε", "trust", "CPU, s", "memory")
    head = f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n"
    return f"## {escape_markdown(board.title)}\n\n{facts}, δ {board.delta:g}.\n\n{head}{''.join(rows)}{more}"


def _render_table_row(entry: Entry, metric: str) -> str:
    other, spent = view.uncorrected_rank(entry), make_cost_cells(entry)
    rank = entry.role if entry.rank is None else f"{entry.rank} ({other})" if other else str(entry.rank)
    rank += " with labels" * bool(entry.rank and entry.reads_labels)
    value = format_percent_score(entry.metrics[metric]) if metric in entry.metrics else ""
    cells = (
        rank,
        escape_markdown(entry.learner),
        value,
        f"{entry.epsilon:.4g}",
        entry.status or describe_trust(entry),
        spent.seconds,
        spent.memory,
    )
    return f"| {' | '.join(cells)} |\n"
