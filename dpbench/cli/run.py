"""`dpbench run`: one learner on one dataset within one privacy budget."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dpbench.cli import flags, several
from dpbench.cli.output import interruptible, printed_if_unwritable
from dpbench.errors import SpecError
from dpbench.records.spec import make_spec

if TYPE_CHECKING:
    from dpbench.harness.fit import Fitted
    from dpbench.harness.prepare import Prepared
    from dpbench.records.result import Result
    from dpbench.records.spec import Spec
    from dpbench.registry import Registry


def run(
    learner: flags.Learners = None,
    board: Annotated[
        str | None, typer.Option(help="Board of the leaderboard (name or file) that fixes everything but the learner.")
    ] = None,
    dataset: flags.Datasets = None,
    extractor: flags.Extractors = None,
    epsilon: flags.Epsilons = None,
    delta: flags.Delta = None,
    accountant: flags.Accountant = None,
    public_fraction: flags.PublicFraction = None,
    public_dataset: flags.PublicDataset = None,
    public_labels: flags.PublicLabels = None,
    train_fraction: flags.TrainFractions = None,
    imbalance: flags.Imbalance = None,
    split_seed: flags.SplitSeed = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 5 means 0 to 4. \\[default: 5]")] = None,
    secure_rng: Annotated[
        bool | None,
        typer.Option(
            "--secure-rng",
            help="Draw samples and noise from the operating system, exactly; needs dpbench-vision\\[secure].",
        ),
    ] = None,
    tune: Annotated[bool, typer.Option("--tune", help="Short for --selection public-validation.")] = False,
    selection: Annotated[
        str | None,
        typer.Option(help="default, public-validation, private-accounted or private-unaccounted. \\[default: default]"),
    ] = None,
    space: flags.Space = None,
    tries: flags.Tries = None,
    repeats: Annotated[
        float | None, typer.Option(help="For private-accounted: mean number of runs per seed. \\[default: 10]")
    ] = None,
    search_seed: flags.SearchSeed = None,
    settings: Annotated[
        Path | None, typer.Option(help="Use the settings that this tuning or result file chose, even on other data.")
    ] = None,
    spec: flags.SpecFile = None,
    models: Annotated[
        bool, typer.Option("--models", help="Keep each seed's model in OUT/models, for dpbench predict.")
    ] = False,
    device: flags.Device = "auto",
    out: flags.Out = Path("dpbench-results"),
    as_json: flags.Json = False,
) -> None:
    """Fit once per seed, score on the test split, write one JSON result; of several learners or ε, one each."""
    if tune and selection is not None:
        raise SpecError("--tune means --selection public-validation: use only one of them.")
    search = flags.search_of("public-validation" if tune else selection, space, tries, search_seed, repeats)
    axes: dict[str, list[Any]] = {
        "learner": several.components(learner), "dataset": several.components(dataset),
        "extractor": several.components(extractor), "epsilon": several.numbers(epsilon, "--epsilon"),
        "train_fraction": several.numbers(train_fraction, "--train-fraction"),
    }  # fmt: skip
    many = several.axes(axes)
    given = {
        **{name: values[0] for name, values in axes.items() if values and name not in many}, "delta": delta,
        "accountant": accountant, "public_fraction": public_fraction, "public_dataset": public_dataset,
        "public_labels": public_labels, "imbalance": imbalance, "split_seed": split_seed, "seeds": seeds,
        "secure_rng": secure_rng, "search": search,
    }  # fmt: skip
    with interruptible("Extracted features are kept; repeat the command to continue."):
        values, origin = flags.values_of(given, spec, "run"), flags.origin_of(spec, "run")
        if many:
            for flag, is_given in (
                ("--board", board), ("--settings", settings), ("--models", models), ("--json", as_json)
            ):  # fmt: skip
                if is_given:
                    raise SpecError(f"Expected one value of {_flags(many)} with {flag}, got several.")
            several.run_all(values, many, out, device)
            return
        keeper = Keeper(out / "models") if models else None
        result, written, replaced = _run(
            lambda plugins: _spec(values, origin, board, plugins), device, out, settings, board is not None, keeper
        )
    if as_json:
        print(result.model_dump_json(indent=2))
    else:
        _show(result, written, replaced, Console())
    if keeper is not None:
        keeper.say()


class Keeper:
    """Writes the model of each seed as it ends; a predictor that cannot be kept costs no result."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._written, self._refused = folder, 0, ""

    def __call__(self, prepared: Prepared, fitted: Fitted) -> None:
        """Write one model."""
        from dpbench.models import Model

        spec = prepared.spec
        name = f"{spec.learner.name}-{spec.dataset.name}-{spec.digest[:16]}-seed-{fitted.result.seed}.safetensors"
        try:
            Model.of(prepared, fitted).save(self._folder / name)
            self._written += 1
        except SpecError as error:
            self._refused = str(error)

    def say(self) -> None:
        """Say on standard error how many models there are.

        Raises:
            SpecError: one could not be kept.
        """
        if self._refused:
            raise SpecError(f"{self._refused} The result is written.")
        print(f"Wrote {self._written} models into {self._folder}", file=sys.stderr)


