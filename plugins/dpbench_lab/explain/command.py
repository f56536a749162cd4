"""`dpbench explain`: the price of privacy for a learner, in parts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Column, Table

from dpbench.cli.given import UserSettings
from dpbench.cli.output import Json, exit_with_message_on_interrupt
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import SpecError
from dpbench.records.metrics import TITLES
from dpbench.records.place import RunOptions
from dpbench.records.search import TUNE_SWITCH, Search
from dpbench.records.spec import Spec, make_spec
from dpbench_lab.output import check_output_paths, write_record_and_plot

if TYPE_CHECKING:
    from dpbench.records.result import Interval
    from dpbench_lab.explain.explanation import Explanation, LiftedStage


@add_setting_flags(
    Spec, Search, RunOptions,
    several=("learner",),
    without=(
        "public_labels", "secure_rng", "seeds", "selection", "tune", "space", "repeats", "repeats_shape", "search_seed",
        "folds", "settings", "threads",
    ),
)  # fmt: skip
def explain(
    given: UserSettings,
    seeds: Annotated[int, typer.Option(help="Number of seeds: 3 means 0 to 2.")] = 3,
    tune: Annotated[
        bool, typer.Option("--tune", help="Also show what is gained by choosing settings with public labels.")
    ] = False,
    as_json: Json = False,
    plot: Annotated[Path | None, typer.Option(help="Also draw a plot to this PNG or SVG file.")] = None,
) -> None:
    """Measure what noise, clipping, projection and the step limit cost, by removing them one by one; not private."""
    names = given.axes["learner"]
    if not names:
        raise SpecError("Expected --learner: name one, or several, like pillar,dp-sgd.")
    if "tries" in given.flags and not tune:
        raise SpecError("--tries needs --tune: without --tune, nothing is searched.")
    if tune:
        given = replace(
            given, command_settings=replace(given.command_settings, defaults={"selection": TUNE_SWITCH.value})
        )

    from dpbench.registry import load
    from dpbench.registry.components import resolve

    plugins = load()
    plugins.report_broken_plugins()
    asked = [given.spec(plugins, {"learner": name, "search": None}) for name in names]
    specs = [make_spec({**spec.user_values, "seeds": seeds}, given.origin) for spec in asked]
    for spec in specs:
        resolve(spec, plugins).check_data()
    check_output_paths(given.place.out, plot)

    from dpbench.harness.session import open_session
    from dpbench_lab.explain.chart import write_explanation_plot
    from dpbench_lab.explain.ladder import explain_learners as take_apart

    tuned = [make_spec({**spec.user_values, "search": given.keys["search"]}, given.origin) for spec in specs if tune]
    with exit_with_message_on_interrupt("Extracted features are kept; repeat the command to continue."):
        found = take_apart(specs, open_session(given.place.device, plugins=plugins), tuned)
    files = write_record_and_plot(found, given.place.out, plot, write_explanation_plot)
    if as_json:
        print(found.model_dump_json(indent=2))
    else:
        _print_explanation(found, files, Console())


def _print_explanation(found: Explanation, written: list[Path], console: Console) -> None:
    from dpbench.analysis.formats import format_percent_score

    spec = found.specs[0]
    console.print(
        f"[bold]Guarantee[/bold] of all runs except the private ones: {found.guarantee}; no board accepts them"
    )
    console.print(
        f"{spec.extractor.names} on {spec.dataset.name}: {found.private:,} private {spec.unit or 'example'}s, "
        f"{found.test:,} test examples, ε {spec.epsilon:g}, {len(spec.seeds)} seed(s)",
        soft_wrap=True,
    )
    first, scored = found.learners[0], f"{TITLES[found.metric].lower()} in percent"
    stages = [lift.stage for lift in first.ladder if lift.stage != "tuning" or lift.points is not None]
    headings = ["private", *stages, "rest", found.ceiling.name]
    titles = f"Steps added one after another, {scored}", f"Each step on its own, {scored}"
    ladder = Table(Column("learner", no_wrap=True), *headings, title=titles[0], box=None)
    alone = Table("learner", *[lift.stage for lift in first.alone], title=titles[1], box=None)
    for learner in found.learners:
        cells = [_format_gained_points(lift) for lift in learner.ladder if lift.stage in stages]
        ladder.add_row(
            learner.learner.name,
            format_percent_score(learner.private),
            *cells,
            _format_signed_interval(learner.rest),
            format_percent_score(found.score),
        )
        alone.add_row(learner.learner.name, *(_format_gained_points(lift) for lift in learner.alone))
    console.print(ladder, alone, _make_steps_table(found))
    for learner in found.learners:
        said = " ".join(lift.why for lift in learner.ladder if lift.stage not in {"noise", "clipping"})
        console.print(f"{learner.learner.name}: {said}", soft_wrap=True, markup=False)
    for file in written:
        console.print(f"Wrote {file}", soft_wrap=True, markup=False)


def _make_steps_table(found: Explanation) -> Table:
    """Return a table of the signal and the noise in the steps of each release."""
    headings = ("steps", "entries", "clipped", "first signal", "last signal", "noise")
    table = Table(
        Column("learner", no_wrap=True), "release", *headings, title="Signal and noise of a step, in clips", box=None
    )
    for learner in found.learners:
        for held in learner.signals:
            lengths = ("–" if length is None else f"{length:.3g}" for length in (held.first, held.last, held.noise))
            table.add_row(
                learner.learner.name, held.release, f"{held.steps:,}", f"{held.entries:,}",
                f"{100 * held.clipped:.0f}%", *lengths,
            )  # fmt: skip
    return table


def _format_gained_points(lift: LiftedStage) -> str:
    return "–" if lift.points is None else _format_signed_interval(lift.points)


def _format_signed_interval(value: Interval) -> str:
    half = "" if value.high is None else f"{100 * (value.high - value.mean):.2f}"
    return f"{100 * value.mean:+.2f}" + (f" ± {half}" if half not in {"", "0.00"} else "")
