"""Compute digests of components' code, to detect results that were computed by a different version of the code."""

from __future__ import annotations

import ast
import functools
import hashlib
import sys
from collections.abc import Iterator, Set
from importlib.metadata import entry_points
from pathlib import Path

DPBENCH = "dpbench"
"""The key of dpbench's own digest in a result's digests of code; the other keys are roles, such as `learner`."""
NUMERIC_PACKAGES = ("data", "harness", "learning", "privacy")
"""The packages of dpbench whose code decides the numbers of a run."""
HOOKS = ("dpbench_datasets", "dpbench_extractors", "dpbench_learners")
INIT = "__init__.py"
EMPTY_DIGEST = ""
"""The digest of no modules."""


def get_top_package(module: object) -> str:
    """Return the topmost package of a module, given the module's dotted name."""
    return str(module).partition(".")[0]


def find_plugin_module(module: str) -> str:
    """Return the plugin that contains an imported module: the nearest enclosing module or package with a hook.

    If no enclosing module has a hook (in a notebook, or in a module that plugins share), return the module itself.
    """
    parts = module.split(".")
    above = [".".join(parts[:count]) for count in range(len(parts), 0, -1)]
    with_hooks = (name for name in above if any(hook in vars(sys.modules.get(name, sys)) for hook in HOOKS))
    return next(with_hooks, module)


def code_digest(component: type) -> str | None:
    """Return a digest of a component's code: 16 hexadecimal digits of a SHA-256.

    The code consists of the plugin (the module, or all modules of the package, that registers the component), the
    plugins of the component's base classes, and every module of the same distribution that these plugins import,
    directly or indirectly (`find_same_distribution_imports`). Comments count as code. Return None if there are no
    files, as in a notebook, and for components of dpbench, because results state dpbench's version and commit.
    """
    bases = [
        ancestor
        for ancestor in component.__mro__[1:]
        if any(base.__module__ == "dpbench.api" for base in ancestor.__mro__)
    ]
    names = dict.fromkeys(find_plugin_module(cls.__module__) for cls in (component, *bases))
    files = {
        name: getattr(sys.modules.get(name), "__file__", None) for name in names if get_top_package(name) != DPBENCH
    }
    found = [_module_digest(Path(file)) if file else None for file in files.values()]
    if not found or None in found:
        return None
    shared = _shared_modules_digest(tuple((name, Path(str(file))) for name, file in files.items()))
    parts = [str(digest) for digest in (*found, shared) if digest != EMPTY_DIGEST]
    return parts[0] if len(parts) == 1 else _short_digest(hashlib.sha256("".join(parts).encode()))


def find_same_distribution_imports(name: str, file: Path) -> dict[str, Path]:
    """Return the modules that a module or package imports from its own distribution, directly or not, by name.

    Imports are read from the whole source, functions included; no module is imported. A module belongs to the same
    distribution if it is in the same topmost package, if the plugin's distribution lists it, or if it is next to the
    topmost package in a folder other than `site-packages`. Modules of dpbench are left out: `core_digest` covers the
    modules that decide a run's numbers.
    """
    parts = name.split(".")
    folder = file.parents[len(parts) - (file.name != INIT)]
    tops = _list_top_level_names(parts[0], folder)
    start = {name: file} if file.name != INIT else _package_modules(name, file.parent)
    found, left = dict(start), [*start.items()]
    while left:
        for imported in _list_source_imports(*left.pop()):
            for module, place in _locate_module(imported, folder, tops):
                if module not in found:
                    found[module] = place
                    left.append((module, place))
    return {key: place for key, place in found.items() if key not in start}


@functools.cache
def core_digest() -> str | None:
    """Return a digest of the parts of dpbench that decide a run's numbers: 16 hexadecimal digits of a SHA-256.

    Return None if a file cannot be read.
    """
    root = Path(__file__).parents[1]
    rooms = [file for room in NUMERIC_PACKAGES for file in sorted((root / room).rglob("*.py"))]
    found = hashlib.sha256()
    try:
        for file in (root / "api.py", root / "splits.py", *rooms):
            found.update(f"{file.relative_to(root)}\0".encode() + file.read_bytes() + b"\0")
    except OSError:
        return None
    return _short_digest(found)


