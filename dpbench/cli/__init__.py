"""The command line. Commands hold no logic, and import heavy modules only when they run.

Importing this package imports no command: `dpbench.main` must set the handler of Ctrl-C first.
"""

from __future__ import annotations


def main(arguments: list[str] | None = None) -> None:
    """Run the command line, as `dpbench.main.main` does. Environments from before version 0.3 call this function."""
    from dpbench.main import main as run

    run(arguments)
