"""A new plugin's package, written from templates: it installs, keeps every law and runs before anything is changed."""

from __future__ import annotations

import ast
import builtins
import importlib.util
import keyword
import os
import re
import shlex
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, distribution, entry_points
from pathlib import Path

from dpbench.errors import OutputError, SpecError
from dpbench.registry import Kind, Registry
from dpbench.support.files import write_atomically

LONGEST = 40  # characters of a name: no generated line is longer than 120 then
RESERVED = {*keyword.kwlist, *dir(builtins), "I", "O"}  # the last two are hard to tell from digits
RUNS: Mapping[Kind, str] = {
    "learner": "dpbench run --learner {name} --dataset digits",
    "extractor": "dpbench run --learner dp-sgd --dataset digits --extractor {name}",
    "dataset": "dpbench run --learner dp-sgd --dataset {name}",
}


def create(name: str, kind: Kind, parent: Path, registry: Registry) -> Path:
    """Write a package with one component called `name` into the new folder `parent`/dpbench-`name`; return the folder.

    Raises:
        SpecError: the name is malformed or taken.
        OutputError: the folder exists already, or cannot be written.
    """
    files = render(name, kind)
    _check_free(name, registry)
    folder = parent / f"dpbench-{name}"
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OutputError(
            f"Expected a new folder, got {folder}, which exists: nothing is overwritten. "
            "Choose another NAME, or another place with --out."
        ) from None
    except OSError as error:
        raise OutputError(f"Cannot write {folder}: {error.strerror}. Choose another place with --out.") from error
    try:
        for path, text in files.items():
            _write(folder / path, text)
    except BaseException:
        shutil.rmtree(folder)  # it was made here: whole or absent
        raise
    return folder


def render(name: str, kind: Kind) -> dict[str, str]:
    """Return the text of each file of the package, by its path within.

    Raises:
        SpecError: the name is malformed, or its class would hide a name that the module uses.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or len(name) > LONGEST:
        raise SpecError(
            f"Expected NAME={name!r} to be lower-case letters, digits and single dashes, to begin with a letter and to "
            f"have at most {LONGEST} characters, like my-method."
        )
    run = RUNS[kind].format(name=name)
    words = {"name": name, "kind": kind, "module": _module(name), "class_name": _class(name), "run": run}
    loader = PackageLoader("dpbench.scaffold", "templates")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )  # fmt: skip
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        ".gitignore": "gitignore",
        f"{_module(name)}.py": f"{kind}.py",
        f"tests/test_{_module(name)}.py": "tests.py",
    }
    files = {path: environment.get_template(f"{source}.jinja").render(words) for path, source in sources.items()}
    _check_class(name, files)
    return files


def next_commands(folder: Path, name: str, kind: Kind) -> list[str]:
    """Return what to type next: install the package, hold it against the laws, run it."""
    path = str(folder) if len(folder.parts) > 1 else os.path.join(os.curdir, folder)  # noqa: PTH118 - pip wants the dot
    return [f"pip install -e {shlex.quote(path)}", f"dpbench check {name}", RUNS[kind].format(name=name)]


def _write(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def _check_free(name: str, registry: Registry) -> None:
    """Refuse a name that is somebody's: a component's, a plugin's, a distribution's or a module's."""
    for owner in _owners(name, registry):
        raise SpecError(f"Expected a new NAME, got {name!r}: {owner}. Choose another.")


def _owners(name: str, registry: Registry) -> Iterator[str]:
    for kind, known in registry.components.items():
        if name in known:
            item = known[name]
            yield f"the {kind} {name!r} comes with plugin {item.plugin!r} of distribution {item.distribution!r}"
    for point in entry_points(group="dpbench", name=name):
        brought = f" of distribution {point.dist.name!r}" if point.dist else ""
        yield f"there is a plugin {name!r}{brought}"
    try:
        installed = distribution(f"dpbench-{name}")
        yield f"distribution {installed.name!r} is installed, and yours would replace it"
    except PackageNotFoundError:
        pass
    found = importlib.util.find_spec(_module(name))
    if found is not None:
        where = found.origin or ", ".join(found.submodule_search_locations or ())
        yield f"yours would hide the module {_module(name)}, which is importable from {where}"


def _check_class(name: str, files: Mapping[str, str]) -> None:
    """Refuse a class that would hide what its own module imports, a helper beside it, or a word of Python's."""
    own = _class(name)
    modules = [text for path, text in files.items() if path.endswith(".py")]
    if own in RESERVED or any(Counter(_bound(text))[own] > 1 for text in modules):
        raise SpecError(f"Expected another NAME than {name!r}: its class {own} would hide a name that its module uses.")


def _bound(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ClassDef):
            yield node.name


def _module(name: str) -> str:
    return f"dpbench_{name.replace('-', '_')}"


def _class(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))
