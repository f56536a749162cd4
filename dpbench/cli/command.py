"""The class of all commands. A command refuses repeated flags, and Ctrl-C ends it with a message."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption

from dpbench.cli import interrupt
from dpbench.cli.output import exit_with_message_on_interrupt
from dpbench.errors import SpecError


class Command(TyperCommand):
    """A command that refuses a repeated flag, because the second value would silently replace the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Refuse repeated flags, then parse the arguments.

        Raises:
            SpecError: a flag was given twice; the message names the flag.
        """
        given = [arg.partition("=")[0] for arg in args[: args.index("--") if "--" in args else None]]
        for option in self.params:
            if isinstance(option, TyperOption) and not option.multiple:
                names = (*option.opts, *option.secondary_opts)
                if sum(map(given.count, names)) > 1:
                    both = " or ".join(name for name in names if name in given)
                    raise SpecError(f"Expected {both} once, got it more than once.")
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed

    def invoke(self, ctx: Any) -> Any:
        """Run the command. Ctrl-C ends it with a message, unless the command prints a message of its own."""
        with interrupt.raise_on_interrupt(), exit_with_message_on_interrupt(interrupt.KEPT_MESSAGE):
            return super().invoke(ctx)
