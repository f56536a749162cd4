"""The code of a component as a digest, so that what it made before it was edited can be told from what it makes now."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Iterator, Set
from importlib.metadata import entry_points
from pathlib import Path

DPBENCH = "dpbench"
"""Beside the roles of components, in what a result notes of code."""
ROOMS = ("data", "harness", "learning", "privacy")
"""Where the numbers of a run come from."""
HOOKS = ("dpbench_datasets", "dpbench_extractors", "dpbench_learners")
INIT = "__init__.py"
NOTHING = ""
"""The digest of no modules."""


def package_of(module: object) -> str:
    """Return the package that a module, given by its name, belongs to."""
    return str(module).partition(".")[0]


def plugin_of(module: str) -> str:
    """Return the plugin that an imported module is part of: the nearest module or package above it that has a hook.

    Where none has, as in a notebook or a module that plugins share, the module itself.
    """
    parts = module.split(".")
    above = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    with_hooks = (name for name in above if any(hook in vars(sys.modules.get(name, sys)) for hook in HOOKS))
    return next(with_hooks, module)


def code_of(component: type) -> str | None:
    """Return a digest of the code that a component comes from: 16 hexadecimal digits of a SHA-256.

    That is the plugin: the module, or all modules of the package, that registers the component, and those of the
    components that it inherits from; and every module of the same distribution that these import, directly or not
    (`own_imports`). Comments count as code. None where there are no files, as in a notebook, and for dpbench itself,
    whose version and commit results state.
    """
    bases = [one for one in component.__mro__[1:] if any(base.__module__ == "dpbench.api" for base in one.__mro__)]
    names = dict.fromkeys(plugin_of(one.__module__) for one in (component, *bases))
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names if package_of(name) != DPBENCH}
    found = [_digest(Path(file)) if file else None for file in files.values()]
    if not found or None in found:
        return None
    shared = _shared_digest(tuple((name, Path(str(file))) for name, file in files.items()))
    parts = [str(digest) for digest in (*found, shared) if digest != NOTHING]
    return parts[0] if len(parts) == 1 else _short(hashlib.sha256("".join(parts).encode()))


def own_imports(name: str, file: Path) -> dict[str, Path]:
    """Return the modules of its own distribution that a module or a package imports, directly or not, by name.

    They are found in the source, wherever an import stands in it, and none is imported for this. A module is of the
    same distribution if it is in the same topmost package, if the distribution that brings the plugin lists it, or if
    it lies beside that package in a folder that is no `site-packages`. Modules of dpbench are not among them: `core`
    has those that decide a run's numbers.
    """
    parts = name.split(".")
    folder = file.parents[len(parts) - (file.name != INIT)]
    tops = _tops(parts[0], folder)
    start = {name: file} if file.name != INIT else _modules_of(name, file.parent)
    found, left = dict(start), [*start.items()]
    while left:
        for imported in _imports(*left.pop()):
            for one, place in _located(imported, folder, tops):
                if one not in found:
                    found[one] = place
                    left.append((one, place))
    return {one: place for one, place in found.items() if one not in start}


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
    return _short(found)


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
    return _short(found)


@functools.cache
def _shared_digest(plugins: tuple[tuple[str, Path], ...]) -> str | None:
    """Return a digest of what plugins import of their own distribution; `NOTHING` if that is nothing."""
    shared = {name: file for plugin in plugins for name, file in own_imports(*plugin).items()}
    for name, file in plugins:
        for own in _modules_of(name, file.parent) if file.name == INIT else (name,):
            shared.pop(own, None)
    found = hashlib.sha256()
    try:
        for name, file in sorted(shared.items()):
            found.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    except OSError:
        return None
    return _short(found) if shared else NOTHING


def _short(digest: hashlib._Hash) -> str:
    return digest.hexdigest()[:16]


def _modules_of(package: str, folder: Path) -> dict[str, Path]:
    """Return the modules of a package, by name."""
    found = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        found[".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = file
    return found


@functools.cache
def _tops(package: str, folder: Path) -> frozenset[str]:
    """Return the topmost packages and modules of the distribution that a package in `folder` belongs to."""
    brings = {one.dist.name: one.dist for one in entry_points(group=DPBENCH) if one.dist and _top(one.value) == package}
    listed = {file.parts[0].removesuffix(".py") for one in brings.values() for file in one.files or ()}
    beside = set[str]()
    if folder.name not in {"site-packages", "dist-packages"} and package:
        beside = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob(f"*/{INIT}")}
    return frozenset({package, *listed, *beside} - {DPBENCH})


def _top(module: str) -> str:
    return module.partition(":")[0].partition(".")[0].strip()


@functools.cache
def _imports(module: str, file: Path) -> frozenset[str]:
    """Return what a source imports: of `from a import b`, both a and a.b, which may be no module."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):  # its digest changes all the same
        return frozenset()
    package = module.split(".") if file.name == INIT else module.split(".")[:-1]
    found = set[str]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            start = ".".join([*above, *filter(None, [node.module])])
            found |= {start, *(f"{start}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            found |= {one.value for one in node.args if isinstance(one, ast.Constant) and isinstance(one.value, str)}
    return frozenset(found)


def _located(name: str, folder: Path, tops: Set[str]) -> Iterator[tuple[str, Path]]:
    """Yield a module below `folder` if its topmost package is in `tops`, and the packages that importing it imports.

    A package that has nothing but a docstring is left out: importing it runs nothing.
    """
    parts = name.split(".")
    if parts[0] not in tops:
        return
    for count in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:count])
        file = next((file for file in (place / INIT, place.with_suffix(".py")) if file.is_file()), None)
        if file is not None and not (file.name == INIT and _says_nothing(file)):
            yield ".".join(parts[:count]), file


@functools.cache
def _says_nothing(file: Path) -> bool:
    """Return whether a source is empty, or a docstring alone."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return not body or (len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))
