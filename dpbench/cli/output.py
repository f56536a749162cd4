"""What commands do when they are interrupted, or cannot write what they computed."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer
from pydantic import BaseModel

from dpbench.errors import OutputError


@contextmanager
def interruptible(kept: str) -> Iterator[None]:
    """Turn Ctrl-C in the block into one line that says what is `kept`, and exit code 130."""
    try:
        yield
    except KeyboardInterrupt:
        print(f"dpbench: Interrupted. {kept}", file=sys.stderr)
        raise typer.Exit(130) from None


@contextmanager
def printed_if_unwritable(record: BaseModel) -> Iterator[None]:
    """Print `record` as JSON if the block cannot write it, so that the work is not lost; the error passes through."""
    try:
        yield
    except OutputError:
        print(record.model_dump_json(indent=2))
        raise
