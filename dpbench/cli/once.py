"""A flag that holds one value is given once: a second one would silently replace the first."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand, TyperOption

from dpbench.errors import SpecError


class Once(TyperCommand):
    """A command that refuses a repeated flag, unless the flag takes several values."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse as ever, after counting.

        Raises:
            SpecError: names the flag that was given twice.
        """
        given = [arg.partition("=")[0] for arg in args[: args.index("--") if "--" in args else None]]
        for option in self.params:
            if isinstance(option, TyperOption) and not option.multiple and sum(map(given.count, option.opts)) > 1:
                raise SpecError(f"Expected {option.opts[0]} once, got it more than once.")
        parsed: list[str] = super().parse_args(ctx, args)
        return parsed
