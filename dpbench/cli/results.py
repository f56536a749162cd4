"""`dpbench results`: results of runs and sweeps as tables, or one result in words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.text import Text
from typer.core import TyperGroup

from dpbench.errors import SpecError
from dpbench.records.metrics import METRICS
from dpbench.records.packed import read_packed_record, record_exists
from dpbench.support.untrusted import make_printable

if TYPE_CHECKING:
    from dpbench.analysis.grid import ResultGrid
    from dpbench.analysis.reader import StoredResult
    from dpbench.analysis.rows import ResultRow
    from dpbench.analysis.text_tables import TextTable
    from dpbench.records.metrics import Metric

ScoredBy = StrEnum("ScoredBy", list(METRICS))  # type: ignore[misc]


class _DefaultTableGroup(TyperGroup):
    """A command group in which `dpbench results DIR` means `dpbench results table DIR`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Insert the default command if the arguments name no command."""
        named = args and (args[0] in self.commands or args[0] == "--help")
        parsed: list[str] = super().parse_args(ctx, args if named else ["table", *args])
        return parsed


app = typer.Typer(
    cls=_DefaultTableGroup,
    help="Show results in tables (the default), or explain one in words. For the flags of tables, such as --csv, "
    "--metric and --learner, see dpbench results table --help.",
)


@app.command("table")
def table(
    places: Annotated[
        list[Path] | None, typer.Argument(help="Folders and result files. \\[default: dpbench-results]")
    ] = None,
    learner: Annotated[str | None, typer.Option(help="Only these learners, like pillar,dp-sgd.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only these datasets.")] = None,
    epsilon: Annotated[str | None, typer.Option(help="Only these ε, like 0.1,1,inf.")] = None,
    metric: Annotated[ScoredBy | None, typer.Option(help="Metric. \\[default: accuracy]")] = None,
    columns: Annotated[
        str | None,
        typer.Option(help="Print a row per result with these columns, like learner,accuracy,sigma; see --csv for all."),
    ] = None,
    csv: Annotated[
        bool, typer.Option("--csv", help="Print CSV: a row per result, with all columns or those of --columns.")
    ] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print LaTeX, using the package booktabs.")] = False,
    chart: Annotated[
        list[Path] | None, typer.Option(help="Also draw the scores against ε to a PNG, SVG or PDF file; repeatable.")
    ] = None,
) -> None:
    """Show results in tables of learners by ε, one table per protocol. Best first; * marks ties with the best."""
    from dpbench.analysis import columns as known
    from dpbench.analysis.rows import make_result_row
    from dpbench.analysis.spreadsheet import render_csv
    from dpbench.analysis.tables import make_grids
    from dpbench.analysis.text_tables import make_result_table, make_text_tables, render_latex, render_markdown
    from dpbench.registry import load
    from dpbench.registry.components import make_component_shortener

    if csv + markdown + latex > 1:
        raise SpecError("Expected at most one of --csv, --markdown and --latex.")
    flag = "--csv" if csv else "--columns"
    if (csv or columns) and metric is not None:
        raise SpecError(f"Expected {flag} without --metric: every metric is a column.")
    if (csv or columns) and chart:
        raise SpecError(f"Expected {flag} without --chart: every metric is a column, and a chart shows one.")
    picked = known.pick_columns(columns.split(","), known.FILE_COLUMNS) if columns else known.FILE_COLUMNS
    check_charts(chart or ())
    filed = read_valid_results(places or [Path("dpbench-results")])
    chosen = [stored for stored in filed if _matches_filters(stored, learner, dataset, epsilon)]
    if not chosen:
        raise SpecError(
            f"No result of {_describe_filters(learner, dataset, epsilon)} among the {len(filed)} found. Drop a filter."
        )
    if csv:
        print(render_csv(map(make_result_row, chosen), picked), end="")
        return
    render = render_markdown if markdown else render_latex if latex else None
    if columns:
        _print_tables([make_result_table(map(make_result_row, chosen), picked)], render)
        return
    scored_by = metric or ScoredBy.accuracy  # type: ignore[attr-defined]
    tables = make_grids(chosen, read_metric_flag(scored_by), make_component_shortener(load()))
    if not tables:
        raise SpecError(f"None of the {len(chosen)} chosen results has {scored_by.value}. Choose another --metric.")
    _print_tables(make_text_tables(tables), render)
    write_charts(tables, (places or [Path("dpbench-results")])[0].resolve().name, chart or ())
    for file in chart or ():
        typer.echo(f"Wrote {file}", err=True)  # standard output is the table


def check_charts(files: Sequence[Path], flag: str = "--chart") -> None:
    """Check that chart files can be written, before any result is read.

    Raises:
        SpecError: a file is not PNG, SVG or PDF, or matplotlib is missing.
        OutputError: a folder cannot be written.
    """
    from dpbench.analysis.draw import check_chart_file
    from dpbench.support.files import check_writable_folder

    for file in files:
        check_chart_file(file, flag)
        check_writable_folder(file.parent)


def write_charts(tables: Sequence[ResultGrid[ResultRow]], name: str, files: Sequence[Path]) -> None:
    """Draw the scores of tables against ε into every file.

    Raises:
        SpecError: there are more tables than a figure has room for.
    """
    if not files:
        return
    from dpbench.analysis.figure import write_figure
    from dpbench.analysis.figure_data import collect_figure_data

    collected = collect_figure_data(name, tables)
    for file in files:
        write_figure(collected, file)


@app.command("show")
def show(
    file: Annotated[Path, typer.Argument(help="A result file.")],
    markdown: Annotated[bool, typer.Option("--markdown", help="Print Markdown.")] = False,
) -> None:
    """Explain one result in words, with its confusion matrix.

    If the test images have groups, such as sex, and the folder also has this learner's result at ε = ∞, the command
    shows how much accuracy privacy costs each group.
    """
    from dpbench.analysis.confusion import format_confusion_matrix
    from dpbench.analysis.describe import describe_result, render_markdown, render_terminal
    from dpbench.analysis.reader import read_related_results, read_results

    (filed,), _ = read_results([_require_result_file(file)])
    found = describe_result(filed.result, read_related_results(filed) if filed.result.task.groups else ())
    lines = list(format_confusion_matrix(filed.result))
    if markdown:
        print(render_markdown(found, lines), end="")
        return
    Console().print(Text(found.title, style="bold"), soft_wrap=True)
    Console().print(render_terminal([*found.pairs, ("file", str(filed.file))]))
    for line in lines:
        Console().print(Text(line), soft_wrap=True)


@app.command()
def pack(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of results, audits or re-runs.")],
) -> None:
    """Replace the records in each folder with one compressed file, records.tar.xz, which all commands read.

    Other JSON files are left unchanged.
    """
    from dpbench.records import packed

    for folder in folders:
        if not folder.is_dir():
            raise SpecError(f"Expected a folder, got {folder}, which is not one.")
        held = packed.pack_records(folder)
        records = "1 record" if held == 1 else f"{held:,} records"
        print(f"{folder / packed.ARCHIVE}: {records}" if held else f"{folder} has no records.")
        if left := [file.name for file in sorted(folder.glob("*.json"))]:
            print(f"Left in {folder}: {', '.join(left)}")


@app.command()
def convert(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="Folders of results, packed or not.")],
    delete_old: Annotated[
        bool, typer.Option("--delete-old", help="Delete the old folder, after comparing it with the new one.")
    ] = False,
) -> None:
    """Rewrite results of earlier versions of dpbench in today's schema. Every number is compared before the switch.

    The old folder is kept beside the new one, as FOLDER.schema-1, until you run this again with --delete-old.
    """
    from dpbench.records.convert import convert_results as convert_folder

    for folder in folders:
        found = convert_folder(folder, delete_old=delete_old)
        results = "1 result" if found.results == 1 else f"{found.results:,} results"
        done = "converted to schema 2" if found.converted else "of schema 2 already"
        kept = f"; the old folder is {found.kept}. Delete it with --delete-old" if found.kept else ""
        print(f"{found.folder}: {results} {done}{kept}.")


def compare(
    named: Annotated[
        list[str],
        typer.Argument(metavar="FILE|LEARNER FILE|LEARNER", help="Two results, or learners with results in --results."),
    ],
    epsilon: Annotated[str | None, typer.Option(help="Only these ε, like 0.1,1,inf.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Only these datasets.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of the learners' results.")] = Path("dpbench-results"),
    metric: Annotated[ScoredBy, typer.Option(help="Metric.")] = ScoredBy.accuracy,  # type: ignore[attr-defined]
) -> None:
    """Compare two results: the difference, its interval, and whether it is significant by the boards' paired test.

    Two learners are compared at every ε and on all data where both have a result on the same test examples and seeds.
    """
    from dpbench.analysis import comparison
    from dpbench.analysis.comparison import MAX_NAMED_RESULTS
    from dpbench.analysis.reader import read_results

    if len(named) != 2:
        files = [read_results([Path(name)])[0][0] if record_exists(Path(name)) else name for name in named]
        shown = [
            file if isinstance(file, str) else comparison.describe_stored_result(file)
            for file in files[:MAX_NAMED_RESULTS]
        ]
        more = "; ..." * (len(files) > MAX_NAMED_RESULTS)
        raise SpecError(f"Expected two results or learners to compare, got {len(named)}: {'; '.join(shown)}{more}.")
    sides = [_find_named_results(name, results, dataset, epsilon) for name in named]
    pairs = [*comparison.pair_results(*sides)]
    for number, pair in enumerate(pairs):
        if number:
            print()
        for line in comparison.describe_difference(*pair, read_metric_flag(metric)):
            print(line)


def _find_named_results(name: str, folder: Path, dataset: str | None, epsilon: str | None) -> list[StoredResult]:
    """Return the result in the file `name`, or the results of the learner `name` in `folder` that match the filters."""
    from dpbench.analysis.comparison import MAX_NAMED_RESULTS
    from dpbench.analysis.reader import read_results

    if name.endswith(".json") or Path(name).exists():
        return read_results([_require_result_file(Path(name))])[0]
    if not folder.is_dir():
        raise SpecError(f"Expected {name} to be a result file, or a learner with results in {folder}: no such folder.")
    filed = read_valid_results([folder])
    if found := [stored for stored in filed if _matches_filters(stored, name, dataset, epsilon)]:
        return found
    known = ", ".join(sorted({stored.result.spec.learner.name for stored in filed})[:MAX_NAMED_RESULTS])
    wanted = _describe_filters(name, dataset, epsilon)
    raise SpecError(f"Expected a result of {wanted} in {folder}, found none. It has results of {known}.")


def read_valid_results(paths: Sequence[Path]) -> list[StoredResult]:
    """Return the results in files and folders, and name unreadable files on standard error."""
    from dpbench.analysis.reader import read_results

    filed, damaged = read_results(paths)
    for said in damaged:
        typer.echo(f"dpbench: {make_printable(said)} Skipped.", err=True)
    return filed


def print_result_tables(grids: Sequence[ResultGrid[ResultRow]], console: Console) -> None:
    """Print grids as tables, each followed by a legend of its numbers and marks."""
    from dpbench.analysis.text_tables import make_text_tables

    _print_terminal_tables(make_text_tables(grids), console)


def _print_tables(tables: Sequence[TextTable], render: Callable[[Sequence[TextTable]], str] | None) -> None:
    """Print tables with `render`; if it is None, format them for the terminal."""
    if render is None:
        _print_terminal_tables(tables, Console())
    else:
        print(render(tables), end="")


def _print_terminal_tables(tables: Sequence[TextTable], console: Console) -> None:
    from dpbench.analysis.text_tables import render_terminal

    for table in tables:
        if table.title:
            console.print(Text(table.title, style="bold"), soft_wrap=True)
        for part in render_terminal(table, console.width, coloured=console.color_system is not None):
            console.print(part, end="\n\n")
    for said in filter(None, dict.fromkeys(table.legend("*") for table in tables)):
        console.print(said, highlight=False, soft_wrap=True)


def _require_result_file(path: Path) -> Path:
    if not path.is_file() and read_packed_record(path) is None:
        what = "is a folder" if path.is_dir() else "does not exist"
        raise SpecError(f"Expected a result file, got {path}, which {what}.")
    return path


def read_metric_flag(chosen: ScoredBy) -> Metric:
    """Return the metric that a flag names."""
    return next(metric for metric in METRICS if metric == chosen.value)


def _matches_filters(stored: StoredResult, learner: str | None, dataset: str | None, epsilon: str | None) -> bool:
    spec = stored.result.spec
    return (
        spec.learner.name in (learner or spec.learner.name).split(",")
        and spec.dataset.name in (dataset or spec.dataset.name).split(",")
        and (epsilon is None or spec.epsilon in _parse_epsilons(epsilon))
    )


def _parse_epsilons(text: str) -> list[float]:
    try:
        return [float(part) for part in text.split(",")]
    except ValueError:
        raise SpecError(f"Expected --epsilon as numbers like 0.1,1,inf, got {text!r}.") from None


def _describe_filters(learner: str | None, dataset: str | None, epsilon: str | None) -> str:
    given = {"learner": learner, "dataset": dataset, "ε": epsilon}
    return ", ".join(f"{name} {value}" for name, value in given.items() if value)
