"""`dpbench reproduce`: tables, figures and theorems of papers beside our runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from dpbench.cli.output import exit_with_message_on_interrupt
from dpbench.cli.results import check_charts

if TYPE_CHECKING:
    from dpbench.registry import Registry
    from dpbench.sweep.conduct import SweepSummary
    from dpbench_lab.reproduce.catalogue import ReproductionStudy
    from dpbench_lab.reproduce.verdict import StudyComparison

LEADERBOARD = Path("leaderboard")
PEER_SEEDS = 5


def reproduce(
    name: Annotated[
        str | None, typer.Argument(help="A table, figure or theorem; with --chart, any sweep. \\[default: list all]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Results folder of its sweep. \\[default: dpbench-results/NAME]")
    ] = None,
    list_all: Annotated[bool, typer.Option("--list", help="List every table and figure, with its verdict.")] = False,
    root: Annotated[
        Path, typer.Option(help="For the list and for inspections: the leaderboard whose results are compared.")
    ] = LEADERBOARD,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print the list as Markdown.")] = False,
    workers: Annotated[int | None, typer.Option(help="Cells to run at a time. \\[default: cores / threads]")] = None,
    compare_only: Annotated[
        bool, typer.Option("--compare-only", help="Run nothing; compare existing results.")
    ] = False,
    chart: Annotated[
        list[Path] | None,
        typer.Option(help="Draw results beside the paper's numbers to a PNG, SVG or PDF file; repeatable."),
    ] = None,
) -> None:
    """Reproduce a paper's table, figure or theorem as far as this machine can, and judge it. Without NAME, list all."""
    from dpbench.errors import SpecError
    from dpbench.registry import load
    from dpbench_lab.reproduce.catalogue import PEERS, find_study, is_sweep_without_study

    if name in PEERS:
        if list_all or markdown or workers or chart or root != LEADERBOARD:
            raise SpecError(f"{name} takes --out and --compare-only, and no other options.")
        _compare_with_peer(name, out, compare_only)
        return
    if name is not None and (list_all or markdown):
        raise SpecError(f"Expected a name or --list, got both: {name} and {'--list' if list_all else '--markdown'}.")
    if name is None and (out or workers or compare_only or chart):
        raise SpecError(
            "Expected a name with --out, --workers, --compare-only or --chart. dpbench reproduce --list names all."
        )
    if root != LEADERBOARD and not root.is_dir():
        raise SpecError(f"--root {root} is not a leaderboard's folder.")
    check_charts(chart or ())
    plugins = load()
    plugins.report_broken_plugins()
    if name is None:
        _print_studies(root, plugins, markdown)
        return
    if chart and is_sweep_without_study(name):
        failed = None if compare_only else _run_study_sweep(name, out, workers, plugins)
        _draw_sweep_charts(name, out, chart, plugins)
        _raise_for_failed_cells(name, failed)
        return
    study = find_study(name)
    if not study.sweep and (out or workers or compare_only or chart):
        raise SpecError(
            f"{name} is compared with inspections in --root: it takes no --out, --workers, --compare-only or --chart."
        )
    if study.sweep and root != LEADERBOARD:
        raise SpecError(f"{name} is compared with results in --out: --root is for the list and for inspections.")
    folder = out or Path("dpbench-results") / study.name
    failed = _run_study_sweep(study.sweep, folder, workers, plugins) if study.sweep and not compare_only else None
    _print_comparison(_compare_study(study, folder if study.sweep else root, plugins))
    if study.sweep and chart:
        _draw_sweep_charts(study.sweep, folder, chart, plugins)
    _raise_for_failed_cells(study.name, failed)
    if study.missing and not (study.sweep or study.inspection):
        raise SpecError(f"{study.name} cannot be run here; what it needs is named above.")


def _raise_for_failed_cells(name: str, summary: SweepSummary | None) -> None:
    """Raise `SpecError` if cells of a sweep failed; the message gives the number of cells and the first error."""
    from dpbench.errors import SpecError

    if summary and summary.failed:
        cell, error = summary.failed[0]
        raise SpecError(f"{len(summary.failed)} cells of {name} failed. The first is {cell}: {error}")


def _run_study_sweep(sweep: str, folder: Path | None, workers: int | None, plugins: Registry) -> SweepSummary:
    from dpbench.sweep import conduct, ready_made_sweeps
    from dpbench.sweep.resources import SweepResources

    with exit_with_message_on_interrupt("Finished cells are kept; repeat the command to continue."):
        return conduct.sweep(
            ready_made_sweeps.find_sweep_file(Path(sweep)),
            folder,
            resources=SweepResources(workers=workers),
            retry_failed=True,  # data that was missing may be here now
            plugins=plugins,
        )


