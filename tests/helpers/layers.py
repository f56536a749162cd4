"""Which rooms of a source tree import which, read from the source: imports in functions and for types count too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = "dpbench"
RINGS = "privacy"  # each of its packages is a room of its own

# Each room may import those of the lines above, and itself.
LAYERS = (
    ("errors",),
    ("splits", "support", "privacy"),
    ("privacy.core",),
    ("privacy.purity",),
    ("privacy.binding",),
    ("privacy.mechanisms",),
    ("privacy.curator",),
    ("api",),
    ("hooks", "learning", "records"),
    ("data",),
    ("contract", "registry"),
    ("harness",),
    ("analysis",),
    ("audit", "models", "scaffold"),
    ("board", "receipts", "sweep", "testing"),
    ("notebook", "site", "verification"),
    ("docs",),
    ("cli",),
    ("main",),
    (ROOT,),
)
DOORS = {("dpbench.cli", "dpbench.main")}
"""Imports that may point up: the entry point of environments from before version 0.3 is `dpbench.cli:main`."""
LAB = "dpbench_lab"
LAB_DOORS = {"dpbench.main", "dpbench.notebook.launch"}
"""What may import the lab: the program, which adds its commands and pages, and `dpbench.figure`, a public name."""
RANK: Mapping[str, int] = {room: rank for rank, layer in enumerate(LAYERS) for room in layer}


def room(module: str) -> str:
    """Return the room that a module belongs to: the first part of its name below `dpbench`, or the ring.

    `python -m dpbench` is the program by another door.

    >>> room("dpbench.privacy.core.plan"), room("dpbench.board.verify.checks"), room("dpbench")
    ('privacy.core', 'board', 'dpbench')
    """
    _, *parts = module.split(".")
    if parts[:1] == [RINGS] and len(parts) > 1:
        return f"{RINGS}.{parts[1]}"
    return "main" if parts == ["__main__"] else parts[0] if parts else ROOT


@dataclass(frozen=True)
class House:
    """The package `dpbench` in a folder."""

    folder: Path

    @cached_property
    def files(self) -> dict[str, Path]:
        """The file of each module, by name."""
        found = {}
        for file in sorted((self.folder / ROOT).rglob("*.py")):
            name = ".".join(file.relative_to(self.folder).with_suffix("").parts).removesuffix(".__init__")
            found[name] = file
        return found

    @cached_property
    def imports(self) -> dict[str, set[str]]:
        """The modules of dpbench that each module imports, wherever in the file."""
        return {
            name: {module for module in self._imported(file) if (name, module) not in DOORS}
            for name, file in self.files.items()
        }

    @cached_property
    def rooms(self) -> dict[str, set[str]]:
        """The rooms that each room imports."""
        found: dict[str, set[str]] = {room(name): set() for name in self.files}
        for name, imported in self.imports.items():
            found[room(name)] |= {*map(room, imported)} - {room(name)}
        return found

    def _imported(self, file: Path) -> Iterator[str]:
        for node in _imports(file.read_text(encoding="utf-8")):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if _own(alias.name))
            elif isinstance(node, ast.ImportFrom):
                if node.level:
                    raise ValueError(f"{file}:{node.lineno}: expected an absolute import, got a relative one")
                if node.module and _own(node.module):
                    yield from (self._module(node.module, alias.name) for alias in node.names)
            else:
                named = (ast.literal_eval(argument) for argument in node.args if isinstance(argument, ast.Constant))
                yield from (name for name in named if isinstance(name, str) and _own(name))

    def _module(self, package: str, name: str) -> str:
        """Return what `from package import name` imports: a module of that name, or the package that has the name."""
        inner = self.folder.joinpath(*package.split("."), name)
        return f"{package}.{name}" if inner.with_suffix(".py").is_file() or inner.is_dir() else package

    def complaints(self) -> Iterator[str]:
        """Yield every room without a place, every import that points up or to the lab, and every circle."""
        for unknown in sorted(self.rooms.keys() - RANK.keys()):
            yield f"{unknown} has no place in LAYERS"
        for name, imported in self.imports.items():
            mine = RANK.get(room(name), len(LAYERS))
            for module in sorted(imported):
                if room(module) != room(name) and RANK.get(room(module), len(LAYERS)) >= mine:
                    yield f"{name} imports {module}, which does not lie below it"
        for name, file in self.files.items():
            if name not in LAB_DOORS:
                imported_here = _imported_names(file.read_text(encoding="utf-8"))
                yield from (
                    f"{name} imports {module}, of the lab" for module in sorted(imported_here) if _within(module, LAB)
                )
        for graph in (self.imports, self.rooms):
            try:
                tuple(TopologicalSorter(graph).static_order())
            except CycleError as error:
                yield f"circle: {' -> '.join(error.args[1])}"

    def floors(self) -> dict[str, int]:
        """Return the floor of each room, 1 for those that import none. There must be no circle.

        The rings of privacy and `api`, the words that they are called by, count as one room.
        """
        together = {room: RINGS if room == "api" or room.startswith(RINGS) else room for room in self.rooms}
        below: dict[str, set[str]] = {group: set() for group in together.values()}
        for key, imported in self.rooms.items():
            below[together[key]] |= {together[other] for other in imported} - {together[key]}
        found: dict[str, int] = {}
        for group in TopologicalSorter(below).static_order():
            found[group] = 1 + max((found[other] for other in below[group]), default=0)
        return found

    def reached(self, *names: str) -> set[str]:
        """Return every module that importing these, and calling whatever is in them, may import."""
        found, left = set[str](), [*names]
        while left:
            name = left.pop()
            if name not in found:
                found.add(name)
                left += self.imports.get(name, ())
        return found


@cache  # most files of a copy are those of another
def _imports(text: str) -> tuple[ast.Import | ast.ImportFrom | ast.Call, ...]:
    """Return the imports of a source, wherever in it, those by `import_module` too."""
    return tuple(
        node
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        or (isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"))
    )


def _imported_names(text: str) -> set[str]:
    """Return the modules that a source imports, as it writes them."""
    found: set[str] = set()
    for node in _imports(text):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(str(node.module))
        else:
            found |= {str(argument.value) for argument in node.args if isinstance(argument, ast.Constant)}
    return found


def _own(name: str) -> bool:
    return _within(name, ROOT)


def _within(name: str, package: str) -> bool:
    return name.partition(".")[0] == package
