"""`dpbench run`: train and test a learner on a dataset within a privacy budget."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dpbench.cli.given import UserSettings
from dpbench.cli.output import exit_with_message_on_interrupt, print_record_if_unwritable
from dpbench.cli.summary import print_summary
from dpbench.cli.takes import PANELS, add_setting_flags
from dpbench.errors import OutputError, SpecError
from dpbench.records.journal import RunJournalFolder
from dpbench.records.place import RunOptions
from dpbench.records.result import make_result_name
from dpbench.records.search import Search
from dpbench.records.setting import format_flag_name
from dpbench.records.spec import AXES, Spec

if TYPE_CHECKING:
    from dpbench.harness.fit import SeedFit
    from dpbench.harness.prepare import PreparedRun
    from dpbench.records.result import Result


@add_setting_flags(
    Spec, Search, RunOptions, several=AXES, file=True,
    first=("learner", "dataset", "extractor", "epsilon", "unit", "public_labels", "tune", "board", "out"),
)  # fmt: skip
def run(
    given: UserSettings,
    models: Annotated[
        bool, typer.Option("--models", help="Save each seed's model to OUT/models, for dpbench predict.")
    ] = False,
    risk: Annotated[
        bool,
        typer.Option(
            "--risk",
            help="Also show ε as odds: how often a membership test can be right.",
            rich_help_panel=PANELS[RunOptions],
        ),
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the result as JSON.", rich_help_panel=PANELS[RunOptions])
    ] = False,
) -> None:
    """Train a learner once per seed, test it and write a JSON result. You can list several learners or values of ε."""
    place = given.place
    if as_json and risk:
        raise SpecError("Expected --risk without --json: it is part of the table that --json replaces.")
    if given.swept_axes:
        _run_all_combinations(
            given, {"--settings": place.settings, "--models": models, "--json": as_json, "--risk": risk}
        )
        return
    keeper = ModelWriter(place.out / "models") if models else None
    result, written_to, replaced = _run_and_write_result(given, keeper)
    if as_json:
        print(result.model_dump_json(indent=2))
    else:
        _print_result(result, written_to, replaced, Console(), risk=risk)
    if keeper is not None:
        keeper.report()


class ModelWriter:
    """Writes the model of each seed after its fit. If a model cannot be saved, the result is still kept."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._written, self._refused = folder, 0, ""

    def __call__(self, prepared: PreparedRun, fitted: SeedFit) -> None:
        """Write the model of a seed."""
        from dpbench.models import Model

        spec = prepared.spec
        name = f"{make_result_name(spec).removesuffix('.json')}-seed-{fitted.result.seed}.onnx"
        try:
            Model.from_fit(prepared, fitted).save(self.folder / name)
            self._written += 1
        except (SpecError, OutputError) as error:
            self._refused = str(error)

    def report(self) -> None:
        """Print the number of written models to standard error.

        Raises:
            SpecError: a model could not be saved.
        """
        if self._refused:
            raise SpecError(f"{self._refused} The result itself was written.")
        print(f"Wrote {self._written} model{'s' * (self._written > 1)} into {self.folder}", file=sys.stderr)


KEPT_MESSAGE = "Extracted features and finished seeds are kept; repeat the command to continue."


def _run_all_combinations(settings: UserSettings, single_run_flags: Mapping[str, Any]) -> None:
    """Run the combinations of settings as a sweep, skipping those with a current result; print the table of results.

    Raises:
        SpecError: a flag in `single_run_flags` is set.
        typer.Exit: a run failed; the exit code is 1.
    """
    names = " and ".join(map(format_flag_name, settings.swept_axes))
    for flag, is_given in single_run_flags.items():
        if is_given:
            raise SpecError(f"Expected one value of {names} with {flag}, got several.")
    with exit_with_message_on_interrupt("Finished runs are kept; repeat the command to continue."):
        from dpbench.registry import load
        from dpbench.sweep import conduct
        from dpbench.sweep.grid import read_grid
        from dpbench.sweep.resources import SweepResources

        plugins, place = load(), settings.place
        plugins.report_broken_plugins()
        cells, resources = settings.sweep(plugins), SweepResources(threads=place.threads, device=place.device)
        if place.board is not None:  # or a board would refuse the results once all runs had ended
            from dpbench.harness.session import open_session

            spec = read_grid(cells, plugins).cells[0].spec
            open_session(place.device, plugins=plugins).extract(spec, "board")
        summary = conduct.sweep(cells, place.out, resources=resources, retry_failed=True, refresh=True, plugins=plugins)
        print_summary(summary, Console(), "the same command runs them again")


def _run_and_write_result(settings: UserSettings, model_writer: ModelWriter | None) -> tuple[Result, Path, str]:
    from dpbench.registry import load
    from dpbench.registry.components import resolve
    from dpbench.support.files import check_writable_folder

    plugins, place = load(), settings.place
    plugins.report_broken_plugins()
    resolved = resolve(settings.spec(plugins), plugins)
    resolved.check_data()
    check_writable_folder(place.out)
    if model_writer is not None:
        check_writable_folder(model_writer.folder)

    from dpbench.analysis.comparison import describe_replacement
    from dpbench.harness.session import open_session

    journal, search = RunJournalFolder(place.out), resolved.spec.search
    kept = "Extracted features and finished models are kept." if model_writer else KEPT_MESSAGE
    if search is not None and search.rule == "private-accounted":  # when a seed ended tells how many runs it had
        kept = "Extracted features are kept; if you repeat the command, all fits start again."
    with exit_with_message_on_interrupt(kept):
        session = open_session(place.device, plugins=plugins, threads=place.threads)
        result = session.run(
            resolved, settings=place.settings, sharing="board" if place.board else "none", keep=model_writer,
            journal=None if model_writer else journal,
        )  # fmt: skip
    replaced = describe_replacement(result, place.out / result.file_name)
    with print_record_if_unwritable(result):
        written = result.write(place.out)
    journal.delete(result.file_name)
    return result, written, replaced


def _print_result(result: Result, written: Path, replaced: str, console: Console, *, risk: bool = False) -> None:
    from dpbench.analysis.describe import describe_result, render_terminal
    from dpbench.registry import load
    from dpbench.registry.components import make_component_shortener

    found = describe_result(result, namer=make_component_shortener(load()))
    console.print(found.title, soft_wrap=True, markup=False, highlight=False)
    odds = dict(found.pairs).get("membership test", "no bound: there is no guarantee, or nothing private was read")
    console.print(render_terminal([*found.brief, *([("membership test", odds)] if risk else [])]))
    console.print(f"Wrote {written}{replaced}", soft_wrap=True, markup=False)
