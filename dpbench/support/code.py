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
HOOKS = ("dpbench_datasets", "dpbench_extractors", "dpbench_learners")
STRANGERS = "dpbench_lab.museum.exhibits"
"""The one part of dpbench that is no part of dpbench: privacy bugs, written and treated as anybody's plugin."""


def package_of(module: object) -> str:
    """Return the package that a module, given by its name, belongs to; exhibits of the museum belong to a stranger."""
    name = str(module)
    return STRANGERS if name.startswith(STRANGERS) else name.partition(".")[0]


def plugin_of(module: str) -> str:
    """Return the plugin that an imported module is part of: the nearest module or package above it that has a hook.

    Where none has, as in a notebook or a module that plugins share, the module itself.
    """
    parts = module.split(".")
    above = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    with_hooks = (name for name in above if any(hook in vars(sys.modules.get(name, sys)) for hook in HOOKS))
    return next(with_hooks, module)


def code_of(component: type) -> str | None:
    """Return a digest of the plugin that a component comes from: 16 hexadecimal digits of a SHA-256.

    The plugin is the module, or all modules of the package, that registers the component, and those of the components
    that it inherits from; what else is imported does not count. Comments count as code. None where there are no files,
    as in a notebook, and for dpbench itself, whose version and commit results state.
    """
    bases = [one for one in component.__mro__[1:] if any(base.__module__ == "dpbench.api" for base in one.__mro__)]
    names = dict.fromkeys(plugin_of(one.__module__) for one in (component, *bases))
    files = [getattr(sys.modules.get(name), "__file__", None) for name in names if package_of(name) != "dpbench"]
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
