"""The code of a component as a digest, so that what it made before it was edited can be told from what it makes now."""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path


def code_of(component: type) -> str | None:
    """Return a digest of the plugin that a component comes from: 16 hexadecimal digits of a SHA-256.

    The plugin is the module, or all modules of the package, that holds the component: what it imports from elsewhere
    does not count. Comments count as code. None where there are no files, as in a notebook, and for dpbench itself,
    whose version and commit results state.
    """
    name = component.__module__.partition(".")[0]
    top = None if name == "dpbench" else sys.modules.get(name)
    file = getattr(top, "__file__", None)
    return None if file is None else _digest(Path(file))


@functools.cache
def _digest(file: Path) -> str | None:
    """Read the files once a process: what was imported is what was there at the start."""
    package = file.name == "__init__.py"
    found = hashlib.sha256()
    try:
        for one in sorted(file.parent.rglob("*.py")) if package else [file]:
            found.update(f"{one.relative_to(file.parent)}\0".encode() + one.read_bytes() + b"\0")
    except OSError:
        return None
    return found.hexdigest()[:16]
