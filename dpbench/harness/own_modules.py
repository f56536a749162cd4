"""The modules that are a learner's own: those of the distribution that brings it, and of those that it inherits from.

Covered: an installed distribution, whose modules are what its files list and what lies in the packages of its entry
points; so also an editable one. Of dpbench's own distribution these are the plugins. All of them are imported, but for
scripts (`__main__`, `setup`, `conftest`); one that cannot be imported is passed over.
Not covered: of code that no distribution brings, such as a notebook's, nothing is imported beforehand, since a folder
may hold scripts; a fit that is the first to import a module of it is refused in its place.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import all_suffixes
from importlib.metadata import Distribution, distribution, distributions, entry_points, packages_distributions
from importlib.util import find_spec
from operator import methodcaller
from pathlib import Path, PurePath
from types import ModuleType
from urllib.parse import unquote, urlsplit

from dpbench.privacy.purity.kinds import LIBRARIES
from dpbench.support.code import package_of

_SCRIPTS = frozenset({"__main__", "conftest", "setup"})


@dataclass(frozen=True)
class OwnModules:
    """A learner's own modules as they are before a fit."""

    names: frozenset[str]  # of modules, and of packages with all below them
    brought_by: frozenset[str]  # distributions
    whole: tuple[ModuleType, ...]  # what these bring
    known: frozenset[str]  # whatever was imported
    files: tuple[Path, ...] = ()  # of the learner's class and those that it inherits from

    def left_out(self, module: str) -> bool:
        """Say whether a module is a library's or another distribution's, and was imported since."""
        return module not in self.known and not _within(module, self.names) and self._is_of_others(module)

    def imported_since(self) -> str | None:
        """Name a module that was imported since and is the learner's own, or a file of no other distribution."""
        new = [name for name in list(sys.modules) if name not in self.known]
        return next((name for name in new if _within(name, self.names) or self._is_loose(name)), None)

    def _is_loose(self, module: str) -> bool:
        file = _file_of(module)
        return file is not None and file.suffix == ".py" and not self._is_of_others(module)

    def _is_of_others(self, module: str) -> bool:
        """Say whether a module is a library's, or whether another distribution brings it."""
        if package_of(module) in LIBRARIES:
            return True
        path, file = tuple(sys.path), _file_of(module)
        named = _packages(path).get(module.partition(".")[0], ())
        edited = {name: folder for folder, name in _edited(path).items() if _lies_below(file, folder)}
        if edited.keys() & self.brought_by:  # whatever else the package's name brings
            return False
        if any(folder in own.parents for folder in edited.values() for own in self.files):
            edited = {}  # the learner lies beside it, as a notebook does in a project that is being edited
        return bool({*named, *edited} - self.brought_by)


def import_own(cls: type) -> OwnModules:
    """Import the modules that are a learner's own."""
    bases = [base for base in cls.__mro__ if package_of(base.__module__) not in LIBRARIES | {"builtins"}]
    brought_by, installed = set[str](), set[str]()
    for base in bases:
        found = _installed(base.__module__)
        brought_by |= found[0]
        installed |= found[1]
    names = {package_of(base.__module__) for base in bases if not _within(base.__module__, installed)}
    known = dict(sys.modules)
    named = (module for name, module in known.items() if _within(name, installed))
    whole = tuple(module for module in named if isinstance(module, ModuleType))  # Python lets None stand for one
    files = tuple(file.resolve() for base in bases if (file := _file_of(base.__module__)))
    return OwnModules(frozenset(installed | names), frozenset(brought_by), whole, frozenset(known), files)


def _lies_below(file: Path | None, folder: Path) -> bool:
    """Say whether a module's file is in a folder, and not in an environment that was made there."""
    return file is not None and folder in file.parents and not {"site-packages", "dist-packages"} & {*file.parts}


