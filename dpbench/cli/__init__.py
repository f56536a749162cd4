"""The command line. Commands hold no logic, and import heavy modules only when they run.

Importing this package imports none of them: `main` decides first what Ctrl-C does.
"""

from __future__ import annotations

import sys

from dpbench.cli import interrupt


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; a refusal is one sentence on standard error, and exit code 1 (2 for a flag's form).

    Args:
        arguments: the words after `dpbench`. None takes those of the process, which is then dpbench's alone.
    """
    if arguments is None:
        interrupt.take_over()
    try:
        from dpbench.cli.program import run_program

        run_program(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        interrupt.say(interrupt.KEPT)
        raise SystemExit(interrupt.CODE) from None
