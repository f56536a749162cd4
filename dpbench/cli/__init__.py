"""The command line. Commands hold no logic, and import heavy modules only when they run."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable

import typer

from dpbench.cli import (
    budget,
    check,
    components,
    data,
    inspect,
    leaderboard,
    plot,
    plugin,
    pretrain,
    results,
    run,
    sweep,
    tune,
)
from dpbench.cli.once import Once
from dpbench.errors import DpbenchError

app = typer.Typer(
    name="dpbench",
    help="Benchmark differentially private image classification: the harness owns privacy.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.run, "tune": tune.tune, "sweep": sweep.sweep, "plot": plot.plot, "compare": results.compare,
    "list": components.list_components, "inspect": inspect.inspect, "check": check.check, "budget": budget.budget,
    "pretrain": pretrain.pretrain,
}  # fmt: skip
for name, command in COMMANDS.items():
    app.command(name, cls=Once)(command)
app.add_typer(results.app, name="results")
app.add_typer(data.app, name="data")
app.add_typer(plugin.app, name="plugin")
app.add_typer(leaderboard.app, name="leaderboard")


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
