"""Create plugin packages from templates; a new package installs, passes every law and runs."""

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
from dpbench.records.protocol import CONCAT
from dpbench.registry import ComponentKind, Registry
from dpbench.support.files import write_atomically

MAX_LENGTH = 40  # characters in a name: keeps every generated line within 120
RESERVED = {*keyword.kwlist, *dir(builtins), "I", "O"}  # I and O look like digits
RUN_COMMANDS: Mapping[ComponentKind, str] = {
    "learner": "dpbench run --learner {name} --dataset digits",
    "extractor": "dpbench run --learner dp-sgd --dataset digits --extractor {name}",
    "dataset": "dpbench run --learner dp-sgd --dataset {name}",
}


def create_package(name: str, kind: ComponentKind, parent: Path, registry: Registry) -> Path:
    """Write a package with a component `name` to the new folder `parent`/dpbench-`name`, and return the folder.

    Raises:
        SpecError: the name is malformed or taken.
        OutputError: the folder exists already, or cannot be written.
    """
    files = render_package(name, kind)
    _check_name_is_free(name, registry)
    folder = parent / f"dpbench-{name}"
    try:
        folder.mkdir(parents=True)
    except FileExistsError:
        raise OutputError(
            f"Expected a new folder, got {folder}, which exists: nothing is overwritten. "
            "Choose another NAME, or another folder with --out."
        ) from None
    except OSError as error:
        raise OutputError(f"Cannot write {folder}: {error.strerror}. Choose another folder with --out.") from error
    try:
        for path, text in files.items():
            _write_file(folder / path, text)
    except BaseException:
        shutil.rmtree(folder)  # complete or absent
        raise
    return folder


def render_package(name: str, kind: ComponentKind) -> dict[str, str]:
    """Return the text of each file of the package, by its path in the package.

    Raises:
        SpecError: the name is malformed, or its class would shadow a name that the module uses.
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) or len(name) > MAX_LENGTH:
        raise SpecError(
            f"Expected NAME={name!r} to be lower-case letters, digits and single dashes, to start with a letter and "
            f"to have at most {MAX_LENGTH} characters, like my-method."
        )
    run = RUN_COMMANDS[kind].format(name=name)
    words = {
        "name": name,
        "kind": kind,
        "module": _make_module_name(name),
        "class_name": _make_class_name(name),
        "run": run,
    }
    loader = PackageLoader("dpbench.scaffold", "templates")
    environment = Environment(
        loader=loader, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )  # fmt: skip
    sources = {
        "pyproject.toml": "pyproject.toml",
        "README.md": "README.md",
        ".gitignore": "gitignore",
        f"{_make_module_name(name)}.py": f"{kind}.py",
        f"tests/test_{_make_module_name(name)}.py": "tests.py",
    }
    files = {path: environment.get_template(f"{source}.jinja").render(words) for path, source in sources.items()}
    _check_class_name(name, files)
    return files


def list_next_commands(folder: Path, name: str, kind: ComponentKind) -> list[str]:
    """Return the commands to type next: install the package, check the laws, run the component."""
    path = str(folder) if len(folder.parts) > 1 else os.path.join(os.curdir, folder)  # noqa: PTH118 - pip wants the dot
    return [f"pip install -e {shlex.quote(path)}", f"dpbench check {name}", RUN_COMMANDS[kind].format(name=name)]


def _write_file(path: Path, text: str) -> None:
    write_atomically(path, lambda file: file.write(text.encode()))


def _check_name_is_free(name: str, registry: Registry) -> None:
    """Check that no component, plugin, distribution or module already has the name."""
    for owner in _describe_owners(name, registry):
        raise SpecError(f"Expected a new NAME, got {name!r}: {owner}. Choose another.")


def _describe_owners(name: str, registry: Registry) -> Iterator[str]:
    if name == CONCAT:
        yield "dpbench keeps it for extractors that are joined by '+'"
    for kind, known in registry.components.items():
        if name in known:
            item = known[name]
            yield f"plugin {item.plugin!r} of distribution {item.distribution!r} provides the {kind} {name!r}"
    for point in entry_points(group="dpbench", name=name):
        origin = f" of distribution {point.dist.name!r}" if point.dist else ""
        yield f"plugin {name!r}{origin} already exists"
    try:
        installed = distribution(f"dpbench-{name}")
        yield f"it would replace the installed distribution {installed.name!r}"
    except PackageNotFoundError:
        pass
    found = importlib.util.find_spec(_make_module_name(name))
    if found is not None:
        where = found.origin or ", ".join(found.submodule_search_locations or ())
        yield f"it would shadow the module {_make_module_name(name)} in {where}"


def _check_class_name(name: str, files: Mapping[str, str]) -> None:
    """Check that the class name does not shadow an import, a class, a keyword or a builtin in its module."""
    own = _make_class_name(name)
    modules = [text for path, text in files.items() if path.endswith(".py")]
    if own in RESERVED or any(Counter(_list_bound_names(text))[own] > 1 for text in modules):
        raise SpecError(
            f"Expected another NAME than {name!r}: its class {own} would shadow a name that its module uses."
        )


def _list_bound_names(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ClassDef):
            yield node.name


def _make_module_name(name: str) -> str:
    return f"dpbench_{name.replace('-', '_')}"


def _make_class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))