@functools.cache
def _module_digest(file: Path) -> str | None:
    """Return the digest of a module or package; None if a file cannot be read.

    The digest is cached, because imported code does not change in a process.
    """
    package = file.name == "__init__.py"
    found = hashlib.sha256()
    try:
        for path in sorted(file.parent.rglob("*.py")) if package else [file]:
            found.update(f"{path.relative_to(file.parent)}\0".encode() + path.read_bytes() + b"\0")
    except OSError:
        return None
    return _short_digest(found)


@functools.cache
def _shared_modules_digest(plugins: tuple[tuple[str, Path], ...]) -> str | None:
    """Return a digest of the modules that plugins import from their distribution.

    Return `EMPTY_DIGEST` if there are no such modules, and None if one cannot be read.
    """
    shared = {name: file for plugin in plugins for name, file in find_same_distribution_imports(*plugin).items()}
    for name, file in plugins:
        for own in _package_modules(name, file.parent) if file.name == INIT else (name,):
            shared.pop(own, None)
    found = hashlib.sha256()
    try:
        for name, file in sorted(shared.items()):
            found.update(f"{name}\0".encode() + file.read_bytes() + b"\0")
    except OSError:
        return None
    return _short_digest(found) if shared else EMPTY_DIGEST


def _short_digest(digest: hashlib._Hash) -> str:
    return digest.hexdigest()[:16]


def _package_modules(package: str, folder: Path) -> dict[str, Path]:
    found = {}
    for file in sorted(folder.rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        found[".".join((package, *(parts[:-1] if parts[-1] == "__init__" else parts)))] = file
    return found


@functools.cache
def _list_top_level_names(package: str, folder: Path) -> frozenset[str]:
    """Return the topmost packages and modules of the distribution of `package`, which is in `folder`."""
    brings = {
        point.dist.name: point.dist
        for point in entry_points(group=DPBENCH)
        if point.dist and _entry_point_package(point.value) == package
    }
    listed = {file.parts[0].removesuffix(".py") for bring in brings.values() for file in bring.files or ()}
    beside = set[str]()
    if folder.name not in {"site-packages", "dist-packages"} and package:
        beside = {file.stem for file in folder.glob("*.py")} | {file.parent.name for file in folder.glob(f"*/{INIT}")}
    return frozenset({package, *listed, *beside} - {DPBENCH})


def _entry_point_package(module: str) -> str:
    return module.partition(":")[0].partition(".")[0].strip()


@functools.cache
def _list_source_imports(module: str, file: Path) -> frozenset[str]:
    """Return the modules that a source file imports. `from a import b` gives a and a.b, which may not be a module."""
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
            found |= {
                argument.value
                for argument in node.args
                if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
            }
    return frozenset(found)


def _locate_module(name: str, folder: Path, top_packages: Set[str]) -> Iterator[tuple[str, Path]]:
    """Yield the name and file of a module below `folder`, and of every package that contains it.

    Yield nothing if the topmost package is not in `top_packages`. A package that holds only a docstring is left out,
    because importing it runs no code.
    """
    parts = name.split(".")
    if parts[0] not in top_packages:
        return
    for count in range(1, len(parts) + 1):
        place = folder.joinpath(*parts[:count])
        file = next((file for file in (place / INIT, place.with_suffix(".py")) if file.is_file()), None)
        if file is not None and not (file.name == INIT and _is_empty_source(file)):
            yield ".".join(parts[:count]), file


@functools.cache
def _is_empty_source(file: Path) -> bool:
    """Return whether a source file is empty or holds only a docstring."""
    try:
        body = ast.parse(file.read_bytes()).body
    except (OSError, SyntaxError, ValueError):
        return False
    return not body or (len(body) == 1 and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant))
