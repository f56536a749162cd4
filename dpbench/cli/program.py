"""Every command and flag of the command line, and how their refusals are said."""

from __future__ import annotations

import errno
import functools
import io
import os
import sys
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer
from dpbench_lab.advise.command import advise
from dpbench_lab.claims.command import claims
from dpbench_lab.explain.command import explain
from dpbench_lab.figures.command import plot
from dpbench_lab.inspect.command import inspect
from dpbench_lab.museum.command import museum
from dpbench_lab.reproduce.command import reproduce

from dpbench.cli import (
    audit,
    budget,
    cache,
    check,
    components,
    data,
    docs,
    leaderboard,
    plugin,
    predict,
    pretrain,
    receipt,
    report,
    results,
    run,
    sweep,
    tune,
)
from dpbench.cli.command import Command
from dpbench.cli.refusals import describe_refusal
from dpbench.errors import DpbenchError, SpecError
from dpbench.support import progress
from dpbench.support.plugin_calls import DEBUG
from dpbench.support.threads import let_idle_sleep
from dpbench.support.untrusted import printable

app = typer.Typer(
    name="dpbench",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
)
COMMANDS: dict[str, Callable[..., None]] = {
    "run": run.run, "tune": tune.tune, "sweep": sweep.sweep, "plot": plot, "report": report.report,
    "compare": results.compare,
    "predict": predict.predict, "explain": explain,
    "list": components.list_components, "inspect": inspect, "check": check.check_component,
    "advise": advise, "budget": budget.budget, "claims": claims,
    "audit": audit.audit, "museum": museum, "reproduce": reproduce, "pretrain": pretrain.pretrain,
    "docs": docs.docs,
}  # fmt: skip
for name, command in COMMANDS.items():
    app.command(name)(command)
GROUPS = {
    "results": results.app, "data": data.app, "cache": cache.app, "plugin": plugin.app, "leaderboard": leaderboard.app,
    "receipt": receipt.app,
}  # fmt: skip
for name, group in GROUPS.items():
    app.add_typer(group, name=name)
for holder in (app, *GROUPS.values()):
    for registered in holder.registered_commands:
        registered.cls = Command


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
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Report every stage.")] = False,
) -> None:
    """Benchmark differentially private image classification: the harness owns privacy.

    --debug, --quiet and --verbose may also follow a command.
    """
    if quiet and verbose:
        raise SpecError("Expected one of --quiet and --verbose, got both.")
    progress.say(nothing=quiet, everything=verbose)
    if debug:
        os.environ[DEBUG] = "1"  # so that processes that are started hear of it


REFUSED: Any = next(one for one in typer.BadParameter.__mro__ if one.__name__ == "ClickException")
"""What the parser raises; newer versions of typer bring a parser of their own."""
SLIP = 70  # the exit code of an error that is nobody's input
FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk without space
ANYWHERE = ("--debug", "--quiet", "-q", "--verbose", "-v")
"""Flags of every command: they are moved before it."""


def _in_front(arguments: list[str]) -> list[str]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return sorted(arguments[:end], key=lambda one: one not in ANYWHERE) + arguments[end:]


def run_program(arguments: list[str]) -> NoReturn:
    """Run the command line and exit: a refusal is one sentence on standard error."""
    let_idle_sleep()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no ε shows its number
    try:
        code = _called(_in_front(arguments))
        _flush_output()  # here errors are sentences still, and whoever interrupts from here on has it all
        raise SystemExit(code)
    except DpbenchError as error:
        if os.environ.get(DEBUG):
            raise
        print(f"dpbench: {printable(str(error))}", file=sys.stderr)
        raise SystemExit(1) from None
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, OSError) and error.errno in FULL:
            print(f"dpbench: {error.strerror}. Finished results are kept.", file=sys.stderr)
            raise SystemExit(1) from None
        said = printable(" ".join(str(error).split())[:300])
        print(
            f"dpbench: Internal error in dpbench: {type(error).__name__}: {said} Finished results are kept. Please "
            "report this with the traceback that --debug shows.",
            file=sys.stderr,
        )
        raise SystemExit(SLIP) from None


def _flush_output() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `dpbench list | head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


@functools.cache  # reading every command's signature takes longer than most commands do
def _commands() -> Any:
    return typer.main.get_command(app)


def _called(arguments: list[str]) -> int:
    """Return the exit code of a command; what the parser refuses is one sentence too."""
    try:
        return int(_commands()(arguments, prog_name="dpbench", standalone_mode=False) or 0)
    except REFUSED as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return int(error.exit_code)
        print(f"dpbench: {describe_refusal(error, arguments)}", file=sys.stderr)
        return int(error.exit_code)
    except typer.Abort:
        print("dpbench: Aborted.", file=sys.stderr)
        return 1
