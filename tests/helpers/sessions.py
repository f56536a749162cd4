"""A session of a test: on the processor, with what is installed or with these plugins."""

from __future__ import annotations

from dpbench.harness.session import Session, open_session
from dpbench.registry import Registry


def session(plugins: Registry | None = None, threads: int | None = None) -> Session:
    """Return a fresh session, which shares nothing with any other."""
    return open_session("cpu", plugins=plugins, threads=threads)
