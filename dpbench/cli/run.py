"""`dpbench run`: one learner on one dataset within one privacy budget."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli.given import Given
from dpbench.cli.output import Json, print_if_unwritable, report_interrupt
from dpbench.cli.summary import show_summary
from dpbench.cli.takes import takes
from dpbench.errors import OutputError, SpecError
from dpbench.records.journal import Journal
from dpbench.records.place import Place
from dpbench.records.search import Search
from dpbench.records.setting import option
from dpbench.records.spec import Spec
from dpbench.sweep.grid import AXES

if TYPE_CHECKING:
    from dpbench.harness.fit import SeedFit
    from dpbench.harness.prepare import PreparedRun
    from dpbench.records.metrics import Metric
    from dpbench.records.result import Result


@takes(Spec, Search, Place, several=AXES, file=True)
def run(
    given: Given,
    models: Annotated[
        bool, typer.Option("--models", help="Save each seed's model to OUT/models, for dpbench predict.")
    ] = False,
    risk: Annotated[
        bool, typer.Option("--risk", help="Also show ε as odds: how often a membership test can be right.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a learner once per seed, test it and write a JSON result. You can list several learners or values of ε."""
    place = given.place
    if as_json and risk:
        raise SpecError("Expected --risk without --json: it is part of the table that --json replaces.")
    if given.lists:
        _run_many(given, {"--settings": place.settings, "--models": models, "--json": as_json, "--risk": risk})
        return
    keeper = ModelWriter(place.out / "models") if models else None
    result, written_to, replaced = _run(given, keeper)
    if as_json:
        print(result.model_dump_json(indent=2))
    else:
        _show(result, written_to, replaced, Console())
        if risk:
            _show_risk(result, Console())
    if keeper is not None:
        keeper.say()


class ModelWriter:
    """Writes the model of each seed as it ends; a predictor that cannot be kept costs no result."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._written, self._refused = folder, 0, ""

    def __call__(self, prepared: PreparedRun, fitted: SeedFit) -> None:
        """Write one model."""
        from dpbench.models import Model

        spec = prepared.spec
        name = f"{spec.learner.name}-{spec.dataset.name}-{spec.digest[:16]}-seed-{fitted.result.seed}.safetensors"
        try:
            Model.of(prepared, fitted).save(self.folder / name)
            self._written += 1
        except (SpecError, OutputError) as error:
            self._refused = str(error)

    def say(self) -> None:
        """Say on standard error how many models there are.

        Raises:
            SpecError: one could not be kept.
        """
        if self._refused:
            raise SpecError(f"{self._refused} The result itself was written.")
        print(f"Wrote {self._written} model{'s' * (self._written > 1)} into {self.folder}", file=sys.stderr)


KEPT = "Extracted features and finished seeds are kept; repeat the command to continue."


def _run_many(given: Given, of_one: Mapping[str, Any]) -> None:
    """Run every combination as a sweep, results of earlier calls left out, and print the table."""
    names = " and ".join(map(option, given.lists))
    for flag, is_given in of_one.items():
        if is_given:
            raise SpecError(f"Expected one value of {names} with {flag}, got several.")
    with report_interrupt("Finished runs are kept; repeat the command to continue."):
        from dpbench import sweep as sweeps
        from dpbench.registry import load

        plugins, place = load(), given.place
        plugins.report_broken()
        cells, resources = given.sweep(plugins), sweeps.Resources(threads=place.threads, device=place.device)
        if place.board is not None:  # or a board would refuse the results once all runs had ended
            from dpbench.harness.session import open_session

            spec = sweeps.read_grid(cells, plugins).cells[0].spec
            open_session(place.device, plugins=plugins).extract(spec, "board")
        summary = sweeps.sweep(cells, place.out, resources=resources, retry_failed=True, refresh=True, plugins=plugins)
        show_summary(summary, Console(), "the same command runs them again")


def _run(given: Given, keeper: ModelWriter | None) -> tuple[Result, Path, str]:
    from dpbench.registry import load
    from dpbench.registry.components import resolve
    from dpbench.support.files import check_writable

    plugins, place = load(), given.place
    plugins.report_broken()
    resolved = resolve(given.spec(plugins), plugins)
    resolved.check_data()
    check_writable(place.out)
    if keeper is not None:
        check_writable(keeper.folder)

    from dpbench.analysis import description
    from dpbench.harness.session import open_session

    journal, search = Journal(place.out), resolved.spec.search
    kept = "Extracted features and finished models are kept." if keeper else KEPT
    if search is not None and search.rule == "private-accounted":  # when a seed ended tells how many runs it had
        kept = "Extracted features are kept; if you repeat the command, all fits start again."
    with report_interrupt(kept):
        session = open_session(place.device, plugins=plugins, threads=place.threads)
        result = session.run(
            resolved, settings=place.settings, sharing="board" if place.board else "none", keep=keeper,
            journal=None if keeper else journal,
        )  # fmt: skip
    replaced = description.describe_replacement(result, place.out / result.file_name)
    with print_if_unwritable(result):
        written = result.write(place.out)
    journal.end(result.file_name)
    return result, written, replaced


def _show(result: Result, written: Path, replaced: str, console: Console) -> None:
    from dpbench.harness.delta import USUAL, default_delta
    from dpbench.records.groups import MOST_SHOWN, accuracy_by_group, write_groups
    from dpbench.records.overlap import overlap_name
    from dpbench.registry import load
    from dpbench.registry.components import shorten_component

    spec, privacy, task = result.spec, result.privacy, result.task
    extractor = shorten_component(load())("extractor", spec.extractor)
    console.print(
        f"{spec.learner.name} on {spec.dataset.name} ({extractor}): {task.private:,} "
        f"private{_units(result)}, {_public(result)}, {task.test:,} test examples",
        soft_wrap=True, markup=False, highlight=False,
    )  # fmt: skip
    console.print(_scores(result))
    pure = " (pure)" * (not privacy.delta)
    whose = f"ε for a {spec.unit}, " * bool(spec.unit)
    small = f" (at most 1/(2n), n = {task.private:,})" * (privacy.delta == default_delta(task.private) < USUAL)
    guarantee = (
        f"{whose}δ {privacy.delta:g}{pure}{small}, {privacy.adjacency}, {privacy.rng} RNG, " if privacy.sigma else ""
    )
    interval = ", 95% interval" if len(result.seeds) > 1 else ""
    seeds = f"{len(result.seeds)} seed{'s' * (len(result.seeds) > 1)}"
    console.print(f"{guarantee}settings: {result.selection}, {seeds}{interval}", soft_wrap=True)
    for column in accuracy_by_group(result):
        said = write_groups(column, most=MOST_SHOWN)
        console.print(f"Accuracy by {column.name}: {said}", soft_wrap=True, markup=False)
    for edition in task.named_editions:
        console.print(f"Data: {edition}", soft_wrap=True, markup=False)
    for pair, counted in result.task.overlap.items():
        if counted.near:
            console.print(f"{overlap_name(pair)}: {counted}", soft_wrap=True)
    for remark in result.remarks:
        console.print(f"Warning: {remark}", soft_wrap=True, markup=False)
    for what, settings in _settings(result):
        console.print(f"{what}: {_listed(settings)}", soft_wrap=True, markup=False)
    console.print(f"Wrote {written}{replaced}", soft_wrap=True, markup=False)


def _units(result: Result) -> str:
    """Say whose epsilon it is, where it is not an image's."""
    return f" {result.spec.unit}s ({result.task.images:,} images)" if result.spec.unit else ""


