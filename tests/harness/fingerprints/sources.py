"""Learners from edited source: a plugin's modules are imported anew with some files changed, and put back after."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module, invalidate_caches
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path

import dpbench_plugins

from dpbench.harness import own_modules
from dpbench.registry import Registry, load

PLUGINS = Path(next(iter(dpbench_plugins.__path__)))
ANEW = ("dpbench_plugins.learners", "dpbench_plugins.networks", "dpbench_plugins.theory", "dpbench_plugins.extractors")


class _Loader(SourceFileLoader):
    """Loads a module from a text in place of its file's."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_data(self, path: str) -> bytes:
        return self._text.encode()

    def path_stats(self, path: str) -> Mapping[str, object]:
        raise OSError("no bytecode is read or written")


class _Finder:
    def __init__(self, edited: Mapping[Path, str]) -> None:
        self._edited = edited

    def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
        if not name.startswith(ANEW):
            return None
        place = PLUGINS.joinpath(*name.split(".")[1:])
        for file in (place / "__init__.py", place.with_suffix(".py")):
            if file in self._edited:
                loader = _Loader(name, str(file), self._edited[file])
                inside = [str(place)] if file.name == "__init__.py" else None
                return spec_from_file_location(name, file, loader=loader, submodule_search_locations=inside)
        return None


@contextmanager
def plugins_with(edited: Mapping[Path, str]) -> Iterator[Registry]:
    """Yield the registry of plugins whose files, below `PLUGINS`, have other texts while the block runs."""
    kept = {name: module for name, module in sys.modules.items() if name.startswith(ANEW)}
    packages = {
        name: vars(sys.modules[name.rpartition(".")[0]]).get(name.rpartition(".")[2]) for name in ANEW if name in kept
    }
    finder = _Finder(edited)
    _forget()
    sys.meta_path.insert(0, finder)
    invalidate_caches()
    try:
        yield load()
    finally:
        sys.meta_path.remove(finder)
        _forget()
        sys.modules.update(kept)
        for name, module in packages.items():
            setattr(import_module(name.rpartition(".")[0]), name.rpartition(".")[2], module)


def _forget() -> None:
    own_modules._import_distribution_modules.cache_clear()  # what a fit may import is imported before it once more
    for name in [name for name in sys.modules if name.startswith(ANEW)]:
        del sys.modules[name]


def replaced(file: str, text: str, instead: str) -> dict[Path, str]:
    """Return one file below `PLUGINS` with an edit of a text that stands there once."""
    path = PLUGINS / file
    source = path.read_text(encoding="utf-8")
    assert source.count(text) == 1, f"{file} has {text!r} {source.count(text)} times: edit the mutant to fit the code"
    return {path: source.replace(text, instead)}


def transformed(change: Callable[[ast.Module], ast.Module]) -> dict[Path, str]:
    """Return every file of the plugins that have learners, changed as a syntax tree."""
    folders = [PLUGINS.joinpath(*name.split(".")[1:]) for name in ANEW]
    files = [file for folder in folders for file in sorted(folder.rglob("*.py"))]
    return {file: ast.unparse(change(ast.parse(file.read_text(encoding="utf-8")))) for file in files}


class RenameLocals(ast.NodeTransformer):
    """Renames every local variable of every function; parameters, imports and inner functions keep their names."""

    def __init__(self) -> None:
        """Start outside of all functions."""
        self._scopes: list[dict[str, str]] = []
        self.renamed = 0

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        """Rename in a function."""
        for place in (*node.decorator_list, *node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(place)
        self._inside(node.args, node.body)
        return node

    def visit_Lambda(self, node: ast.Lambda) -> ast.AST:
        """Rename what a lambda uses of the function around it."""
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._inside(node.args, [node.body])
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Give a local variable its other name."""
        scope = next((scope for scope in reversed(self._scopes) if node.id in scope), {})
        node.id = scope.get(node.id, node.id)
        return node

    def _inside(self, args: ast.arguments, body: list[ast.stmt] | list[ast.expr]) -> None:
        every = (*args.posonlyargs, *args.args, *args.kwonlyargs, *filter(None, (args.vararg, args.kwarg)))
        kept = {arg.arg for arg in every}
        bound = set[str]()
        for node in body:
            for name, keep in _bound(node):
                (kept if keep else bound).add(name)
        names = {name: f"{name}_renamed" for name in bound - kept}
        self.renamed += len(names)
        self._scopes.append({**{name: name for name in kept}, **names})
        for node in body:
            self.visit(node)
        self._scopes.pop()


def _bound(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Yield the names that a statement binds in its function, and whether they must be kept."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name, True
        for inner in ast.walk(node):
            if isinstance(inner, ast.Nonlocal):
                yield from ((name, True) for name in inner.names)
        return
    if isinstance(node, ast.Lambda):
        return
    if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id, False
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (((alias.asname or alias.name).partition(".")[0], True) for alias in node.names)
    elif isinstance(node, ast.Global | ast.Nonlocal):
        yield from ((name, True) for name in node.names)
    elif isinstance(node, ast.ExceptHandler) and node.name:
        yield node.name, True
    for child in ast.iter_child_nodes(node):
        yield from _bound(child)
