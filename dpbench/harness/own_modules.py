"""Find a learner's own modules: the modules of its distribution, and of the distributions that it inherits from.

Covered: an installed distribution, editable or not. Its modules are the modules among its files and the modules in the
packages of its entry points. For dpbench's own distribution these are the plugins. All of them are imported except
scripts (`__main__`, `setup`, `conftest`); a module that cannot be imported is skipped.
Not covered: code without a distribution, such as a notebook's. Its modules are not imported beforehand, because a
folder may hold scripts. Instead, a fit that is the first to import such a module is refused.
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
from dpbench.support.code import get_top_package

_SCRIPTS = frozenset({"__main__", "conftest", "setup"})


@dataclass(frozen=True)
class LearnerModules:
    """The modules that belong to the learner before a fit, and the names of all modules imported by then."""

    names: frozenset[str]  # of modules, and of packages with all below them
    distribution_names: frozenset[str]  # distributions
    whole: tuple[ModuleType, ...]  # what these bring
    known: frozenset[str]  # whatever was imported
    files: tuple[Path, ...] = ()  # of the learner's class and those that it inherits from

    def is_excluded_import(self, module: str) -> bool:
        """Return whether a module was first imported later, and belongs to a library or to another distribution."""
        return (
            module not in self.known
            and not _is_in_packages(module, self.names)
            and self._belongs_to_other_distribution(module)
        )

    def find_new_import(self) -> str | None:
        """Return the name of a newly imported module that belongs to the learner or to no distribution, or None."""
        new = [name for name in list(sys.modules) if name not in self.known]
        return next(
            (name for name in new if _is_in_packages(name, self.names) or self._has_no_distribution(name)), None
        )

    def _has_no_distribution(self, module: str) -> bool:
        file = _find_module_file(module)
        return file is not None and file.suffix == ".py" and not self._belongs_to_other_distribution(module)

    def _belongs_to_other_distribution(self, module: str) -> bool:
        """Return whether a module belongs to a library or to another distribution than the learner's."""
        if get_top_package(module) in LIBRARIES:
            return True
        path, file = tuple(sys.path), _find_module_file(module)
        named = _map_packages_to_distributions(path).get(module.partition(".")[0], ())
        edited = {name: folder for folder, name in _list_editable_folders(path).items() if _is_in_folder(file, folder)}
        if edited.keys() & self.distribution_names:  # whatever else the package's name brings
            return False
        if any(folder in own.parents for folder in edited.values() for own in self.files):
            edited = {}  # the learner lies beside it, as a notebook does in a project that is being edited
        return bool({*named, *edited} - self.distribution_names)


def import_learner_modules(cls: type) -> LearnerModules:
    """Import the modules that belong to the learner and return them."""
    bases = [base for base in cls.__mro__ if get_top_package(base.__module__) not in LIBRARIES | {"builtins"}]
    brought_by, installed = set[str](), set[str]()
    for base in bases:
        found = _import_distribution_modules(base.__module__)
        brought_by |= found[0]
        installed |= found[1]
    names = {get_top_package(base.__module__) for base in bases if not _is_in_packages(base.__module__, installed)}
    known = dict(sys.modules)
    tops = {name.partition(".")[0] for name in installed}
    named = (
        module for name, module in known.items() if name.partition(".")[0] in tops and _is_in_packages(name, installed)
    )
    whole = tuple(module for module in named if isinstance(module, ModuleType))  # Python lets None stand for one
    files = tuple(file.resolve() for base in bases if (file := _find_module_file(base.__module__)))
    return LearnerModules(frozenset(installed | names), frozenset(brought_by), whole, frozenset(known), files)


def _is_in_folder(file: Path | None, folder: Path) -> bool:
    """Return whether a module's file is in a folder, but not in an installed environment within it."""
    return file is not None and folder in file.parents and not {"site-packages", "dist-packages"} & {*file.parts}


def _is_in_packages(module: str, names: Set[str]) -> bool:
    parts = module.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


@cache
def _import_distribution_modules(module: str) -> tuple[frozenset[str], frozenset[str]]:
    """Import all modules of the distributions that provide a module; return the distributions and top packages."""
    brings = _find_distributions(module)
    found = {
        name for bring in brings for name in _list_top_level_packages(bring) if get_top_package(name) not in LIBRARIES
    }
    for name in sorted(found):
        for below in _list_module_and_submodules(name):
            with suppress(Exception, SystemExit):  # whoever needs it says so
                import_module(below)
    return frozenset(bring.name for bring in brings), frozenset(found)