def _flags(axes: Mapping[str, Any]) -> str:
    return " and ".join(f"--{name.replace('_', '-')}" for name in axes)


def _spec(values: dict[str, Any], origin: str, board: str | None, plugins: Registry) -> Spec:
    if board is None:
        return make_spec(values, origin)
    from dpbench.records.board import find_board
    from dpbench.registry.boards import entry_spec

    return entry_spec(find_board(board), values, plugins, origin)


def _run(
    ask: Callable[[Registry], Spec],
    device: str,
    out: Path,
    settings: Path | None,
    for_board: bool,
    keeper: Keeper | None,
) -> tuple[Result, Path, str]:
    from dpbench.registry import load
    from dpbench.registry.components import check_components
    from dpbench.support.files import check_writable

    plugins = load()
    plugins.report_broken()
    spec = ask(plugins)
    check_components(spec, plugins)
    check_writable(out)

    from dpbench.board.tables import words
    from dpbench.harness.run import run

    result = run(spec, device=device, plugins=plugins, settings=settings, for_board=for_board, keep=keeper)
    replaced = words.replaced(result, out / result.file_name)
    with printed_if_unwritable(result):
        return result, result.write(out), replaced


def _show(result: Result, written: Path, replaced: str, console: Console) -> None:
    spec, privacy, task = result.spec, result.privacy, result.task
    console.print(
        f"{spec.learner.name} on {spec.dataset.name} ({spec.extractor.names}): {task.private:,} private, "
        f"{task.public:,} public, {task.test:,} test examples"
    )
    other = privacy.independent
    bounds = f"{other.lower:.4g} to {other.upper:.4g}" if privacy.sigma else f"{other.upper:.4g}"
    table = Table("accuracy", f"ε ({privacy.accountant})", f"ε ({other.accountant})", "σ", "seconds", box=None)
    table.add_row(
        _percent(result), f"{privacy.epsilon:.4g}", bounds, f"{privacy.sigma:.4g}",
        f"{sum(result.seconds.values()):.1f}",
    )  # fmt: skip
    console.print(table)
    console.print(
        f"δ {privacy.delta:g}, {privacy.adjacency}, {privacy.rng} RNG, hyperparameters {result.selection}, "
        f"{len(result.seeds)} seed(s), 95% interval"
    )
    for pair, counted in (result.task.overlap or {}).items():
        if counted.near:
            console.print(f"{pair.capitalize()}: {counted}")
    for remark in result.remarks:
        console.print(f"Warning: {remark}", soft_wrap=True, markup=False)
    if result.search and result.search.chosen is not None:
        console.print(f"Chosen: {_listed(result.search.chosen)}", soft_wrap=True, markup=False)
    if result.settled:
        console.print(f"Settled by the budget: {_listed(result.settled)}", soft_wrap=True, markup=False)
    console.print(f"Wrote {written}{replaced}", soft_wrap=True)


def _listed(settings: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={'auto' if value is None else value}" for name, value in settings.items())


def _percent(result: Result) -> str:
    accuracy = result.metrics["accuracy"]
    half = "" if accuracy.high is None else f" ± {100 * (accuracy.high - accuracy.mean):.2f}"
    return f"{100 * accuracy.mean:.2f}%{half}"