def _show_risk(result: Result, console: Console) -> None:
    from dpbench.analysis.formats import percent_at_most
    from dpbench.analysis.risk import membership_risk

    risk = membership_risk(result.privacy)
    if not risk:
        console.print("Risk: not available. Either there is no guarantee, or nothing private was read.")
        return
    whose = result.spec.unit or "image"
    table = Table("false positives", "true positives at most", box=None)
    for rate, most in risk.items():
        table.add_row(f"{rate:.1%}", percent_at_most(most))
    said = f"Best possible membership test of one private {whose}, by someone who knows all the others:"
    console.print(said, soft_wrap=True)
    console.print(table)


def _scores(result: Result) -> Table:
    privacy, other = result.privacy, result.privacy.independent
    metrics: list[Metric] = ["accuracy", *([result.spec.metric] if result.spec.metric != "accuracy" else [])]
    headings, scores = [one.replace("_", " ") for one in metrics], [_percent(result, one) for one in metrics]
    seconds = f"{sum(result.seconds.values()):.1f}"
    if not privacy.sigma:
        table = Table(*headings, "privacy", "seconds", box=None)
        table.add_row(*scores, "none: no noise was added" if privacy.plan else result.without_private, seconds)
        return table
    bounds = f"{other.lower:.4g} to {other.upper:.4g}"
    table = Table(*headings, f"ε ({privacy.accountant})", f"ε ({other.accountant})", "σ", "seconds", box=None)
    table.add_row(*scores, f"{privacy.epsilon:.4g}", bounds, f"{privacy.sigma:.4g}", seconds)
    return table


def _public(result: Result) -> str:
    """Say how many public examples the learner saw, and how many there are where it reads none."""
    seen = result.task.public
    there = result.task.overlap.get("public in private")
    if not seen and there is not None and there.among:
        return f"{there.among:,} public examples (not used by the learner)"
    return f"{seen:,} public"


def _settings(result: Result) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if result.search and result.search.chosen is not None:
        yield "Chosen", result.search.chosen
    for seed in result.seeds:
        if seed.setting:
            yield f"Chosen for seed {seed.seed}", seed.setting
    if result.settled:
        yield "Chosen from n, ε and δ", result.settled


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'auto' if value is None else value}" for name, value in settings.items())


def _percent(result: Result, metric: Metric) -> str:
    from dpbench.analysis.formats import percent_with_sign

    return percent_with_sign(result.metrics[metric])