def _find_distributions(module: str) -> list[Distribution]:
    """Return the distributions with a plugin in this module's package, or else all distributions that install it."""
    package = _find_top_package(module)
    found = {
        point.dist.name: point.dist
        for point in entry_points(group="dpbench")
        if point.dist and _find_top_package(point.module) == package
    }
    if not found:
        named = _map_packages_to_distributions(tuple(sys.path)).get(package.partition(".")[0], ())
        found = {name: candidate for name in named if package in _list_top_level_files(candidate := distribution(name))}
    return list(found.values())


def _list_top_level_packages(dist: Distribution) -> set[str]:
    """Return the names of the packages that a distribution installs, and of its modules outside any package."""
    registered = {_find_top_package(point.module) for point in dist.entry_points if point.group == "dpbench"}
    return registered | {
        name for name, file in _list_top_level_files(dist).items() if _is_imported_from_file(name, file)
    }


def _list_top_level_files(dist: Distribution) -> dict[str, Path]:
    """Return the files of a distribution's topmost packages and modules, by name; empty for an editable install."""
    files = {str(PurePath(file)): file for file in dist.files or ()}
    found = {}
    for path, file in files.items():
        parts = _get_module_name_parts(PurePath(path))
        folders = (parts[:count] for count in range(1, len(parts) + 1))
        if parts and all(map(str.isidentifier, parts)):
            start = next((folder for folder in folders if str(PurePath(*folder, "__init__.py")) in files), parts)
            first = files.get(str(PurePath(*start, "__init__.py")), file)
            found[".".join(start)] = Path(str(dist.locate_file(first)))
    return {name: file for name, file in found.items() if name not in _SCRIPTS}


def _is_imported_from_file(module: str, file: Path) -> bool:
    """Return whether importing the module would read this file and not another file of the same name."""
    with suppress(Exception):
        spec = find_spec(module)
        return spec is not None and spec.origin is not None and Path(spec.origin).resolve() == file.resolve()
    return False


def _get_module_name_parts(file: PurePath) -> tuple[str, ...]:
    """Return the parts of a module's name, from the path of its file; empty if the file is not a module."""
    suffix = next((suffix for suffix in all_suffixes() if file.name.endswith(suffix)), None)
    if suffix is None:
        return ()
    name = file.name.removesuffix(suffix)
    return file.parent.parts if name == "__init__" else (*file.parent.parts, name)


def _find_top_package(module: str) -> str:
    """Return a module's topmost package; skip namespace packages, because several distributions can share them."""
    parts = module.split(".")
    names = (".".join(parts[:count]) for count in range(1, len(parts)))
    return next((name for name in names if getattr(sys.modules.get(name), "__file__", None)), module)


def _list_module_and_submodules(name: str) -> Iterator[str]:
    """Yield a module, and all modules below it if it is a package."""
    yield name
    for folder in map(Path, getattr(sys.modules.get(name), "__path__", ())):
        for file in sorted(folder.rglob("*")):
            parts = _get_module_name_parts(file.relative_to(folder))
            if parts and all(map(str.isidentifier, parts)) and parts[-1] not in _SCRIPTS:
                yield ".".join((name, *parts))


def _find_module_file(module: str) -> Path | None:
    """Return the file of an imported module; None if the module has no file or is not imported.

    The file is read from the module's `__dict__`, because `getattr` could make a lazy module import more.
    """
    file = getattr(sys.modules.get(module), "__dict__", {}).get("__file__")
    return Path(file) if isinstance(file, str) else None


@cache
def _map_packages_to_distributions(path: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the names of the distributions that provide each package; `path` is `sys.path`, the key of the cache."""
    return dict(packages_distributions())


@cache
def _list_editable_folders(path: tuple[str, ...]) -> dict[Path, str]:
    """Return the folder and name of every distribution installed in editable mode; `path` is the key of the cache."""
    read = methodcaller("read_text", "direct_url.json")
    told = [(json.loads(text), installed) for installed in distributions() if (text := read(installed))]
    return {
        Path(unquote(urlsplit(origin["url"]).path)): installed.name
        for origin, installed in told
        if origin.get("dir_info", {}).get("editable")
    }
