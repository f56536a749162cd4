"""Which modules the packages in `plugins/` import, read from their source, and what is wrong with that."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

from dpbench import contract

PACKAGES: Mapping[str, bool] = {"dpbench_plugins": True, "dpbench_lab": False}
"""The packages, and whether each is held to what a stranger's plugin may import of dpbench."""
HARNESS = "dpbench"
EXHIBITS = "dpbench_lab.museum.exhibits"  # written as a stranger's plugins, and held to the same
HOOK = "hookimpl"


@dataclass(frozen=True)
class Import:
    """One name that a file imports; `name` is empty for `import module`."""

    module: str
    name: str = ""


@dataclass(frozen=True)
class PluginHouse:
    """The packages in the folder `plugins`, and the entry points that `pyproject.toml` beside it names."""

    folder: Path

    @cached_property
    def plugins(self) -> tuple[str, ...]:
        """The modules and packages that are plugins: those of the entry points."""
        project = tomllib.loads((self.folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        return tuple(project["entry-points"][HARNESS].values())

    @cached_property
    def files(self) -> dict[str, Path]:
        """The file of each module, by name."""
        root = self.folder / "plugins"
        return {
            ".".join(file.relative_to(root).with_suffix("").parts).removesuffix(".__init__"): file
            for file in sorted(root.rglob("*.py"))
        }

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules in `plugins/` that each module imports, wherever in the file."""
        return {
            module: {found for imported in _imports(file) if (found := self._module(imported))}
            for module, file in self.files.items()
        }

    def _module(self, found: Import) -> str | None:
        if found.module.partition(".")[0] not in PACKAGES:
            return None
        inner = f"{found.module}.{found.name}"
        return inner if inner in self.files else found.module

    def plugin_of(self, module: str) -> str | None:
        """Return the plugin that a module is part of; None for one that plugins share."""
        return next((plugin for plugin in self.plugins if f"{module}.".startswith(f"{plugin}.")), None)

    def complaints(self) -> Iterator[str]:
        """Yield every unknown package, wrong import, circle, and plugin without an entry point."""
        for package in sorted({module.partition(".")[0] for module in self.files} - PACKAGES.keys()):
            yield f"{package} is unknown: give it a line in PACKAGES"
        for module, file in self.files.items():
            yield from self._wrong_imports(module, file)
            if self.plugin_of(module) is None and _has_hook(file):
                yield f"{module} has a hook and no entry point"
        for plugin in self.plugins:
            if plugin not in self.files or not _has_hook(self.files[plugin]):
                yield f"{plugin} is an entry point without a hook"
        try:
            tuple(TopologicalSorter(self.imports).static_order())
        except CycleError as error:
            yield f"circle: {' -> '.join(error.args[1])}"

    def _wrong_imports(self, module: str, file: Path) -> Iterator[str]:
        package, stranger = module.partition(".")[0], f"{module}.".startswith(f"{EXHIBITS}.")
        if stranger or PACKAGES.get(package):
            for found in _imports(file):
                if found.module.partition(".")[0] == HARNESS and not _in_contract(found):
                    what = f"{found.module} {found.name}".strip()
                    yield f"{module} imports {what}, not in dpbench.__all__"
        for imported in sorted(self.imports[module]):
            if imported not in self.files:
                yield f"{module} imports {imported}, which does not exist"
            if imported.partition(".")[0] != package or (stranger and not imported.startswith(EXHIBITS)):
                yield f"{module} imports {imported} of another package"
            plugin = self.plugin_of(imported)
            if plugin not in {None, self.plugin_of(module)}:
                yield f"{module} imports {imported} of plugin {plugin}"


def _in_contract(found: Import) -> bool:
    return found.module == HARNESS and found.name in contract.__all__


def _imports(file: Path) -> tuple[Import, ...]:
    return _contents(file.read_text(encoding="utf-8"))[0]


def _has_hook(file: Path) -> bool:
    return _contents(file.read_text(encoding="utf-8"))[1]


@cache  # most files of a copy are those of another
def _contents(text: str) -> tuple[tuple[Import, ...], bool]:
    """Return what a source imports, wherever in it, by `import_module` too; and whether it registers anything."""
    imports, hooks = list[Import](), False
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            imports += [Import(alias.name) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            if node.level:
                raise ValueError(f"Expected absolute imports, got: {ast.unparse(node)}")
            imports += [Import(str(node.module), alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            named = (argument.value for argument in node.args if isinstance(argument, ast.Constant))
            imports += [Import(name) for name in named if isinstance(name, str)]
        elif isinstance(node, ast.FunctionDef):
            hooks = hooks or any(HOOK in ast.unparse(decorator) for decorator in node.decorator_list)
    return tuple(imports), hooks