def _within(module: str, names: Set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


@cache
def _installed(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """Import all modules of the distributions that bring this one; return the names of these and of top packages."""
    brings = _distributions_of(module)
    found = {name for one in brings for name in _top_names(one) if package_of(name) not in LIBRARIES}
    for name in sorted(found):
        for below in _all_modules(name):
            with suppress(Exception, SystemExit):  # whoever needs it says so
                import_module(below)
    return frozenset(one.name for one in brings), frozenset(found)


def _distributions_of(module: str) -> list[Distribution]:
    """Return the distributions that register a plugin of this module's package, or else those that list the module."""
    package = _top(module)
    found = {
        point.dist.name: point.dist
        for point in entry_points(group="dpbench")
        if point.dist and _top(point.module) == package
    }
    if not found:
        named = _packages(tuple(sys.path)).get(package.partition(".")[0], ())
        found = {name: one for name in named if package in _listed(one := distribution(name))}
    return list(found.values())


def _top_names(brings: Distribution) -> set[str]:
    """Return the names of what a distribution installs: packages, and modules outside of any."""
    registered = {_top(point.module) for point in brings.entry_points if point.group == "dpbench"}
    return registered | {name for name, file in _listed(brings).items() if _is_found_at(name, file)}


def _listed(brings: Distribution) -> dict[str, Path]:
    """Return the files of topmost packages and modules that a distribution lists, by name: none if it is editable."""
    files = {str(PurePath(file)): file for file in brings.files or ()}
    found = {}
    for path, file in files.items():
        parts = _parts(PurePath(path))
        folders = (parts[:count] for count in range(1, len(parts) + 1))
        if parts and all(map(str.isidentifier, parts)):
            start = next((one for one in folders if str(PurePath(*one, "__init__.py")) in files), parts)
            first = files.get(str(PurePath(*start, "__init__.py")), file)
            found[".".join(start)] = Path(str(brings.locate_file(first)))
    return {name: file for name, file in found.items() if name not in _SCRIPTS}


def _is_found_at(module: str, file: Path) -> bool:
    """Say whether importing a module would read this file, and not a namesake."""
    with suppress(Exception):
        spec = find_spec(module)
        return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()
    return False


def _parts(file: PurePath) -> tuple[str, ...]:
    """Return the parts of the name of a module in a file; none if it is no module's file."""
    suffix = next((one for one in all_suffixes() if file.name.endswith(one)), None)
    if suffix is None:
        return ()
    name = file.name.removesuffix(suffix)
    return file.parent.parts if name == "__init__" else (*file.parent.parts, name)


def _top(module: str) -> str:
    """Return the topmost package above a module that is a package with a file: several distributions share others."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next((name for name in names if getattr(sys.modules.get(name), "__file__", None)), module)


def _all_modules(name: str) -> Iterator[str]:
    """Yield a module, and all modules below it if it is a package."""
    yield name
    for folder in map(Path, getattr(sys.modules.get(name), "__path__", ())):
        for file in sorted(folder.rglob("*")):
            parts = _parts(file.relative_to(folder))
            if parts and all(map(str.isidentifier, parts)) and parts[-1] not in _SCRIPTS:
                yield ".".join((name, *parts))


def _file_of(module: str) -> Path | None:
    """Return the file that an imported module is from, as far as it says so without being asked to import more."""
    file = getattr(sys.modules.get(module), "__dict__", {}).get("__file__")
    return Path(file) if isinstance(file, str) else None


@cache
def _packages(path: tuple[str, ...]) -> dict[str, list[str]]:
    """Return which distributions bring a package."""
    return dict(packages_distributions())


@cache
def _edited(path: tuple[str, ...]) -> dict[Path, str]:
    """Return the folders of distributions that are installed as they are edited, and their names."""
    read = methodcaller("read_text", "direct_url.json")
    written = [(read(one), one.name) for one in distributions()]
    told = [(json.loads(text), name) for text, name in written if text]
    folders = [
        (unquote(urlsplit(one["url"]).path), name) for one, name in told if one.get("dir_info", {}).get("editable")
    ]
    return {Path(folder): name for folder, name in folders}
