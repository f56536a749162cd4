"""What every command does: a flag of one value is given once, and Ctrl-C ends with a sentence."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption

from dpbench.cli import interrupt
from dpbench.cli.output import report_interrupt
from dpbench.errors import SpecError


class Command(TyperCommand):
    """A command that refuses a repeated flag, whose second value would silently replace the first."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as ever, after counting.

        Raises:
            SpecError: names the flag that was given twice.
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
        """Run the command; it may have a sentence of its own on what an interruption leaves."""
        with interrupt.raising(), report_interrupt(interrupt.KEPT):
            return super().invoke(ctx)
