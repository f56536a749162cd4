"""`dpbench tune`: search for a learner's settings, without a final run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli import flags, spec_file
from dpbench.cli.output import print_if_unwritable
from dpbench.errors import SpecError
from dpbench.records.protocol import Component, Protocol
from dpbench.records.spec import Spec, make_spec

if TYPE_CHECKING:
    from dpbench.records.result import Tuning
    from dpbench.registry import Registry


def tune(
    learner: flags.Learner = None,
    dataset: flags.Dataset = None,
    extractor: flags.Extractor = None,
    epsilon: flags.Epsilon = None,
    delta: flags.Delta = None,
    accountant: flags.Accountant = None,
    public_fraction: flags.PublicFraction = None,
    public_dataset: flags.PublicDataset = None,
    public_labels: flags.PublicLabels = None,
    train_fraction: flags.TrainFraction = None,
    imbalance: flags.Imbalance = None,
    unit: flags.Unit = None,
    metric: flags.Metric = None,
    split_seed: flags.SplitSeed = None,
    allow_overlap: flags.AllowOverlap = None,
    selection: Annotated[
        str | None,
        typer.Option(help="public-validation, or private-unaccounted (never ranked). \\[default: public-validation]"),
    ] = None,
    space: flags.Space = None,
    tries: flags.Tries = None,
    search_seed: flags.SearchSeed = None,
    spec: flags.SpecFile = None,
    device: flags.DeviceGiven = None,
    out: flags.OutGiven = None,
    as_json: flags.Json = False,
) -> None:
    """Choose a learner's settings with public labels and save every trial. The test split is never read."""
    keys, also = spec_file.read(spec, "search", extractor_given=extractor is not None)
    _refuse_others(also, spec)
    rule = flags.rule_of(False, selection, also)
    if rule == "default":
        raise SpecError(
            "Expected --selection public-validation or private-unaccounted: default settings need no search."
        )
    search = flags.search_of(rule, space, tries, search_seed, None, also)
    given = {
        "learner": learner, "dataset": dataset, "extractor": extractor, "epsilon": epsilon, "delta": delta,
        "accountant": accountant, "public_fraction": public_fraction, "public_dataset": public_dataset,
        "public_labels": public_labels, "train_fraction": train_fraction, "imbalance": imbalance, "unit": unit,
        "metric": metric,
        "split_seed": split_seed, "allow_overlap": allow_overlap, "search": search,
    }  # fmt: skip
    asked = make_spec(flags.values_of(given, keys, "tune"), flags.origin_of(spec, "tune"))
    out = out or Path(also.out or "dpbench-results")

    from dpbench.registry import load
    from dpbench.registry.components import resolve
    from dpbench.support.files import check_writable

    plugins = load()
    plugins.report_broken()
    resolved = resolve(asked, plugins)
    resolved.check_data()
    check_writable(out)

    from dpbench.harness.session import open_session

    tuning = open_session(device or also.device or "auto", plugins=plugins).tune(resolved)
    with print_if_unwritable(tuning):
        written = tuning.write(out)
    if as_json:
        print(tuning.model_dump_json(indent=2))
    else:
        _show(tuning, f"dpbench {command_of(tuning.spec, written, plugins)}", written, Console())


def _refuse_others(also: spec_file.RunOptions, spec: Path | None) -> None:
    for name in ("board", "settings", "repeats", "threads"):
        if getattr(also, name) is not None:
            raise SpecError(f"Expected no {name} in {spec}: dpbench tune only searches for settings.")


def command_of(spec: Spec, file: Path, plugins: Registry) -> str:
    """Return the run that uses what a search found, on the search's own protocol; its settings are in the file."""
    from dpbench.registry.components import build, kind_of, shorten_component

    named, words = shorten_component(plugins), ["run", "--learner", spec.learner.name]
    if (unit := spec.unit or "image") != build(plugins, "dataset", spec.dataset).default_unit():
        words += ["--unit", unit]
    implied = {"seeds", "unit"} if spec.public_dataset is None else {"seeds", "unit", "public_fraction"}
    for key, field in Protocol.model_fields.items():
        value = getattr(spec, key)
        said = named(kind_of(key), value) if isinstance(value, Component) else str(value)
        if key not in implied and said != str(field.default):
            words += [f"--{key.replace('_', '-')}", *([] if value is True else [said])]
    return join([*words, "--settings", str(file)])


def _show(tuning: Tuning, command: str, written: Path, console: Console) -> None:
    chosen, names = tuning.selection, list(tuning.selection.space)
    table = Table(*names, tuning.spec.metric.replace("_", " "), box=None)
    scored = sorted(
        ((trial.value, trial) for trial in chosen.trials if trial.value is not None), key=lambda one: -one[0]
    )
    for value, trial in scored[:10]:
        table.add_row(*(_short(trial.setting[name]) for name in names), f"{100 * value:.2f}%")
    console.print(table)
    failed = Counter(trial.error for trial in chosen.trials if trial.error)
    console.print(
        f"Tried {len(chosen.trials) - failed.total()} of {chosen.possible} settings ({chosen.draw}); "
        f"{chosen.public_labels:,} public labels read, "
        f"private data {'touched' if chosen.private_touched else 'not touched'}"
        + (f"; {failed.total()} could not be tried" if failed else ""),
        soft_wrap=True,
    )
    for why, times in failed.most_common(3):
        said = why.partition(f" Set {tuning.spec.learner.name}:")[0]  # without advice that is for a run, not a search
        console.print(f"Not tried ({times}): {said}", soft_wrap=True, markup=False, highlight=False)
    default = tuning.default.value if tuning.default else None
    best = max((value for value, _ in scored), default=0.0)
    if default is not None:
        worse = " Warning: no setting beats them; keep the defaults." if best <= default else ""
        console.print(f"The defaults score {100 * default:.2f}% on the same labels.{worse}", soft_wrap=True)
    options = ",".join(f"{name}={value}" for name, value in (chosen.chosen or {}).items())
    console.print(f"Best: {tuning.spec.learner.name}:{options}", soft_wrap=True, markup=False)
    console.print(f"Wrote {written}; use it with: {command}", soft_wrap=True, markup=False, highlight=False)


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
