"""The command line. Commands hold no logic, and import heavy modules only when they run."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from dpbench.cli import (
    audit,
    budget,
    cache,
    check,
    components,
    data,
    explain,
    inspect,
    leaderboard,
    museum,
    plot,
    plugin,
    predict,
    pretrain,
    reproduce,
    results,
    run,
    sweep,
    tune,
)
from dpbench.cli.once import Once
from dpbench.errors import DpbenchError

app = typer.Typer(
    name="dpbench",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.run, "tune": tune.tune, "sweep": sweep.sweep, "plot": plot.plot, "compare": results.compare,
    "predict": predict.predict, "explain": explain.explain,
    "list": components.list_components, "inspect": inspect.inspect, "check": check.check, "budget": budget.budget,
    "audit": audit.audit, "museum": museum.museum, "reproduce": reproduce.reproduce, "pretrain": pretrain.pretrain,
}  # fmt: skip
for name, command in COMMANDS.items():
    app.command(name, cls=Once)(command)
app.add_typer(results.app, name="results")
app.add_typer(data.app, name="data")
app.add_typer(cache.app, name="cache")
app.add_typer(plugin.app, name="plugin")
app.add_typer(leaderboard.app, name="leaderboard")


def _say_version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        print(f"dpbench {version('dpbench-vision')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """Benchmark differentially private image classification: the harness owns privacy."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a refusal is one sentence on standard error and exit code 1."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no ε shows its number
    try:
        app(arguments)
    except DpbenchError as error:
        if os.environ.get("DPBENCH_DEBUG"):
            raise
        print(f"dpbench: {error}", file=sys.stderr)
        raise SystemExit(1) from None
