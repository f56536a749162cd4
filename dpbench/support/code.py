"""The code of a component as a digest, so that what it made before it was edited can be told from what it makes now."""

from __future__ import annotations

import functools
import hashlib
import sys
from pathlib import Path

DPBENCH = "dpbench"
"""Beside the roles of components, in what a result notes of code."""
ROOMS = ("data", "harness", "learning", "privacy")
"""Where the numbers of a run come from."""


def code_of(component: type) -> str | None:
    """Return a digest of the plugin that a component comes from: 16 hexadecimal digits of a SHA-256.

    The plugin is the module, or all modules of the package, that holds the component, and those of the components that
    it inherits from; what else is imported does not count. Comments count as code. None where there are no files, as in
    a notebook, and for dpbench itself, whose version and commit results state.
    """
    bases = [one for one in component.__mro__[1:] if any(base.__module__ == "dpbench.api" for base in one.__mro__)]
    names = dict.fromkeys(one.__module__.partition(".")[0] for one in (component, *bases))
    files = [getattr(sys.modules.get(name), "__file__", None) for name in names if name != "dpbench"]
    found = [_digest(Path(file)) if file else None for file in files]
    if not found or None in found:
        return None
    return found[0] if len(found) == 1 else hashlib.sha256("".join(map(str, found)).encode()).hexdigest()[:16]


@functools.cache
def core() -> str | None:
    """Return a digest of the parts of dpbench that decide a run's numbers; 16 hexadecimal digits of a SHA-256."""
    root = Path(__file__).parents[1]
    files = [root / "api.py", *(file for room in ROOMS for file in sorted((root / room).rglob("*.py")))]
    found = hashlib.sha256()
    try:
        for one in files:
            found.update(f"{one.relative_to(root)}\0".encode() + one.read_bytes() + b"\0")
    except OSError:
        return None
    return found.hexdigest()[:16]


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
