"""`dpbench tune`: search for a learner's settings, without a final run."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from dpbench.cli.given import UserSettings
from dpbench.cli.output import Json, print_record_if_unwritable
from dpbench.cli.takes import add_setting_flags
from dpbench.errors import SpecError
from dpbench.records.place import RunOptions
from dpbench.records.protocol import Component
from dpbench.records.search import TUNE_SWITCH, Search
from dpbench.records.spec import Spec, format_flags

if TYPE_CHECKING:
    from dpbench.records.tuning import Tuning


RUN_ONLY_KEYS = ("board", "settings", "repeats", "repeats_shape", "threads")
"""Keys that apply to a run, but not to a search without a run."""


@add_setting_flags(
    Spec, Search, RunOptions,
    without=(*RUN_ONLY_KEYS, "seeds", "secure_rng"), defaults={"selection": TUNE_SWITCH.value},
    choices={"selection": ("public-validation", "private-unaccounted")}, file=True,
)  # fmt: skip
def tune(given: UserSettings, as_json: Json = False) -> None:
    """Choose a learner's settings with public labels and save every trial. The test split is never read."""
    given.refuse_keys(RUN_ONLY_KEYS, "dpbench tune only searches for settings")
    if given.values.get("selection") == "default":
        raise SpecError(
            "Expected --selection public-validation or private-unaccounted: default settings need no search."
        )

    from dpbench.registry import load
    from dpbench.registry.components import resolve
    from dpbench.support.files import check_writable_folder

    plugins, place = load(), given.place
    asked = given.spec(plugins)
    plugins.report_broken_plugins()
    resolved = resolve(asked, plugins)
    resolved.check_data()
    check_writable_folder(place.out)

    from dpbench.harness.session import open_session

    tuning = open_session(place.device, plugins=plugins).tune(resolved)
    with print_record_if_unwritable(tuning):
        written = tuning.write(place.out)
    if as_json:
        print(tuning.model_dump_json(indent=2))
    else:
        _print_tuning(tuning, format_run_command(asked, written), written, Console())


def format_run_command(spec: Spec, file: Path) -> str:
    """Return the command that runs the learner with the settings in `file`, under the protocol of `spec`."""
    learner = Component(name=spec.learner.name)
    plain = spec.model_copy(update={"learner": learner, "search": None})
    return join(["dpbench", "run", *format_flags(plain), "--settings", str(file)])


def _print_tuning(tuning: Tuning, command: str, written: Path, console: Console) -> None:
    chosen, names = tuning.selection, list(tuning.selection.space)
    table = Table(*names, tuning.spec.metric.replace("_", " "), box=None)
    scored = sorted(
        ((trial.value, trial) for trial in chosen.trials if trial.value is not None), key=lambda pair: -pair[0]
    )
    for value, trial in scored[:10]:
        table.add_row(*(_format_setting(trial.setting[name]) for name in names), f"{100 * value:.2f}%")
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


def _format_setting(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
