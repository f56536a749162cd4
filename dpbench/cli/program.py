"""The command line as a program: the flags of all commands, and how errors are printed."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn

import typer
from typer.core import TyperGroup

from dpbench.cli.command import Command
from dpbench.cli.refusals import describe_refusal
from dpbench.errors import DpbenchError, SpecError
from dpbench.support import progress
from dpbench.support.plugin_calls import DEBUG
from dpbench.support.threads import let_idle_threads_sleep
from dpbench.support.untrusted import make_printable

if TYPE_CHECKING:
    from dpbench.site.extras import SiteExtras

Panel = Mapping[str, tuple[Callable[..., None] | typer.Typer, str]]
"""Commands or groups of commands by name, each with its line of `dpbench --help`; an empty line hides the command."""


def _print_version(is_requested: bool) -> None:
    if is_requested:
        from importlib.metadata import version

        print(f"dpbench {version('dpbench-vision')}")
        raise typer.Exit


def set_common_options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show tracebacks.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Hide progress.")] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Report every stage.")] = False,
) -> None:
    """Benchmark differentially private image classification: the harness owns privacy."""
    if quiet and verbose:
        raise SpecError("Expected one of --quiet and --verbose, got both.")
    progress.set_verbosity(nothing=quiet, everything=verbose)
    if debug:
        os.environ[DEBUG] = "1"  # so that processes that are started hear of it


class RootCommand(TyperGroup):
    """The root command. Its help fits one screen: panels with one line per command, and the flags of all commands."""

    panels: ClassVar[dict[str, list[str]]] = {}

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without boxes."""
        formatter.write_usage(ctx.command_path, "[FLAGS] COMMAND ...")
        formatter.write(f"{(self.help or '').partition(chr(10))[0]}\n")
        panels = (
            [f"{title}\n", *(f"  {name:12} {self.commands[name].short_help}\n" for name in names)]
            for title, names in self.panels.items()
        )
        formatter.write("\n".join(map("".join, panels)))
        formatter.write("Flags: --version, --install-completion, --debug, --quiet, --verbose, --help.\n")


def build_program(panels: Mapping[str, Panel]) -> typer.Typer:
    """Return the command line; its help shows the commands of each panel under the panel's title."""
    root = type(
        "Root", (RootCommand,), {"panels": {title: _list_visible_commands(panel) for title, panel in panels.items()}}
    )
    app = typer.Typer(
        name="dpbench", cls=root, no_args_is_help=True, add_completion=True, pretty_exceptions_enable=False
    )
    app.callback()(set_common_options)
    for panel in panels.values():
        for name, (command, line) in panel.items():
            if isinstance(command, typer.Typer):
                for registered in command.registered_commands:
                    registered.cls = Command
                app.add_typer(command, name=name, short_help=line)
            else:
                app.command(name, cls=Command, short_help=line)(command)
    return app


def _list_visible_commands(panel: Panel) -> list[str]:
    return [name for name, (_, line) in panel.items() if line]


PARSER_ERROR: Any = next(base for base in typer.BadParameter.__mro__ if base.__name__ == "ClickException")
"""The base class of the parser's errors, found by name because newer versions of typer have their own parser."""
INTERNAL_ERROR_CODE = 70  # the exit code of an error that is nobody's input
DISK_FULL = (errno.ENOSPC, errno.EDQUOT)  # errors of a disk without space
COMMON_FLAGS = ("--debug", "--quiet", "-q", "--verbose", "-v")
"""Flags that every command accepts; they are moved before the command's name."""


def _move_common_flags_to_front(arguments: list[str]) -> list[str]:
    end = arguments.index("--") if "--" in arguments else len(arguments)
    return sorted(arguments[:end], key=lambda argument: argument not in COMMON_FLAGS) + arguments[end:]


def run_program(program: Any, arguments: list[str], extras: Callable[[], SiteExtras]) -> NoReturn:
    """Run a command and exit; print an error as a sentence on standard error.

    Args:
        program: the parser's root command.
        arguments: the words after `dpbench`.
        extras: loads the additions to the pages that commands build.
    """
    let_idle_threads_sleep()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")  # a terminal that has no ε shows its number
    try:
        code = _run_command(program, _move_common_flags_to_front(arguments), extras)
        _flush_output()  # here errors are sentences still, and whoever interrupts from here on has it all
        raise SystemExit(code)
    except DpbenchError as error:
        if os.environ.get(DEBUG):
            raise
        print(f"dpbench: {make_printable(str(error))}", file=sys.stderr)
        raise SystemExit(1) from None
    except Exception as error:
        if os.environ.get(DEBUG):
            raise
        if isinstance(error, BrokenPipeError):  # `dpbench --show-completion | head` has read enough
            _discard_further_output()
            raise SystemExit(0) from None
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            print(f"dpbench: {error.strerror}. Finished results are kept.", file=sys.stderr)
            raise SystemExit(1) from None
        said = make_printable(" ".join(str(error).split())[:300])
        print(
            f"dpbench: Internal error in dpbench: {type(error).__name__}: {said} Finished results are kept. Please "
            "report this with the traceback that --debug shows.",
            file=sys.stderr,
        )
        raise SystemExit(INTERNAL_ERROR_CODE) from None


def _flush_output() -> None:
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:  # `dpbench list | head` has read enough
        _discard_further_output()


def _discard_further_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _run_command(program: Any, arguments: list[str], extras: Callable[[], SiteExtras]) -> int:
    """Run a command and return its exit code; print an error of the parser as a sentence."""
    try:
        return int(program(arguments, prog_name="dpbench", standalone_mode=False, obj=extras) or 0)
    except PARSER_ERROR as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error.format_message())
            return int(error.exit_code)
        print(f"dpbench: {describe_refusal(error, arguments)}", file=sys.stderr)
        return int(error.exit_code)
    except typer.Abort:
        print("dpbench: Aborted.", file=sys.stderr)
        return 1
