"""One place holds every error that dpbench has for a user, and its page lists them."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from dpbench import errors
from dpbench.support.paths import PACKAGE


def known() -> set[str]:
    return {name for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, Exception)}


def classes() -> Iterator[tuple[str, str, set[str]]]:
    """Yield the file, the name and the names of the bases of every class of dpbench."""
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                bases = {
                    base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "") for base in node.bases
                }
                yield file.relative_to(PACKAGE).as_posix(), node.name, bases


def test_every_error_for_a_user_is_defined_in_one_place() -> None:
    elsewhere = [f"{file}: {name}" for file, name, bases in classes() if bases & known() and file != "errors.py"]
    assert not elsewhere


def test_the_tree_of_errors_names_each_once() -> None:
    lines = [line.strip(" │├└─").partition(" ")[0] for line in (errors.__doc__ or "").splitlines()]
    assert {name: lines.count(name) for name in known()} == dict.fromkeys(known(), 1)
