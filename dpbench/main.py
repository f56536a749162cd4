"""Assemble the program from dpbench's packages and, if installed, the lab. No other module imports all of them."""

from __future__ import annotations

import functools
import gc
import sys

from dpbench.cli import interrupt

TYPE_CHECKING = False  # type checkers take it for true; `typing` would take as long as all the rest
if TYPE_CHECKING:
    from typing import Any

    from typer import Typer

    from dpbench.site.extras import SiteExtras

LAB_PACKAGE = "dpbench_lab"


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. After an error, print one sentence to standard error and exit with 1, or 2 for a bad flag.

    Args:
        arguments: the words after `dpbench`. None: the words of this process; its interrupt handler is then set, too.
    """
    if arguments is None:
        interrupt.install_handler()
        gc.disable()  # a tenth of the start: imports leave no garbage
    try:
        from dpbench.cli.program import run_program

        program = load_root_command()
        if arguments is None:
            gc.freeze()
            gc.enable()
        run_program(program, sys.argv[1:] if arguments is None else arguments, load_extras)
    except KeyboardInterrupt:
        interrupt.print_interrupt_message(interrupt.KEPT_MESSAGE)
        raise SystemExit(interrupt.EXIT_CODE) from None


def is_lab_installed() -> bool:
    """Return whether the lab (the package `dpbench_lab`) is installed."""
    from dpbench.support.paths import is_installed_package

    return is_installed_package(LAB_PACKAGE)


def build_command_line() -> Typer:
    """Build the command line from the commands of the harness and, if it is installed, of the lab."""
    from dpbench.cli.commands import PANELS
    from dpbench.cli.program import build_program

    if not is_lab_installed():
        return build_program(PANELS)
    from dpbench_lab.commands import STUDIES

    return build_program({**PANELS, "Studies of runs": STUDIES})


@functools.cache  # reading every command's signature takes longer than most commands do
def load_root_command() -> Any:
    """Return the root command of the command line's parser; it is built only once."""
    import typer

    return typer.main.get_command(build_command_line())


def load_extras() -> SiteExtras:
    """Return the lab's additions to the site and the manual, or `NO_EXTRAS` if the lab is not installed."""
    if not is_lab_installed():
        from dpbench.site.extras import NO_EXTRAS

        return NO_EXTRAS
    from dpbench_lab.pages import EXTRAS

    return EXTRAS
