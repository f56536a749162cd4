"""`dpbench inspect`: whether features suit PILLAR."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli.given import UserSettings
from dpbench.cli.output import Json
from dpbench.cli.takes import add_setting_flags
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Protocol
from dpbench_lab.output import check_output_paths, write_record_and_plot

if TYPE_CHECKING:
    from dpbench_lab.inspect.report import GainPrediction, Inspection, SeparabilityRange


@add_setting_flags(
    Protocol, RunOptions,
    only=("dataset", "extractor", "public_fraction", "public_dataset", "split_seed", "device", "out"),
)  # fmt: skip
def inspect(
    given: UserSettings,
    k: Annotated[
        list[str] | None,
        typer.Option(help="Numbers of dimensions, like 10,40,200. \\[default: 10 to 800, and all]"),
    ] = None,
    pairs: Annotated[int, typer.Option(help="Maximum class pairs to analyse; larger sets are sampled.")] = 50,
    svm_c: Annotated[float, typer.Option(help="C of the SVMs: larger values trade margin for fewer errors.")] = 100.0,
    read_private: Annotated[
        bool,
        typer.Option(
            "--read-private/--public-only",
            help="Analyse the private split instead. There is no guarantee, and the output says so.",
        ),
    ] = False,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw a plot to this PNG or SVG file.")] = None,
) -> None:
    """Show whether a few dimensions of the public features are enough: spectrum, separability and margins."""
    from dpbench.registry import load
    from dpbench.registry.components import default_extractor
    from dpbench_lab.inspect.panels import write_inspection_plot
    from dpbench_lab.inspect.report import make_request

    plugins, place = load(), given.place
    spec = given.spec(changes={"learner": "public-only"})
    asked = make_request(spec, k or (), read_private=read_private, pairs=pairs, svm_c=svm_c)
    plugins.report_broken_plugins()
    plugins.find("dataset", asked.dataset.name)
    if "extractor" not in spec.model_fields_set:
        asked = asked.model_copy(update={"extractor": default_extractor(plugins, asked.dataset)})
    for part in asked.extractor.parts:
        plugins.find("extractor", part.name)
    check_output_paths(place.out, plot)

    from dpbench.harness.session import open_session
    from dpbench_lab.inspect.inspection import run_inspection as analyse

    inspection = analyse(asked, open_session(place.device, plugins=plugins))
    files = write_record_and_plot(inspection, place.out, plot, write_inspection_plot)
    if as_json:
        print(inspection.model_dump_json(indent=2))
    else:
        _print_inspection(inspection, files, Console())


def _print_inspection(inspection: Inspection, written: list[Path], console: Console) -> None:
    asked, spectrum = inspection.asked, inspection.spectrum
    if inspection.mark:
        console.print(f"[bold]{inspection.mark.upper()}[/bold]: reads private data, without any guarantee")
    labels = "labels read" if inspection.labels_read else "no labels read"
    console.print(
        f"{asked.extractor.names} on {asked.dataset.name}: {inspection.examples:,} {asked.rows} examples with "
        f"{inspection.features:,} features, {labels}; guarantee: {inspection.guarantee}",
        soft_wrap=True,
    )
    console.print(_make_table(inspection))
    console.print(
        f"Effective rank: {spectrum.participation_ratio:.1f} (participation ratio), {spectrum.entropy_rank:.1f} "
        "(entropy)",
        soft_wrap=True,
    )
    found = inspection.separability
    if found:
        drawn = "all" if len(found.pairs) == found.possible else f"{len(found.pairs)} (sampled) of"
        console.print(
            f"ξ: median (range) over {drawn} {found.possible} class pairs, using the components of the pair (own) "
            "or of all classes (shared)\nMargin: reached by 99% or 96% of rows; the smallest over classes. SVMs use "
            f"C={asked.svm_c:g}",
            soft_wrap=True,
        )
    if inspection.prediction:
        console.print(_describe_prediction(inspection, inspection.prediction), soft_wrap=True)
    if inspection.note:
        console.print(inspection.note, soft_wrap=True, markup=False)
    for file in written:
        console.print(f"Wrote {file}", soft_wrap=True, markup=False)


def _make_table(inspection: Inspection) -> Table:
    asked, found, margins = inspection.asked, inspection.separability, inspection.margins
    table = Table("k", "variance", box=None)
    if found and margins:
        for heading in ("ξ (own)", "ξ (shared)", *(f"margin {share:.0%}" for share in margins.shares)):
            table.add_column(heading)
    for index, k in enumerate(asked.k):
        cells = [str(k), f"{100 * inspection.spectrum.explained[index]:.1f}%"]
        if found and margins:
            cells += [_format_range(found.own, index), _format_range(found.shared, index)]
            cells += [f"{values[index]:.4f}" for values in margins.smallest]
        table.add_row(*cells)
    return table


def _describe_prediction(inspection: Inspection, found: GainPrediction) -> str:
    k, gains = inspection.asked.k, (found.printed, found.noise)
    printed, noise = (
        f"k = {best} (without it, {values[k.index(best)]:.2g} times as many examples)"
        for best, values in zip((found.best_printed, found.best_noise), gains, strict=True)
    )
    kept = "no k provably does so" if found.kept is None else f"the smallest k that provably does so is {found.kept}"
    return (
        f"For the ξ and margin of these features, PILLAR's printed theorem chooses {printed}; the noise of a score "
        f"chooses {noise}. A projection must leave every row a margin: {kept}."
    )


def _format_range(value_range: SeparabilityRange, index: int) -> str:
    return f"{value_range.median[index]:.3f} ({value_range.smallest[index]:.2f}–{value_range.largest[index]:.2f})"