def _draw_sweep_charts(sweep: str, folder: Path | None, files: Sequence[Path], plugins: Registry) -> None:
    from dpbench_lab.figures.sweep_chart import write_sweep_chart

    print(write_sweep_chart(Path(sweep), folder, files, plugins))


def _compare_study(study: ReproductionStudy, folder: Path, plugins: Registry) -> StudyComparison:
    from dpbench_lab.reproduce.document import locate_study_folder
    from dpbench_lab.reproduce.measurements import read_measurements
    from dpbench_lab.reproduce.verdict import compare_with_paper

    return compare_with_paper(
        study, read_measurements(study, folder if study.sweep else locate_study_folder(folder, study), plugins)
    )


def _compare_with_peer(name: str, out: Path | None, compare_only: bool) -> None:
    """Train on each board with dpbench and with another library, and print the comparisons.

    With `compare_only`, print stored comparisons instead: those in `out`, or the committed ones if `out` is None.
    """
    from dpbench.errors import DataError, SpecError
    from dpbench.harness.session import open_session
    from dpbench.registry import load
    from dpbench_lab.reproduce import peers

    missing: dict[str, str] = {}
    if compare_only:
        found = peers.read_comparisons(name, out or peers.MEASURED)
    else:
        file = peers.find_measured_file(name, out or Path("dpbench-results") / name)
        peer, session = peers.load_peer(name), open_session("cpu", plugins=load())
        found = []
        with exit_with_message_on_interrupt(f"Finished comparisons are in {file}."):
            for board, spec in peers.list_board_specs(PEER_SEEDS):
                try:
                    found.append(peers.compare_with_peer(board, spec, session, peer))
                except DataError as error:
                    missing[board] = str(error)
                peers.write_comparisons(found, file)
    console = Console()
    if found:
        table = Table(*found[0].head, box=None)
        for comparison in found:
            table.add_row(*comparison.cells)
        console.print(table, highlight=False)
        console.print(
            f"{found[0].implementation} trained outside the harness: a reference without a guarantee of dpbench, "
            "and no entry of a board.",
            soft_wrap=True,
        )
    if apart := [comparison.board for comparison in found if not comparison.agrees]:
        raise SpecError(f"{len(apart)} accuracies differ by more than their intervals explain, on {', '.join(apart)}.")
    if missing:
        board, why = next(iter(missing.items()))
        raise SpecError(f"{len(missing)} boards were not compared. The first is {board}: {why}")


def _print_studies(root: Path, plugins: Registry, markdown: bool) -> None:
    from dpbench_lab.reproduce.catalogue import PEERS
    from dpbench_lab.reproduce.document import compare_studies, describe_compared_count, render_markdown_page

    found = compare_studies(root, plugins)
    if markdown:
        print(render_markdown_page(found), end="")
        return
    table = Table(Column("name", no_wrap=True), "place", "compared", "verdict, or what is missing", box=None)
    for comparison in found:
        study, verdict = comparison.study, comparison.verdict
        told = f"{verdict}: {study.missing}" if verdict == "not run" and study.missing else verdict
        table.add_row(study.name, f"{study.paper}, {study.place}", describe_compared_count(comparison), told)
    console = Console()
    console.print(table, highlight=False)
    counts = Counter(comparison.verdict for comparison in found).most_common()
    console.print(f"{len(found)} studies: {', '.join(f'{n} {verdict}' for verdict, n in counts)}.", soft_wrap=True)
    not_run = [comparison.study.needs for comparison in found if comparison.verdict == "not run"]
    reasons = Counter(f"need {needs}" if needs else "could run here" for needs in not_run).most_common()
    console.print(f"Not run: {', '.join(f'{n} {reason}' for reason, n in reasons)}.", soft_wrap=True)
    absent = f"No results were compared: {root} does not exist"
    source = f"Verdicts use the results in {root}" if root.is_dir() else absent
    console.print(f"{source}. To run one: dpbench reproduce NAME", soft_wrap=True)
    console.print(
        f"The same training with Opacus or jax_privacy: dpbench reproduce {' or '.join(PEERS)}", soft_wrap=True
    )


def _print_comparison(comparison: StudyComparison) -> None:
    from dpbench_lab.reproduce.document import describe_number_source, format_comparison_rows, list_comparison_remarks

    console, study = Console(), comparison.study
    console.print(f"{study.paper}, {study.place}. {study.shows}", markup=False, highlight=False, soft_wrap=True)
    rows = format_comparison_rows(comparison)
    if rows:
        table = Table(
            "where",
            Column(describe_number_source(study), justify="right"),
            Column("here", justify="right"),
            "difference",
            box=None,
        )
        for row in rows:
            table.add_row(*row)
        console.print(table, highlight=False)
    for line in list_comparison_remarks(comparison):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
