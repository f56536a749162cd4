"""`dpbench run`: one learner on one dataset under one budget."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from dpbench.errors import OutputError

if TYPE_CHECKING:
    from dpbench.result import Result


def run(
    learner: Annotated[str | None, typer.Option(help="Learner, like pillar or pillar:k=40,center=false.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Dataset of the private and test data. [default: digits]")] = None,
    extractor: Annotated[str | None, typer.Option(help="Feature extractor. [default: pixels]")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Target epsilon in nats; inf for none. [default: 1]")] = None,
    delta: Annotated[float | None, typer.Option(help="Target delta, below 1/n. [default: 1e-5]")] = None,
    accountant: Annotated[str | None, typer.Option(help="pld, rdp or prv. [default: pld]")] = None,
    public_fraction: Annotated[
        float | None, typer.Option(help="Share of the training split made public. [default: 0.1]")
    ] = None,
    public_dataset: Annotated[str | None, typer.Option(help="Take public data from this dataset instead.")] = None,
    public_labels: Annotated[
        bool | None, typer.Option("--public-labels", help="Let learners read public labels.")
    ] = None,
    train_fraction: Annotated[
        float | None, typer.Option(help="Share of the private split to keep. [default: 1]")
    ] = None,
    split_seed: Annotated[int | None, typer.Option(help="Seed of the public/private split. [default: 0]")] = None,
    seeds: Annotated[int | None, typer.Option(help="Number of seeds: 5 means 0 to 4. [default: 5]")] = None,
    secure_rng: Annotated[
        bool | None, typer.Option("--secure-rng", help="Seed sampling and noise from the operating system.")
    ] = None,
    spec: Annotated[Path | None, typer.Option(help="TOML file with any of these keys; flags win over it.")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 ...")] = "auto",
    out: Annotated[Path, typer.Option(help="Folder for the result.")] = Path("dpbench-results"),
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Fit once a seed, score on the test split, write one JSON result."""
    flags = {
        "learner": learner, "dataset": dataset, "extractor": extractor, "epsilon": epsilon, "delta": delta,
        "accountant": accountant, "public_fraction": public_fraction, "public_dataset": public_dataset,
        "public_labels": public_labels, "train_fraction": train_fraction, "split_seed": split_seed, "seeds": seeds,
        "secure_rng": secure_rng,
    }  # fmt: skip
    try:
        _run({key: value for key, value in flags.items() if value is not None}, spec, device, out, as_json)
    except KeyboardInterrupt:
        print("dpbench: Interrupted. What was extracted is kept; the same command goes on from there.", file=sys.stderr)
        raise typer.Exit(130) from None


def _run(flags: dict[str, Any], file: Path | None, device: str, out: Path, as_json: bool) -> None:
    from dpbench.files import check_writable
    from dpbench.registry import load
    from dpbench.spec import make_spec, read_toml

    values = {**(read_toml(file) if file else {}), **flags}
    spec = make_spec(values, f"{file} and flags" if file else "the flags of dpbench run")
    plugins = load()
    plugins.report_broken()
    plugins.find("learner", spec.learner.name)  # a misspelt name is refused before torch takes its seconds to import
    check_writable(out)

    from dpbench.run import run

    result = run(spec, device=device, plugins=plugins)
    try:
        written = result.write(out)
    except OutputError:
        print(result.model_dump_json(indent=2))  # what was computed is not lost with the disk
        raise
    if as_json:
        print(result.model_dump_json(indent=2))
    else:
        _show(result, written, Console())


def _show(result: Result, written: Path, console: Console) -> None:
    spec, privacy, task = result.spec, result.privacy, result.task
    console.print(
        f"{spec.learner.name} on {spec.dataset.name} ({spec.extractor.name}): {task.private:,} private, "
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
    console.print(f"Wrote {written}", soft_wrap=True)


def _percent(result: Result) -> str:
    accuracy = result.metrics["accuracy"]
    half = "" if accuracy.high is None else f" ± {100 * (accuracy.high - accuracy.mean):.2f}"
    return f"{100 * accuracy.mean:.2f}%{half}"
