"""The program, put together: the only file that knows every room, and the commands and pages of the lab."""

from __future__ import annotations

import functools
import sys

from dpbench.cli import interrupt

TYPE_CHECKING = False  # type checkers take it for true; `typing` would take as long as all the rest
if TYPE_CHECKING:
    from typing import Any

    from typer import Typer

    from dpbench.site.extras import Extras

LAB = "dpbench_lab"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a refusal is one sentence on standard error, and exit code 1 (2 for a flag's form).

    Args:
        arguments: the words after `dpbench`. None takes those of the process, which is then dpbench's alone.
    """
    if arguments is None:
        interrupt.take_over()
    try:
        from dpbench.cli.program import run_program

        run_program(root_command(), sys.argv[1:] if arguments is None else arguments, load_extras)
    except KeyboardInterrupt:
        interrupt.say(interrupt.KEPT)
        raise SystemExit(interrupt.CODE) from None


def is_lab_installed() -> bool:
    """Return whether the lab is there."""
    from dpbench.support.paths import is_package

    return is_package(LAB)


def build() -> Typer:
    """Return the command line: commands of the harness, and of the lab where it is installed."""
    from dpbench.cli.commands import COMMANDS, GROUPS
    from dpbench.cli.program import build_program

    if not is_lab_installed():
        return build_program(COMMANDS, GROUPS, {})
    from dpbench_lab.commands import COMMANDS as STUDIES

    return build_program(COMMANDS, GROUPS, STUDIES)


@functools.cache  # reading every command's signature takes longer than most commands do
def root_command() -> Any:
    """Return the command line as the parser has it."""
    import typer

    return typer.main.get_command(build())


def load_extras() -> Extras:
    """Return what the lab adds to the site and to the manual; nothing where it is not installed."""
    if not is_lab_installed():
        from dpbench.site.extras import NOTHING

        return NOTHING
    from dpbench_lab.pages import EXTRAS

    return EXTRAS
