"""`dpbench inspect`: whether a representation suits PILLAR."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli import flags
from dpbench.errors import OutputError

if TYPE_CHECKING:
    from dpbench.inspection.report import Inspection, Spread


def inspect(
    dataset: flags.Dataset = None,
    extractor: flags.Extractor = None,
    public_fraction: flags.PublicFraction = None,
    public_dataset: flags.PublicDataset = None,
    split_seed: flags.SplitSeed = None,
    k: Annotated[
        list[str] | None,
        typer.Option(help="Dimensions, like 10,40,200; repeat for more. \\[default: 10 to 800, and all]"),
    ] = None,
    pairs: Annotated[int, typer.Option(help="At most so many class pairs; of more, a random draw.")] = 50,
    svm_c: Annotated[float, typer.Option(help="C of the SVMs: a larger one trades margin for fewer errors.")] = 100.0,
    read_private: Annotated[
        bool,
        typer.Option(
            "--read-private/--public-only", help="Analyse the private split instead: no guarantee, and marked so."
        ),
    ] = False,
    device: flags.Device = "auto",
    out: flags.Out = Path("dpbench-results"),
    as_json: flags.Json = False,
    plot: Annotated[Path | None, typer.Option(help="Draw it too, into this .png or .svg.")] = None,
) -> None:
    """Show whether few dimensions of public features are enough: spectrum, separability, margins."""
    from dpbench.inspection.plot import write_plot
    from dpbench.inspection.report import ask
    from dpbench.support.charts import check_file

    given = {
        "dataset": dataset, "extractor": extractor, "public_fraction": public_fraction,
        "public_dataset": public_dataset, "split_seed": split_seed,
    }  # fmt: skip
    values = {key: value for key, value in given.items() if value is not None}
    asked = ask(values, k or (), read_private=read_private, pairs=pairs, svm_c=svm_c)

    from dpbench.registry import load
    from dpbench.support.files import check_writable

    plugins = load()
    plugins.report_broken()
    plugins.find("dataset", asked.dataset.name)
    plugins.find("extractor", asked.extractor.name)
    check_writable(out)
    if plot is not None:
        check_file(plot, "--plot")
        check_writable(plot.parent)

    from dpbench.inspection import analysis

    inspection = analysis.inspect(asked, device=device, plugins=plugins)
    try:
        written = [inspection.write(out)]
        if plot is not None:
            write_plot(inspection, plot)
            written.append(plot)
    except OutputError:
        print(inspection.model_dump_json(indent=2))  # what was computed is not lost with the disk
        raise
    if as_json:
        print(inspection.model_dump_json(indent=2))
    else:
        _show(inspection, written, Console())


def _show(inspection: Inspection, written: list[Path], console: Console) -> None:
    asked, spectrum = inspection.asked, inspection.spectrum
    if inspection.mark:
        console.print(f"[bold]{inspection.mark.upper()}[/bold]: it reads private data, without any guarantee")
    labels = "their labels read" if inspection.labels_read else "no label read"
    console.print(
        f"{asked.extractor.name} on {asked.dataset.name}: {inspection.examples:,} {asked.rows} examples of "
        f"{inspection.features:,} features, {labels}; guarantee: {inspection.guarantee}",
        soft_wrap=True,
    )
    console.print(_table(inspection))
    console.print(
        f"Effective rank: {spectrum.participation_ratio:.1f} (participation ratio), {spectrum.entropy_rank:.1f} "
        "(entropy)",
        soft_wrap=True,
    )
    found = inspection.separability
    if found:
        drawn = "all" if len(found.pairs) == found.possible else f"{len(found.pairs)} (drawn at random) of"
        console.print(
            f"ξ: median (range) over {drawn} {found.possible} class pairs, by the components of the pair (own) or "
            f"of all classes (shared)\nMargin: that 99% or 96% of rows reach, smallest over classes; SVMs with "
            f"C={asked.svm_c:g}",
            soft_wrap=True,
        )
    if inspection.note:
        console.print(inspection.note, soft_wrap=True, markup=False)
    for file in written:
        console.print(f"Wrote {file}", soft_wrap=True, markup=False)


def _table(inspection: Inspection) -> Table:
    asked, found, margins = inspection.asked, inspection.separability, inspection.margins
    table = Table("k", "variance", box=None)
    if found and margins:
        for heading in ("ξ (own)", "ξ (shared)", *(f"margin {share:.0%}" for share in margins.shares)):
            table.add_column(heading)
    for place, k in enumerate(asked.k):
        cells = [str(k), f"{100 * inspection.spectrum.explained[place]:.1f}%"]
        if found and margins:
            cells += [_spread(found.own, place), _spread(found.shared, place)]
            cells += [f"{values[place]:.4f}" for values in margins.smallest]
        table.add_row(*cells)
    return table


def _spread(spread: Spread, place: int) -> str:
    return f"{spread.median[place]:.3f} ({spread.smallest[place]:.2f}–{spread.largest[place]:.2f})"
